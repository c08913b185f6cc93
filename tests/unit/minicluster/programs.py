"""Programs for the minicluster: sources of given records, and runs over any number of epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.common import Configuration
from flinkish.common.time import Duration
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings
from flinkish.runtime.phases import Clock, ManualClock
from flinkish.testing import End, Pause, TestingSource
from tests.support.functions import TimeOf


def list_source(*splits: list[Any], pauses: tuple[int, ...] = (), endless: bool = False) -> TestingSource:
    """Given records per split. ``pauses`` of a split: how many epochs it gives nothing at first."""
    elements = zip(splits, pauses or (0,) * len(splits), strict=True)
    end = [] if endless else [End()]
    return TestingSource.of_splits(*([*[Pause(epochs)] * (epochs > 0), *split, *end] for split, epochs in elements))


#: The event time of ``(key, value, time)``.
LAST_FIELD = TimeOf(lambda record: int(record[-1]))


def bounded(delay_ms: int = 0) -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(delay_ms))
    return strategy.with_timestamp_assigner(LAST_FIELD)


def environment(parallelism: int = 2, max_parallelism: int | None = None) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(parallelism)
    if max_parallelism is not None:
        env.set_max_parallelism(max_parallelism)
    return env


def job_of(env: StreamExecutionEnvironment, chaining: bool = True, **settings: Any) -> JobDescriptor:
    settings = {"auto_watermark_interval_ms": 1, **settings}
    return JobGraphGenerator(env.get_stream_graph(), JobSettings(**settings), chaining).generate("job", "a job")


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
