"""A slow sink slows the source of a job on Spark: nothing grows but what the source has left, and everybody can see who
is slow. `benchmarks.slow_sink` shows that memory, files and durations stay flat over a longer time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flinkish.common import Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.core.sink import CommitContext, Committer, SinkWriter, WriterSink
from flinkish.jobmanager.client import RunClient
from flinkish.jobmanager.job.description import JobDescription
from flinkish.runtime.task.stack_samples import StackSamples
from tests.integration.engine.collecting import environment
from tests.support.described_jobs import NOW_MS, ask
from tests.support.processes import wait_until

TIMEOUT_S = 180
PER_SECOND, SINK_PER_SECOND = 200_000, 1_000


class SlowWriter(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        # two subtasks
        time.sleep(2 * len(values) / SINK_PER_SECOND)
        return []

    def prepare_commit(self) -> list[Any]:
        return []


class NothingToCommit(Committer):
    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        return 0


class SlowSink(WriterSink):
    def create_writer(self) -> SinkWriter:
        return SlowWriter()

    def create_committer(self) -> Committer:
        return NothingToCommit()


def test_a_slow_sink_slows_the_source_and_is_seen_as_what_is_slow(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(
        tmp_path,
        flinkish__epoch__target_duration="1 s",
        rest__flamegraph__enabled="true",
        rest__flamegraph__num_samples="20",
        rest__flamegraph__refresh_interval="5 s",
    )
    source = DataGeneratorSource(list, None, Types.LONG(), splits=2, of_list=True, records_per_second=PER_SECOND)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda number: number % 100).map(lambda number: number).uid("same").sink_to(SlowSink()).uid("sink")
    client = env.execute_async("slow sink")
    assert isinstance(client, RunClient)
    samples: list[StackSamples] = []

    def sampled() -> bool:
        found = client.stack_samples()
        samples[:] = [] if found is None else [found]
        asleep = [stack for one in samples for stack in one.stacks if stack.on_cpu is False]
        return any("SlowWriter.write" in frame for stack in asleep for frame in stack.frames)

    def held_back() -> JobDescription | None:
        # the rates of the first minute count the start of the workers, too
        job = client.describe()
        found = ask((job,), f"/jobs/{job.id}/vertices/{job.vertices[0].job_vertex_id}/backpressure")
        return job if len(job.epochs) >= 6 and found["backpressureLevel"] == "high" else None

    try:
        wait_until(sampled, TIMEOUT_S, "stacks of the sink")
        job = wait_until(held_back, TIMEOUT_S, "back pressure of the source")
        assert job is not None
    finally:
        client.cancel().result(TIMEOUT_S)
    numbers_, same = job.vertices
    # a source that is not held back would have read what it has
    assert max(epoch.records_in for epoch in job.epochs) <= 20 * SINK_PER_SECOND < numbers_.backlog
    assert all(epoch.plan_ms is not None for epoch in job.epochs[1:])
    found = {one.uid: ask((job,), f"/jobs/{job.id}/vertices/{one.job_vertex_id}/backpressure") for one in job.vertices}
    assert found["same"]["backpressureLevel"] == "ok"
    busy = {uid: max(one["busyRatio"] for one in each["subtasks"]) for uid, each in found.items()}
    assert busy["same"] > 4 * busy["numbers"]
    for one in (subtask for each in found.values() for subtask in each["subtasks"]):
        assert abs(one["busyRatio"] + one["ratio"] + one["idleRatio"] - 1) < 1e-6
    graph = ask((job,), f"/jobs/{job.id}/vertices/{same.job_vertex_id}/flamegraph", NOW_MS, samples[0], type="off_cpu")
    assert graph["data"]["value"] > 0, "it sleeps"
