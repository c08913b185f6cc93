"""Tables as sources and sinks of programs, in the minicluster: files, generated rows, SQLite, and the screen."""

from __future__ import annotations

import datetime
import re
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration, Row, RowKind, Types, no_effect
from flinkish.common.time import Instant
from flinkish.common.typeinfo import TypeInformation
from flinkish.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment
from flinkish.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    MalformedRecordError,
    ProgramError,
    TypeMismatchError,
)
from flinkish.table import EnvironmentSettings, Schema, StreamTableEnvironment
from flinkish.table import Row as OfTables
from flinkish.table.types import Row as OfTypes
from tests.support.programs import new_environment
from tests.support.rows import hold, refuses

COLUMNS = "word STRING, n BIGINT"
PAIR = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
WORDS = Schema.new_builder().column("word", "STRING").column("n", "BIGINT").build()
NOON = datetime.datetime(2026, 1, 31, 12)
NOON_MS = 1_769_860_800_000


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return new_environment()


@pytest.fixture
def t_env(env: StreamExecutionEnvironment) -> StreamTableEnvironment:
    return StreamTableEnvironment.create(env, EnvironmentSettings.new_instance().in_streaming_mode().build())


def pairs(env: StreamExecutionEnvironment, *rows: Row, type_info: TypeInformation = PAIR) -> DataStream:
    return env.from_collection(list(rows), type_info)


def rows_of(t_env: StreamTableEnvironment, table: str) -> list[Row]:
    with t_env.to_data_stream(t_env.from_path(table)).execute_and_collect() as rows:
        return list(rows)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The rows that were printed, sorted."""
    return sorted(line for line in capsys.readouterr().out.splitlines() if "+I" in line)


def declare(t_env: StreamTableEnvironment, name: str, columns: str, **options: str) -> None:
    given = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    listed = ", ".join(f"'{key}' = '{text}'" for key, text in given.items())
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({listed})")


def file_table(t_env: StreamTableEnvironment, folder: Path, columns: str, *lines: str, **options: str) -> None:
    """Declares the table 't' of a folder, with a file of these lines."""
    folder.mkdir(exist_ok=True)
    if lines:
        (folder / "lines").write_text("".join(line + "\n" for line in lines))
    declare(t_env, "t", columns, connector="filesystem", path=str(folder), **options)


def written(folder: Path) -> list[str]:
    return sorted(line for file in folder.glob("part-*") for line in file.read_text().splitlines())


TIMES = "id INT, at TIMESTAMP(3), moment TIMESTAMP_LTZ(3)"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"format": "json"}, '{"id":1,"at":"2026-01-31 12:00:00","moment":"2026-01-31 12:00:00.5Z"}'),
        (
            {"format": "json", "json__timestamp_format__standard": "ISO-8601"},
            '{"id":1,"at":"2026-01-31T12:00:00","moment":"2026-01-31T12:00:00.5Z"}',
        ),
        ({"format": "csv"}, '1,"2026-01-31 12:00:00","2026-01-31 12:00:00.5Z"'),
        ({"format": "csv", "csv__field_delimiter": "\\t"}, "1\t2026-01-31 12:00:00\t2026-01-31 12:00:00.5Z"),
    ],
)
def test_times_are_read_and_written_as_flinks_formats_of_tables_do(
    t_env: StreamTableEnvironment, tmp_path: Path, options: dict[str, str], line: str
) -> None:
    file_table(t_env, tmp_path / "in", TIMES, line, **options)
    moment = Instant(NOON_MS // 1_000, 500_000_000)
    assert rows_of(t_env, "t") == [Row(id=1, at=NOON, moment=moment)]
    declare(t_env, "copy", TIMES, connector="filesystem", path=str(tmp_path / "out"), **options)
    t_env.execute_sql("INSERT INTO copy SELECT * FROM t").wait()
    assert [text.replace('"', "") for text in written(tmp_path / "out")] == [line.replace('"', "")]


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "noon"])
def test_a_time_that_cannot_be_read_fails_the_job_or_is_none(
    t_env: StreamTableEnvironment, tmp_path: Path, text: str
) -> None:
    line = f'{{"id": 1, "at": "{text}"}}'
    file_table(t_env, tmp_path / "in", TIMES, line, format="json")
    with pytest.raises(MalformedRecordError, match="field 'at'"):
        rows_of(t_env, "t")
    t_env.execute_sql("DROP TABLE t")
    file_table(t_env, tmp_path / "in", TIMES, format="json", json__ignore_parse_errors="true")
    assert rows_of(t_env, "t") == [Row(id=1, at=None, moment=None)]


class Clock(ProcessFunction):
    """The id of each record, its timestamp, and the watermark that it sees."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value.id, ctx.timestamp(), ctx.timer_service().current_watermark()


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("id INT, at TIMESTAMP(3)", '{"id": %d, "at": "2026-01-31 12:00:0%d"}'),
        ("id INT, at TIMESTAMP_LTZ(3)", '{"id": %d, "at": "2026-01-31 12:00:0%dZ"}'),
        ("id INT, s STRING, at AS TO_TIMESTAMP(s)", '{"id": %d, "s": "2026-01-31 12:00:0%d"}'),
        ("id INT, s BIGINT, at AS TO_TIMESTAMP_LTZ(s, 3)", f'{{"id": %d, "s": {NOON_MS // 10_000}%d000}}'),
        ("id INT, s BIGINT, at AS TO_TIMESTAMP_LTZ(s, 0)", f'{{"id": %d, "s": {NOON_MS // 10_000}%d}}'),
    ],
)
def test_the_column_of_the_watermark_is_the_event_time(
    t_env: StreamTableEnvironment, tmp_path: Path, columns: str, line: str
) -> None:
    columns += ", WATERMARK FOR at AS at - INTERVAL '2' SECOND"
    lines = [line % (second, second) for second in (1, 3, 5, 0)]
    file_table(t_env, tmp_path / "in", columns, *lines, format="json")
    stream = t_env.to_data_stream(t_env.from_path("t")).process(Clock())
    with stream.execute_and_collect() as found:
        times = {id: (time_ms, watermark_ms) for id, time_ms, watermark_ms in found}
    assert {id: time_ms for id, (time_ms, _) in times.items()} == {id: NOON_MS + id * 1_000 for id in (1, 3, 5, 0)}
    # the last record is late: the watermark is the greatest event time less two seconds, to the millisecond, as in SQL
    assert times[0][1] == NOON_MS + 3_000


def test_a_row_without_event_time_fails_the_job(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    file_table(t_env, tmp_path / "in", "id INT, at TIMESTAMP(3), WATERMARK FOR at AS at", '{"id": 1}', format="json")
    with pytest.raises(TypeMismatchError, match="event time of .* is None.*column 'at'"):
        rows_of(t_env, "t")


def test_computed_columns_stand_where_they_are_declared(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    columns = "p AS PROCTIME(), at AS TO_TIMESTAMP(s), s STRING"
    file_table(t_env, tmp_path / "in", columns, '{"s": "2026-01-31 12:00:00"}', '{"s": "noon"}', format="json")
    before = Instant.of_epoch_milli(int(datetime.datetime.now(datetime.timezone.utc).timestamp() * 1_000))
    rows = rows_of(t_env, "t")
    assert [row._fields for row in rows] == [["p", "at", "s"]] * 2
    assert [(row.at, row.s) for row in rows] == [(NOON, "2026-01-31 12:00:00"), (None, "noon")]
    assert all(row.p >= before for row in rows)


@pytest.mark.parametrize(
    ("options", "lines", "rows"),
    [
        ({"csv__null_literal": "-"}, ["a,1", "-,2"], [("a", 1), (None, 2)]),
        ({"csv__quote_character": "|"}, ["|a,b|,1"], [("a,b", 1)]),
        ({"csv__disable_quote_character": "true"}, ['"a",1'], [('"a"', 1)]),
        ({"csv__escape_character": "\\\\"}, ["a\\,b,1"], [("a,b", 1)]),
        ({"csv__allow_comments": "true"}, ["# word,n", "a,1"], [("a", 1)]),
    ],
)
def test_options_of_csv_are_those_of_its_format(
    t_env: StreamTableEnvironment,
    tmp_path: Path,
    options: dict[str, str],
    lines: list[str],
    rows: list[tuple[Any, ...]],
) -> None:
    file_table(t_env, tmp_path / "in", COLUMNS, *lines, format="csv", **options)
    assert [tuple(row) for row in rows_of(t_env, "t")] == rows


def test_missing_fields_of_json_are_none_unless_told_otherwise(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    file_table(t_env, tmp_path / "in", COLUMNS, '{"word": "a"}', format="json")
    assert rows_of(t_env, "t") == [Row(word="a", n=None)]
    t_env.execute_sql("DROP TABLE t")
    strict = {"json__fail_on_missing_field": "true"}
    file_table(t_env, tmp_path / "in", COLUMNS, format="json", **strict)
    with pytest.raises(MalformedRecordError):
        rows_of(t_env, "t")


def test_generated_rows_are_random_within_their_bounds_and_the_same_again(t_env: StreamTableEnvironment) -> None:
    columns = "i INT, l BIGINT, f DOUBLE, d DECIMAL(5, 2), s VARCHAR(7), w STRING, b BOOLEAN, at TIMESTAMP(3)"
    bounds = {"fields__i__min": "3", "fields__i__max": "5", "fields__f__min": "-1", "fields__f__max": "1"}
    declare(t_env, "g", columns, connector="datagen", number_of_rows="200", rows_per_second="1000000", **bounds)
    rows = rows_of(t_env, "g")
    assert len(rows) == 200 and {row.i for row in rows} == {3, 4, 5} and {row.b for row in rows} == {True, False}
    assert all(-1 <= row.f <= 1 and len(row.s) == 7 and len(row.w) == 100 for row in rows)
    assert all(isinstance(row.d, Decimal) and abs(row.d) <= 1_000 and row.d.as_tuple().exponent == -2 for row in rows)
    assert all(
        abs(row["at"] - datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)).days == 0 for row in rows
    )
    assert len({row.l for row in rows}) == 200
    again = rows_of(t_env, "g")
    assert [[*row][:-1] for row in rows] == [[*row][:-1] for row in again]


def test_generated_values_have_parts(t_env: StreamTableEnvironment) -> None:
    columns = "r ROW<a STRING, n ROW<b INT>>, l ARRAY<BIGINT>, m MAP<INT, BOOLEAN>, b BYTES"
    options = {"fields__r__a__length": "4", "fields__r__n__b__min": "7", "fields__r__n__b__max": "8"}
    options |= {"fields__l__length": "2", "fields__l__element__max": "-1", "fields__m__key__min": "0"}
    declare(t_env, "g", columns, connector="datagen", number_of_rows="40", **options)
    rows = rows_of(t_env, "g")
    assert {len(row.r.a) for row in rows} == {4} and {row.r.n.b for row in rows} == {7, 8}
    assert {len(row.l) for row in rows} == {2} and max(max(row.l) for row in rows) < 0
    assert all(len(row.m) == 3 and min(row.m) >= 0 and len(row.b) == 100 for row in rows)


@pytest.mark.parametrize("sql_type", ["DOUBLE", "FLOAT", "DECIMAL(5, 2)", "SMALLINT"])
def test_a_generated_sequence_has_the_type_of_its_column(t_env: StreamTableEnvironment, sql_type: str) -> None:
    sequence = {"fields__n__kind": "sequence", "fields__n__start": "5", "fields__n__end": "7"}
    declare(t_env, "g", f"n {sql_type}", connector="datagen", **sequence)
    stream = t_env.to_data_stream(t_env.from_path("g"))
    [kind] = stream.get_type().get_field_types()
    assert [repr(row.n) for row in rows_of(t_env, "g")] == [repr(kind.convert(n)) for n in (5, 6, 7)]


def test_a_generated_sequence_ends_the_table(t_env: StreamTableEnvironment) -> None:
    bounds = {"kind": "sequence", "start": "5", "end": "7"}
    fields = {f"fields__{name}__{key}": text for name in ("n", "s") for key, text in bounds.items()}
    declare(t_env, "g", "n BIGINT, s STRING", connector="datagen", number_of_rows="100", **fields)
    assert rows_of(t_env, "g") == [Row(n=5, s="5"), Row(n=6, s="6"), Row(n=7, s="7")]


def test_an_inserted_stream_is_printed_as_flink_prints_tables_and_not_by_a_blackhole(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(t_env, "p", "a STRING, b DOUBLE", connector="print", print_identifier="out")
    t_env.from_data_stream(pairs(env, Row("a", 1), Row(None, 2))).execute_insert("p").wait()
    assert shown(capsys) == ["out> +I[a, 1.0]", "out> +I[null, 2.0]"]
    # a number is written into a wider column, and a decimal into any other
    declare(t_env, "q", "a BIGINT, b DOUBLE, c DECIMAL(5, 2)", connector="print")
    types = Types.TUPLE([Types.BYTE(), Types.FLOAT(), Types.BIG_DEC()])
    t_env.from_data_stream(pairs(env, (1, 0.5, Decimal("1.25")), type_info=types)).execute_insert("q").wait()
    assert shown(capsys) == ["+I[1, 0.5, 1.25]"]
    declare(t_env, "b", "a STRING, b BIGINT", connector="blackhole")
    t_env.from_data_stream(pairs(env, Row("a", 1))).execute_insert("b").wait()
    assert shown(capsys) == []


@pytest.mark.parametrize(
    ("rows", "type_info", "schema"),
    [
        ([Row("a", 1)], PAIR, None),
        ([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]), None),
        ([Row(1, "a")], Types.ROW_NAMED(["n", "word"], [Types.INT(), Types.STRING()]),
         WORDS),
        ([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]),
         WORDS),
        ([Row(True, "a", 1)], Types.ROW_NAMED(["x", "word", "n"], [Types.BOOLEAN(), Types.STRING(), Types.LONG()]),
         WORDS),
    ],
)  # fmt: skip
def test_the_columns_of_a_stream_are_written_in_their_order(
    env: StreamExecutionEnvironment,
    t_env: StreamTableEnvironment,
    tmp_path: Path,
    rows: list[Any],
    type_info: TypeInformation,
    schema: Schema | None,
) -> None:
    declare(t_env, "s", "n STRING, other DOUBLE", connector="filesystem", path=str(tmp_path / "out"), format="json")
    t_env.create_temporary_view("v", pairs(env, *rows, type_info=type_info), schema)
    t_env.execute_sql("INSERT INTO s SELECT * FROM v").wait()
    assert written(tmp_path / "out") == ['{"n":"a","other":1.0}']


@pytest.mark.parametrize(
    ("type_info", "schema", "said"),
    [
        (Types.PICKLED_BYTE_ARRAY(), None, "no declared type"),
        (Types.ROW_NAMED(["a"], [Types.STRING()]), None, "Different number of columns.*word: STRING, n: BIGINT"),
        (Types.TUPLE([Types.STRING(), Types.STRING()]), None, "Incompatible types for sink column 'n'"),
        (Types.TUPLE([Types.STRING(), Types.DOUBLE()]), None, "Incompatible types for sink column 'n'"),
        (PAIR, Schema.new_builder().column("word", "STRING").column("x", "BIGINT").build(), "columns among"),
    ],
)
def test_a_stream_with_other_columns_is_refused_before_the_job_runs(
    env: StreamExecutionEnvironment,
    t_env: StreamTableEnvironment,
    type_info: TypeInformation,
    schema: Schema | None,
    said: str,
) -> None:
    declare(t_env, "s", COLUMNS, connector="print")
    stream = env.from_collection([], type_info)
    with pytest.raises(ProgramError, match=said):
        t_env.from_data_stream(stream, schema).execute_insert("s")


def test_a_database_table_with_a_primary_key_is_kept_up_to_date(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE counts (word TEXT PRIMARY KEY, n INTEGER)")
        database.execute("CREATE TABLE log (word TEXT, n INTEGER)")
    url = {"connector": "jdbc", "url": f"jdbc:sqlite:{tmp_path / 'shop.db'}", "username": "me", "password": "hush"}
    declare(t_env, "counts", f"{COLUMNS}, PRIMARY KEY (word) NOT ENFORCED", table_name="counts", **url)
    declare(t_env, "log", COLUMNS, table_name="log", sink__max_retries="1", **url)
    rows = [Row("a", 1), Row("b", 1), Row("a", 2)]
    changes = pairs(env, *rows, Row.of_kind(RowKind.DELETE, "b", 1))
    t_env.from_changelog_stream(changes).execute_insert("counts").wait()
    t_env.from_data_stream(pairs(env, *rows)).execute_insert("log").wait()
    with sqlite3.connect(tmp_path / "shop.db") as database:
        assert database.execute("SELECT * FROM counts").fetchall() == [("a", 2)]
        assert database.execute("SELECT * FROM log ORDER BY n, word").fetchall() == [("a", 1), ("b", 1), ("a", 2)]


def test_inserts_run_alone_and_the_rest_of_the_program_runs_with_execute(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(t_env, "p", COLUMNS, connector="print", print_identifier="table")
    stream = pairs(env, Row("a", 1)).map(lambda row: row, output_type=PAIR)
    stream.print("stream")
    t_env.from_data_stream(stream).execute_insert("p").wait()
    assert shown(capsys) == ["table> +I[a, 1]"]
    env.execute()
    assert shown(capsys) == ["stream> +I[a,1]"]


def test_execute_waits_for_the_inserts_where_nothing_else_is_left(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(t_env, "g", "n BIGINT", connector="datagen", number_of_rows="3", rows_per_second="10")
    declare(t_env, "p", "n BIGINT", connector="print")
    one = Types.ROW_NAMED(["n"], [Types.LONG()])
    stream = t_env.to_data_stream(t_env.from_path("g")).map(lambda row: Row(n=1), output_type=one)
    t_env.from_data_stream(stream).execute_insert("p")
    env.execute("the program")
    assert shown(capsys) == ["+I[1]"] * 3
    with pytest.raises(ProgramError, match="No operators"):
        env.execute()


def test_a_statement_set_is_one_job_or_a_part_of_the_program(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("p", "q"):
        declare(t_env, name, COLUMNS, connector="print", print_identifier=name)
    t_env.create_temporary_view("v", pairs(env, Row("a", 1)))
    both = t_env.create_statement_set().add_insert("p", t_env.from_path("v")).add_insert_sql("INSERT INTO q TABLE v")
    result = both.execute()
    result.wait(60_000)
    assert result.get_job_client() is not None
    assert shown(capsys) == ["p> +I[a, 1]", "q> +I[a, 1]"]
    t_env.create_statement_set().add_insert("p", t_env.sql_query("SELECT * FROM v")).attach_as_datastream()
    assert shown(capsys) == []
    env.execute()
    assert shown(capsys) == ["p> +I[a, 1]"]


def test_a_view_of_a_table_is_the_table(t_env: StreamTableEnvironment, tmp_path: Path) -> None:
    file_table(t_env, tmp_path / "in", COLUMNS, '{"word": "a", "n": 1}', format="json")
    t_env.execute_sql("CREATE TEMPORARY VIEW v AS SELECT * FROM t").print()
    assert rows_of(t_env, "default_catalog.default_database.v") == [Row(word="a", n=1)]
    as_tuples = t_env.to_append_stream(t_env.from_path("v"), Types.TUPLE([Types.STRING(), Types.LONG()]))
    with as_tuples.execute_and_collect() as rows:
        assert list(rows) == [("a", 1)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "it has no connector.*'kafka' or .*'print' or 'blackhole'"),
        ({"connector": "pulsar"}, "there is no connector 'pulsar'.*kafka, upsert-kafka, datagen"),
        ({"connector": "datagen", "number-of-row": "1"}, "unsupported options: number-of-row.*number-of-rows"),
        ({"connector": "datagen", "fields.c.min": "1"}, "unsupported options: fields.c.min.*fields.a.min"),
        ({"connector": "datagen", "fields.a.kind": "any"}, "'fields.a.kind' is none of .*random or sequence"),
        ({"connector": "datagen", "fields.a.kind": "sequence"}, "'fields.a.start' is missing"),
        ({"connector": "datagen", "number-of-rows": "many"}, "'number-of-rows' cannot be read.*expected a number"),
        ({"connector": "filesystem", "path": "/x"}, "the format is missing.*'format' = 'csv' or 'json' or 'parquet'"),
        ({"connector": "filesystem", "path": "/x", "format": "orc"}, "there is no format 'orc'"),
        ({"connector": "filesystem", "format": "json"}, "'path' is missing"),
        ({"connector": "filesystem", "format": "json", "csv.null-literal": "x"}, "unsupported options: csv"),
        ({"connector": "filesystem", "format": "json", "path": "/x", "json.timestamp-format.standard": "x"},
         "json.timestamp-format.standard' is none of its choices"),
        ({"connector": "kafka", "topic": "t", "format": "json"}, "'properties.bootstrap.servers' is missing"),
        ({"connector": "kafka", "topic": "t", "format": "json", "properties.bootstrap.servers": "localhost:1"},
         "'properties.group.id' is missing"),
        ({"connector": "kafka", "format": "json", "properties.bootstrap.servers": "localhost:1",
          "scan.startup.mode": "earliest-offset"}, "'topic' is missing"),
        ({"connector": "kafka", "format": "json", "properties.bootstrap.servers": "localhost:1", "topic": "t",
          "scan.startup.mode": "start"}, "'scan.startup.mode' is none of .*earliest-offset or latest-offset"),
        ({"connector": "kafka", "format": "json", "properties.bootstrap.servers": "localhost:1", "topic": "t",
          "properties.group.id": "g", "properties.auto.offset.reset": "first"}, "reset' is none .*or earliest or none"),
        ({"connector": "print"}, "the table is read.*kafka, upsert-kafka, filesystem"),
        ({"connector": "jdbc", "url": "sqlite:///x"}, "the table is read"),
    ],
)  # fmt: skip
def test_options_that_a_source_does_not_have_are_refused_with_those_that_it_has(
    t_env: StreamTableEnvironment, options: dict[str, str], said: str
) -> None:
    listed = ", ".join(f"'{key}' = '{text}'" for key, text in options.items())
    t_env.execute_sql(f"CREATE TABLE t (a INT, b STRING){f' WITH ({listed})' * bool(listed)}")
    with pytest.raises(ConfigurationError, match=said):
        t_env.to_data_stream(t_env.from_path("t"))


def test_an_option_without_effect_is_reported_once(
    t_env: StreamTableEnvironment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    no_effect.forget_reports()
    interval = {"sink__rolling_policy__rollover_interval": "1 min", "sink__rolling_policy__file_size": "1MB"}
    file_table(t_env, tmp_path / "in", COLUMNS, '{"word": "a"}', format="json", **interval)
    assert [rows_of(t_env, "t") for _ in range(2)] == [[Row(word="a", n=None)]] * 2
    assert [line for line in caplog.messages if "no effect" in line] == [
        "the option 'sink.rolling-policy.rollover-interval' of a table has no effect: files and rows appear with their "
        "epoch"
    ]


def test_names_of_tables_are_taken_once_and_looked_up(t_env: StreamTableEnvironment) -> None:
    declare(t_env, "t", "a INT", connector="datagen")
    t_env.execute_sql("CREATE TABLE IF NOT EXISTS t (b INT) WITH ('connector' = 'print')")
    assert t_env.to_data_stream(t_env.from_path("t")).get_type() == Types.ROW_NAMED(["a"], [Types.INT()])
    t_env.create_temporary_view("v", t_env.from_path("t"))
    sinks = "the table is written.*kafka, .*filesystem, jdbc, delta, print, blackhole"
    rows = [
        (lambda: declare(t_env, "t", "a INT", connector="datagen"), ProgramError, "the table 't' exists"),
        (lambda: t_env.from_path("x"), ProgramError, "no table 'x'.*expected a table: t"),
        (lambda: t_env.execute_sql("INSERT INTO x SELECT * FROM t"), ProgramError, "no table 'x'"),
        (lambda: t_env.execute_sql("INSERT INTO t SELECT * FROM t"), ConfigurationError, sinks),
        (lambda: t_env.execute_sql("INSERT INTO v SELECT * FROM t"), ProgramError, "'v' is a view"),
    ]
    hold(refuses, rows)
    t_env.execute_sql("DROP TABLE t")
    t_env.execute_sql("DROP TABLE IF EXISTS t")
    with pytest.raises(ProgramError, match="no table 't'"):
        t_env.execute_sql("DROP TABLE t")


def test_the_settings_of_a_table_environment_are_those_of_a_configuration_too() -> None:
    given = Configuration.from_dict({"parallelism.default": "3", "execution.runtime-mode": "BATCH"})
    settings = EnvironmentSettings.new_instance().with_configuration(given).build()
    assert not settings.is_streaming_mode() and EnvironmentSettings.in_streaming_mode().is_streaming_mode()
    assert settings.get_configuration().get_string("parallelism.default", "") == "3"
    later = EnvironmentSettings.Builder().with_configuration(given).in_streaming_mode().build()
    assert later.is_streaming_mode() and later.get_configuration().get_string("parallelism.default", "") == "3"
    env = new_environment()
    t_env = StreamTableEnvironment.create(env, settings)
    assert env.get_parallelism() == 3
    assert t_env.get_config().get("execution.runtime-mode", "") == "BATCH"
    t_env.get_config().add_configuration(Configuration().set_integer("parallelism.default", 4))
    assert env.get_parallelism() == 4
    with pytest.raises(ArgumentTypeError, match=r"the configuration is .*from_dict"):
        EnvironmentSettings.new_instance().with_configuration({"parallelism.default": "3"})  # type: ignore[arg-type]


def test_the_time_zone_of_a_table_environment_is_kept_if_there_is_such_a_one(t_env: StreamTableEnvironment) -> None:
    config = t_env.get_config()
    assert config.get_local_timezone() == "default"
    for zone in ("UTC", "Europe/Berlin", "GMT-08:00", "UTC+1", "+05:30", "Z"):
        config.set_local_timezone(zone)
        assert config.get_local_timezone() == zone
    for bad in ("Europe/Berlni", "GMT+99:00", "", "../etc/passwd", 1):
        with pytest.raises(ArgumentValueError, match=f"{re.escape(repr(bad))} is no time zone.*'Europe/Berlin'"):
            config.set_local_timezone(bad)  # type: ignore[arg-type]


def test_the_configuration_of_a_table_environment_is_that_of_the_program(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    t_env.get_config().set("parallelism.default", "3").set("table.exec.mini-batch.enabled", "true")
    assert env.get_parallelism() == 3
    assert t_env.get_config().get_configuration().get_string("parallelism.default", "") == "3"
    with pytest.raises(ConfigurationError, match="unknown configuration key"):
        t_env.get_config().set("parallelism.defualt", "3")
    batch = StreamTableEnvironment.create(environment_settings=EnvironmentSettings.in_batch_mode())
    assert batch.get_config().get_configuration().get_string("execution.runtime-mode", "") == "BATCH"
    assert OfTypes is OfTables is Row, "so is the class of rows"
