"""Epochs are sized by what they take. Nothing here asserts how long anything takes, only how many records an epoch has
and that some of the results come before the last record."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Time, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.functions import AggregateFunction
from flinkish.datastream.window import TumblingProcessingTimeWindows
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport
from tests.integration.engine.collecting import collecting, environment

RECORDS = 4_000


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def slow(value: int) -> int:
    time.sleep(0.002)
    return value


class Sizes(JobObserver):
    """How many records each epoch has read."""

    def __init__(self) -> None:
        self.records: list[int] = []

    def epoch_done(self, report: EpochReport) -> None:
        self.records.append(report.records_in)


def run(env: StreamExecutionEnvironment) -> list[int]:
    """Run the job to its end; returns how many records each epoch has read."""
    client, sizes = env.execute_async("sizes"), Sizes()
    client.run.observers.append(sizes)  # type: ignore[attr-defined]
    client.get_job_execution_result().result()
    return sizes.records


@pytest.mark.nightly
def test_a_slow_program_over_a_bounded_source_has_small_epochs_so_that_processing_time_windows_fire_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = environment(tmp_path, flinkish__epoch__target_duration="1 s")
    source = DataGeneratorSource(lambda index: index, RECORDS, splits=2)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(slow)
    with collecting() as collected:
        windows = numbers.key_by(lambda value: value % 3).window(TumblingProcessingTimeWindows.of(Time.seconds(1)))
        windows.aggregate(Count()).sink_to(collected.sink())
        sizes, fired = run(env), collected.rows["out"]
    assert sum(sizes) == RECORDS
    assert sizes[0] == 2, "nothing is known of the records yet"
    assert sizes[1] <= 2_000
    assert all(after <= max(16 * before, 2_000) for before, after in zip(sizes, sizes[1:]))
    # with one epoch for all records, all of these windows would begin and end with the input
    assert 0 < sum(fired) <= RECORDS


def test_a_bounded_source_with_a_rate_keeps_it_and_the_job_ends(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path)
    source = DataGeneratorSource(lambda index: index, 30, records_per_second=10)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    with collecting() as collected:
        numbers.sink_to(collected.sink())
        sizes = run(env)
        assert sorted(collected.rows["out"]) == list(range(30))
    assert sizes[0] == 0, "when the job begins no record is due"
