"""The job that `benchmarks.slow_sink` watches: a fast source, a shuffle, and a sink that takes few records per second.

    python -m benchmarks.pipelines.slow_sink_job FOLDER --source 200000 --sink 1000 --slow writer --seconds 60

It prints a line of JSON per epoch (`EpochDescription`, the busy and back-pressured share of each vertex, what the sink
has committed), and ends with the time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import spark_settings
from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.core.sink import CommitContext, Committer, SinkWriter, WriterSink
from flinkish.datastream import StreamExecutionEnvironment

SUBTASKS = 2


class SlowWriter(SinkWriter):
    """Takes so many records per second, and keeps their number; 0: any number."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._records = 0

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        """Take a batch."""
        self._records += len(values)
        if self._per_second:
            time.sleep(len(values) / self._per_second)
        return []

    def prepare_commit(self) -> list[Any]:
        """The number of records of the epoch."""
        records, self._records = self._records, 0
        return [records]


class SlowCommitter(Committer):
    """Commits so many records per second; 0: any number."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second

    def commit(self, committables: Iterator[list[int]], context: CommitContext) -> int:
        """Commit the records of a subtask."""
        records = sum(sum(batch) for batch in committables)
        if self._per_second:
            time.sleep(records / self._per_second)
        return records


class SlowSink(WriterSink):
    """Takes so many records per second and subtask, either as it writes them or as it commits them."""

    def __init__(self, per_second: float, slow: str) -> None:
        self._writes = per_second if slow == "writer" else 0
        self._commits = per_second if slow == "commit" else 0

    def create_writer(self) -> SinkWriter:
        """The writer of one subtask."""
        return SlowWriter(self._writes)

    def create_committer(self) -> Committer:
        """The committer."""
        return SlowCommitter(self._commits)


def build(env: Any, source: DataGeneratorSource, sink: WriterSink) -> None:
    """The source, a shuffle by key, and the sink behind it."""
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda number: number % 1_000).map(lambda number: number, Types.LONG()).uid("same").sink_to(
        sink
    ).uid("sink")


def numbers(per_second: float | None, count: int | None) -> DataGeneratorSource:
    """A source of numbers, of which so many become due per second, or so many are there at once."""
    return DataGeneratorSource(list, count, Types.LONG(), splits=SUBTASKS, of_list=True, records_per_second=per_second)


def environment(folder: Path, settings: list[str]) -> Any:
    """Two subtasks, epochs of 1 s without a pause, checkpoints every 10 s."""
    configuration = Configuration()
    fixed = [
        f"flinkish.job.dir={folder / 'job'}",
        "execution.checkpointing.interval=10s",
        "flinkish.epoch.target-duration=1s",
        "flinkish.progress=never",
        f"parallelism.default={SUBTASKS}",
        *(f"{key}={value}" for key, value in spark_settings.OF_A_JOB.items()),
    ]
    for setting in (*fixed, *settings):
        key, _, value = setting.partition("=")
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def shares(job: Any) -> dict[str, dict[str, float]]:
    """Uid of a vertex -> the largest busy and back-pressured milliseconds per second of its subtasks."""
    return {
        vertex.uid: {
            name: round(max(getattr(one.current.rates, name, 0.0) for one in vertex.subtasks))
            for name in ("busy_ms", "backpressured_ms")
        }
        for vertex in job.vertices
    }


def main() -> None:
    """Print a line per epoch until the time is over, or the input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=float, default=None, help="records that become due per second")
    parser.add_argument("--count", type=int, default=None, help="records in all; default: without end")
    parser.add_argument("--sink", type=float, default=0.0, help="records that the sink takes per second; 0: any number")
    parser.add_argument("--slow", choices=["writer", "commit"], default="writer")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further configuration")
    options = parser.parse_args()
    env = environment(options.folder, options.set)
    build(env, numbers(options.source, options.count), SlowSink(options.sink / SUBTASKS, options.slow))
    client = env.execute_async("slow sink")
    result, told, until_s = client.get_job_execution_result(), -1, time.monotonic() + options.seconds
    while not result.done() and time.monotonic() < until_s:
        time.sleep(0.2)
        job = client.describe()
        for epoch in job.epochs:
            if epoch.epoch > told:
                told = epoch.epoch
                left = {vertex.uid: vertex.backlog for vertex in job.vertices if vertex.backlog}
                print(json.dumps({**asdict(epoch), "vertices": shares(job), "backlog": left}), flush=True)
    if result.done():
        result.result()
    else:
        client.cancel().result(60)


if __name__ == "__main__":
    main()
