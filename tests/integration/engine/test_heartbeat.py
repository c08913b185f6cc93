"""Time goes on without data in jobs that need it, and only in those."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Time, WatermarkStrategy
from flinkish.common.time import Duration
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction
from flinkish.datastream.window import TumblingEventTimeWindows
from tests.integration.engine.collecting import by_field, collecting, environment
from tests.support.processes import wait_until

TIMEOUT_S = 120


class Reminder(KeyedProcessFunction):
    """Says each key once more, a little later."""

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 300)
        yield "now", value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "later", ctx.get_current_key()


def monitored(folder: Path) -> FileSource:
    folder.mkdir(exist_ok=True)
    return FileSource.text(str(folder)).monitor()


def put(folder: Path, name: str, text: str) -> None:
    hidden = folder / f".{name}"
    hidden.write_text(text)
    hidden.rename(folder / name)


def test_processing_time_timers_fire_while_the_source_is_silent(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job")
        source = env.add_source(monitored(tmp_path / "in"), "lines")
        # behind another keyed operator: the heartbeat must get that far
        lengths = source.key_by(lambda line: len(line)).map(lambda line: line)
        lengths.key_by(lambda line: line).process(Reminder()).sink_to(collected.sink())
        put(tmp_path / "in", "1.txt", "a\nbb\n")
        client = env.execute_async("reminders")
        try:
            wait_until(lambda: len(collected.rows["out"]) >= 4, TIMEOUT_S, "timers")
        finally:
            client.cancel().result(TIMEOUT_S)
    assert sorted(collected.rows["out"]) == [("later", "a"), ("later", "bb"), ("now", "a"), ("now", "bb")]


@pytest.mark.nightly
def test_an_idle_source_does_not_hold_the_watermark_back(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job", flinkish__epoch__interval="200 ms")
        strategy = by_field(0).with_idleness(Duration.of_millis(500))
        busy_source = DataGeneratorSource(lambda i: (i * 1000, 1), records_per_epoch=10)
        busy = env.from_source(busy_source, by_field(0), "busy")
        silent = env.add_source(monitored(tmp_path / "in"), "silent").map(lambda line: (int(line), 1))
        both = busy.union(silent.assign_timestamps_and_watermarks(strategy))
        windows = both.key_by(lambda e: e[0] % 2).window(TumblingEventTimeWindows.of(Time.seconds(10)))
        windows.reduce(lambda a, b: (max(a[0], b[0]), a[1] + b[1])).sink_to(collected.sink())
        put(tmp_path / "in", "1.txt", "5000\n")
        client = env.execute_async("idle")
        try:
            wait_until(lambda: len(collected.rows["out"]) >= 4, TIMEOUT_S, "windows")
        finally:
            client.cancel().result(TIMEOUT_S)
    first = sorted(collected.rows["out"])[0]
    assert first == (9000, 11)


def test_a_job_without_timers_has_no_epochs_without_data(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job")
        lines = env.from_source(monitored(tmp_path / "in"), WatermarkStrategy.no_watermarks(), "lines")
        lines.map(lambda line: (line, 1)).key_by(lambda p: p[0]).sum(1).sink_to(collected.sink())
        put(tmp_path / "in", "1.txt", "a\n")
        client = env.execute_async("quiet")
        try:
            wait_until(lambda: len(collected.rows["out"]) == 1, TIMEOUT_S, "the first line")
            put(tmp_path / "in", "2.txt", "a\n")
            wait_until(lambda: len(collected.rows["out"]) == 2, TIMEOUT_S, "the second line")
        finally:
            client.cancel().result(TIMEOUT_S)
    assert collected.rows["out"] == [("a", 1), ("a", 2)]
    assert sorted(path.name for path in (tmp_path / "job" / "spark" / "commits").glob("[0-9]*")) == ["0", "1"]
