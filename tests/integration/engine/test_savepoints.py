"""Savepoints: rows that SQL can read and edit, restored at another parallelism; the results are those of one run."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from flinkish.checkpoint.manifest import Savepoint
from flinkish.common import Time, WatermarkStrategy
from flinkish.common.typeinfo import Types
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import SavepointError
from flinkish.runtime.phases import Phase, hooked
from flinkish.spark.state import BodyToRows
from tests.integration.engine.collecting import Collected, by_field, collecting, environment
from tests.support.kafka_broker import KafkaBroker
from tests.support.processes import wait_until

TIMEOUT_S = 120
RECORDS = 240
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
SMALL: dict[str, Any] = {"parallelism__default": 1, "pipeline__max_parallelism": 4}
LARGE: dict[str, Any] = {"parallelism__default": 3, "pipeline__max_parallelism": 16}


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: int, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> float:
        return float(accumulator[0]) / float(accumulator[1])

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class Everything(KeyedProcessFunction):
    """All kinds of state, and a timer per ten seconds."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self._last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))
        self._seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.LONG(), Types.LONG()))
        self._most = runtime_context.get_reducing_state(ReducingStateDescriptor("most", max, Types.LONG()))
        self._mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        key, amount, time_ms = value
        self._sum.update((self._sum.value() or 0) + amount)
        self._last.update([*self._last, amount][-3:])
        self._seen.put(amount, (self._seen.get(amount) or 0) + 1)
        self._most.add(amount)
        self._mean.add(amount)
        ctx.timer_service().register_event_time_timer(time_ms // 10_000 * 10_000 + 15_000)
        yield (
            key,
            self._sum.value(),
            list(self._last),
            sorted(self._seen.items()),
            self._most.get(),
            self._mean.get(),
        )

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), "timer", timestamp, self._sum.value()


def event(index: int) -> tuple[str, int, int]:
    """(key, amount, time), every tenth 20 s late."""
    return f"u{index * 5 % 13}", index % 17, max(0, index * 250 - (20_000 if index % 10 == 9 else 0))


def build(env: StreamExecutionEnvironment, collected: Collected, process_uid: str = "everything") -> None:
    source = DataGeneratorSource(event, RECORDS, records_per_epoch=30)
    events = env.from_source(source, by_field(2, 1_000), "events").uid("events")
    keyed = events.key_by(lambda e: e[0])
    keyed.process(Everything()).uid(process_uid).sink_to(collected.sink("states"))
    windows = (
        keyed.window(TumblingEventTimeWindows.of(Time.seconds(8)))
        .side_output_late_data(LATE)
        .reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))
        .uid("windows")
    )
    windows.sink_to(collected.sink("windows"))
    windows.get_side_output(LATE).sink_to(collected.sink("late"))


def plain() -> dict[str, list[Any]]:
    """The results of one run without interruption."""
    with collecting() as collected:
        env = environment(execution__target="minicluster", **SMALL)
        build(env, collected)
        env.execute("plain")
        return collected.sorted()


def stopped_half_way(collected: Collected, folder: Path, **more: Any) -> str:
    env = environment(folder / "first", **SMALL, **more)
    build(env, collected)
    client = env.execute_async("first")
    wait_until(lambda: len(collected.rows["states"]) >= 60, TIMEOUT_S, "results")
    path = client.stop_with_savepoint(False, str(folder / "savepoints")).result(TIMEOUT_S)
    assert len(collected.rows["late"]) > 0
    return path


def from_savepoint(folder: Path, path: str, name: str = "second", **more: Any) -> StreamExecutionEnvironment:
    return environment(folder / name, execution__state_recovery__path=path, **{**LARGE, **more})


def test_a_restore_at_another_parallelism_and_max_parallelism_gives_what_one_run_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    with collecting() as collected:
        path = stopped_half_way(collected, tmp_path)
        half = {name: len(rows) for name, rows in collected.rows.items()}
        assert half["states"] < RECORDS
        env = from_savepoint(tmp_path, path, flinkish__epoch__max_records_per_source=1_000)
        build(env, collected)
        env.execute("second")
        assert collected.sorted() == plain()


@pytest.mark.parametrize("first", ["spark", "minicluster"])
def test_a_savepoint_of_spark_is_restored_in_the_minicluster_and_the_other_way_round(
    first: str, spark: SparkSession, tmp_path: Path
) -> None:
    second = {"spark": "minicluster", "minicluster": "spark"}[first]
    with collecting() as collected:
        # in the minicluster, epochs that take as long as it takes to ask for a stop
        with hooked(lambda phase, _: time.sleep(0.1 * (phase is Phase.PLANNED))):
            path = stopped_half_way(collected, tmp_path, execution__target=first)
        assert 0 < len(collected.rows["states"]) < RECORDS
        assert committed_by(path) == "flinkish"
        renamed = from_savepoint(tmp_path, path, execution__target=second)
        build(renamed, collected, process_uid="renamed")
        with pytest.raises(SavepointError, match="operators that the program does not have: everything"):
            renamed.execute("renamed")
        env = from_savepoint(tmp_path, path, "third", execution__target=second)
        build(env, collected)
        env.execute("second")
        assert collected.sorted() == plain()


@pytest.mark.nightly
def test_a_savepoint_is_read_and_edited_with_sql(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        path = stopped_half_way(collected, tmp_path)
        table = spark.read.format("delta").load(f"{path}/state")
        assert table.columns == ["uid", "state", "kind", "key", "namespace", "value"]
        sums = {row["key"]: int(row["value"]) for row in table.where("uid = 'everything' AND state = 'sum'").collect()}
        so_far = {row[0]: row[1] for row in collected.rows["states"] if row[1] != "timer"}
        assert sums == {f'"{key}"': total for key, total in so_far.items()}
        assert committed_by(path) == "flinkish"
        spark.sql(f"UPDATE delta.`{path}/state` SET value = '1000000' WHERE state = 'sum' AND key = '\"u5\"'")
        before = len(collected.rows["states"])
        env = from_savepoint(tmp_path, path)
        build(env, collected)
        env.execute("second")
        after = [row for row in collected.rows["states"][before:] if row[1] != "timer"]
        assert min(row[1] for row in after if row[0] == "u5") >= 1_000_000
        assert max(row[1] for row in after if row[0] != "u5") < 1_000_000


def committed_by(savepoint: str) -> str:
    """Who has written the first version of a savepoint's table."""
    actions = Path(savepoint, "state", "_delta_log", f"{0:020d}.json").read_text().splitlines()
    return str(next(json.loads(action)["commitInfo"]["engineInfo"] for action in actions if "commitInfo" in action))


@pytest.mark.nightly
def test_where_there_are_no_hard_links_spark_writes_the_table_of_a_savepoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: Any, target: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), target)

    with collecting() as collected:
        with monkeypatch.context() as file_system:
            file_system.setattr(os, "link", no_links)
            path = stopped_half_way(collected, tmp_path)
        assert "flinkish" not in committed_by(path)
        files = {Path(file).name for file in spark.read.format("delta").load(f"{path}/state").inputFiles()}
        assert {file.name for file in Path(path, "state").glob("*.parquet")} == files, "nothing is left behind"
        env = from_savepoint(tmp_path, path)
        build(env, collected)
        env.execute("second")
        assert collected.sorted() == plain()


@pytest.mark.nightly
def test_state_that_nobody_claims_is_refused_unless_it_may_be_dropped(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        path = stopped_half_way(collected, tmp_path)
        env = from_savepoint(tmp_path, path)
        build(env, collected, process_uid="renamed")
        with pytest.raises(SavepointError, match="operators that the program does not have: everything"):
            env.execute("renamed")
        env = from_savepoint(tmp_path, path, execution__state_recovery__ignore_unclaimed_state=True)
        build(env, collected, process_uid="renamed")
        env.execute("renamed")
        assert len(collected.rows["windows"]) == len(plain()["windows"])


def test_what_is_no_savepoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        for path, text in ((tmp_path / "nowhere", "there is no savepoint at"), (tmp_path, "is not complete")):
            env = from_savepoint(tmp_path, str(path))
            build(env, collected)
            with pytest.raises(SavepointError, match=text):
                env.execute("second")


class Later(KeyedProcessFunction):
    """Says each key once more, after a while."""

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 4_000)
        yield "now", value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "later", ctx.get_current_key()


@pytest.mark.nightly
def test_processing_time_timers_and_positions_of_files_are_part_of_a_savepoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()

    def put(name: str, *lines: str) -> None:
        (folder / f".{name}").write_text("".join(f"{line}\n" for line in lines))
        (folder / f".{name}").rename(folder / name)

    def start(env: StreamExecutionEnvironment) -> Any:
        lines = env.from_source(FileSource.text(str(folder)).monitor(), WatermarkStrategy.no_watermarks(), "lines")
        lines.uid("lines").key_by(lambda line: line).process(Later()).uid("later").sink_to(collected.sink())
        return env.execute_async("files")

    put("1.txt", "a", "b")
    with collecting() as collected:
        rows = collected.rows["out"]
        client = start(environment(tmp_path / "first", **SMALL))
        wait_until(lambda: len(rows) >= 2, TIMEOUT_S, "the first file")
        path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
        put("2.txt", "c")
        client = start(from_savepoint(tmp_path, path))
        try:
            wait_until(lambda: len(rows) >= 6, TIMEOUT_S, "timers")
        finally:
            client.cancel().result(TIMEOUT_S)
    assert sorted(rows) == sorted((when, key) for when in ("now", "later") for key in "abc")


def test_offsets_of_kafka_are_part_of_a_savepoint(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = f"savepoints-{time.time_ns()}"
    kafka.create_topic(topic, partitions=3)

    def start(env: StreamExecutionEnvironment) -> Any:
        source = (
            KafkaSource.builder()
            .set_bootstrap_servers(kafka.bootstrap_servers)
            .set_topics(topic)
            .set_value_only_deserializer(simple_strings())
            .build()
        )
        lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
        pairs = lines.map(lambda line: (line[0], 1))
        pairs.key_by(lambda p: p[0]).sum(1).uid("sums").sink_to(collected.sink())
        return env.execute_async("kafka")

    with collecting() as collected:
        rows = collected.rows["out"]
        kafka.produce(topic, [f"{'ab'[i % 2]}{i}" for i in range(40)])
        client = start(environment(tmp_path / "first", **SMALL))
        wait_until(lambda: len(rows) >= 40, TIMEOUT_S, "the first records")
        path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(TIMEOUT_S)
        kafka.produce(topic, [f"{'ab'[i % 2]}{i}" for i in range(30)])
        client = start(from_savepoint(tmp_path, path))
        try:
            wait_until(lambda: len(rows) >= 70, TIMEOUT_S, "the other records")
        finally:
            client.cancel().result(TIMEOUT_S)
    assert sorted(rows) == sorted((key, count) for key in "ab" for count in range(1, 36))


def simple_strings() -> Any:
    from flinkish.common.serialization import SimpleStringSchema

    return SimpleStringSchema()


@pytest.mark.nightly
def test_a_savepoint_of_a_running_job_does_not_stop_it(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job", execution__checkpointing__savepoint_dir=str(tmp_path / "savepoints"))
        source = DataGeneratorSource(lambda i: (i % 5, 1), records_per_epoch=10)
        events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
        events.key_by(lambda e: e[0]).sum(1).uid("sums").sink_to(collected.sink())
        client = env.execute_async("running")
        try:
            wait_until(lambda: len(collected.rows["out"]) >= 30, TIMEOUT_S, "results")
            path = client.trigger_savepoint().result()
            taken = len(collected.rows["out"])
            wait_until(lambda: len(collected.rows["out"]) > taken, TIMEOUT_S, "more results")
        finally:
            client.cancel().result(TIMEOUT_S)
    table = spark.read.format("delta").load(f"{path}/state")
    sums = {
        json.loads(row["value"])["$tuple"][1]
        for row in table.where("uid = 'sums' AND kind <> '__watermark__'").collect()
    }
    assert len(sums) == 1
    assert Path(path).parent == tmp_path / "savepoints"


@pytest.mark.parametrize(
    ("interval", "slow_s"),
    [("0 s", 5), ("1 h", 5), pytest.param("0 s", 65, marks=pytest.mark.nightly)],
    ids=["read again", "copied from a checkpoint", "longer than Spark keeps any state"],
)
def test_a_savepoint_that_is_slower_than_epochs_is_one_to_start_from(
    interval: str, slow_s: float, spark: SparkSession, tmp_path: Path
) -> None:
    """Each of the sums of a job that counts by tens is the same for all keys, at the end of any epoch."""

    def slow(phase: Phase, details: dict[str, Any]) -> None:
        # each time, for as long as it takes until nothing of the epoch is left; when epochs wait for it, in vain
        if phase is Phase.SAVEPOINT_READ:
            read.append(details["epoch"])
            least_s, longest_s = (slow_s, slow_s) if slow_s > 5 or read[1:] else (0, TIMEOUT_S)
            begin_s = time.monotonic()
            while (taken_s := time.monotonic() - begin_s) < longest_s and (
                taken_s < least_s or (client.run.last_epoch or 0) < read[-1] + 14
            ):
                time.sleep(0.05)
                held.update(client.describe().warnings)
            latest.append(client.run.last_epoch or 0)

    read, latest, held = list[int](), list[int](), set[str]()
    with collecting() as collected:
        settings = {"execution__checkpointing__interval": interval, "flinkish__epoch__interval": "200 ms"}
        env = environment(tmp_path / "job", **settings)
        source = DataGeneratorSource(lambda i: (i % 5, 1), records_per_epoch=10)
        events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
        events.key_by(lambda e: e[0]).sum(1).uid("sums").sink_to(collected.sink())
        client = env.execute_async("running")
        with hooked(slow):
            path = client.trigger_savepoint(str(tmp_path / "savepoints")).result(2 * TIMEOUT_S)
        wait_until(lambda: (client.run.last_epoch or 0) > latest[-1] + 14, TIMEOUT_S, "later epochs")
        assert client.describe().warnings == ()
        client.cancel().result(TIMEOUT_S)
    epoch = Savepoint.open(path).manifest.epoch
    assert epoch is not None and epoch == read[-1] and len(read) == (1 if interval != "0 s" else 2)
    if interval == "0 s":
        assert latest[0] >= read[0] + 14 and latest[1] < read[1] + 10
        assert held == {f"epochs from {epoch + 6} on wait until a savepoint has read the state of epoch {epoch}"}
    table = spark.read.format("delta").load(f"{path}/state").where("uid = 'sums' AND kind <> '__watermark__'")
    assert {json.loads(row["value"])["$tuple"][1] for row in table.collect()} == {2 * (epoch + 1)}
    assert committed_by(path) == "flinkish"
    (listed,) = (one for one in client.describe().checkpoints.history if one.is_savepoint)
    assert (listed.status, listed.epoch, listed.path) == ("COMPLETED", epoch, path)


@dataclass(frozen=True)
class SlowRows(BodyToRows):
    """Converts state in a Spark task that takes longer than the test as long as there is a file."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = Path(self.state).parent
        while (folder / "slow").exists():
            (folder / "reads").touch()
            time.sleep(0.05)
        yield from super().__call__(batches)


@pytest.mark.parametrize("interval", ["0 s", "1 h"], ids=["of the state", "of a checkpoint"])
def test_a_cancel_aborts_a_savepoint_in_the_midst_of_its_spark_job(
    interval: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job", execution__checkpointing__interval=interval)
        source = DataGeneratorSource(lambda i: (i % 5, 1), records_per_epoch=10)
        events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
        events.key_by(lambda e: e[0]).sum(1).uid("sums").sink_to(collected.sink())
        client = env.execute_async("cancelled")
        wait_until(lambda: collected.rows["out"], TIMEOUT_S, "results")
        (tmp_path / "job" / "slow").touch()
        with monkeypatch.context() as slowly:
            slowly.setattr("flinkish.spark.state.BodyToRows", SlowRows)
            savepoint = client.trigger_savepoint(str(tmp_path / "savepoints"))
            wait_until((tmp_path / "job" / "reads").exists, TIMEOUT_S, "the Spark job of the savepoint")
            begun_s = time.monotonic()
            client.cancel().result(TIMEOUT_S)
            client.run.wait(TIMEOUT_S)
            took_s = time.monotonic() - begun_s
    with pytest.raises(SavepointError, match="the savepoint was aborted: the job is being cancelled"):
        savepoint.result(0)
    assert took_s < 10, "nobody waits for its tasks"
    (tmp_path / "job" / "slow").unlink()
    time.sleep(2)
    assert list((tmp_path / "savepoints").iterdir()) == []
    assert not list((tmp_path / "job").glob("saving-*")), "nothing is left for the next start to remove"
    tracker = spark.sparkContext.statusTracker()
    assert tracker.getActiveJobsIds() == []
