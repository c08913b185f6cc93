"""Stop with drain: the results are those of the same input with an end, wherever the driver dies in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Time, WatermarkStrategy
from flinkish.common.job_status import JobStatus
from flinkish.common.typeinfo import Types
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import CollectionSource, DataGeneratorSource
from flinkish.core.source import Source
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from tests.integration.engine.collecting import Collected, by_field, collecting, environment
from tests.support.epoch_reports import execute_observed, reports_of
from tests.support.processes import wait_until

TIMEOUT_S = 120


class Bills(KeyedProcessFunction):
    """Sums per key; an event-time timer far ahead tells the sum, one of processing time would, but never comes."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._sum.update((self._sum.value() or 0) + value[1])
        timers = ctx.timer_service()
        timers.register_event_time_timer(10**9 + value[2] // 20_000)
        timers.register_processing_time_timer(timers.current_processing_time() + 10**9)
        yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, self._sum.value()


def event(index: int) -> tuple[str, int, int]:
    """(key, amount, time)"""
    return f"u{index * 5 % 13}", index % 17, index * 250


def build(env: StreamExecutionEnvironment, source: Source, collected: Collected) -> None:
    events = env.from_source(source, by_field(2, 1_000), "events").uid("events")
    keyed = events.key_by(lambda e: e[0])
    keyed.process(Bills()).uid("bills").sink_to(collected.sink("bills"))
    windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(8))).reduce(
        lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]))
    )
    windows.uid("windows").sink_to(collected.sink("windows"))
    # windows of windows: their watermark comes from other tasks
    every = windows.uid("windows").map(lambda e: (e[2] // 20_000, e[1]))
    again = every.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(Time.seconds(20)))
    again.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("again").sink_to(collected.sink("again"))


def bounded(count: int) -> dict[str, list[Any]]:
    """The results of so many events and their end."""
    with collecting() as collected:
        env = environment(execution__target="minicluster")
        build(env, DataGeneratorSource(event, count, splits=2), collected)
        env.execute("plain")
        return collected.sorted()


@pytest.mark.nightly
def test_a_drained_job_has_the_results_of_the_same_input_with_an_end(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job")
        build(env, DataGeneratorSource(event, records_per_epoch=30, splits=2), collected)
        client: Any = execute_observed(env, "endless")
        wait_until(lambda: len(collected.rows["windows"]) >= 20, TIMEOUT_S, "windows")
        savepoint = client.stop_with_savepoint(True, None).result(TIMEOUT_S)
        assert client.get_job_status().result() is JobStatus.FINISHED
        read = sum(report.records_in for report in reports_of(client.run))
        assert collected.sorted() == bounded(read)
        manifest = json.loads((Path(savepoint) / "manifest.json").read_text())
        assert manifest["epoch"] == client.run.last_epoch == reports_of(client.run)[-2].epoch + 1
        splits = json.loads(manifest["sources"]["events"])["splits"]
        assert sum(position for _, position, *_ in splits) == read
        state = spark.read.format("delta").load(f"{savepoint}/state").where("kind <> '__watermark__'").collect()
        assert {row["state"] for row in state if row["uid"] in ("windows", "again")} == set()
        # it has ended: started again it does nothing
        rows = collected.sorted()
        again = environment(tmp_path / "job")
        build(again, DataGeneratorSource(event, records_per_epoch=30, splits=2), collected)
        again.execute("endless")
        assert collected.sorted() == rows


class OfLine(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


@pytest.mark.nightly
def test_sources_that_wait_or_have_ended_or_never_spoke_are_drained_as_well(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Files that are watched, a collection that has ended, and an endless source that has nothing to say."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.txt").write_text("1000\n2000\n9000\n")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(OfLine())
    with collecting() as collected:
        env = environment(tmp_path / "job")
        watched = env.from_source(FileSource.text(str(folder)).monitor(), strategy, "lines").uid("lines")
        ended = env.from_source(CollectionSource(["3000"], Types.STRING()), strategy, "ended").uid("ended")
        (tmp_path / "none").mkdir()
        silent = env.from_source(FileSource.text(str(tmp_path / "none")).monitor(), strategy, "none").uid("none")
        numbers = watched.union(ended, silent).map(lambda line: (0, int(line)))
        windows = numbers.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(Time.seconds(5)))
        windows.reduce(lambda a, b: (0, a[1] + b[1])).uid("windows").sink_to(collected.sink())
        client: Any = execute_observed(env, "waiting")
        wait_until(lambda: sum(r.records_in for r in reports_of(client.run)) >= 4, TIMEOUT_S, "records")
        assert collected.rows["out"] == []
        client.stop_with_savepoint(True, None).result(TIMEOUT_S)
    assert sorted(collected.rows["out"]) == [(0, 6000), (0, 9000)]


@pytest.mark.nightly
@pytest.mark.parametrize("drain", [False, True])
def test_a_job_that_has_ended_cannot_be_stopped(spark: SparkSession, tmp_path: Path, drain: bool) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job")
        build(env, DataGeneratorSource(event, 10), collected)
        client: Any = env.execute_async("short")
        client.get_job_execution_result().result(TIMEOUT_S)
        with pytest.raises(Exception, match=r"the job has ended \(FINISHED\): it cannot be stopped"):
            client.stop_with_savepoint(drain, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    assert not (tmp_path / "savepoints").exists()
