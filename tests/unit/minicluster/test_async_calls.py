"""AsyncDataStream in whole programs: splits, watermarks, windows, epochs, failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flinkish.common import Duration, Time, Types
from flinkish.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    DataStream,
    ProcessFunction,
    RuntimeContext,
)
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import ProgramError, UserCodeError
from flinkish.testing import TestingSink
from tests.support.functions import NoCoroutine
from tests.support.programs import new_environment, results_of

from .programs import bounded, environment, job_of, list_source, run


class Double(AsyncFunction[Any, Any]):
    """Doubles the second field; records of a split end in the opposite order of their second field."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = True

    async def async_invoke(self, value: Any) -> list[Any]:
        assert self.opened
        await asyncio.sleep(0.0005 * (10 - value[1]))
        return [(value[0], 2 * value[1], *value[2:])]


WAYS = {
    "ordered": AsyncDataStream.ordered_wait,
    "unordered": AsyncDataStream.unordered_wait,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("rebalanced", [False, True])
def test_windows_behind_calls_are_those_without_them(way: str, parallelism: int, rebalanced: bool) -> None:
    """Watermarks go on behind the results of what came before them: no record becomes late by its call."""
    records = [[("ab"[i % 2], i % 10, 7 * i) for i in range(part, 120, 2)] for part in range(2)]

    def sums(with_calls: bool) -> list[Any]:
        env = environment(parallelism)
        sink = TestingSink()
        stream: DataStream = env.from_source(list_source(*records), bounded(), "s")
        if rebalanced:
            stream = stream.rebalance()
        if with_calls:
            stream = WAYS[way](stream, Double(), Time.seconds(30), 5)
        else:
            stream = stream.map(lambda r: (r[0], 2 * r[1], *r[2:]))
        windows = stream.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(50)))
        windows.reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]))).sink_to(sink)
        run(job_of(env), per_epoch=17)
        return sorted(sink.values)

    assert sums(True) == sums(False)


def test_ordered_results_keep_the_order_over_batches() -> None:
    env = new_environment(flinkish__source__batch_size="7")
    stream = env.from_collection([("a", n % 10, n) for n in range(100)])
    doubled = AsyncDataStream.ordered_wait(stream, Double(), Time.seconds(30), 10)
    assert [record[2] for record in results_of(doubled)] == list(range(100))


def test_results_have_the_declared_type_and_the_stream_goes_on_keyed() -> None:
    env = new_environment(2)
    stream = env.from_collection([("a", 1), ("b", 2), ("a", 3)]).key_by(lambda r: r[0])
    pairs = Types.TUPLE([Types.STRING(), Types.INT()])
    doubled = AsyncDataStream.unordered_wait(stream, Double(), Duration.of_seconds(30), output_type=pairs)
    assert doubled.get_type() == pairs
    assert sorted(results_of(doubled)) == [("a", 2), ("a", 6), ("b", 4)]


class Breaks(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [1 // value]


def test_a_call_that_fails_ends_the_job_with_the_users_traceback() -> None:
    stream = AsyncDataStream.unordered_wait(new_environment().from_collection([1, 0]), Breaks(), Time.seconds(1))
    with pytest.raises(UserCodeError, match=r"return \[1 // value\]") as failure:
        results_of(stream)
    assert "ZeroDivisionError" in failure.value.what


# --- misuse -------------------------------------------------------------------------------------------------------


def retries() -> AsyncRetryStrategy[Any]:
    return AsyncRetryStrategy.fixed_delay(1, 1, None, None)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((NoCoroutine(), Time.seconds(1)), ProgramError, "of NoCoroutine is no coroutine.*async def async_invoke"),
        ((ProcessFunction, Time.seconds(1)), TypeError, "expected an AsyncFunction"),
        ((Double(), 5), TypeError, "expected a Time or a Duration"),
        ((Double(), Time.seconds(1), 0), ProgramError, "the capacity is 0.*at least 1"),
    ],
)
def test_misuse_is_refused_when_the_program_is_built(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    stream = new_environment().from_collection([1])
    for wait in (AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait):
        with pytest.raises(error, match=message):
            wait(stream, *arguments)


def test_a_retry_strategy_needs_a_timeout() -> None:
    stream = new_environment().from_collection([1])
    for wait in (AsyncDataStream.ordered_wait_with_retry, AsyncDataStream.unordered_wait_with_retry):
        with pytest.raises(ProgramError, match="a retry strategy without a timeout"):
            wait(stream, Double(), Time.milliseconds(0), retries())
        with pytest.raises(TypeError, match="expected an AsyncRetryStrategy"):
            wait(stream, Double(), Time.seconds(1), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
def test_a_task_manager_that_is_replaced_in_between_changes_nothing(way: str) -> None:
    records = [[("ab"[i % 2], i % 10, i) for i in range(part, 60, 2)] for part in range(2)]
    env, sink = environment(2), TestingSink()
    stream = env.from_source(list_source(*records), bounded(), "s").rebalance()
    called = WAYS[way](stream, Double(), Time.seconds(30), 5)
    called.key_by(lambda r: r[0]).sum(1).sink_to(sink)
    epochs = run(job_of(env), per_epoch=7, restart_every=2)
    assert epochs > 4
    totals = {key: max(total for name, total, *_ in sink.values if name == key) for key in "ab"}
    assert totals == {key: sum(2 * (i % 10) for i in range(60) if "ab"[i % 2] == key) for key in "ab"}
    assert len(sink.values) == 60
