"""What Spark's UI, its progress and the job's figures say of a job: the names of its jobs, and records in and out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from flinkish.common import Row, Types, WatermarkStrategy
from flinkish.datastream.connectors.datagen import DataGeneratorSource
from flinkish.datastream.connectors.delta import DeltaSink
from flinkish.datastream.connectors.file_system import FileSink
from flinkish.datastream.formats.parquet import ParquetBulkWriters
from flinkish.jobmanager.client import RunClient
from tests.integration.engine.collecting import environment
from tests.integration.engine.test_describe import eventually
from tests.support.epoch_reports import execute_observed, reports_of

COUNT = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])


class InputRows(StreamingQueryListener):
    """Remembers the number of input rows of each batch of the query that has begun since, and whether it has ended:
    events of earlier queries of the session may still come."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.over = False
        self._runs: list[UUID] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._runs.append(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if event.progress.runId in self._runs:
            self.rows.append(event.progress.numInputRows)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.over = self.over or event.runId in self._runs


@contextmanager
def listening(spark: SparkSession) -> Iterator[InputRows]:
    """A listener for the one query that runs inside the context, which has heard all of it afterwards."""
    listener = InputRows()
    spark.streams.addListener(listener)
    try:
        yield listener
        deadline = time.monotonic() + 60
        while not listener.over and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)


def descriptions(spark: SparkSession, name: str) -> list[set[str]]:
    """The descriptions of all jobs and of all stages that name this job, as Spark's UI shows them."""
    store = spark.sparkContext._jsc.sc().statusStore()
    none = spark.sparkContext._jvm.java.util.Collections.emptyList()
    quantiles = getattr(store, "stageList$default$4")()
    found = []
    for shown in (store.jobsList(none), store.stageList(none, False, False, quantiles, none)):
        all_of_them = [shown.apply(index).description() for index in range(shown.size())]
        found.append({one.get() for one in all_of_them if one.isDefined() and one.get().startswith(f"{name}: ")})
    return found


def test_jobs_of_spark_are_named_and_records_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    written = str(tmp_path / "written")
    # while a checkpoint is taken, epochs leave it the cores
    often = {"execution__checkpointing__interval": "100 ms", "flinkish__epoch__interval": "2 s"}
    env = environment(tmp_path / "job", parallelism__default="1", **often)
    source = DataGeneratorSource(lambda n: n, None, records_per_epoch=30)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counts = numbers.key_by(lambda n: n % 3).map(lambda n: Row(key=n % 3, n=n), COUNT).name("count").uid("count")
    counts.sink_to(DeltaSink(str(tmp_path / "table"))).uid("table").name("table")
    counts.sink_to(lambda frame, epoch: frame.write.mode("append").parquet(written)).uid("function").name("write")
    files = FileSink.for_bulk_format(str(tmp_path / "files"), ParquetBulkWriters.for_row_type(COUNT)).build()
    counts.filter(lambda row: row.key == 0).name("zero").sink_to(files).uid("files").name("files")
    with listening(spark) as progress:
        client = execute_observed(env, "shown")
        assert isinstance(client, RunClient)
        eventually(lambda: client.describe().checkpoints.latest_completed)
        client.stop_with_savepoint(False, str(tmp_path)).result(120)
        client.get_job_execution_result().result(120)

    reports = [report for report in reports_of(client.run) if report.records_in]
    assert [(report.split_records_in, report.sink_records) for report in reports] == [
        (30, {"table": 30, "function": 30, "files": 10})
    ] * len(reports)
    metrics = client.describe().metrics
    assert (metrics["records_in"], metrics["records_out"]) == (30 * len(reports), 70 * len(reports))
    # Spark tells its listeners when it has time for it
    eventually(lambda: [rows for rows in progress.rows if rows] == [30] * len(reports))
    assert spark.read.parquet(str(tmp_path / "files")).count() == 10 * len(reports), "bulk files are a plain folder"
    jobs, stages = descriptions(spark, "shown")
    assert jobs == stages
    assert jobs > {
        "shown: epoch 0, Source: numbers | count -> Sink: table -> Sink: write -> zero -> Sink: files",
        "shown: epoch 0, commit of Sink: table",
        "shown: epoch 0, commit of Sink: write",
        "shown: epoch 0, commit of Sink: files",
        "shown: checkpoint 1 of epoch 0",
        f"shown: savepoint of epoch {reports[-1].epoch}",
    }
