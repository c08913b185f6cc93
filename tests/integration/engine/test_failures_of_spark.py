"""What Spark really raises: each is known for what it is by Spark's own words, also where a record is quoted."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import WatermarkStrategy
from flinkish.datastream.connectors.spark import SparkSource
from flinkish.errors import (
    CorruptStateError,
    EnvironmentVersionError,
    FencedError,
    FlinkishError,
    IncompatibleJobError,
    OperationError,
    UserCodeError,
)
from flinkish.spark.failures import translate
from tests.integration.engine.collecting import environment

CELL = "[CONCURRENT_QUERY] Another instance of this query was just started by a concurrent session."


class Missing:
    """Cannot be unpickled in a worker: it needs a module that flinkish does not have."""

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("flinkish.missing",)


class Query:
    """A query of Spark over a folder of texts, which can be started again."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.checkpoint = spark, folder, folder / "checkpoint"
        (folder / "in").mkdir()
        (folder / "in" / "a.txt").write_text(f"{CELL}\n")

    def start(self, frame: Any = None, **trigger: Any) -> Any:
        texts = self.spark.readStream.text(str(self.folder / "in")) if frame is None else frame
        writer = texts.writeStream.format("noop").option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, frame: Any = None) -> None:
        self.start(frame).awaitTermination()


def worker_without_module(query: Query) -> None:
    missing = Missing()

    def needs(batches: Iterator[Any]) -> Iterator[Any]:
        assert missing is not None
        yield from batches

    query.run(query.spark.readStream.text(str(query.folder / "in")).mapInArrow(needs, "value STRING"))


def worker_that_quotes(query: Query) -> None:
    def quotes(batches: Iterator[Any]) -> Iterator[Any]:
        raise ValueError(next(batches).column(0)[0].as_py())
        yield

    query.run(query.spark.readStream.text(str(query.folder / "in")).mapInArrow(quotes, "value STRING"))


def raised_by_sql(query: Query) -> None:
    query.run(query.spark.readStream.text(str(query.folder / "in")).selectExpr("raise_error(value) AS value"))


def cast(query: Query) -> None:
    query.run(query.spark.readStream.text(str(query.folder / "in")).selectExpr("CAST(value AS INT) AS value"))


def another_source(query: Query) -> None:
    query.run()
    texts = query.spark.readStream.text(str(query.folder / "in"))
    query.run(texts.union(query.spark.readStream.text(str(query.folder / "in"))))


def started_twice(query: Query) -> None:
    setting = "spark.sql.streaming.stopActiveRunOnRestart"
    before = query.spark.conf.get(setting)
    query.spark.conf.set(setting, "false")
    running = query.start(processingTime="1 hour")
    try:
        query.start(processingTime="1 hour")
    finally:
        query.spark.conf.set(setting, before or "true")
        running.stop()


def emptied_metadata(query: Query) -> None:
    query.run()
    (query.checkpoint / ".metadata.crc").unlink()
    (query.checkpoint / "metadata").write_text("")
    query.run()


def flipped_offsets(query: Query) -> None:
    query.run()
    (query.checkpoint / "offsets" / "0").write_text("v1\n{}\n{}\n")
    query.run()


@pytest.mark.parametrize(
    ("fails", "kind", "said"),
    [
        (worker_without_module, EnvironmentVersionError, "has no flinkish"),
        (worker_that_quotes, OperationError, "the Spark query failed"),
        (raised_by_sql, OperationError, "the Spark query failed"),
        (cast, OperationError, "the Spark query failed"),
        (another_source, IncompatibleJobError, "the query does not fit"),
        (started_twice, FencedError, "another query writes"),
        (emptied_metadata, CorruptStateError, "damaged or missing"),
        (flipped_offsets, CorruptStateError, "offsets/0 is damaged or missing"),
    ],
)
def test_a_failure_of_spark_is_known_by_its_own_words(
    fails: Callable[[Query], None], kind: type[FlinkishError], said: str, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(Exception) as failed:
        fails(Query(spark, tmp_path))
    error = translate(failed.value, "job 'shop'")
    assert type(error) is kind, str(error)
    assert said in str(error)


def test_a_job_has_not_failed_before_the_last_of_its_tasks_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    # Spark cannot end a task in the midst of a row, and this row takes a second or more
    sums = "aggregate(sequence(1, 400000 * length(value)), 0L, (sum, n) -> sum + n)"
    (tmp_path / "in").mkdir()
    for text in ("slow", "bad"):
        (tmp_path / "in" / text).write_text(f"{text}\n")
    frame = spark.readStream.text(str(tmp_path / "in")).selectExpr(f"IF(value = 'slow', {sums}, -1L) AS n")
    env = environment(tmp_path / "job")
    numbers = env.from_source(SparkSource(frame, bounded=True), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(lambda row: 1 // (row.n + 1)).print()
    with pytest.raises(UserCodeError, match="ZeroDivisionError"):
        env.execute("numbers")
    running = str(spark.sparkContext._jsc.sc().taskScheduler().runningTasksByExecutors())
    assert re.findall(r"-> (\d+)", running) == ["0"], "a task may still write state beside that of the next start"
