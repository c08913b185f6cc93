"""Triggers that fire again and again as time goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common.time import Time
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.assigner import GlobalWindows
from flinkish.core.window.trigger import ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger, traits_of
from flinkish.core.window.tumbling_sliding import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from flinkish.core.window.window import TimeWindow
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from tests.unit.runtime.operators.window.building_blocks import Elements
from tests.unit.runtime.operators.window.window_driver import LATE, WindowDriver

TWENTY = TumblingEventTimeWindows(20)
ELEMENTS = WindowLogic(None, Elements())


def test_event_time_fires_at_each_multiple_of_the_interval_and_at_the_end() -> None:
    driver = WindowDriver(WindowOperatorFactory(TWENTY, ContinuousEventTimeTrigger.of(Time.milliseconds(8)), ELEMENTS))
    driver.add(("a", 1, 3))
    driver.watermark(7)
    assert driver.results == []
    driver.watermark(8)
    driver.add(("a", 2, 4))
    driver.restart()
    driver.watermark(30)
    window = TimeWindow(0, 20)
    assert driver.results == [(("a", window, [1]), 19), (("a", window, [1, 2]), 19), (("a", window, [1, 2]), 19)]
    assert driver.is_empty()


@given(
    st.integers(1, 12),
    st.sampled_from([0, 9, MAX_WATERMARK_MS]),
    st.lists(st.one_of(st.integers(0, 45), st.tuples(st.integers(0, 45))), max_size=25),
    st.integers(0, 25),
)
def test_event_time_against_a_plain_model(interval: int, lateness: int, steps: list[Any], restart_at: int) -> None:
    """Steps are elements by their timestamp, or (watermark,). One key; windows apart."""
    trigger = ContinuousEventTimeTrigger(interval)
    driver = WindowDriver(WindowOperatorFactory(TWENTY, trigger, ELEMENTS, lateness, LATE))
    watermark = -(2**63)
    #: start -> elements; start -> when it fires next
    windows: dict[int, list[int]] = {}
    next_ms: dict[int, int] = {}
    expected: dict[int, list[list[int]]] = {}

    def fire(watermark_ms: int) -> None:
        for start, elements in windows.items():
            last = start + 19
            while start in next_ms and next_ms[start] <= watermark_ms:
                expected.setdefault(start, []).append(list(elements))
                if next_ms[start] == last:
                    del next_ms[start]
                else:
                    next_ms[start] = min(next_ms[start] + interval, last)

    for number, step in enumerate([*steps, (MAX_WATERMARK_MS,)]):
        if number == restart_at:
            driver.restart()
            fire(watermark)  # the driver's watermark comes again
        if isinstance(step, int):
            start, last = step // 20 * 20, step // 20 * 20 + 19
            driver.add(("a", number, step))
            if last + lateness <= watermark:
                continue
            windows.setdefault(start, []).append(number)
            if last <= watermark:
                expected.setdefault(start, []).append(list(windows[start]))
            elif start not in next_ms:
                next_ms[start] = min(step // interval * interval + interval, last)
            continue
        if step[0] <= watermark:
            continue
        driver.watermark(step[0])
        fire(step[0])
        watermark = step[0]
    fired: dict[int, list[list[int]]] = {}
    for (_, window, elements), _ in driver.results:
        fired.setdefault(window.start, []).append(elements)
    assert fired == expected
    assert driver.is_empty() or lateness == MAX_WATERMARK_MS


def test_a_global_window_fires_once_more_at_the_end_of_the_input_and_not_for_ever() -> None:
    driver = WindowDriver(WindowOperatorFactory(GlobalWindows(), ContinuousEventTimeTrigger(10), ELEMENTS))
    driver.add(("a", 1, 3))
    driver.watermark(25)
    driver.add(("a", 2, 27))
    driver.watermark(MAX_WATERMARK_MS)
    # at 10 and 20, at 30, and at the end
    assert [value[2] for value, _ in driver.results] == [[1], [1], [1, 2], [1, 2]]


def test_processing_time_fires_at_each_multiple_of_the_interval_and_at_the_end() -> None:
    trigger = ContinuousProcessingTimeTrigger.of(Time.milliseconds(8))
    driver = WindowDriver(WindowOperatorFactory(TumblingProcessingTimeWindows(20), trigger, ELEMENTS))
    driver.harness.set_processing_time(3)
    driver.harness.process_elements([("a", 1)])
    driver.harness.set_processing_time(9)
    driver.harness.process_elements([("a", 2)])
    driver.restart()
    driver.harness.set_processing_time(25)
    assert [value[2] for value, _ in driver.results] == [[1], [1, 2], [1, 2]]
    assert driver.is_empty()


def test_an_event_time_window_of_the_past_fires_once_at_the_clock_and_not_for_ever() -> None:
    trigger = ContinuousProcessingTimeTrigger(8)
    driver = WindowDriver(WindowOperatorFactory(TWENTY, trigger, ELEMENTS))
    driver.harness.set_processing_time(1_000)
    driver.add(("a", 1, 3))
    driver.harness.set_processing_time(1_001)
    assert [value[2] for value, _ in driver.results] == [[1]]


def test_the_engine_is_told_what_they_need_and_no_interval_is_refused() -> None:
    event, processing = ContinuousEventTimeTrigger(5), ContinuousProcessingTimeTrigger(5)
    assert (traits_of(event).sees_watermarks, traits_of(event).uses_processing_time) == (True, False)
    assert (traits_of(processing).sees_watermarks, traits_of(processing).uses_processing_time) == (False, True)
    for kind in (ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger):
        with pytest.raises(ProgramError, match="expected a time of more than 0 ms"):
            kind.of(Time.milliseconds(0))
