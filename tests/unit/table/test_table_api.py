"""The Table API in the minicluster: names of columns, results as Flink prints them, functions, streams."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from flinkish.table.window import Session, Slide, Tumble

from flinkish.common import Configuration, Row, RowKind, Types, no_effect
from flinkish.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigurationError,
    ProgramError,
    TypeMismatchError,
    UnsupportedOperationError,
    UserCodeError,
)
from flinkish.table import (
    ChangelogMode,
    DataTypes,
    EnvironmentSettings,
    ResultKind,
    ScalarFunction,
    Schema,
    StreamTableEnvironment,
    Table,
    TableDescriptor,
    TableEnvironment,
)
from flinkish.table.expressions import (
    and_,
    call,
    call_sql,
    col,
    if_then_else,
    lit,
    row,
    row_interval,
)
from flinkish.table.udf import FunctionContext, udaf, udf, udtf
from tests.support.programs import chains_of, new_environment
from tests.support.rows import hold, refuses

INT, STRING, DOUBLE = DataTypes.INT(), DataTypes.STRING(), DataTypes.DOUBLE()


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return new_environment()


@pytest.fixture
def t_env(env: StreamExecutionEnvironment) -> StreamTableEnvironment:
    return StreamTableEnvironment.create(env)


def batch_environment() -> TableEnvironment:
    target = Configuration().set_string("execution.target", "minicluster").set_string("parallelism.default", "1")
    return TableEnvironment.create(EnvironmentSettings.in_batch_mode().with_configuration(target))


def row_type(**columns: Any) -> Any:
    return DataTypes.ROW([DataTypes.FIELD(name, kind) for name, kind in columns.items()])


def people(t_env: TableEnvironment) -> Table:
    rows = [(1, "a", 1.5, True), (22222, "日本 long text that is longer than thirty", -0.1, False), (None,) * 4]
    return t_env.from_elements(rows, row_type(id=INT, name=STRING, x=DOUBLE, ok=DataTypes.BOOLEAN()))


def orders(t_env: TableEnvironment) -> Table:
    t_env.execute_sql(
        "CREATE TABLE IF NOT EXISTS orders (a INT, b BIGINT, s STRING, ts TIMESTAMP(3), r ROW<x INT, y STRING>, "
        "l ARRAY<INT>, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'datagen')"
    )
    return t_env.from_path("orders")


def collected(table: Table) -> list[Row]:
    with table.execute().collect() as rows:
        return list(rows)


def schema_of(table: Table) -> str:
    """The columns and their types, in one line."""
    return " ".join(str(table.get_resolved_schema()).replace("`", "").split()).removeprefix("( ").removesuffix(" )")


WINDOW = Tumble.over(lit(10).minutes).on(col("ts")).alias("w")


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (lambda t: t.select(t.a + 1, t.a, t.b.cast(INT), t.s.upper_case), "_c0 INT, a INT, b-INT INT, _c3 STRING"),
        (lambda t: t.select(t.r.get("x"), t.r.get(1), t.l.at(1)), "r$x INT, r$_1 STRING, _c2 INT"),
        (lambda t: t.select(t.b.sum, t.b.count.distinct), "EXPR$0 BIGINT, EXPR$1 BIGINT"),
        (lambda t: t.group_by(t.a).select(t.a, t.b.sum, t.b.sum + 1, t.s.count.alias("n")),
         "a INT, EXPR$0 BIGINT, _c2 BIGINT, n BIGINT"),
        (lambda t: t.group_by((t.a + 1).alias("k")).select(col("k"), t.b.max), "k INT, EXPR$0 BIGINT"),
        (lambda t: t.window(WINDOW).group_by(col("w"), t.a).select(t.a, col("w").start, col("w").rowtime, t.b.sum),
         "a INT, EXPR$0 TIMESTAMP(3), EXPR$1 TIMESTAMP(3) *ROWTIME*, EXPR$2 BIGINT"),
        (lambda t: t.window(Slide.over(lit(1).hours).every(lit(9).minutes).on(t.ts).alias("w")).group_by(col("w"))
         .select(col("w").end.alias("e"), t.b.sum.alias("n")), "e TIMESTAMP(3), n BIGINT"),
        (lambda t: t.window(Session.with_gap(lit(5).seconds).on(t.ts).alias("w")).group_by(col("w"), t.s)
         .select(t.s, t.b.count.alias("n")), "s STRING, n BIGINT"),
        (lambda t: t.select(t.a, t.b).alias("x"), "x INT, b BIGINT"),
        (lambda t: t.select(t.a, t.b).add_columns(t.a + t.b, lit("y").alias("d")),
         "a INT, b BIGINT, _c2 BIGINT, d CHAR(1)"),
        (lambda t: t.select(t.a, t.b).add_or_replace_columns(lit(2.5).alias("a"), lit(2).alias("c")),
         "a DOUBLE, b BIGINT, c INT"),
        (lambda t: t.select(t.a, t.b).rename_columns(col("a").alias("z")), "z INT, b BIGINT"),
        (lambda t: t.drop_columns(t.l, t.r, t.ts, t.s), "a INT, b BIGINT"),
        (lambda t: t.select(t.a).union_all(t.select(t.b)), "a BIGINT"),
        (lambda t: t.select(t.a).distinct(), "a INT"),
        (lambda t: t.where(and_(t.a > 1, t.b < 2, t.s.like("x%"))).select(t.s.char_length.alias("n")), "n INT"),
    ],
)  # fmt: skip
def test_columns_have_the_names_and_types_that_flink_gives_them(
    t_env: StreamTableEnvironment, select: Any, expected: str
) -> None:
    assert schema_of(select(orders(t_env))) == expected


def test_calls_that_cannot_be_carried_out_are_refused_with_what_there_is(t_env: StreamTableEnvironment) -> None:
    t = orders(t_env)
    some = t.select(t.a, t.b)
    rows: list[tuple[Any, type[Exception], str]] = [
        (lambda: t.select("a"), ArgumentTypeError, r"an instance of str.*col\('a'\)"),
        (lambda: t.select(col("zz")), ProgramError, "no column 'zz'.*a, b, s"),
        (lambda: t.zz, AttributeError, r"no column named 'zz', available columns: \[a, b, s"),
        (lambda: t.where(t.a), ProgramError, "type INT.*BOOLEAN"),
        (lambda: t.select(t.a + t.s), ProgramError, "INT.*STRING"),
        (lambda: t.select(t.a, t.a), ProgramError, "Ambiguous column name: a"),
        (lambda: some.alias("x", "y", "z"), ProgramError, "3 names for 2 columns"),
        (lambda: some.drop_columns(col("q")), ProgramError, "no column 'q'.*a, b"),
        (lambda: some.add_columns(lit(1).alias("a")), ProgramError, "Ambiguous column name: a"),
        (lambda: t.group_by(t.a).select(t.b), ProgramError, "'b' is not being grouped"),
        (lambda: t.window(WINDOW).group_by(t.a), ProgramError, "exactly one window alias"),
        (lambda: t.window(Tumble.over(lit(1).hours).on(t.ts)), ProgramError, "not complete.*alias"),
        (lambda: t.window(Tumble.over(lit(1).hours).on(t.s).alias("w")).group_by(col("w")).select(t.a.sum),
         ProgramError, "time attribute.*WATERMARK"),
        (lambda: Tumble.over(row_interval(2)), UnsupportedOperationError, r"windows of rows.*count_window"),
        (lambda: Tumble.over(lit(3)), ProgramError, r"lit\(10\).minutes"),
        (lambda: t.limit(3), ProgramError, "LIMIT of an unbounded table"),
        (lambda: t.order_by(t.a), UnsupportedOperationError, "ORDER BY.*sort what the sink has stored"),
        (lambda: t.join(t, t.a == t.b), UnsupportedOperationError, "joins are not supported.*key_by"),
        (lambda: t.minus(t), UnsupportedOperationError, "UNION ALL.*union_all"),
        (lambda: t.over_window(), UnsupportedOperationError, "OVER aggregates.*Tumble"),
        (lambda: t.group_by(t.a).aggregate(None), UnsupportedOperationError, "aggregate functions in Python"),
        (lambda: t.union_all(people(StreamTableEnvironment.create(new_environment()))), ProgramError, "two table env"),
        (lambda: bool(t.a == 1), ProgramError, "no truth value.*& for AND"),
        (lambda: t.a.soundex, UnsupportedOperationError, r"no function soundex.*@udf\(result_type"),
        (lambda: t.select(call("soundex", t.s)), ProgramError, r"no function SOUNDEX.*@udf"),
        (lambda: t.a.round(), ArgumentTypeError, r"round\(\) with 0 arguments"),
        (lambda: lit(object()), ArgumentTypeError, "no literal"),
        (lambda: udf(lambda x: x), ArgumentTypeError, "no result type.*result_type=DataTypes"),
        (lambda: udf(lambda x: x, result_type=INT, func_type="x"), ArgumentValueError, "'general' or 'pandas'"),
        (lambda: udf(ScalarFunction, result_type=INT), ArgumentTypeError, "the class ScalarFunction"),
        (lambda: t.select(udf(lambda x: x, result_type=INT, name="f")(t.a, t.b)), ProgramError,
         r"f cannot be applied to f\(INT, BIGINT\).*number of arguments"),
        (lambda: EnvironmentSettings().with_built_in_catalog_name("c"), UnsupportedOperationError, "catalogs are not"),
        (lambda: udaf(lambda x: x), UnsupportedOperationError, "udaf.*COUNT, SUM"),
        (lambda: udtf(lambda x: x), UnsupportedOperationError, "udtf.*flat_map"),
        (lambda: t_env.create_catalog("c", None), UnsupportedOperationError, "catalogs are not supported"),
        (lambda: t_env.use_catalog("c"), UnsupportedOperationError, "catalogs.*default_catalog"),
        (lambda: t_env.load_module("m", None), UnsupportedOperationError, "modules"),
        (lambda: t_env.create_temporary_function("f", len), ArgumentTypeError, "what udf"),
        (lambda: t_env.create_statement_set().execute(), ProgramError, "empty"),
        (lambda: t_env.create_statement_set().add_insert_sql("SELECT 1"), ProgramError, "no INSERT"),
        (lambda: t_env.explain_sql("DROP TABLE orders"), ProgramError, "no plan"),
        (lambda: t_env.from_elements([1, 2]), ArgumentTypeError, "a tuple or a Row"),
        (lambda: t_env.from_elements([(1,), ("a",)]), ArgumentTypeError, "'_1' cannot be told: int and str"),
        (lambda: t_env.from_elements([(1, 2)], row_type(a=INT)), ArgumentValueError, "2 values"),
    ]  # fmt: skip
    hold(refuses, rows)


def test_the_text_of_sql_and_the_calls_of_the_table_api_make_the_same_plan(t_env: StreamTableEnvironment) -> None:
    t = orders(t_env)
    calls = t.where((t.a > 1) & t.s.is_not_null).select(t.a, (t.b * 2).alias("n"), t.s.upper_case.alias("u"))
    text = "SELECT a, b * 2 AS n, UPPER(s) AS u FROM orders WHERE a > 1 AND s IS NOT NULL"
    assert calls.explain() == t_env.sql_query(text).explain() == t_env.explain_sql(text)
    grouped = t.group_by(t.s).select(t.s, t.b.sum.alias("n"), t.a.count.distinct.alias("c"))
    text = "SELECT s, SUM(b) AS n, COUNT(DISTINCT a) AS c FROM orders GROUP BY s"
    assert grouped.explain() == t_env.sql_query(text).explain()


PRINTED = """\
+----+-------------+--------------------------------+--------------------------------+--------+
| op |          id |                           name |                              x |     ok |
+----+-------------+--------------------------------+--------------------------------+--------+
| +I |           1 |                              a |                            1.5 |   TRUE |
| +I |       22222 | 日本 long text that is long... |                           -0.1 |  FALSE |
| +I |      <NULL> |                         <NULL> |                         <NULL> | <NULL> |
+----+-------------+--------------------------------+--------------------------------+--------+
3 rows in set
"""


def printed(result: Any, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    result.print()
    return capsys.readouterr().out


def test_the_rows_of_a_query_are_printed_as_flink_prints_them(
    t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    table = people(t_env)
    assert printed(table.execute(), capsys) == PRINTED
    assert printed(table.where(table.id > 10**6).execute(), capsys) == "Empty set\n"
    text = "SELECT CAST(1.10 AS DECIMAL(5,2)), TIMESTAMP '2020-01-01 00:00:00.123', ARRAY[1,2], MAP['k',1], ROW(1,'x')"
    line = printed(t_env.execute_sql(text), capsys).splitlines()[3]
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    assert cells == ["1.10", "2020-01-01 00:00:00.123", "[1, 2]", "{k=1}", "(1, x)"]
    assert printed(people(batch_environment()).select(col("id")).limit(1).execute(), capsys) == (
        "+-------------+\n|          id |\n+-------------+\n|           1 |\n+-------------+\n1 row in set\n"
    )


def test_results_of_statements_are_those_of_flink(
    t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    made = t_env.execute_sql("CREATE TABLE s (a INT COMMENT 'the a', b BIGINT, c AS a + 1, PRIMARY KEY (a) NOT ENFORCED"
                             ") COMMENT 'tc' WITH ('connector' = 'blackhole', 'x.password' = 'hush')")  # fmt: skip
    assert printed(made, capsys) == "OK\n" and made.get_result_kind() == ResultKind.SUCCESS
    assert list(made.collect()) == [Row("OK")] and made.get_job_client() is None
    t_env.execute_sql("CREATE TEMPORARY VIEW v AS SELECT a FROM s")
    shown = t_env.execute_sql("SHOW TABLES")
    assert shown.get_result_kind() == ResultKind.SUCCESS_WITH_CONTENT
    assert printed(shown, capsys) == (
        "+------------+\n| table name |\n+------------+\n|          s |\n|          v |\n+------------+\n"
        "2 rows in set\n"
    )
    described = printed(t_env.execute_sql("DESCRIBE s"), capsys)
    assert described.splitlines()[1] == "| name |   type |  null |    key |   extras | watermark | comment |"
    assert described.splitlines()[3:6] == [
        "|    a |    INT | FALSE | PRI(a) |          |           |   the a |",
        "|    b | BIGINT |  TRUE |        |          |           |         |",
        "|    c |    INT |  TRUE |        | AS a + 1 |           |         |",
    ]
    assert printed(t_env.execute_sql("SHOW USER FUNCTIONS"), capsys) == "Empty set\n"
    assert (t_env.list_tables(), t_env.list_views(), t_env.list_temporary_views()) == (["s", "v"], ["v"], ["v"])
    assert t_env.drop_temporary_view("v") and not t_env.drop_temporary_view("v") and t_env.drop_table("s")
    t_env.execute_sql("SET 'parallelism.default' = '3'")
    assert t_env.get_config().get("parallelism.default", "") == "3"
    assert Row("parallelism.default", "3") in list(t_env.execute_sql("SET").collect())


def test_an_insert_prints_and_gives_an_unknown_number_of_rows_when_it_has_ended(
    t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    t_env.execute_sql(
        f"CREATE TABLE s (a INT, name STRING) WITH ('connector'='filesystem','path'='{tmp_path}/o','format'='json')"
    )
    table = people(t_env).where(col("id") == 1).select(col("id"), col("name"))
    assert printed(table.execute_insert("s"), capsys) == "-1\n"
    result = t_env.execute_sql("INSERT INTO s (name) VALUES ('z')")
    assert list(result.collect()) == [Row(-1)]
    assert str(result.get_table_schema()) == "root\n |-- default_catalog.default_database.s: BIGINT\n"
    lines = sorted(line for file in (tmp_path / "o").glob("part-*") for line in file.read_text().splitlines())
    assert lines == ['{"a":1,"name":"a"}', '{"a":null,"name":"z"}']


def test_several_inserts_are_one_job_that_scans_a_shared_table_once(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text('{"a": 1}\n{"a": 2}\n')
    t_env.execute_sql(f"CREATE TABLE t (a INT) WITH ('connector'='filesystem','path'='{tmp_path}/in','format'='json')")
    for name in ("p", "q"):
        sink = TableDescriptor.for_connector("print").option("print-identifier", name)
        t_env.create_temporary_table(name, sink.schema(Schema.new_builder().column("a", "INT").build()).build())
    both = t_env.create_statement_set().add_insert_sql("INSERT INTO p SELECT a FROM t WHERE a > 1")
    both.add(t_env.from_path("t").select(col("a") * 10).insert_into("q"))
    assert both.explain().count("Sink(") == 2
    result = both.execute()
    result.wait()
    assert sorted(line for line in capsys.readouterr().out.splitlines() if "+I" in line) == [
        "p> +I[2]", "q> +I[10]", "q> +I[20]"
    ]  # fmt: skip
    text = "EXECUTE STATEMENT SET BEGIN INSERT INTO p SELECT a FROM t; INSERT INTO q SELECT a FROM t; END"
    t_env.execute_sql(text).wait()
    assert sum("+I" in line for line in capsys.readouterr().out.splitlines()) == 4
    later = t_env.create_statement_set().add_insert("p", t_env.from_path("t")).add_insert("q", t_env.from_path("t"))
    assert len(later.attach_as_datastream()) == 2
    chains = " -> ".join(chains_of(env))
    assert (chains.count("Source: t"), chains.count("Sink: ")) == (1, 2)
    env.execute()
    assert sum("+I" in line for line in capsys.readouterr().out.splitlines()) == 4


def test_changes_are_collected_with_their_kinds_and_a_batch_program_has_only_the_last(
    t_env: StreamTableEnvironment,
) -> None:
    rows = [("a", 1), ("b", 2), ("a", 3)]
    for made, kinds in ((t_env, {RowKind.INSERT, RowKind.UPDATE_AFTER}), (batch_environment(), {RowKind.INSERT})):
        table = made.from_elements(rows, ["k", "n"])
        found = collected(table.group_by(table.k).select(table.k, table.n.sum))
        last = {change[0]: change[1] for change in found if change.get_row_kind() in kinds}
        assert last == {"a": 4, "b": 2}
        assert {change.get_row_kind() for change in found} <= {*RowKind}
    frame = t_env.from_elements(rows, ["k", "n"]).to_pandas()
    assert frame.to_dict("list") == {"k": ["a", "b", "a"], "n": [1, 2, 3]}


class Prefix(ScalarFunction):
    """Counts in its instance how often it was opened and closed."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def open(self, function_context: FunctionContext) -> None:
        self.prefix = f"{function_context.get_index_of_this_subtask()}:"
        self._note("open")

    def close(self) -> None:
        self._note("close")

    def eval(self, value: Any) -> str | None:
        return None if value is None else self.prefix + value

    def _note(self, what: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{what}\n")


def test_functions_of_the_program_are_opened_called_with_none_and_closed(
    t_env: StreamTableEnvironment, tmp_path: Path
) -> None:
    prefix = udf(Prefix(tmp_path / "log"), result_type=STRING)
    factor = 3
    times = udf(lambda n, by=2: None if n is None else n * by * factor, result_type="BIGINT")
    t_env.create_temporary_system_function("times", times)
    table = people(t_env)
    found = collected(table.select(prefix(table.name.substring(1, 2)), times(table.id), call("times", table.id, 10)))
    assert found == [Row("0:a", 6, 30), Row("0:日本", 133332, 666660), Row(None, None, None)]
    assert (tmp_path / "log").read_text().split() == ["open", "close"]
    assert collected(t_env.sql_query("SELECT times(n), TIMES(n, 1) FROM (VALUES (1), (2)) AS t(n)")) == [
        Row(6, 3), Row(12, 6)
    ]  # fmt: skip
    assert t_env.list_user_defined_functions() == ["times"]
    assert t_env.drop_temporary_system_function("times") and not t_env.drop_temporary_function("times")


def test_map_makes_columns_of_the_row_that_a_function_returns_and_calls_it_once_for_each_row(
    t_env: StreamTableEnvironment, tmp_path: Path
) -> None:
    @udf(result_type="ROW<p INT, q STRING>")
    def of_row(record: Row) -> Row:
        with (tmp_path / "calls").open("a") as file:
            file.write("x")
        return Row(record.n + 1, record.k.upper())

    @udf(result_type=row_type(p=INT, q=STRING), func_type="pandas")
    def of_frame(frame: Any) -> Any:
        return frame[["n", "k"]]

    table = t_env.from_elements([("a", 1), ("b", 2)], row_type(k=STRING, n=INT))
    assert collected(table.map(of_row)) == [Row(2, "A"), Row(3, "B")]
    assert (tmp_path / "calls").read_text() == "xx"
    assert collected(table.map(of_frame).alias("x", "y").select(col("y"))) == [Row("a"), Row("b")]
    assert schema_of(table.map(udf(lambda n: n, result_type=INT)(table.n))) == "f0 INT"


def test_functions_of_pandas_get_series_and_return_one_of_the_same_length(t_env: StreamTableEnvironment) -> None:
    table = t_env.from_elements([(1, "a"), (2, None)], row_type(n=INT, s=STRING))
    plus = udf(lambda one, other: one + other, result_type=DataTypes.BIGINT(), func_type="pandas")
    length = udf(lambda text: text.str.len(), result_type=DOUBLE, func_type="pandas")
    assert collected(table.select(plus(table.n, table.n * 10), length(table.s))) == [Row(11, 1.0), Row(22, None)]


class Failing(ScalarFunction):
    def eval(self, n: Any) -> Any:
        return 10 // n


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        (udf(Failing(), result_type=INT), UserCodeError,
         r"(?s)return 10 // n.*ZeroDivisionError.*record \(0,\).*epoch 0"),
        (udf(lambda n: "x", result_type=INT, name="f"), TypeMismatchError,
         r"f\(\) returned 'x' of type str.*result_type=INT\), called with \(1,\)"),
        (udf(lambda n: n[:1], result_type=INT, name="f", func_type="pandas"), TypeMismatchError,
         "a Series of the length 2"),
        (udf(lambda n: 5, result_type=INT, name="f", func_type="pandas"), TypeMismatchError,
         "a Series of the length 2"),
    ],
)  # fmt: skip
def test_a_function_that_fails_or_returns_what_it_did_not_declare_fails_the_job(
    t_env: StreamTableEnvironment, function: Any, error: type[Exception], said: str
) -> None:
    table = t_env.from_elements([(1,), (0,)], row_type(n=INT))
    with pytest.raises(error, match=said):
        collected(table.select(function(table.n)))


def test_tables_of_values_have_the_types_of_python_or_those_that_are_declared(t_env: StreamTableEnvironment) -> None:
    day = datetime.date(2020, 1, 1)
    table = t_env.from_elements(
        [(1, "a", 2.5, [1], {"k": 1}, None, day, Decimal("1.5")), (2, "b", 1.0, [], {}, True, day, None)]
    )
    assert schema_of(table) == (
        "_1 BIGINT, _2 STRING, _3 DOUBLE, _4 ARRAY<BIGINT>, _5 MAP<STRING, BIGINT>, _6 BOOLEAN, _7 DATE, "
        "_8 DECIMAL(38, 18)"
    )
    assert collected(table.select(col("_4"), col("_5"), col("_7"))) == [Row([1], {"k": 1}, day), Row([], {}, day)]
    assert schema_of(t_env.from_elements([Row(a=1, b="x")])) == "a BIGINT, b STRING"
    assert collected(t_env.from_elements([{"b": 2, "a": 1}])) == [Row(1, 2)]
    assert collected(t_env.from_elements([row(1, "x"), row(2, "y")], ["n", "s"])) == [Row(1, "x"), Row(2, "y")]
    frame = t_env.from_elements([(1, "a"), (2, None)], ["n", "s"]).to_pandas()
    assert collected(t_env.from_pandas(frame, ["x", "y"]).select(col("y"), col("x"))) == [Row("a", 1), Row(None, 2)]
    assert collected(t_env.sql_query("SELECT * FROM (VALUES (1, 'a')) AS t(n, s)").select(call_sql("n + 1"))) == [
        Row(2)
    ]
    assert collected(table.select(if_then_else(col("_1") > 1, "big", "small"))) == [Row("small"), Row("big")]


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1_000


def test_streams_become_tables_by_their_fields_by_expressions_or_by_a_schema(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    stream = env.from_collection([("a", 1), ("b", 2)], pair)
    timed = stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
    )
    by_position = Schema.new_builder().column("word", "STRING").column("n", "BIGINT").build()
    with_times = (
        Schema.new_builder()
        .column("f1", "BIGINT")
        .column_by_expression("twice", "f1 * 2")
        .column_by_metadata("at", "TIMESTAMP_LTZ(3)", "rowtime")
        .watermark("at", "SOURCE_WATERMARK()")
        .build()
    )
    expected = {
        schema_of(t_env.from_data_stream(stream)): "f0 STRING, f1 INT",
        schema_of(t_env.from_data_stream(stream, by_position)): "word STRING, n BIGINT",
        schema_of(t_env.from_data_stream(stream, col("f1"), col("f0").alias("x"))): "f1 INT, x STRING",
        schema_of(t_env.from_data_stream(timed, col("a"), col("n"), col("t").rowtime, col("p").proctime)):
            "a STRING, n INT, t TIMESTAMP(3) *ROWTIME*, p TIMESTAMP_LTZ(3) *PROCTIME*",
        schema_of(t_env.from_data_stream(timed, with_times)):
            "f1 BIGINT, twice BIGINT, at TIMESTAMP_LTZ(3) *ROWTIME*",
    }  # fmt: skip
    assert list(expected) == list(expected.values())
    table = t_env.from_data_stream(timed, with_times)
    window = Tumble.over(lit(10).seconds).on(table.at).alias("w")
    sums = table.window(window).group_by(col("w")).select(table.twice.sum.alias("n"))
    with t_env.to_data_stream(sums).execute_and_collect() as rows:
        assert list(rows) == [Row(n=6)]


def test_tables_become_streams_of_rows_of_changes_or_of_pairs(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment
) -> None:
    table = t_env.from_elements([("a", 1), ("b", 2)], ["k", "n"])
    with t_env.to_data_stream(table).execute_and_collect() as rows:
        assert list(rows) == [Row(k="a", n=1), Row(k="b", n=2)]
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    with t_env.to_append_stream(table, pair).execute_and_collect() as pairs:
        assert list(pairs) == [("a", 1), ("b", 2)]
    counts = table.group_by(table.k).select(table.k, table.n.sum.alias("n"))
    with pytest.raises(ProgramError, match="doesn't support consuming update changes.*to_changelog_stream"):
        t_env.to_data_stream(counts)
    with t_env.to_changelog_stream(counts).execute_and_collect() as changes:
        assert [(change.get_row_kind(), change.n) for change in changes] == [(RowKind.INSERT, 1), (RowKind.INSERT, 2)]
    with t_env.to_retract_stream(counts, pair).execute_and_collect() as pairs:
        assert sorted(pairs) == [(True, ("a", 1)), (True, ("b", 2))]
    kind = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
    rows = [Row("a", 1), Row.of_kind(RowKind.UPDATE_BEFORE, "a", 1), Row.of_kind(RowKind.UPDATE_AFTER, "a", 5)]
    changing = t_env.from_changelog_stream(env.from_collection(rows, kind))
    assert changing.to_pandas().to_dict("list") == {"k": ["a"], "n": [5]}
    only = t_env.from_changelog_stream(env.from_collection(rows[:1], kind), None, ChangelogMode.insert_only())
    assert collected(only) == [Row("a", 1)]
    with pytest.raises(ProgramError, match="doesn't support consuming update changes"):
        t_env.to_changelog_stream(counts, changelog_mode=ChangelogMode.insert_only())
    with pytest.raises(ProgramError, match="a stream of upserts without a primary key"):
        t_env.from_changelog_stream(env.from_collection(rows, kind), None, ChangelogMode.upsert())


def test_a_result_is_taken_once_and_closing_it_ends_the_job_of_an_unbounded_query(
    t_env: StreamTableEnvironment,
) -> None:
    t_env.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'datagen')")
    result = t_env.from_path("t").execute()
    with result.collect() as rows:
        assert next(rows) is not None and rows.next() is not None
    client = result.get_job_client()
    assert client is not None and client.get_job_status().result().is_globally_terminal_state()
    with pytest.raises(ProgramError, match="taken already"):
        result.collect()


def test_options_of_tables_that_have_an_effect_are_read_and_others_are_named_once(
    t_env: StreamTableEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    no_effect.forget_reports()
    config = t_env.get_config()
    config.set("table.exec.state.ttl", "1 h").set("table.optimizer.agg-phase-strategy", "ONE_PHASE")
    assert config.get_idle_state_retention() == datetime.timedelta(hours=1)
    config.set_local_timezone("Asia/Tokyo")
    assert collected(t_env.sql_query("SELECT CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING)")) == [
        Row("1970-01-01 09:00:00.000")
    ]
    counts = t_env.sql_query("SELECT n, COUNT(*) FROM (VALUES (1), (1)) AS t(n) GROUP BY n")
    with caplog.at_level("INFO"):
        assert [collected(counts) for _ in range(2)] == [[Row(1, 2)]] * 2
    assert sum("once for each key and batch" in line for line in caplog.messages) == 1
    assert any("table.optimizer.agg-phase-strategy: queries have no such setting" in line for line in caplog.messages)
    with pytest.raises(ConfigurationError, match="table.exec.state.ttl"):
        config.set("table.exec.state.ttl", "soon")
    with pytest.raises(ArgumentValueError, match="no time zone"):
        t_env.execute_sql("SET 'table.local-time-zone' = 'Mars/Olympus'")


plus_one = udf(lambda n: n + 1, result_type=INT)


def test_functions_and_tables_are_declared_by_statements(t_env: StreamTableEnvironment) -> None:
    t_env.execute_sql(f"CREATE TEMPORARY FUNCTION plus_one AS '{__name__}.plus_one' LANGUAGE PYTHON")
    assert collected(t_env.sql_query("SELECT PLUS_ONE(1)")) == [Row(2)]
    with pytest.raises(ProgramError, match="cannot be imported"):
        t_env.execute_sql("CREATE FUNCTION f AS 'no.such_function' LANGUAGE PYTHON")
    t_env.execute_sql("DROP FUNCTION plus_one")
    with pytest.raises(ProgramError, match="no function 'plus_one'"):
        t_env.execute_sql("DROP FUNCTION plus_one")
    orders(t_env)
    t_env.execute_sql("CREATE TABLE more (c AS a + 1) WITH ('number-of-rows' = '3') LIKE orders")
    assert t_env.from_path("more").get_schema().get_field_names() == ["a", "b", "s", "ts", "r", "l", "c"]
    t_env.create_temporary_view("v", t_env.from_path("more"))
    for text, said in (("LIKE v", "'v' is a view"), ("LIKE x", "no table 'x'")):
        with pytest.raises(ProgramError, match=said):
            t_env.execute_sql(f"CREATE TABLE other (d INT) WITH ('connector' = 'print') {text}")
    assert str(t_env.from_path("v")) == "UnnamedTable$0"
    assert t_env.sql_query(f"SELECT a FROM {t_env.from_path('v')}").get_schema().get_field_count() == 1


def test_a_table_may_be_given_by_its_declaration_alone(
    t_env: StreamTableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    source = TableDescriptor.for_connector("datagen").option("number-of-rows", 2).option("fields.n.kind", "sequence")
    source.option("fields.n.start", 1).option("fields.n.end", 2)
    table = t_env.from_descriptor(source.schema(Schema.new_builder().column("n", "INT").build()).build())
    assert sorted(collected(table), key=str) == [Row(1), Row(2)]
    table.execute_insert(TableDescriptor.for_connector("print").build()).wait()
    assert sorted(line for line in capsys.readouterr().out.splitlines() if "+I" in line) == ["+I[1]", "+I[2]"]
    t_env.get_config().set_local_timezone("Asia/Tokyo")
    frame = t_env.sql_query("SELECT TO_TIMESTAMP_LTZ(0, 3) AS t, DATE '2020-01-01' AS d").to_pandas()
    assert str(frame["t"][0]) == "1970-01-01 09:00:00+09:00" and frame["d"][0] == datetime.date(2020, 1, 1)
