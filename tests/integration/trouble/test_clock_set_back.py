"""Spark waits for the next epoch by the machine's clock. A job does not wait for an hour that comes twice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flinkish.common import WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.runtime.phases import ClockWatch, ManualClock
from tests.integration.engine.collecting import collecting, environment
from tests.support.processes import wait_until

HOUR_MS = 3_600_000
TIMEOUT_S = 120


def watch_of_a_clock_that_is_set_back() -> ClockWatch:
    clock, uptime = ManualClock(10 * HOUR_MS), ManualClock()
    watch = ClockWatch(clock, uptime.now_ms)
    clock.advance(-HOUR_MS)
    return watch


@pytest.mark.nightly
def test_a_job_whose_clock_is_set_back_by_an_hour_goes_on_and_says_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with collecting() as collected:
        # the next epoch is due in an hour, as it is for a job whose clock was set back by one
        env = environment(tmp_path / "job", flinkish__epoch__interval="1 h")
        source = DataGeneratorSource(lambda i: i, records_per_epoch=5)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        numbers.key_by(lambda i: i % 2).reduce(lambda a, b: a + b).uid("sums").sink_to(collected.sink())
        client = env.execute_async("numbers")
        run, rows = client.run, collected.rows["out"]

        def got(count: int) -> Callable[[], bool]:
            return lambda: len(rows) >= count or run.result.done()

        try:
            wait_until(got(5), TIMEOUT_S, "the first epoch")
            with caplog.at_level(logging.WARNING, "flinkish"):
                run.attempt.clock_watch = watch_of_a_clock_that_is_set_back()
                wait_until(got(10), TIMEOUT_S, "the next epoch")
            assert "job 'numbers': the clock was set back by 3600.0 s; the job goes on" in caplog.text
        finally:
            client.cancel().result(TIMEOUT_S)
        run.result.result(TIMEOUT_S)
    assert sorted(rows) == [0, 1, 2, 4, 6, 9, 12, 16, 20, 25]
