"""Evictors: what of a window is evaluated, and what stays."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from flinkish.common.time import Time
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.core.window.assigner import GlobalWindows
from flinkish.core.window.counts import CountTrigger
from flinkish.core.window.evictor import CountEvictor, DeltaEvictor, Evictor, TimeEvictor, TimestampedValue
from flinkish.core.window.sessions import EventTimeSessionWindows
from flinkish.core.window.trigger import EventTimeTrigger
from flinkish.core.window.window import TimeWindow
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from tests.support.functions import Aggregate
from tests.unit.runtime.operators.window.building_blocks import SUM, TEN, Elements
from tests.unit.runtime.operators.window.window_driver import WindowDriver

ELEMENTS = WindowLogic(None, Elements())
GLOBAL = GlobalWindows.create()


def elements_of(driver: WindowDriver) -> list[Any]:
    return [value[2] for value, _ in driver.results]


def left(evictor: Any, *elements: tuple[Any, int]) -> list[Any]:
    found = [TimestampedValue(*element) for element in elements]
    evictor.evict_before(found, len(found), None, None)
    evictor.evict_after(found, len(found), None, None)
    return [value for value, _ in found]


@pytest.mark.parametrize("after", [False, True])
def test_each_evictor_leaves_what_it_should(after: bool) -> None:
    assert left(CountEvictor.of(2, after), ("a", 1), ("b", 2), ("c", 3)) == ["b", "c"]
    assert left(CountEvictor.of(2, after), ("a", 1)) == ["a"]
    assert left(TimeEvictor.of(Time.milliseconds(3), after), ("a", 5), ("b", 9), ("c", 6), ("d", 7)) == ["b", "d"]
    assert left(TimeEvictor.of(Time.milliseconds(3), after), ("a", MIN_TIMESTAMP_MS), ("b", 9)) == ["a", "b"]
    assert left(DeltaEvictor.of(3, lambda x, last: abs(x - last), after), (1, 0), (7, 0), (5, 0), (4, 0)) == [5, 4]
    for evictor in (CountEvictor(2), TimeEvictor(2), DeltaEvictor(2, lambda x, last: 0)):
        assert left(evictor) == []


def test_java_s_sliding_count_windows_also_fire_when_they_are_not_full() -> None:
    driver = WindowDriver(WindowOperatorFactory(GLOBAL, CountTrigger.of(2), ELEMENTS, evictor=CountEvictor.of(3)))
    driver.add(*[("a", value, 0) for value in range(4)])
    driver.restart()
    driver.add(*[("a", value, 0) for value in range(4, 6)], ("b", 9, 0))
    assert elements_of(driver) == [[0, 1], [1, 2, 3], [3, 4, 5]]


def test_what_is_evicted_after_the_function_was_evaluated_once_more() -> None:
    factory = WindowOperatorFactory(GLOBAL, CountTrigger.of(2), ELEMENTS, evictor=CountEvictor.of(1, True))
    driver = WindowDriver(factory)
    driver.add(*[("a", value, 0) for value in range(6)])
    assert elements_of(driver) == [[0, 1], [1, 2, 3], [3, 4, 5]]


def test_elements_keep_their_timestamps_until_the_window_fires_also_across_a_restart() -> None:
    factory = WindowOperatorFactory(TEN, EventTimeTrigger(), ELEMENTS, 5, evictor=TimeEvictor(3))
    driver = WindowDriver(factory)
    driver.add(("a", 1, 1), ("a", 2, 9), ("a", 3, 7))
    driver.restart()
    driver.watermark(9)
    driver.add(("a", 4, 8))
    driver.watermark(MAX_WATERMARK_MS)
    assert elements_of(driver) == [[2, 3], [2, 3, 4]]
    assert driver.is_empty()


class Custom(Evictor[Any]):
    """Everything goes after the function; before it what the watermark and the window say."""

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == len(elements)
        seen.append((window, evictor_context.get_current_watermark(), evictor_context.get_current_processing_time()))
        evictor_context.get_metric_group().counter("evicted").inc(1)
        elements[:] = [element for element in elements if element.value[1] != 0]

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        elements.clear()


seen: list[Any] = []


def test_reduce_and_aggregate_see_what_the_evictor_of_a_user_leaves() -> None:
    seen.clear()
    count = Aggregate(int, lambda a, value: a + 1, operator.add)
    for logic, expected in ((SUM, [("a", 3)]), (WindowLogic(count), [2, 0]), (WindowLogic(count, Elements1()), 2)):
        driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), logic, 5, evictor=Custom()))
        driver.harness.set_processing_time(7)
        driver.add(("a", 1, 1), ("a", 0, 2), ("a", 2, 3), ("b", 0, 4))
        driver.watermark(9)
        found = [value for value, _ in driver.results]
        assert found == (expected if isinstance(expected, list) else [("a", [2]), ("b", [0])])
        # what was evicted is not evaluated again
        driver.add(("a", 5, 5))
        assert len(driver.results) == len(found) + 1
        driver.watermark(MAX_WATERMARK_MS)
        assert driver.is_empty()
    assert seen[0] == (TimeWindow(0, 10), 9, 7)
    assert driver.harness.metrics.snapshot()["evicted"] == 3


class Elements1(Elements):
    """(key, the one aggregated value)."""

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return [(key, list(inputs))]


def test_sessions_merge_with_their_timestamps() -> None:
    factory = WindowOperatorFactory(EventTimeSessionWindows(5), EventTimeTrigger(), ELEMENTS, evictor=TimeEvictor(5))
    driver = WindowDriver(factory)
    driver.add(("a", 1, 0), ("a", 2, 8), ("a", 3, 4))
    driver.watermark(20)
    assert elements_of(driver) == [[2, 3]]
    assert driver.is_empty()


def test_what_is_no_number_time_or_function_is_refused() -> None:
    with pytest.raises(ProgramError, match="expected a whole number of more than 0"):
        CountEvictor.of(0)
    with pytest.raises(ProgramError, match="expected a time of more than 0 ms"):
        TimeEvictor.of(Time.milliseconds(0))
    not_callable: Any = 5
    with pytest.raises(TypeError, match="expected a function of two elements"):
        DeltaEvictor.of(3, not_callable)
