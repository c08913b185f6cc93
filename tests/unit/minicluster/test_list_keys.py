"""Keys that are lists, which Python cannot hash and PyFlink, whose keys are what pickles equal, can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flinkish.common import Time, Types, WatermarkStrategy
from flinkish.core.functions import MapFunction, ProcessWindowFunction
from flinkish.datastream import KeyedProcessFunction, RuntimeContext
from flinkish.datastream.state import MapStateDescriptor, ValueStateDescriptor
from flinkish.datastream.window import CountTrigger, TumblingEventTimeWindows
from tests.support.functions import TimeOf
from tests.support.programs import new_environment, results_of

KEYS: list[Any] = [[1, 2], ("a", [1]), [1, 2], (1, 2), "a", [1, 2], ("a", [1]), [], [[1], [2]], [[1], [2]]]
COUNTS = [([1, 2], 3), (("a", [1]), 2), ((1, 2), 1), ("a", 1), ([], 1), ([[1], [2]], 2)]


def keyed(parallelism: int) -> Any:
    """Records (key, number), timestamped, by their key."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(lambda r: r[1] * 10))
    records = new_environment(parallelism).from_collection([(key, number) for number, key in enumerate(KEYS)])
    return records.assign_timestamps_and_watermarks(strategy).key_by(lambda record: record[0])


def by_key(results: list[Any]) -> list[Any]:
    """In an order that does not depend on subtasks."""
    return sorted(results, key=repr)


class Count(KeyedProcessFunction):
    """Counts; tells the count when event time ends. It changes the keys that it is given, which must not matter."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.LONG(), Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._count.update((self._count.value() or 0) + 1)
        self._seen[value[1]] = 1
        ctx.timer_service().register_event_time_timer(10_000)
        key = ctx.get_current_key()
        assert (type(key), key) == (type(value[0]), value[0])
        if type(key) is list:
            key.append("changed")
        yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        assert len(list(self._seen.keys())) == self._count.value()
        yield ctx.get_current_key(), self._count.value()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_state_and_timers_of_a_list_are_found_again_and_it_is_shown_as_it_was_returned(parallelism: int) -> None:
    results = results_of(keyed(parallelism).process(Count()))
    assert by_key(results) == by_key(COUNTS)
    assert {type(key) for key, _ in results} == {list, tuple, str}
    assert {type(key[1]) for key, _ in results if key[:1] == ("a",)} == {list}


class Sum(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: Any) -> Iterator[Any]:
        yield key, len(list(elements))


@pytest.mark.parametrize("trigger", [None, CountTrigger.of(1)])
def test_windows_are_of_a_list(trigger: Any) -> None:
    windows = keyed(2).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    results = results_of((windows if trigger is None else windows.trigger(trigger)).process(Sum()))
    assert all(type(key) in (list, tuple, str) for key, _ in results)
    if trigger is None:
        assert by_key(results) == by_key(COUNTS)
    else:
        assert len(results) == len(KEYS) and all(count in results for count in COUNTS)


class Numbering(MapFunction):
    """A rich function on a keyed stream."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: Any) -> Any:
        self._count.update((self._count.value() or 0) + 1)
        return value[0], self._count.value()


def test_a_rolling_reduce_and_a_function_with_state_have_one_state_per_list() -> None:
    sums = results_of(keyed(2).map(Numbering()))
    assert by_key([max((r for r in sums if r[0] == key), key=lambda r: r[1]) for key, _ in COUNTS]) == by_key(COUNTS)
    reduced = results_of(keyed(2).reduce(lambda a, b: (a[0], a[1] + b[1])))
    assert ([1, 2], 0 + 2 + 5) in reduced and (("a", [1]), 1 + 6) in reduced
