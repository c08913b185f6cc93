"""AsyncDataStream's operator: order, capacity, timeouts, retries, and nothing left at the barrier."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from flinkish.core.async_function import AsyncFunction, AsyncRetryStrategy, ExponentialBackoffDelayRetryStrategy
from flinkish.core.functions import OutputTag
from flinkish.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from flinkish.errors import ProgramError, TypeMismatchError
from flinkish.runtime.operators.async_wait import AsyncWaitFactory, Call, CallQueue
from flinkish.testing import OneInputStreamOperatorTestHarness as Harness
from flinkish.testing import StreamRecord, Watermark, WatermarkStatus


class Calls(AsyncFunction[Any, Any]):
    """Each call waits for its number to be let go of, and fails, or is repeated, as a test says."""

    def __init__(self, function: Callable[[Any], Any], timeout: Callable[[Any], Any] | None = None) -> None:
        self._function = function
        self._timeout = timeout

    async def async_invoke(self, value: Any) -> Any:
        return await self._function(value)

    def timeout(self, value: Any) -> Any:
        return super().timeout(value) if self._timeout is None else self._timeout(value)

    def __deepcopy__(self, memo: Any) -> Calls:
        return self


async def later(value: Any) -> list[Any]:
    """Higher numbers first."""
    await asyncio.sleep(0.002 * (20 - value))
    return [value]


def factory(function: Callable[[Any], Any], ordered: bool = True, timeout_ms: int = 60_000, **more: Any) -> Any:
    handler = more.pop("timeout", None)
    return AsyncWaitFactory(Calls(function, handler), ordered, timeout_ms, **more)


# --- order --------------------------------------------------------------------------------------------------------


def test_ordered_results_have_the_order_of_the_records_and_their_timestamps() -> None:
    with Harness(factory(later)) as harness:
        harness.process_elements(list(range(10)), [n * 10 for n in range(10)])
        harness.process_watermark(90)
        harness.process_elements([10, 11])
        harness.snapshot()
        records = [StreamRecord(n, n * 10) for n in range(10)]
        assert harness.take_output() == [*records, Watermark(90), StreamRecord(10, None), StreamRecord(11, None)]


def test_unordered_results_come_as_they_are_ready_but_pass_no_watermark() -> None:
    first_may_end = threading.Event()

    async def call(value: str) -> list[str]:
        while value.startswith("slow") and not first_may_end.is_set():
            await asyncio.sleep(0.001)
        if value == "last":
            first_may_end.set()
        return [value]

    with Harness(factory(call, ordered=False)) as harness:
        harness.process_elements(["slow 1", "quick 1"])
        harness.process_watermark(5)
        harness.process_elements(["quick 2", "slow 2"])
        harness.process_watermark(6)
        harness.process_elements(["last"])
        harness.snapshot()
        told = [one.value if isinstance(one, StreamRecord) else one.timestamp for one in harness.take_output()]
        assert told == ["quick 1", "slow 1", 5, "quick 2", "slow 2", 6, "last"]


def test_an_idle_status_keeps_its_place_too() -> None:
    with Harness(factory(later)) as harness:
        harness.process_elements([1])
        harness.operator.process_status(True)
        harness.process_elements([2])
        harness.snapshot()
        assert harness.take_output() == [StreamRecord(1, None), WatermarkStatus(True), StreamRecord(2, None)]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_the_queue_hands_on_everything_once_and_in_order(ordered: bool, seed: int) -> None:
    chance = random.Random(seed)
    queue, told, running = CallQueue(ordered), [], []
    model: list[set[int]] = [set()]

    def hand_on() -> None:
        event: Any = lambda: None  # noqa: E731
        while event is not None:
            calls, event = queue.take()
            told.extend(call.value for call in calls)
            if event is not None:
                event()

    for number in range(60):
        if chance.random() < 0.7:
            call = Call(number, None)
            queue.add(call)
            running.append(call)
            model[-1].add(number)
        else:
            queue.add_event(partial(told.append, f"event {number}"))
            model.append(set())
        while running and chance.random() < 0.5:
            queue.complete(running.pop(chance.randrange(len(running))))
        hand_on()
        assert queue.held == sum(map(len, model)) - len([one for one in told if isinstance(one, int)])
    for call in chance.sample(running, len(running)):
        queue.complete(call)
        hand_on()
    between: list[list[int]] = [[]]
    for one in told:
        between.append([]) if isinstance(one, str) else between[-1].append(one)
    assert [set(numbers) for numbers in between] == model
    assert sum(map(len, between)) == sum(map(len, model))
    if ordered:
        assert all(numbers == sorted(numbers) for numbers in between)


# --- capacity -----------------------------------------------------------------------------------------------------


def test_a_thousand_calls_are_at_work_at_once_if_the_capacity_allows_it() -> None:
    at_work, all_there = 0, asyncio.Event()

    async def call(value: int) -> list[int]:
        nonlocal at_work
        at_work += 1
        if at_work == 1000:
            all_there.set()
        await all_there.wait()
        return [value]

    with Harness(factory(call, capacity=1000)) as harness:
        for begin in range(0, 1000, 100):
            harness.process_elements(list(range(begin, begin + 100)))
            harness.process_watermark(begin)
        harness.snapshot()
        assert harness.take_values() == list(range(1000))


@pytest.mark.parametrize("ordered", [True, False])
def test_there_are_never_more_calls_than_the_capacity(ordered: bool) -> None:
    at_work = most = 0

    async def call(value: int) -> list[int]:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0.0001 * (value % 3))
        at_work -= 1
        return [value]

    with Harness(factory(call, ordered, capacity=7)) as harness:
        harness.process_elements(list(range(200)))
        harness.snapshot()
        assert sorted(harness.take_values()) == list(range(200))
    assert most == 7


# --- results ------------------------------------------------------------------------------------------------------


def test_a_call_gives_any_number_of_results_also_to_side_outputs() -> None:
    side = OutputTag("side")

    async def call(value: int) -> list[Any]:
        return [value] * value + [(side, value)]

    with Harness(factory(call), side_outputs=("side",)) as harness:
        harness.process_elements([0, 2, 1], [5, 6, 7])
        harness.snapshot()
        assert harness.take_output() == [StreamRecord(2, 6), StreamRecord(2, 6), StreamRecord(1, 7)]
        assert harness.get_side_output("side") == [(0, 5), (2, 6), (1, 7)]


@pytest.mark.parametrize("result", [None, 5])
def test_what_is_no_list_of_results_is_refused(result: Any) -> None:
    async def call(value: int) -> Any:
        return result

    with (
        pytest.raises(TypeMismatchError, match=f"of Calls returned {result}.*a list of results"),
        Harness(factory(call)) as harness,
    ):
        harness.process_elements([1])
        harness.snapshot()


def test_a_call_that_fails_fails_the_task() -> None:
    async def call(value: int) -> list[int]:
        return [1 // value]

    with pytest.raises(ZeroDivisionError), Harness(factory(call)) as harness:
        harness.process_elements([1, 0, 2])
        harness.snapshot()


def test_calls_that_are_at_work_are_cancelled_when_the_task_fails() -> None:
    cancelled = threading.Event()

    async def call(value: int) -> list[int]:
        if value == 0:
            raise ValueError("no")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return []

    before = threading.active_count()
    with (
        pytest.raises(ValueError, match="no"),
        Harness(factory(call, ordered=False)) as harness,
    ):
        harness.process_elements([1, 0])
        harness.snapshot()
    assert cancelled.is_set()
    assert threading.active_count() == before


# --- timeouts and retries -----------------------------------------------------------------------------------------


async def never(value: Any) -> list[Any]:
    await asyncio.Event().wait()
    return []


def test_a_call_that_takes_too_long_fails_the_task_by_default() -> None:
    with (
        pytest.raises(TimeoutError, match="Async function call has timed out for input: 7"),
        Harness(factory(never, timeout_ms=1)) as harness,
    ):
        harness.process_elements([7])
        harness.snapshot()


def test_the_function_may_say_what_comes_of_a_call_that_takes_too_long() -> None:
    with Harness(factory(never, timeout_ms=1, timeout=lambda value: [f"no {value}"])) as harness:
        harness.process_elements([7, 8])
        harness.snapshot()
        assert harness.take_values() == ["no 7", "no 8"]


def strategy(attempts: int, **predicates: Any) -> AsyncRetryStrategy[Any]:
    return AsyncRetryStrategy.fixed_delay(
        attempts, 1, predicates.get("result_predicate"), predicates.get("exception_predicate")
    )


class Flaky:
    """The first ``failures`` attempts of each value fail, or are empty."""

    def __init__(self, failures: int, error: Exception | None) -> None:
        self.attempts: dict[Any, int] = {}
        self._failures = failures
        self._error = error

    async def __call__(self, value: Any) -> list[Any]:
        attempt = self.attempts[value] = self.attempts.get(value, 0) + 1
        if attempt <= self._failures:
            if self._error is not None:
                raise self._error
            return []
        return [(value, attempt)]


@pytest.mark.parametrize(
    ("error", "predicates"),
    [
        (None, {"result_predicate": empty_result_predicate}),
        (ValueError("away"), {"exception_predicate": has_exception_predicate}),
        (
            ValueError("away"),
            {"exception_predicate": partial(exception_type_predicate, expected_error_type=ValueError)},
        ),
    ],
)
def test_outcomes_that_the_predicate_names_are_tried_again(error: Exception | None, predicates: Any) -> None:
    with Harness(factory(Flaky(2, error), retry_strategy=strategy(2, **predicates))) as harness:
        harness.process_elements(["a", "b"])
        harness.snapshot()
        assert harness.take_values() == [("a", 3), ("b", 3)]


def test_the_last_outcome_counts_when_there_are_no_attempts_left() -> None:
    flaky = Flaky(5, None)
    with Harness(factory(flaky, retry_strategy=strategy(2, result_predicate=empty_result_predicate))) as harness:
        harness.process_elements(["a"])
        harness.snapshot()
        assert harness.take_values() == []
    assert flaky.attempts == {"a": 3}
    with (
        pytest.raises(ValueError, match="away"),
        Harness(
            factory(
                Flaky(5, ValueError("away")), retry_strategy=strategy(2, exception_predicate=has_exception_predicate)
            )
        ) as harness,
    ):
        harness.process_elements(["a"])
        harness.snapshot()


def test_an_outcome_that_no_predicate_names_is_not_tried_again() -> None:
    flaky = Flaky(1, KeyError("other"))
    only_values = partial(exception_type_predicate, expected_error_type=ValueError)
    with (
        pytest.raises(KeyError),
        Harness(factory(flaky, retry_strategy=strategy(3, exception_predicate=only_values))) as harness,
    ):
        harness.process_elements(["a"])
        harness.snapshot()
    assert flaky.attempts == {"a": 1}


def test_the_timeout_ends_all_attempts() -> None:
    flaky = Flaky(10**9, ValueError("away"))
    retried = factory(
        flaky,
        timeout_ms=30,
        timeout=lambda value: ["gave up"],
        retry_strategy=strategy(10**9, exception_predicate=has_exception_predicate),
    )
    with Harness(retried) as harness:
        harness.process_elements(["a"])
        harness.snapshot()
        assert harness.take_values() == ["gave up"]
    assert flaky.attempts["a"] > 1


def test_the_time_before_an_attempt_grows_up_to_a_limit() -> None:
    growing = ExponentialBackoffDelayRetryStrategy(4, 100, 500, 2.0, None, None)
    assert [growing.get_backoff_time_millis(attempt) for attempt in (1, 2, 3, 4, 5000)] == [100, 200, 400, 500, 500]
    # of one record, whatever others do
    assert growing.get_backoff_time_millis(2) == 200
    assert [growing.can_retry(attempt) for attempt in (1, 4, 5)] == [True, True, False]
    assert not AsyncRetryStrategy.no_restart().can_retry(1)
    with pytest.raises(ProgramError, match="max_attempts greater than zero"):
        AsyncRetryStrategy.fixed_delay(0, 1, None, None)
    with pytest.raises(ProgramError, match="multiplier greater than zero"):
        AsyncRetryStrategy.exponential_backoff(1, 1, 1, 0, None, None)
