"""Checkpoints as Delta tables: what SQL reads of them, what is kept of them and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from flinkish.common import Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.data_generator import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction, RuntimeContext
from flinkish.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.jobmanager.savepoints.manifest import read_manifest
from flinkish.jobmanager.savepoints.savepoint import take_savepoint
from tests.integration.engine.collecting import Collected, by_field, collecting, environment
from tests.support.processes import wait_until

TIMEOUT_S = 120
KEYS = 50


def start(collected: Collected, folder: Path, **more: Any) -> Any:
    """A job without end that counts records per key."""
    env = environment(
        folder / "job",
        execution__checkpointing__interval="300 ms",
        flinkish__epoch__interval="100 ms",
        **more,
    )
    source = DataGeneratorSource(lambda i: (f"u{i * 7 % KEYS}", 1), records_per_epoch=10)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    events.key_by(lambda e: e[0]).sum(1).uid("counts").sink_to(collected.sink())
    return env.execute_async("counting")


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
        _, index = value
        timers = ctx.timer_service()
        self._sum.update((self._sum.value() or 0) + 1)
        self._last.add(index)
        self._seen.put(index % 5, index)
        self._most.add(index)
        if index % 11 == 0:
            self._sum.clear()
        timers.register_event_time_timer(index * 100 + 1_500)
        timers.register_processing_time_timer(timers.current_processing_time() + 700)
        if index % 3 == 0:
            timers.delete_event_time_timer(index * 100 + 1_500)
        yield index

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        if timestamp % 500 == 0:
            self._most.clear()
        yield timestamp


def changing_program(env: Any, collected: Collected) -> None:
    source = DataGeneratorSource(lambda i: (i * 7 % KEYS, i * 100), records_per_epoch=10)
    events = env.from_source(source, by_field(1), "events").uid("events")
    events.key_by(lambda e: (e[0], "k")).process(Everything()).uid("everything").sink_to(collected.sink())
    events.key_by(lambda e: str(e[0])).window(TumblingEventTimeWindows.of(Time.seconds(3))).reduce(
        lambda a, b: (a[0], max(a[1], b[1]))
    ).uid("windows").sink_to(collected.sink("windows"))


def completed(client: Any) -> list[Any]:
    return [c for c in client.run.checkpoints.describe() if c.status == "COMPLETED"]


def failures(client: Any) -> list[str]:
    return [c.failure_reason for c in client.run.checkpoints.describe() if c.status == "FAILED"]


def wait_for_checkpoints(client: Any, count: int) -> list[Any]:
    def enough() -> bool:
        assert not client.get_job_execution_result().done(), client.get_job_execution_result().result()
        return len(completed(client)) >= count

    wait_until(enough, TIMEOUT_S, f"{count} checkpoints")
    return completed(client)


def counts_at(epoch: int) -> dict[str, int]:
    """Key -> records of it in the epochs up to this one."""
    counts: dict[str, int] = {}
    for index in range((epoch + 1) * 10):
        key = f"u{index * 7 % KEYS}"
        counts[key] = counts.get(key, 0) + 1
    return counts


def test_a_checkpoint_is_the_state_of_an_epoch_as_rows_that_sql_reads(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        client = start(
            collected, tmp_path, execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION"
        )
        try:
            wait_for_checkpoints(client, 3)
        finally:
            client.cancel().result(TIMEOUT_S)
    assert failures(client) in ([], ["the job has ended"])
    last = completed(client)[-1]
    manifest = read_manifest(last.path)
    assert manifest.epoch == last.epoch
    assert manifest.sources == last.offsets and set(manifest.sources) == {"events"}
    table = tmp_path / "job" / "checkpoints" / "state"
    rows = spark.sql(
        f"SELECT key, value FROM delta.`{table}` VERSION AS OF {manifest.state.version} "
        "WHERE uid = 'counts' AND key = '\"u21\"'"
    ).collect()
    count = counts_at(last.epoch)["u21"]
    assert [tuple(row) for row in rows] == [('"u21"', f'{{"$tuple": ["u21", {count}]}}')]


def rows_of(spark: SparkSession, path: str) -> list[tuple[str, ...]]:
    """All rows of a checkpoint or savepoint."""
    manifest = read_manifest(path)
    reader = spark.read.format("delta")
    if manifest.state.version is not None:
        reader = reader.option("versionAsOf", manifest.state.version)
    return sorted(tuple(row) for row in reader.load(manifest.table_path(path)).collect())


def test_incremental_checkpoints_hold_what_a_savepoint_of_the_same_epoch_holds(
    spark: SparkSession, tmp_path: Path
) -> None:
    with collecting() as collected:
        env = environment(
            tmp_path / "job",
            execution__checkpointing__interval="1 s",
            execution__checkpointing__savepoint_dir=str(tmp_path / "savepoints"),
            flinkish__epoch__interval="200 ms",
        )
        changing_program(env, collected)
        client = env.execute_async("changing")
        wait_for_checkpoints(client, 3)
        paths: dict[str, Any] = {}

        def both(failure: BaseException | None) -> None:
            paths["checkpoint"] = client.run.checkpoints.take_last(TIMEOUT_S)
            paths["savepoint"] = take_savepoint(client.run, None)

        client.run.stop_and(both)
        client.get_job_execution_result().result(TIMEOUT_S)
    assert not failures(client)
    assert [c.incremental for c in completed(client)][1:] == [True] * (len(completed(client)) - 1)
    assert read_manifest(paths["checkpoint"]).epoch == read_manifest(paths["savepoint"]).epoch
    rows = rows_of(spark, paths["checkpoint"])
    assert rows == rows_of(spark, paths["savepoint"])
    kinds = {row[2] for row in rows}
    assert kinds == {"value", "list", "map", "reducing", "EVENT_TIME", "PROCESSING_TIME", "operator", "__watermark__"}
