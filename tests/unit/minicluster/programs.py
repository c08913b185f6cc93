"""Programs for the minicluster: sources of given records, sinks that remember, and runs over any number of epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flinkish.common import Configuration
from flinkish.common.time import Duration
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from flinkish.connectors.numbered_splits import NumberedSplitSource
from flinkish.core.sink import CommitContext, Committer, Guarantee, SinkWriter, WriterSink
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.clock import Clock, ManualClock
from flinkish.runtime.deployment import JobDescriptor, JobSettings


class ListSource(NumberedSplitSource):
    """Given records per split. ``pauses`` of a split: how many epochs it gives nothing at first; so many positions have
    no record, and an epoch passes one of them."""

    def __init__(self, *splits: list[Any], pauses: tuple[int, ...] = (), endless: bool = False) -> None:
        self._splits = splits
        self._pauses = pauses or (0,) * len(splits)
        self._endless = endless

    @property
    def bounded(self) -> bool:
        return not self._endless

    @property
    def produced_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()

    @property
    def splits(self) -> int:
        return len(self._splits)

    def size_of(self, split: int) -> int | None:
        return None if self._endless else self._last(split)

    def end_of_epoch(self, split: int, position: int) -> int:
        return position + 1 if position < self._pauses[split] else self._last(split)

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        pause = self._pauses[split]
        return self._splits[split][max(0, start - pause) : max(0, stop - pause)]

    def _last(self, split: int) -> int:
        return self._pauses[split] + len(self._splits[split])


class MemorySink(WriterSink):
    """Keeps what was committed, by (subtask, epoch): an epoch delivered again must be the same, and counts once."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self) -> None:
        self.commits: dict[tuple[int, int], list[Any]] = {}
        self.contexts: list[CommitContext] = []

    @property
    def values(self) -> list[Any]:
        """All that was committed, by subtask within an epoch."""
        in_order = sorted(self.commits.items(), key=lambda commit: (commit[0][1], commit[0][0]))
        return [value for _, values in in_order for value in values]

    def create_writer(self) -> SinkWriter:
        return _Writer()

    def create_committer(self) -> Committer:
        return _Committer(self)


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._held: list[Any] = []

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        self._held += values
        return []

    def prepare_commit(self) -> list[Any]:
        held, self._held = self._held, []
        return held


class _Committer(Committer):
    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    def commit(self, committables: Iterator[list[Any]], context: CommitContext) -> int:
        values = [value for batch in committables for value in batch]
        self._sink.contexts.append(context)
        place = (context.subtask, context.epoch)
        if place in self._sink.commits:
            assert self._sink.commits[place] == values, "an epoch was delivered again with other records"
            return 0
        self._sink.commits[place] = values
        return len(values)


class TimeOf(TimestampAssigner):
    """The event time of ``(key, value, time)``."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[-1])


def bounded(delay_ms: int = 0) -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(delay_ms))
    return strategy.with_timestamp_assigner(TimeOf())


def environment(parallelism: int = 2, max_parallelism: int | None = None) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(parallelism)
    if max_parallelism is not None:
        env.set_max_parallelism(max_parallelism)
    return env


def job_of(env: StreamExecutionEnvironment, chaining: bool = True, **settings: Any) -> JobDescriptor:
    settings = {"auto_watermark_interval_ms": 1, **settings}
    return JobGraphGenerator(env._graph, JobSettings(**settings), chaining).generate("job", "a job")


def run(
    job: JobDescriptor,
    per_epoch: int = 1_000_000,
    *,
    store: StateStore | None = None,
    clock: Clock | None = None,
    restart_every: int | None = None,
    on_epoch: Callable[[], None] = lambda: None,
) -> int:
    """Run to the end; returns the number of epochs. ``restart_every``: with a new TaskManager after so many epochs."""
    store = store or StateStore()
    clock = clock or ManualClock()
    epochs = 0
    cluster = MiniCluster(job, clock, store, per_epoch)
    while not store.finished:
        if restart_every and epochs % restart_every == 0:
            cluster.dispose()
            cluster = MiniCluster(job, clock, store, per_epoch)
        cluster.run_epoch()
        epochs += 1
        on_epoch()
        assert epochs < 10_000
    return epochs
