"""User code that asks for a commit has the next epoch planned at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flinkish.common import WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction
from tests.integration.engine.collecting import collecting, environment


class CountingAndAsking(KeyedProcessFunction):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        ctx.request_commit()
        yield value


def test_a_job_that_asks_in_each_epoch_does_not_wait_for_the_interval(spark: SparkSession, tmp_path: Path) -> None:
    # by its interval it would take hours
    env = environment(tmp_path, flinkish__epoch__interval="1 h")
    source = DataGeneratorSource(lambda i: i, 30, records_per_epoch=10)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    with collecting() as collected:
        numbers.key_by(lambda i: i % 3).process(CountingAndAsking()).sink_to(collected.sink())
        env.execute("asking")
        assert sorted(collected.rows["out"]) == list(range(30))
