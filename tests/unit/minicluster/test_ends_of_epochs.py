"""When a job in the minicluster ends its epochs: at a cancellation between two records, and with what is available."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import JobStatus, RestartStrategies, Time, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import AsyncDataStream, AsyncFunction, CoMapFunction, DataStream, KeyedProcessFunction
from flinkish.datastream.connectors.file_system import FileSource
from flinkish.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from flinkish.errors import EpochTimeoutError, UserCodeError
from flinkish.jobmanager.client import RunClient
from flinkish.minicluster import MiniCluster
from flinkish.runtime.task.progress import ProgressReporter
from flinkish.testing import TestingSink
from tests.support.functions import TimeOf
from tests.support.processes import wait_until
from tests.support.programs import job_of, new_environment, results_of

TIMEOUT_S = 30


class Gate:
    """Lets a function through until it has been called at a record; then it waits until the test opens the gate."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.calls = 0

    def passes(self, value: Any) -> Any:
        self.calls += 1
        if self.calls == 5:
            self.reached.set()
            assert self.open.wait(TIMEOUT_S)
        return value


class Processes(KeyedProcessFunction):
    def __init__(self, gate: Gate) -> None:
        self.passes = lambda value: gate.passes(value)

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.passes(value)


class CoMaps(CoMapFunction):
    def __init__(self, gate: Gate) -> None:
        self.passes = lambda value: gate.passes(value)

    def map1(self, value: Any) -> Any:
        return self.passes(value)

    def map2(self, value: Any) -> Any:
        return self.passes(value)


class Asks(AsyncFunction):
    def __init__(self, gate: Gate) -> None:
        self.passes = lambda value: gate.passes(value)

    async def async_invoke(self, value: Any) -> list[Any]:
        return [await asyncio.get_running_loop().run_in_executor(None, self.passes, value)]


def with_times(numbers: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(int))
    return numbers.assign_timestamps_and_watermarks(strategy)


def windowed(windows: Any, gate: Gate, numbers: DataStream) -> DataStream:
    by_key = with_times(numbers).key_by(lambda number: 0)
    return by_key.window(windows).reduce(lambda a, b: gate.passes(b))


def of_key(numbers: DataStream) -> Any:
    return numbers.key_by(lambda number: 0)


#: where a function takes long
SLOW: dict[str, Callable[[Gate, DataStream], DataStream]] = {
    "map": lambda gate, numbers: numbers.map(lambda n: gate.passes(n)),
    "behind other operators": lambda gate, numbers: numbers.map(str).filter(bool).map(lambda n: gate.passes(n)),
    "filter": lambda gate, numbers: numbers.filter(lambda n: gate.passes(n) >= 0),
    "flat_map": lambda gate, numbers: numbers.flat_map(lambda n: [gate.passes(n)]),
    "key selector": lambda gate, numbers: numbers.key_by(lambda n: gate.passes(n)).map(str),
    "reduce": lambda gate, numbers: of_key(numbers).reduce(lambda a, b: gate.passes(b)),
    "keyed process": lambda gate, numbers: of_key(numbers).process(Processes(gate)),
    "two inputs": lambda gate, numbers: numbers.connect(numbers.map(str)).map(CoMaps(gate)),
    "asynchronous": lambda gate, numbers: AsyncDataStream.ordered_wait(numbers, Asks(gate), Time.seconds(TIMEOUT_S), 1),
    "timestamps": lambda gate, numbers: with_times(numbers.map(lambda n: gate.passes(n))),
    "window": partial(windowed, TumblingEventTimeWindows.of(Time.seconds(1))),
    "sessions": partial(windowed, EventTimeSessionWindows.with_gap(Time.seconds(1))),
    "count window": lambda gate, numbers: of_key(numbers).count_window(3).reduce(lambda a, b: gate.passes(b)),
}


def cancelled(client: Any, gate: Gate) -> None:
    """Cancel the job while a function is at work, and let the function go on."""
    assert isinstance(client, RunClient) and gate.reached.wait(TIMEOUT_S)
    future = client.cancel()
    wait_until(lambda: client.run._cluster is not None and client.run._cluster.has_given_up, TIMEOUT_S, "the request")
    gate.open.set()
    future.result(TIMEOUT_S)
    assert client.get_job_status().result() is JobStatus.CANCELED


@pytest.mark.parametrize("build", SLOW.values(), ids=SLOW)
def test_a_cancellation_ends_an_epoch_between_two_records(build: Any) -> None:
    gate, sink = Gate(), TestingSink()
    env = new_environment(flinkish__minicluster__share_functions="true", flinkish__progress="never")
    numbers = env.from_collection(list(range(100_000)))
    build(gate, numbers).sink_to(sink)
    cancelled(env.execute_async(), gate)
    assert gate.calls <= 7 and sink.values == []


def test_a_cancellation_ends_the_first_epoch_of_a_source_without_end_whose_own_function_takes_long() -> None:
    gate, sink = Gate(), TestingSink()
    env = new_environment(flinkish__minicluster__share_functions="true", flinkish__progress="never")
    source = DataGeneratorSource(lambda index: gate.passes(index))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(str).sink_to(sink)
    cancelled(env.execute_async(), gate)
    assert sink.values == []


def test_an_iterator_of_results_that_is_closed_ends_the_job_at_once() -> None:
    gate = Gate()
    env = new_environment(flinkish__minicluster__share_functions="true", flinkish__progress="never")
    numbers = env.from_source(DataGeneratorSource(lambda n: n), WatermarkStrategy.no_watermarks(), "numbers")
    results = numbers.map(lambda n: gate.passes(n)).execute_and_collect()
    assert gate.reached.wait(TIMEOUT_S)
    closing = threading.Thread(target=results.close)
    closing.start()
    gate.open.set()
    closing.join(TIMEOUT_S)
    assert not closing.is_alive()


def test_an_epoch_that_was_given_up_has_delivered_nothing_and_runs_again_as_a_whole() -> None:
    sink, seen = TestingSink(), list[int]()

    def see(number: int) -> int:
        seen.append(number)
        if seen == [0, 1, 2]:
            cluster.give_up()
        return number

    env = new_environment()
    env.from_collection(list(range(10))).map(see).key_by(lambda n: n % 3).map(str).sink_to(sink)
    job = job_of(env, share_functions=True)
    cluster = MiniCluster(job, progress=ProgressReporter(job, lambda progress: None))
    with pytest.raises(EpochTimeoutError, match="is given up, because the job is being stopped"):
        cluster.run_epoch()
    assert (seen, sink.values, cluster.has_given_up) == ([0, 1, 2], [], True)
    again = MiniCluster(job, store=cluster.store)
    again.run()
    assert sorted(sink.values) == sorted(map(str, range(10)))


def test_a_failure_at_the_cancellation_is_that_of_the_epoch_that_was_given_up() -> None:
    gate = Gate()

    def fails(number: int) -> int:
        gate.passes(number)
        if gate.calls == 5:
            raise ValueError("no more")
        return number

    env = new_environment(flinkish__minicluster__share_functions="true", flinkish__progress="never")
    env.from_collection(list(range(100))).map(fails).print()
    cancelled(env.execute_async(), gate)


# ------------------------------------------------------------------------------------------------ available now


def test_a_job_over_what_is_available_now_reads_that_and_finishes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    env = new_environment(
        execution__trigger="available-now", flinkish__progress="never", flinkish__epoch__max_records_per_source="2"
    )
    source = FileSource.text(str(tmp_path)).monitor()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")

    def read(line: str) -> int:
        (tmp_path / f"later-{line}.txt").write_text("9\n")
        return int(line)

    assert results_of(lines.map(read).key_by(lambda n: 0).reduce(lambda a, b: a + b)) == [1, 3, 6]


def test_available_now_of_a_source_that_has_nothing_is_nothing_and_of_one_with_an_end_is_all(tmp_path: Path) -> None:
    for source, expected in (
        (FileSource.text(str(tmp_path)).monitor(), []),
        (DataGeneratorSource(lambda n: n, 5, records_per_epoch=2), [0, 1, 2, 3, 4]),
        (DataGeneratorSource(lambda n: n, records_per_epoch=2), [0, 1]),
    ):
        env = new_environment(execution__trigger="available-now", flinkish__progress="never")
        assert results_of(env.from_source(source, WatermarkStrategy.no_watermarks(), "s")) == expected


def test_an_epoch_of_what_is_available_now_that_fails_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0\n1\n2\n3\n")
    failures = [ValueError("once")]

    def fails_once(line: str) -> int:
        if line == "3" and failures:
            raise failures.pop()
        return int(line)

    env = new_environment(
        execution__trigger="available-now",
        flinkish__progress="never",
        flinkish__minicluster__share_functions="true",
        flinkish__epoch__max_records_per_source="2",
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    source = FileSource.text(str(tmp_path)).monitor()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "s").map(fails_once)
    assert results_of(stream) == [0, 1, 2, 3] and failures == []


def test_a_job_that_fails_by_itself_fails() -> None:
    env = new_environment(execution__trigger="available-now", flinkish__progress="never")
    env.from_collection([1]).map(lambda n: 1 // 0).print()
    with pytest.raises(UserCodeError, match="ZeroDivisionError"):
        env.execute()
