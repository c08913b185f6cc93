"""Jobs of the checkpoint tests, and what tests ask of their checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from flinkish.checkpoint.manifest import Savepoint
from flinkish.checkpoint.rows import open_table
from flinkish.common import Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction, RuntimeContext
from flinkish.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.jobmanager import spark_run
from flinkish.jobmanager.savepoint import take_savepoint
from tests.integration.engine.collecting import Collected, by_field, environment
from tests.support.processes import wait_until

TIMEOUT_S = 240
KEYS = 50
PER_EPOCH = 10
#: Of epochs: while a checkpoint is taken, the next ones leave it some of the two cores.
INTERVAL = "1 s"


def start_counting(collected: Collected, folder: Path, **more: Any) -> Any:
    """A job without end that counts records per key, with a checkpoint as often as possible."""
    env = environment(
        folder / "job", execution__checkpointing__interval="50 ms", flinkish__epoch__interval=INTERVAL, **more
    )
    source = DataGeneratorSource(lambda i: (f"u{i * 7 % KEYS}", 1), records_per_epoch=PER_EPOCH)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    events.key_by(lambda e: e[0]).sum(1).uid("counts").sink_to(collected.sink())
    return env.execute_async("counting")


def counts_at(epoch: int) -> dict[str, int]:
    """Key -> records of it in the epochs up to this one."""
    counts: dict[str, int] = {}
    for index in range((epoch + 1) * PER_EPOCH):
        key = f"u{index * 7 % KEYS}"
        counts[key] = counts.get(key, 0) + 1
    return counts


class Everything(KeyedProcessFunction):
    """All kinds of state, cleared at times and expiring; timers of both kinds, some of them deleted."""

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = StateTtlConfig.new_builder(Time.seconds(1)).build()
        last = ListStateDescriptor("last", Types.LONG())
        seen = MapStateDescriptor("seen", Types.LONG(), Types.LONG())
        last.enable_time_to_live(ttl)
        seen.enable_time_to_live(ttl)
        self._sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self._last = runtime_context.get_list_state(last)
        self._seen = runtime_context.get_map_state(seen)
        self._most = runtime_context.get_reducing_state(ReducingStateDescriptor("most", max, Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        _, time_ms = value
        timers = ctx.timer_service()
        self._sum.update((self._sum.value() or 0) + 1)
        self._last.add(time_ms)
        self._seen.put(time_ms % 5, time_ms)
        self._most.add(time_ms)
        if time_ms % 11 == 0:
            self._sum.clear()
        timers.register_event_time_timer(time_ms + 1_500)
        timers.register_processing_time_timer(timers.current_processing_time() + 700)
        if time_ms % 3 == 0:
            timers.delete_event_time_timer(time_ms + 1_500)
        yield time_ms

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        if timestamp % 500 == 0:
            self._most.clear()
        yield timestamp


def start_changing(collected: Collected, folder: Path, **more: Any) -> Any:
    """A job without end that changes all kinds of state in all ways."""
    env = environment(
        folder / "job",
        execution__checkpointing__interval="50 ms",
        execution__checkpointing__savepoint_dir=str(folder / "savepoints"),
        execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
        flinkish__epoch__interval=INTERVAL,
        **more,
    )
    source = DataGeneratorSource(lambda i: (i * 7 % KEYS, i * 100), records_per_epoch=PER_EPOCH)
    events = env.from_source(source, by_field(1), "events").uid("events")
    events.key_by(lambda e: (e[0], "k")).process(Everything()).uid("everything").sink_to(collected.sink())
    windows = (
        events.key_by(lambda e: str(e[0]))
        .window(TumblingEventTimeWindows.of(Time.seconds(3)))
        .reduce(lambda a, b: (a[0], max(a[1], b[1])))
    )
    windows.uid("windows").sink_to(collected.sink("windows"))
    return env.execute_async("changing")


def stop_with_both(client: Any) -> tuple[str, str]:
    """Paths of a checkpoint and of a savepoint of the last epoch of a job, which has ended then."""
    paths: list[str] = []

    def take(run: Any, directory: str | None) -> str:
        paths.append(str(run.checkpoints.take_last(TIMEOUT_S)))
        return take_savepoint(run, directory)

    with patch.object(spark_run, "take_savepoint", take):
        savepoint = client.stop_with_savepoint(False).result(TIMEOUT_S)
    return paths[0], savepoint


def of_status(client: Any, status: str) -> list[Any]:
    """The checkpoints of a status."""
    return [checkpoint for checkpoint in client.run.checkpoints.describe() if checkpoint.status == status]


def wait_for_checkpoints(client: Any, count: int, status: str = "COMPLETED") -> list[Any]:
    """That many more checkpoints."""
    before = len(of_status(client, status))
    return wait_for_all_checkpoints(client, before + count, status)[before:]


def wait_for_all_checkpoints(client: Any, count: int, status: str) -> list[Any]:
    """The checkpoints of a status once there are that many."""

    def enough() -> bool:
        if client.get_job_execution_result().done():
            client.get_job_execution_result().result()
            raise AssertionError("the job has ended")
        return len(of_status(client, status)) >= count

    wait_until(enough, TIMEOUT_S, f"{count} checkpoints that are {status}")
    return of_status(client, status)


def rows_of(spark: SparkSession, path: str) -> list[tuple[str, ...]]:
    """All rows of a checkpoint or savepoint."""
    return sorted(tuple(row) for row in open_table(spark, Savepoint.open(path)).collect())
