"""The cost of wide jobs in the driver and in the planner of the sources, part by part, without Spark and a cluster.

    python -m benchmarks.scale [--sizes 100 1000 4000]

Each part is the real code over synthetic reports, splits and subtasks. The table says where a part runs, its cost in
processor time (the best of some calls), what it grows with, the cost of one more of that, and the number at which the
part alone takes a second. `PARTS` is the list of the parts; a test checks that none of them grows with the square of
its size.
"""

from __future__ import annotations

import argparse
import atexit
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from flinkish.common import Configuration, Duration, WatermarkStrategy
from flinkish.common.serialization import SimpleStringSchema
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.kafka.enumerator import KafkaSplitEnumerator
from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer, KafkaSourceSettings
from flinkish.connectors.kafka.source import KafkaPartitionsSource
from flinkish.core.sink import NO_FENCE
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitReader, SplitSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobmanager.execution_graph import ExecutionGraph
from flinkish.jobmanager.job.settings import job_settings
from flinkish.jobmanager.submitted_program import captured
from flinkish.runtime.epoch.files import EpochFiles, PreparedEpoch, PreparedEpochs, identities_of
from flinkish.runtime.epoch.steps import EpochReport, sum_up
from flinkish.runtime.exchange.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.job.deployment import REPORT_VERTEX, JobDescriptor, sink_vertex
from flinkish.runtime.job.report import TaskPlace, TaskReport
from flinkish.runtime.operators.source_and_sink import encode_committables
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.alignment import Reached
from flinkish.runtime.sources.job_enumerator import JobEnumerator
from flinkish.runtime.sources.progress import encode_position, shown_position
from flinkish.runtime.sources.split_list import SegmentsInMemory
from flinkish.spark.place import AddressBook, partitions_of
from flinkish.spark.sink_stage import EpochRunner
from flinkish.spark.worker import deploy

#: The number of subtasks of parts that grow with splits, and of partitions of those that grow with subtasks.
SUBTASKS, PARTITIONS = 100, 100
#: The most subtasks that are measured, whatever the sizes are.
MOST_SUBTASKS = 4_000
#: The number of files that come with each epoch.
NEW_FILES = 10
#: The number of records that wait in each partition when the source starts.
BACKLOG = 10_000_000
#: The most calls of a part, and the processor time after which no further call is made.
CALLS, ENOUGH_S = 5, 0.5

Call = Callable[[], object]


class SyntheticCluster:
    """Answers the questions of an enumerator as a Kafka cluster with one topic would. All partitions have the same
    end, which rises with each question for ends."""

    def __init__(self, partitions: int) -> None:
        self._partitions = [("clicks", number) for number in range(partitions)]
        self._end = BACKLOG
        #: the number of requests so far
        self.requests = 0

    def partitions(self, topics: Sequence[str], pattern: str | None) -> list[tuple[str, int]]:
        """All partitions."""
        self.requests += 1
        return self._partitions

    def first_offsets(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Nothing was deleted."""
        self.requests += 1
        return dict.fromkeys(partitions, 0)

    def next_offsets(
        self, partitions: Sequence[tuple[str, int]], committed: bool = False
    ) -> dict[tuple[str, int], int]:
        """A thousand records more than at the last question."""
        self.requests += 1
        self._end += 1_000
        return dict.fromkeys(partitions, self._end)

    def close(self) -> None:
        """There is nothing to close."""


class _SyntheticSettings(KafkaSourceSettings):
    def cluster(self, purpose: str) -> Any:
        return SyntheticKafka.cluster


class SyntheticKafka(KafkaPartitionsSource):
    """A Kafka source of one topic; requests go to `cluster`, which is the same for all copies of the source."""

    cluster = SyntheticCluster(0)

    def __init__(self, partitions: int, bounded: bool = False) -> None:
        stopping = KafkaOffsetsInitializer.latest() if bounded else None
        super().__init__(_SyntheticSettings("nowhere:9092", SimpleStringSchema(), ("clicks",), stopping=stopping))
        type(self).cluster = SyntheticCluster(partitions)

    def declared_splits(self) -> tuple[str, ...]:
        """Unknown."""
        return ()

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        """An enumerator that asks the synthetic cluster; a sample is a request as well."""
        return KafkaSplitEnumerator(self._settings, restored, sample=self._sample)

    def _sample(self, partition: tuple[str, int], position: int) -> float:
        self.cluster.requests += 1
        return 200.0


class SyntheticFiles(SplitSource):
    """A source of files with one record each, of which ten more come with each plan.

    Args:
        files: the number of files that there are at first.
    """

    def __init__(self, files: int) -> None:
        self.files = files

    @property
    def bounded(self) -> bool:
        """Files come for ever."""
        return False

    @property
    def produced_type(self) -> TypeInformation:
        """Anything."""
        return Types.PICKLED_BYTE_ARRAY()

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        """Finds the files."""
        return _FilesEnumerator(self.files)

    def create_reader(self) -> SplitReader:
        """There is none: what is measured is the plan."""
        raise RuntimeError("the files of this source are planned, and never read")


class _FilesEnumerator(SplitEnumerator):
    def __init__(self, files: int) -> None:
        self._files = files

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        end = max(self._files, len(known) + NEW_FILES)
        names = (f"s3://bucket/clicks/2026/11/25/part-{number:08}.parquet" for number in range(len(known), end))
        return [SourceSplit(name, 0, 1, {"bytes": 1, "modified_ns": 1}) for name in names]

    @property
    def complete(self) -> bool:
        return False


# ---------------------------------------------------------------------------------------------------- jobs and reports


def job_of(source: SplitSource, parallelism: int, aligned: bool = False) -> JobDescriptor:
    """A job with this source, a keyed level and a sink, all of this parallelism."""

    def program() -> None:
        # an epoch reads as much as there is, however long that takes
        settings = Configuration.from_dict({"flinkish.epoch.target-duration": "0 ms"})
        env = StreamExecutionEnvironment.get_execution_environment(settings)
        env.set_parallelism(parallelism)
        env.set_max_parallelism(max(128, parallelism))
        strategy: WatermarkStrategy = WatermarkStrategy.for_monotonous_timestamps()
        if aligned:
            strategy = strategy.with_watermark_alignment("group", Duration.of_seconds(1))
        env.from_source(source, strategy, "clicks").uid("clicks").key_by(lambda click: click).reduce(max).print()
        env.execute("scale")

    submitted = captured(program)
    generator = JobGraphGenerator(submitted.graph, job_settings(submitted.configuration), submitted.chaining)
    return generator.generate("00" * 16, submitted.name)


def report_of(vertex: int, subtask: int, epoch: int, accumulators: bytes = b"") -> TaskReport:
    """The report of a task. Its source reads a new file in each epoch."""
    return TaskReport(
        vertex,
        subtask,
        records_in=1_000,
        records_out=1_000,
        watermark_ms=1_700_000_000_000 + epoch,
        state_bytes=100_000,
        splits=() if vertex else (f"s3://bucket/clicks/part-{epoch:08}-{subtask}.parquet",),
        metrics={"clicks.numRecordsIn": 1_000.0, "clicks.numRecordsOut": 1_000.0},
        accumulators=accumulators,
        worker="host-17 4711",
        place=TaskPlace("host-17", "17", 2 * epoch + vertex, subtask, 0, 3 * epoch + subtask, 4711),
        work_ms=12.5,
    )


def reports_of(job: JobDescriptor, epoch: int, accumulators: bytes = b"") -> list[bytes]:
    """The reports of all tasks of a job, encoded; that of the first task has the accumulators."""
    tasks = [(vertex.id, subtask) for vertex in job.vertices for subtask in range(vertex.parallelism)]
    return [
        report_of(vertex, subtask, epoch, b"" if number else accumulators).encode()
        for number, (vertex, subtask) in enumerate(tasks)
    ]


def report_of_epoch(job: JobDescriptor, epoch: int) -> EpochReport:
    """The report of an epoch of all tasks."""
    return sum_up(job, epoch, 1, map(TaskReport.decode, reports_of(job, epoch)), ())


class DriverEpochs:
    """Runs the driver's side of a job's epochs: what the rows that leave the tasks become. No task runs.

    Args:
        job: the job.
        directory: the job directory.
    """

    def __init__(self, job: JobDescriptor, directory: str) -> None:
        self.job = job
        self.files = EpochFiles(f"{directory}/spark/prepared", f"{directory}/changelog")
        self._runner = EpochRunner(deploy(job, partitions_of(job), files=self.files))

    def run(self, epoch: int, reports: Sequence[bytes]) -> EpochReport:
        """Run an epoch in which the tasks report this."""
        table = pa.table({"vertex": [REPORT_VERTEX] * len(reports), "buffer": pa.array(reports, pa.binary())})
        context = SimpleNamespace(getLocalProperty=lambda key: None, setLocalProperty=lambda key, value: None)
        frame = SimpleNamespace(toArrow=lambda: table, sparkSession=SimpleNamespace(sparkContext=context))
        return self._runner.run(frame, epoch, lambda: None)


# ---------------------------------------------------------------------------------------------------- parts


def _scratch() -> str:
    """A directory that is deleted when the process ends."""
    directory = tempfile.mkdtemp(prefix="flinkish-scale-")
    Path(directory, "spark").mkdir()
    atexit.register(shutil.rmtree, directory, True)
    return directory


def _first_plan(source: SplitSource) -> Call:
    job = job_of(source, SUBTASKS)
    return lambda: JobEnumerator(job, SegmentsInMemory(), ManualClock()).next_offset({})


def _plan(source: SplitSource, parallelism: int = SUBTASKS, aligned: bool = False) -> Call:
    job, store = job_of(source, parallelism, aligned), SegmentsInMemory()
    enumerator = JobEnumerator(job, store, ManualClock())
    offset = enumerator.next_offset({})
    if isinstance(source, SyntheticKafka):
        # all partitions have been sampled, as after many epochs
        partitions = source.cluster.partitions((), None)
        samples = [[*partition, BACKLOG // 2, 200.0] for partition in partitions]
        offset["sources"]["clicks"]["state"] = {"samples": samples, "stops": {}}
        enumerator = JobEnumerator(job, store, ManualClock())
        enumerator.next_offset(offset)
    reached = Reached({"clicks": {f"clicks-{number}": 1_700_000_000_000 for number in range(PARTITIONS)}})
    return lambda: enumerator.next_offset(offset, reached=reached)


def _ranges(source: SplitSource, parallelism: int = SUBTASKS) -> Call:
    enumerator = JobEnumerator(job_of(source, parallelism), SegmentsInMemory(), ManualClock())
    offset = enumerator.next_offset({})
    end = enumerator.next_offset(offset)
    return lambda: enumerator.shares(offset, end)


def _acknowledged(source: SplitSource) -> Call:
    store = SegmentsInMemory()
    enumerator = JobEnumerator(job_of(source, SUBTASKS), store, ManualClock())
    progress = enumerator.progress(enumerator.next_offset(enumerator.next_offset({})), "clicks")
    return lambda: progress.positions(store, progress.oldest_open)


def _position(source: SplitSource) -> Call:
    store = SegmentsInMemory()
    enumerator = JobEnumerator(job_of(source, SUBTASKS), store, ManualClock())
    progress = enumerator.progress(enumerator.next_offset({}), "clicks")
    return lambda: shown_position(encode_position(progress, store))


def _steps(subtasks: int) -> Call:
    job = job_of(SyntheticFiles(0), subtasks)
    epochs = DriverEpochs(job, _scratch())
    reports = reports_of(job, 1)
    return lambda: epochs.run(1, reports)


def _executions(subtasks: int) -> Call:
    graph, report = _graph(subtasks)
    return lambda: graph.epoch_done(report)


def _description(subtasks: int) -> Call:
    graph, report = _graph(subtasks)
    graph.epoch_done(report)
    return graph.describe


def _graph(subtasks: int) -> tuple[ExecutionGraph, EpochReport]:
    job = job_of(SyntheticFiles(0), subtasks)
    graph = ExecutionGraph(job, ManualClock())
    graph.attempt_started(0)
    graph.query_started()
    return graph, report_of_epoch(job, 1)


def _prepared_epoch(subtasks: int) -> tuple[JobDescriptor, PreparedEpoch]:
    job = job_of(SyntheticFiles(0), subtasks)
    committables = [
        encode(
            BufferHeader(BufferKind.COMMITTABLES, sink_vertex(0), subtask, 0, "0/0", 0, 0, 1),
            encode_committables(1, ["x" * 900]),
        )
        for subtask in range(subtasks)
    ]
    reports = tuple(reports_of(job, 1))
    return job, PreparedEpoch(1, 1, False, reports, tuple(committables), identities_of(job))


def _prepare(subtasks: int) -> Call:
    _, prepared = _prepared_epoch(subtasks)
    epochs = PreparedEpochs(_scratch())
    return lambda: epochs.write(prepared, NO_FENCE, replacing=True)


def _targets(subtasks: int) -> Call:
    job, prepared = _prepared_epoch(subtasks)
    return lambda: prepared.by_target(job)


def _addresses(subtasks: int) -> Call:
    job = job_of(SyntheticFiles(0), subtasks)
    return lambda: AddressBook(job, subtasks)


@dataclass(frozen=True)
class Part:
    """A part of an epoch that does not run in the tasks.

    Args:
        name: what is done.
        process: where it is done: in the driver, in the planner beside it, or in each worker.
        grows_with: what its size is the number of.
        prepare: prepares it for a size; returns the call that does it.
        per_epoch: whether it is done in each epoch.
    """

    name: str
    process: str
    grows_with: str
    prepare: Callable[[int], Call]
    per_epoch: bool = True


PARTS = (
    Part("first plan of a Kafka backlog", "planner", "partitions", lambda n: _first_plan(SyntheticKafka(n)), False),
    Part("plan of Kafka", "planner", "partitions", lambda n: _plan(SyntheticKafka(n))),
    Part("plan of Kafka, aligned", "planner", "partitions", lambda n: _plan(SyntheticKafka(n), aligned=True)),
    Part("plan of Kafka", "planner", "subtasks", lambda n: _plan(SyntheticKafka(PARTITIONS), n)),
    Part("ranges of Kafka", "planner", "partitions", lambda n: _ranges(SyntheticKafka(n))),
    Part("ranges of Kafka", "planner", "subtasks", lambda n: _ranges(SyntheticKafka(PARTITIONS), n)),
    Part("ranges of bounded Kafka", "planner", "subtasks", lambda n: _ranges(SyntheticKafka(n, bounded=True), n)),
    Part("positions to acknowledge", "driver", "partitions", lambda n: _acknowledged(SyntheticKafka(n))),
    Part("files found and planned", "planner", "new files", lambda n: _first_plan(SyntheticFiles(n)), False),
    Part("plan of 10 new files", "planner", "files ever read", lambda n: _plan(SyntheticFiles(n))),
    Part("ranges of 10 new files", "planner", "files ever read", lambda n: _ranges(SyntheticFiles(n))),
    Part("position in a checkpoint", "driver", "files ever read", lambda n: _position(SyntheticFiles(n)), False),
    Part("reports of an epoch", "driver", "subtasks", _steps),
    Part("execution graph", "driver", "subtasks", _executions),
    Part("description of the job", "driver", "subtasks", _description, False),
    Part("prepared epoch", "driver", "subtasks", _prepare),
    Part("targets of the commit", "driver", "subtasks", _targets),
    Part("addresses", "each worker", "subtasks", _addresses, False),
)


# ---------------------------------------------------------------------------------------------------- the table


def cost_s(call: Call) -> float:
    """The processor time of a call: the best of some."""
    best = float("inf")
    begin_s = time.process_time()
    for _ in range(CALLS):
        before_s = time.process_time()
        call()
        now_s = time.process_time()
        best = min(best, now_s - before_s)
        if now_s - begin_s > ENOUGH_S:
            break
    return best


def row(part: Part, costs: Mapping[int, float], sizes: Sequence[int]) -> str:
    """The line of a part, given its cost in seconds at some of the sizes."""
    smallest, largest = min(costs), max(costs)
    more_us = max(0.0, 1e6 * (costs[largest] - costs[smallest]) / (largest - smallest))
    grows = 0.0 if not costs[smallest] else costs[largest] / costs[smallest]
    # less than doubled while the size grew tenfold and more: it does not grow with it
    limit = f"{1e6 / more_us:>12,.0f}" if grows > 2 and more_us else f"{'-':>12}"
    cells = " ".join(f"{1e3 * costs[size]:>9.2f}" if size in costs else f"{'':>9}" for size in sizes)
    often = "epoch" if part.per_epoch else "once"
    return f"{part.name:<30} {part.process:<12} {often:<6} {cells}  {part.grows_with:<16} {more_us:>8.2f} {limit}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Cost of wide jobs in driver and planner, without a cluster.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 4_000, 10_000], metavar="N")
    sizes = sorted(parser.parse_args().sizes)
    if len(sizes) < 2 or sizes[1] > MOST_SUBTASKS:
        parser.error(f"name two sizes or more, two of which are at most {MOST_SUBTASKS:,}")
    header = " ".join(f"{size:>9,}" for size in sizes)
    print(
        f"{'term, cost in ms':<42} {'where':<12} {'when':<6} {header}  {'grows with':<16} {'us each':>8} {'1 s at':>12}"
    )
    for part in PARTS:
        possible = [size for size in sizes if part.grows_with != "subtasks" or size <= MOST_SUBTASKS]
        print(row(part, {size: cost_s(part.prepare(size)) for size in possible}, sizes), flush=True)


if __name__ == "__main__":
    main()
