"""`TestingSource` on Spark: pauses, watermarks and a crash happen at their places in the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Time, WatermarkStrategy
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.testing import CrashOnce, End, Pause, StreamRecord, TestingSource, Watermark
from tests.integration.engine.collecting import collecting, environment


@pytest.mark.slow
def test_a_source_that_crashes_once_on_spark_loses_and_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    marker = tmp_path / "crashed"
    restarts = {
        "restart_strategy__type": "fixed-delay",
        "restart_strategy__fixed_delay__attempts": 1,
        "restart_strategy__fixed_delay__delay": "1 ms",
    }
    elements: list[Any] = [StreamRecord(("a", 1), 1), Pause(), StreamRecord(("a", 2), 2), CrashOnce(marker)]
    elements += [StreamRecord(("a", 3), 3), Watermark(9), Pause(), StreamRecord(("a", 4), 5), End()]
    with collecting() as collected:
        env = environment(tmp_path / "job", **restarts)
        stream = env.from_source(TestingSource(*elements), WatermarkStrategy.no_watermarks(), "s").uid("s")
        windows = stream.key_by(lambda value: value[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        windows.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums").sink_to(collected.sink())
        env.execute("marks")
        # the window ended with the watermark in the data: what came behind it was late
        assert collected.rows["out"] == [("a", 6)]
    assert marker.exists()
