"""Delta tables and DataFrames: an epoch that is delivered again changes nothing; a restore begins at the version."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from flinkish.common import WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.common.types import Row, RowKind
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.frame_sinks import DeltaMergeSink, DeltaSink, FunctionSink
from flinkish.connectors.spark import DeltaSource, DeltaTable, SparkSource, ddl_of, type_of_schema
from flinkish.core.sink import CommitContext
from flinkish.core.source import SourceLimits
from flinkish.datastream import ProcessFunction
from flinkish.errors import (
    FlinkishError,
    OperationError,
    ProgramError,
    SavepointError,
    TypeMismatchError,
    UserCodeError,
)
from flinkish.table import DataTypes
from tests.integration.connectors.reading import read
from tests.integration.engine.collecting import collecting, environment
from tests.support.epoch_reports import execute_observed, reports_of
from tests.support.processes import wait_until

BIG = Types.ROW_NAMED(["n"], [Types.BIG_INT()])
ROW = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.LONG()])


def context(epoch: int, job_id: str = "job", uid: str = "sink") -> CommitContext:
    return CommitContext(job_id, "test", uid, "sink", epoch, 1_000, 0, 1)


def frame_of(spark: SparkSession, *rows: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame(list(rows), ddl_of(ROW))


def table(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(path)).collect())


def offset_text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)


def test_delta_takes_each_epoch_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path / "out"))
    for epoch, row in ((0, ("a", 1)), (0, ("a", 1)), (1, ("b", 2)), (0, ("a", 1)), (1, ("b", 2))):
        sink.write_frame(frame_of(spark, row), context(epoch))
    assert table(spark, tmp_path / "out") == [("a", 1), ("b", 2)]
    pickle.loads(pickle.dumps(sink)).write_frame(frame_of(spark, ("c", 3)), context(1, uid="other"))
    sink.write_frame(frame_of(spark, ("d", 4)), context(1, job_id="other"))
    assert table(spark, tmp_path / "out") == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]


@pytest.mark.parametrize("folder", [pytest.param("out", marks=pytest.mark.slow), "out [1] {a} b%20c"])
def test_the_last_epoch_is_what_the_log_of_the_table_says(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    path = str(tmp_path / folder)
    appending, merging = DeltaSink(path), DeltaSink.merge(path, ["user"])
    assert appending.last_committed_epoch(spark, context(0)) is None, "there is no table"
    appending.write_frame(frame_of(spark, ("a", 1)), context(7))
    assert (
        appending.last_committed_epoch(spark, context(0)),
        appending.last_committed_epoch(spark, context(0, "other")),
    ) == (7, None)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    for epoch in (8, 9):
        merging.write_frame(frame_of(spark, ("b", epoch)), context(epoch, "other", "merge"))
    assert list((tmp_path / folder / "_delta_log").glob("*.checkpoint*.parquet"))
    for commit in sorted((tmp_path / folder / "_delta_log").glob("*.json"))[:2]:
        commit.unlink()  # as Delta does some weeks later
    assert appending.last_committed_epoch(spark, context(0)) == 7
    assert merging.last_committed_epoch(spark, context(0, "other", "merge")) == 9


@pytest.mark.slow
def test_delta_merges_the_last_record_of_each_key_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    # a relative path is one from the directory in which Spark was started
    sink = DeltaSink.merge(os.path.relpath(path), ["user"], delete_when="n < 0", partition_by=["user"])
    sink.check_type(ROW, "here")
    sink.write_frame(frame_of(spark, ("a", 1), ("b", 2), ("a", 3)), context(0))
    assert table(spark, tmp_path / "out") == [("a", 3), ("b", 2)]
    sink.write_frame(frame_of(spark, ("b", -1), ("c", 4), ("d", -1)), context(1))
    assert table(spark, tmp_path / "out") == [("a", 3), ("c", 4)]
    # somebody else changes the table, and then the epoch is delivered again
    spark.sql(f"UPDATE delta.`{path}` SET n = 5 WHERE user = 'c'")
    pickle.loads(pickle.dumps(sink)).write_frame(frame_of(spark, ("b", -1), ("c", 4), ("d", -1)), context(1))
    assert table(spark, tmp_path / "out") == [("a", 3), ("c", 5)]
    sink.write_frame(frame_of(spark, ("c", 6)), context(2))
    assert table(spark, tmp_path / "out") == [("a", 3), ("c", 6)]
    assert spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None
    with pytest.raises(ProgramError, match="refuses the rows.*nothing"):
        DeltaSink.merge(path, ["user"], "nothing > 1").write_frame(frame_of(spark, ("c", 7)), context(3))
    with pytest.raises(ProgramError, match="refuses the rows: it has no column 'other'"):
        DeltaSink.merge(path, ["other"]).write_frame(spark.range(1).toDF("other"), context(3))
    with pytest.raises(TypeMismatchError, match="key column 'name' is no field"):
        DeltaSink.merge(path, ["name"]).check_type(ROW, "here")
    with pytest.raises(ProgramError, match="at least one name"):
        DeltaSink.merge(path, [])


@pytest.mark.nightly
def test_a_merge_deletes_the_rows_of_deletions(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    frame_of(spark, ("a", 1), ("b", 2), ("c", 3)).write.format("delta").save(out)
    changes = [
        Row.of_kind(RowKind.DELETE, "a", None),
        Row.of_kind(RowKind.UPDATE_BEFORE, "b", 2),
        Row.of_kind(RowKind.UPDATE_AFTER, "b", 7),
        Row.of_kind(RowKind.DELETE, "c", 3),
        Row("c", 4),
    ]
    env = environment(tmp_path / "job")
    env.set_parallelism(1)
    env.from_collection(changes, type_info=ROW).sink_to(DeltaSink.merge(out, ["user"], delete_when="n < 0"))
    env.execute("changes")
    assert table(spark, tmp_path / "out") == [("b", 7), ("c", 4)]


def test_a_delta_table_that_refuses_the_rows_is_the_programs_fault(spark: SparkSession, tmp_path: Path) -> None:
    DeltaSink(str(tmp_path / "out")).write_frame(frame_of(spark, ("a", 1)), context(0))
    with pytest.raises(
        ProgramError, match=r"refuses the rows: it has no column 'other' \(user, n\).*epoch 1.*mergeSchema"
    ):
        DeltaSink(str(tmp_path / "out")).write_frame(spark.range(1).toDF("other"), context(1))
    with pytest.raises(ProgramError, match="the column 'n' is bigint in the table and array<bigint> in the rows"):
        DeltaSink(str(tmp_path / "out")).write_frame(spark.sql("SELECT 'a' AS user, array(1L) AS n"), context(1))
    assert table(spark, tmp_path / "out") == [("a", 1)]


CHECKED = (
    "CREATE TABLE delta.`{}` (user VARCHAR(3), n INT, twice BIGINT GENERATED ALWAYS AS (n * 2L)) USING delta",
    "ALTER TABLE delta.`{}` ADD CONSTRAINT positive CHECK (n > 0)",
)


@pytest.mark.parametrize("merges", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            ("a", -1, -2),
            r"\[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\] CHECK constraint positive \(n > 0\) violated.*n : -1",
        ),
        pytest.param(
            ("a", 1, 7),
            r"\[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\].*Generated Column .*twice : 7",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            ("abcd", 1, 2),
            r"\[(?:DELTA_EXCEED_CHAR_VARCHAR_LIMIT|EXCEED_LIMIT_LENGTH)\]",
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["constraint", "generated column", "length"],
)
def test_what_a_delta_table_refuses_at_its_commit_is_one_line_and_not_tried_again(
    spark: SparkSession, tmp_path: Path, row: tuple[Any, ...], said: str, merges: bool
) -> None:
    out = str(tmp_path / "out")
    for statement in CHECKED:
        spark.sql(statement.format(out))
    type_info = Types.ROW_NAMED(["user", "n", "twice"], [Types.STRING(), Types.INT(), Types.LONG()])
    sink = DeltaSink.merge(out, ["user"]) if merges else DeltaSink(out)
    env = environment(
        tmp_path / "job", restart_strategy__type="fixed-delay", restart_strategy__fixed_delay__delay="1 h"
    )
    env.from_collection([Row(*row)], type_info=type_info).sink_to(sink).uid("out")
    with pytest.raises(ProgramError, match=f"refuses the rows: {said}.*mend or filter.*prepared JOB_DIR") as refused:
        env.execute("refused")
    assert type(refused.value) is ProgramError and not refused.value.retryable
    assert len(str(refused.value).splitlines()) == 1 and len(str(refused.value)) < 1_000
    assert table(spark, tmp_path / "out") == []


class Interrupted(DeltaMergeSink):
    """Somebody else inserts a row while the first try of an epoch's merge runs."""

    table, tries = "", 0

    def write_frame(self, frame: Any, context: CommitContext) -> None:
        """Merge the rows, the first time slowly."""
        begun, go_on = f"{self.table}.begun", f"{self.table}.go-on"

        def slowly(batches: Iterator[Any]) -> Iterator[Any]:
            Path(begun).touch()
            wait_until(Path(go_on).exists, 120, "the other one's row")
            yield from batches

        def insert() -> None:
            wait_until(Path(begun).exists, 120, "the merge")
            frame.sparkSession.newSession().sql(f"INSERT INTO delta.`{self.table}` VALUES ('a', 7)")
            Path(go_on).touch()

        Interrupted.tries += 1
        other = threading.Thread(target=insert)
        if Interrupted.tries == 1:
            other.start()
        # one task, which leaves a slot to the other one
        super().write_frame(frame.coalesce(1).mapInArrow(slowly, frame.schema), context)


def test_a_merge_that_meets_an_insert_is_tried_again_at_once(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    frame_of(spark, ("a", 1)).write.format("delta").save(out)
    sink = Interrupted(DeltaTable(out, ""), ["user"], None, [])
    sink.table = out
    env = environment(tmp_path / "job", restart_strategy__type="none")
    env.from_collection([Row("a", 5), Row("b", 2)], type_info=ROW).sink_to(sink).uid("out")
    env.execute("merge")
    assert Interrupted.tries == 2
    assert table(spark, tmp_path / "out") == [("a", 5), ("a", 5), ("b", 2)]


def test_what_spark_says_in_a_function_of_the_user_is_short_and_names_the_functions_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    def write(frame: DataFrame, epoch: int) -> None:
        frame.selectExpr("CAST(user AS INT) AS no_number").collect()

    env = environment(tmp_path / "job", restart_strategy__type="none")
    env.from_collection([Row("a", 5)], type_info=ROW).sink_to(write).uid("out")
    with pytest.raises(UserCodeError, match=r"CAST_INVALID_INPUT") as failed:
        env.execute("casts")
    said = str(failed.value)
    assert 'frame.selectExpr("CAST(user AS INT)' in said and "\n\tat " not in said and len(said) < 6_000


@pytest.fixture
def named(spark: SparkSession) -> Iterator[str]:
    """The name of a table that is not there yet."""
    name = f"spark_catalog.default.t{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_table_is_written_once_and_read_by_its_name(spark: SparkSession, tmp_path: Path, named: str) -> None:
    appending = DeltaSink(table=named, partition_by=["user"])
    assert appending.last_committed_epoch(spark, context(0)) is None, "there is no table"
    for epoch, row in ((0, ("a", 1)), (0, ("a", 1)), (1, ("b", 2)), (1, ("b", 2))):
        appending.write_frame(frame_of(spark, row), context(epoch))
    merging = DeltaSink.merge(table=named, key_columns=["user"])
    for _ in range(2):
        merging.write_frame(frame_of(spark, ("b", 7)), context(0, uid="merge"))
    assert sorted(tuple(row) for row in spark.read.table(named).collect()) == [("a", 1), ("b", 7)]
    assert spark.sql(f"DESCRIBE DETAIL {named}").collect()[0]["partitionColumns"] == ["user"]
    assert appending.last_committed_epoch(spark, context(0)) == 1
    assert merging.last_committed_epoch(spark, context(0, uid="merge")) == 0
    with pytest.raises(ProgramError, match=rf"it has no column 'other' \(user, n\).*into {named}, epoch 3"):
        appending.write_frame(spark.range(1).toDF("other"), context(3))
    with pytest.raises(
        ProgramError, match=rf"has no column 'no', 'or' .DeltaSource {named}.; expected some of user, n;"
    ):
        wrong = Types.ROW_NAMED(["no", "USER", "or"], [Types.INT()] * 3)
        DeltaSource(table=named, type_info=wrong).load(spark, SourceLimits(), None)

    env = environment(tmp_path / "job", parallelism__default="1")
    stored = env.from_source(DeltaSource(table=named, bounded=True), WatermarkStrategy.no_watermarks(), "stored")
    with pytest.raises(
        TypeMismatchError, match=f"cannot be written to the Delta table {named}: in the partition column"
    ):
        stored.map(lambda row: Row(user="", n=row.n), ROW).sink_to(DeltaSink(table=named)).uid("again")
        env.execute("by name")


def test_the_columns_of_a_table_by_path_are_known_without_a_session(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    frame_of(spark, ("a", 1)).write.format("delta").save(path)
    code = (
        "from flinkish.datastream.connectors.delta import DeltaSource\n"
        f"print(DeltaSource({path!r}).produced_type)\n"
        "try:\n    DeltaSource(table='no.session.here').produced_type\n"
        "except Exception as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "RowTypeInfo(user: String, n: Long)",
        "the columns of the Delta table are not known before there is a Spark session [DeltaSource no.session.here]; "
        "expected type_info=Types.ROW_NAMED(...), or an active session; correct the path if there is no such table",
    ]


@pytest.mark.parametrize(
    ("user", "city", "message"),
    [
        pytest.param(None, "x", "column 'user' is NOT NULL", marks=pytest.mark.nightly),
        ("b", "", "'' would become null"),
        pytest.param(
            "b",
            "__HIVE_DEFAULT_PARTITION__",
            "'__HIVE_DEFAULT_PARTITION__' would become null",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_row_that_a_delta_table_cannot_hold_fails_its_epoch_before_it_is_prepared(
    spark: SparkSession, tmp_path: Path, user: str | None, city: str, message: str
) -> None:
    out, types = str(tmp_path / "out"), Types.ROW_NAMED(["user", "city"], [Types.STRING(), Types.STRING()])
    spark.sql(
        f"CREATE TABLE delta.`{out}` (user STRING NOT NULL, city STRING) USING delta PARTITIONED BY (city)"
        " TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    )
    spark.sql(f"INSERT INTO delta.`{out}` VALUES ('a', 'x')")

    def run(*rows: Row) -> None:
        env = environment(tmp_path / "job")
        env.from_collection(list(rows), type_info=types).sink_to(DeltaSink(out)).uid("out")
        env.execute("rows")

    with pytest.raises(TypeMismatchError, match=message):
        run(Row("c", "y"), Row(user, city))
    # nothing is prepared: the mended program goes on in the same directory
    run(Row("c", "y"), Row("d", "z"))
    assert table(spark, tmp_path / "out") == [("a", "x"), ("c", "y"), ("d", "z")]


def test_a_delta_source_reads_what_is_there_and_what_is_added(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "in")
    DeltaSink(path).write_frame(frame_of(spark, ("a", 1), ("b", 2)), context(0))
    first = read(spark, DeltaSource(path), tmp_path / "c")
    assert sorted(first.records, key=lambda row: row.user) == [Row(user="a", n=1), Row(user="b", n=2)]
    assert DeltaSource(path).produced_type == ROW
    assert DeltaSource(path).left_behind(offset_text(first.end_offset)) == 0
    DeltaSink(path).write_frame(frame_of(spark, ("c", 3)), context(1))
    assert DeltaSource(path).left_behind(offset_text(first.end_offset)) == 1
    only_n = DeltaSource(path, Types.ROW_NAMED(["n"], [Types.LONG()]), bounded=True)
    restored = read(spark, only_n, tmp_path / "d", start=offset_text(first.end_offset))
    assert restored.records == [Row(n=3)]
    assert only_n.bounded
    assert only_n.left_behind(offset_text(restored.end_offset)) == 0


def test_the_versions_of_a_delta_table_that_an_epoch_has_left_are_its_backlog(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "in")
    for number in range(3):
        DeltaSink(path).write_frame(frame_of(spark, ("a", number)), context(number))
    env = environment()
    source = DeltaSource(path, bounded=True, options={"startingVersion": "0", "maxFilesPerTrigger": "1"})
    with collecting() as collected:
        env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows").map(str).sink_to(
            collected.sink()
        )
        client = execute_observed(env, "versions")
        client.get_job_execution_result().result(120)
    left = [str(report.left["rows"]) for report in reports_of(client.run) if report.records_in]
    assert left == ["2 versions", "1 version", "0"]


def test_a_savepoint_counts_more_than_a_time_to_start_at(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "in")
    DeltaSink(path).write_frame(frame_of(spark, ("a", 1)), context(0))
    first = read(spark, DeltaSource(path), tmp_path / "c")
    DeltaSink(path).write_frame(frame_of(spark, ("b", 2)), context(1))
    since = DeltaSource(path, ROW, bounded=True, options={"startingTimestamp": "2020-01-01"})
    restored = read(spark, since, tmp_path / "d", start=offset_text(first.end_offset))
    assert restored.records == [Row(user="b", n=2)]


def test_a_savepoint_inside_of_a_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "in")
    DeltaSink(path).write_frame(frame_of(spark, ("a", 1)), context(0))
    inside = '{"sourceVersion":1,"reservoirId":"x","reservoirVersion":3,"index":2,"isStartingVersion":false}'
    for start, message in ((inside, "in the middle of version 3"), ("7", "cannot be read")):
        with pytest.raises(SavepointError, match=message):
            DeltaSource(path).load(spark, SourceLimits(), start)


def test_a_delta_table_that_is_not_there_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="cannot be read.*create the table first"):
        DeltaSource(str(tmp_path / "none"), ROW).load(spark, SourceLimits(), None)
    with pytest.raises(ProgramError, match="cannot be read"):
        _ = DeltaSource(str(tmp_path / "none")).produced_type


def test_any_streaming_frame_is_a_source_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x y\n")
    frame = spark.readStream.format("text").load(str(tmp_path / "in")).selectExpr("split(value, ' ') AS words")
    source = SparkSource(frame, bounded=True)
    assert source.bounded
    assert read(spark, source, tmp_path / "c").records == [Row(words=["x", "y"])]
    travelled = pickle.loads(pickle.dumps(source))
    assert travelled.produced_type == source.produced_type
    with pytest.raises(ProgramError, match="stayed behind"):
        travelled.load(spark, SourceLimits(), None)
    with pytest.raises(SavepointError, match="cannot be told where to begin"):
        source.load(spark, SourceLimits(), "{}")


@pytest.mark.parametrize(
    "cell",
    [
        "[CONCURRENT_QUERY] Another instance of this query was just started by a concurrent session.",
        pytest.param("No module named 'flinkish'", marks=pytest.mark.slow),
        pytest.param("Job 3 cancelled because SparkContext was shut down", marks=pytest.mark.slow),
        pytest.param(
            "Checksum error: file:/data/job/spark/offsets/6 at 512 exp: 1653590612 got: 186399702",
            marks=pytest.mark.slow,
        ),
        "x\n\tat a.B.c(B.java:1)\nCaused by: java.lang.IllegalStateException: [KAFKA_DATA_LOSS.X] lost",
        pytest.param("flinkish-stop-query", marks=pytest.mark.slow),
    ],
    ids=lambda cell: cell[:20],
)
def test_a_cell_that_reads_like_an_error_fails_the_job_as_any_other_that_is_no_number(
    spark: SparkSession, tmp_path: Path, cell: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f'"{cell}"\n')
    frame = spark.readStream.option("multiLine", True).schema("n STRING").csv(str(tmp_path / "in"))
    env = environment(tmp_path / "job", restart_strategy__type="none")
    env.from_spark(frame.selectExpr("CAST(n AS INT) AS n"), "cells").uid("cells").print().uid("out")
    with pytest.raises(FlinkishError, match="CAST_INVALID_INPUT") as failed:
        env.execute("cells")
    assert type(failed.value) is OperationError


def test_a_static_frame_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ProgramError, match="not a streaming one.*from_collection"):
        SparkSource(spark.range(1))


def test_types_survive_the_way_to_spark_and_back(spark: SparkSession) -> None:
    types = [
        Types.STRING(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE(),
        Types.BOOLEAN(), Types.BIG_DEC(), Types.SQL_DATE(), Types.INSTANT(), Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.LIST(Types.STRING()), Types.MAP(Types.STRING(), Types.LONG()), ROW,
    ]  # fmt: skip
    row = Types.ROW_NAMED([f"a b`{n}" for n in range(len(types))], types)
    assert type_of_schema(spark.createDataFrame([], ddl_of(row)).schema) == row
    with pytest.raises(TypeMismatchError, match="no type for Spark's interval"):
        type_of_schema(spark.sql("SELECT make_interval(1) AS i").schema)


def test_a_function_gets_the_epochs_frame(spark: SparkSession) -> None:
    found: list[Any] = []
    sink = FunctionSink(lambda frame, epoch: found.append((epoch, frame.count())))
    sink.write_frame(frame_of(spark, ("a", 1)), context(7))
    assert found == [(7, 1)]

    def with_context(frame: DataFrame, epoch: int, context: CommitContext) -> None:
        found.append((context.job_id, context.sink_uid, epoch))

    for function in (with_context, lambda frame, epoch, table="default": found.append(table)):
        FunctionSink(function).write_frame(frame_of(spark, ("a", 1)), context(8))
    assert found[1:] == [("job", "sink", 8), "default"]
    with pytest.raises(ProgramError, match="is no function"):
        FunctionSink("x")  # type: ignore[arg-type]


@pytest.mark.parametrize("sink", [DeltaSink("/x"), FunctionSink(print)])
def test_streams_without_columns_are_refused_when_the_plan_is_made(sink: Any) -> None:
    sink.check_type(ROW, "op")
    with pytest.raises(TypeMismatchError, match=r"cannot make columns.*\[op\].*ROW_NAMED"):
        sink.check_type(Types.PICKLED_BYTE_ARRAY(), "op")
    for types in ([], [Types.LIST(Types.PICKLED_BYTE_ARRAY())]):
        with pytest.raises(TypeMismatchError, match=r"has no fields, or one of pickled.*op\]"):
            sink.check_type(Types.ROW(types), "op")


EVERY_COLUMN = """
SELECT 1 AS n, timestamp'2026-01-02 03:04:05.000006' AS t, timestamp_ntz'2026-01-02 03:04:05.000006' AS u,
  date'2026-02-28' AS d, CAST(1.5 AS DECIMAL(38, 18)) AS x, X'00FF' AS b,
  named_struct('a', 1, 't', timestamp'1969-12-31 23:59:59.999999', 'l', array(1.5D, NULL)) AS r,
  array(named_struct('a', 2L, 't', timestamp'2026-01-01'), NULL, named_struct('a', NULL, 't', NULL)) AS l,
  map('k', named_struct('d', date'2026-01-01', 'm', map(1, 'x')), 'none', NULL) AS m
"""


def test_all_columns_go_from_delta_through_a_job_to_delta_and_to_a_function(
    spark: SparkSession, tmp_path: Path
) -> None:
    found, out, files = (str(tmp_path / name) for name in ("in", "out", "files"))
    spark.sql(EVERY_COLUMN).write.format("delta").save(found)
    nothing = ", ".join(f"NULL AS {name}" for name in spark.read.format("delta").load(found).columns[1:])
    spark.sql(f"SELECT 2 AS n, {nothing}").write.format("delta").mode("append").save(found)
    source = DeltaSource(found, bounded=True)
    env = environment(tmp_path / "job")
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "table")
    stream = stream.map(lambda row: row, output_type=source.produced_type)
    stream.sink_to(DeltaSink(out))
    stream.sink_to(lambda frame, epoch: frame.write.mode("overwrite").parquet(f"{files}/epoch={epoch}"))
    env.execute("columns")
    expected = spark.read.format("delta").load(found).orderBy("n").collect()
    assert spark.read.format("delta").load(out).orderBy("n").collect() == expected
    assert spark.read.parquet(files).drop("epoch").orderBy("n").collect() == expected
    assert dict(spark.read.format("delta").load(out).dtypes)["u"] == "timestamp_ntz"


@pytest.mark.nightly
def test_decimals_of_any_size_go_from_delta_to_delta_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    found, out = str(tmp_path / "in"), str(tmp_path / "out")
    wide, small = Decimal("-12345678901234567890123456789012345678"), Decimal("1.999")
    spark.createDataFrame([(wide, small)], "w DECIMAL(38, 0), s DECIMAL(10, 3)").write.format("delta").save(found)
    of_table = DeltaSource(found, bounded=True)
    assert read(spark, of_table, tmp_path / "c").records == [Row(w=wide, s=small)]
    env = environment(tmp_path / "job")
    declared = Types.ROW_NAMED(["w", "s"], [DataTypes.DECIMAL(38, 0), DataTypes.DECIMAL(10, 2)])
    stream = env.from_source(of_table, WatermarkStrategy.no_watermarks(), "table")
    stream.map(lambda row: row, output_type=declared).sink_to(DeltaSink(out))
    env.execute("decimals")
    written = spark.read.format("delta").load(out)
    assert dict(written.dtypes) == {"w": "decimal(38,0)", "s": "decimal(10,2)"}
    assert table(spark, tmp_path / "out") == [(wide, Decimal("2.00"))]
    # a table that an earlier version has made, of DECIMAL(38, 18) for each decimal
    sink, columns = (
        DeltaSink(str(tmp_path / "old")),
        "SELECT CAST(1.99 AS DECIMAL({0})) AS s, array(CAST(2 AS DECIMAL({0}))) l",
    )
    for epoch, size in enumerate(("38, 18", "10, 2")):
        sink.write_frame(spark.sql(columns.format(size)), context(epoch))
    assert table(spark, tmp_path / "old") == [(Decimal("1.99"), [Decimal(2)])] * 2
    with pytest.raises(ProgramError, match=r"'s' is decimal\(38,18\) in the table and decimal\(38,0\) in the rows"):
        sink.write_frame(spark.sql(columns.format("38, 0")), context(2))


def test_a_value_that_fits_no_column_is_named_with_its_sink(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path / "job")
    numbers = env.from_collection([1, 10**40], type_info=Types.BIG_INT())
    rows = numbers.map(lambda n: Row(r=Row(n=n)), output_type=Types.ROW_NAMED(["r"], [BIG]))
    rows.sink_to(DeltaSink(str(tmp_path / "out"))).uid("huge")
    with pytest.raises(TypeMismatchError, match=r"the value 1000+.*field 'r', field 'n'.*uid huge"):
        env.execute("huge")


class TimeOf(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value["n"])


class Late(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield f"{value['n']} {ctx.timestamp() <= ctx.timer_service().current_watermark()}"


def test_functions_of_a_chain_see_the_watermark_of_earlier_epochs_of_a_source_that_spark_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number, times in enumerate(((1_000, 5_000), (2_000, 9_000), (3_000, 10_000))):
        path = tmp_path / "in" / f"{number}.csv"
        path.write_text("".join(f"{time}\n" for time in times))
        os.utime(path, (1_000 + number, 1_000 + number))
    frame = spark.readStream.schema("n LONG").option("maxFilesPerTrigger", 1).csv(str(tmp_path / "in"))
    env = environment(tmp_path / "job", execution__trigger="available-now")
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf())
    times = env.from_spark(frame, "times").assign_timestamps_and_watermarks(strategy)
    with times.process(Late(), Types.STRING()).execute_and_collect() as found:
        assert list(found) == ["1000 False", "5000 False", "2000 True", "9000 False", "3000 True", "10000 False"]
