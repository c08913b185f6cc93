"""A job that is started again on its directory goes on from the last committed epoch; what may not go on is told."""

from __future__ import annotations

import gc
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import Configuration, JobStatus, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import DataStream, KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from flinkish.datastream.functions import CheckpointedFunction
from flinkish.datastream.state import ListStateDescriptor
from flinkish.errors import FencedError, IncompatibleJobError, UserCodeError
from tests.integration.engine.collecting import Collected, collecting, environment
from tests.support.processes import wait_until

TIMEOUT_S = 120


def numbers(env: StreamExecutionEnvironment, count: int | None = None, per_epoch: int = 20) -> DataStream:
    source = DataGeneratorSource(lambda i: i, count, records_per_epoch=per_epoch, splits=2)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")


def counted(stream: DataStream, keys: int = 7) -> DataStream:
    """(key, how many so far)."""
    pairs = stream.map(lambda n: (n % keys, 1))
    return pairs.key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")


class Mended(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value


class Poisoned(Mended):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if value == (0, 30):
            raise ValueError("no thirty, please")
        yield value


def run_until(env: StreamExecutionEnvironment, rows: list[Any], count: int) -> Any:
    """Start the job, cancel it when there are so many rows; the client."""
    client = env.execute_async("counting")
    try:
        wait_until(lambda: len(rows) >= count or client.get_job_execution_result().done(), TIMEOUT_S, "results")
    finally:
        client.cancel().result(TIMEOUT_S)
    client.get_job_execution_result().result(TIMEOUT_S)
    return client


def assert_each_count_once(rows: list[tuple[Any, int]]) -> None:
    """Per key 1, 2, 3, ...: nothing lost, nothing twice, state kept."""
    by_key = defaultdict(list)
    for key, count in rows:
        by_key[key].append(count)
    for key, counts in by_key.items():
        assert counts == list(range(1, len(counts) + 1)), f"key {key}"


def test_a_cancelled_job_ends_after_its_epoch_and_goes_on_when_started_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    with collecting() as collected:
        rows, before = collected.rows["out"], 0
        for _ in range(3):
            env = environment(tmp_path / "job")
            counted(numbers(env)).sink_to(collected.sink())
            client = run_until(env, rows, before + 40)
            assert client.get_job_status().result() is JobStatus.CANCELED
            assert len(rows) % 20 == 0
            before = len(rows)
    assert_each_count_once(rows)


@pytest.mark.nightly
def test_another_limit_of_an_epoch_does_not_shift_generated_sources(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        rows, before = collected.rows["out"], 0
        for limit in (7, 10, 3):
            env = environment(tmp_path / "job", flinkish__epoch__max_records_per_source=limit)
            source = DataGeneratorSource(lambda i: i, splits=2)
            stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
            stream.map(lambda n: n).sink_to(collected.sink())
            run_until(env, rows, before + 28)
            before = len(rows)
    # a limit may let one split be a record ahead of the other
    for split in (0, 1):
        numbers = sorted(number for number in rows if number % 2 == split)
        assert numbers == list(range(split, 2 * len(numbers), 2))


@pytest.mark.nightly
def test_a_failing_function_is_told_with_its_traceback_first_and_mended_the_job_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job")
        bad = counted(numbers(env, 300)).key_by(lambda p: p[0]).process(Poisoned()).uid("poisoned").name("Poison")
        bad.sink_to(collected.sink())
        with pytest.raises(UserCodeError) as caught:
            env.execute("poisoned job")
        text = str(caught.value)
        assert text.startswith("Traceback")
        assert text.index("no thirty, please") < text.index("uid poisoned")
        assert "raise ValueError" in text
        assert "key 0" in text and "epoch " in text and "Poison" in text
        assert "poisoned job" in text
        got = len(collected.rows["out"])
        assert 0 < got < 300
        env = environment(tmp_path / "job")
        good = counted(numbers(env, 300)).key_by(lambda p: p[0]).process(Mended()).uid("poisoned").name("Poison")
        good.sink_to(collected.sink())
        env.execute("poisoned job")
    assert len(collected.rows["out"]) == 300
    assert_each_count_once(collected.rows["out"])


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "keyed"),
    [
        (SystemExit, True),
        pytest.param(Unprintable, False, marks=pytest.mark.nightly),
        pytest.param(lambda: ValueError("x" * 3_000_000), True, marks=pytest.mark.nightly),
    ],
)
def test_a_worker_tells_whatever_user_code_raises_with_its_operator(
    spark: SparkSession, tmp_path: Path, keyed: bool, error: Callable[[], BaseException]
) -> None:
    def fail(value: Any) -> Any:
        raise error()

    env = environment(tmp_path / "job")
    stream = env.from_collection([1, 2, 3])
    (stream.key_by(lambda n: n) if keyed else stream).map(fail).uid("failing").print()
    with pytest.raises(UserCodeError) as caught:
        env.execute("failing")
    text = str(caught.value)
    assert text.startswith("Traceback (most recent call last):") and "raise error()" in text
    assert f"{type(error()).__name__} in user code" in text and "uid failing" in text
    assert len(text) < 30_000


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_the_state_of_200_000_keys_is_kept_over_epochs_and_read_by_fresh_tasks(
    spark: SparkSession, tmp_path: Path, backend: str
) -> None:
    keys, per_epoch = 200_000, 100_000
    with collecting() as collected:
        rows, before = collected.rows["out"], 0
        for _ in range(2):
            env = environment(tmp_path / "job", state__backend__type=backend)
            source = DataGeneratorSource(lambda r: [i % keys for i in r], records_per_epoch=per_epoch, of_list=True)
            stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
            counted(stream, keys).filter(lambda p: p[0] % 5_000 == 0).sink_to(collected.sink())
            run_until(env, rows, before + 60)
            before = len(rows)
    assert len({key for key, _ in rows}) == keys // 5_000
    assert_each_count_once(rows)


@pytest.mark.nightly
def test_a_second_driver_on_the_same_directory_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def job(collected: Collected) -> StreamExecutionEnvironment:
        env = environment(tmp_path / "job")
        counted(numbers(env)).sink_to(collected.sink())
        return env

    with collecting() as collected:
        first = job(collected).execute_async("same")
        try:
            with pytest.raises(FencedError, match=r"another driver \(process \d+ on .*one driver per job directory"):
                job(collected).execute("same")
            wait_until(lambda: len(collected.rows["out"]) >= 20, TIMEOUT_S, "results of the first")
        finally:
            first.cancel().result(TIMEOUT_S)
        first.get_job_execution_result().result(TIMEOUT_S)


class CountsAll(MapFunction, CheckpointedFunction):
    """Counts the records of its subtask, in state."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("n", Types.LONG()))
        self.n = sum(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.n])

    def map(self, value: Any) -> Any:
        self.n += 1
        return self.n


@pytest.mark.nightly
def test_state_of_an_operator_behind_the_head_of_its_task_is_kept_until_it_is_given_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    def job(uid: str, ignore: bool = False) -> StreamExecutionEnvironment:
        env = environment(tmp_path / "job", parallelism__default=1)
        env.configure(Configuration().set_boolean("execution.state-recovery.ignore-unclaimed-state", ignore))
        head = numbers(env).rebalance().map(abs).uid("head")
        head.map(CountsAll()).uid(uid).sink_to(collected.sink()).uid("sink")
        return env

    with collecting() as collected:
        rows = collected.rows["out"]
        run_until(job("op"), rows, 20)
        with pytest.raises(
            IncompatibleJobError, match=r"operator 'op' \(Map\), which has state, is gone from the task"
        ):
            job("renamed").execute("counting")
        run_until(job("op"), rows, 2 * len(rows))
        assert sorted(rows) == list(range(1, len(rows) + 1))
        before = len(rows)
        run_until(job("renamed", ignore=True), rows, before + 20)
        run_until(job("renamed"), rows, len(rows) + 20)
        assert sorted(rows[before:]) == list(range(1, len(rows) - before + 1))


@pytest.mark.nightly
def test_a_stateless_operator_may_be_added_to_a_chain(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        rows = collected.rows["out"]
        env = environment(tmp_path / "job")
        counted(numbers(env)).sink_to(collected.sink())
        run_until(env, rows, 20)
        before = len(rows)
        env = environment(tmp_path / "job")
        counted(numbers(env).map(lambda n: n)).filter(lambda p: True).map(lambda p: p).sink_to(collected.sink())
        run_until(env, rows, before + 1)
    assert_each_count_once(rows)


def test_no_query_leaves_a_thread_or_an_open_file_in_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    def run(times: int) -> None:
        for number in range(times):
            env = environment(tmp_path / f"{times}-{number}")
            env.from_collection([number]).map(lambda n: n).sink_to(collected.sink())
            env.execute("short")

    def left() -> list[int]:
        gc.collect()
        return [threading.active_count(), len(os.listdir("/proc/self/fd"))]

    with collecting() as collected:
        run(2)
        before = left()
        run(3)
        # threads that have been told to end take a moment; other parts of py4j may open something now and then
        wait_until(lambda: all(now <= then + 2 for now, then in zip(left(), before)), 20, "what the queries have left")


@pytest.mark.nightly
def test_two_jobs_of_one_session_run_at_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        clients = []
        for name in ("a", "b"):
            env = environment(tmp_path / name)
            counted(numbers(env)).sink_to(collected.sink(name))
            clients.append(env.execute_async(name))
        try:
            wait_until(lambda: min(len(collected.rows[n]) for n in "ab") >= 40, TIMEOUT_S, "results of both")
        finally:
            for client in clients:
                client.cancel()
        for client in clients:
            client.get_job_execution_result().result(TIMEOUT_S)
    for name in ("a", "b"):
        assert_each_count_once(collected.rows[name])
