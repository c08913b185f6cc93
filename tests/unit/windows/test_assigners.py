"""Tumbling windows: which window an element belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.common.time import Time
from flinkish.core.functions import RuntimeContext
from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.event_time_trigger import EventTimeTrigger
from flinkish.core.window.processing_time_trigger import ProcessingTimeTrigger
from flinkish.core.window.tumbling_event_time import TumblingEventTimeWindows
from flinkish.core.window.tumbling_processing_time import TumblingProcessingTimeWindows
from flinkish.core.window.window import TimeWindow
from flinkish.errors import ProgramError


class AtTime(WindowAssigner.WindowAssignerContext):
    """A fixed processing time."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def get_current_processing_time(self) -> int:
        return self._now_ms

    def get_runtime_context(self) -> RuntimeContext:
        raise AssertionError("tumbling windows need no runtime context")


def test_event_time_windows_go_by_the_timestamp() -> None:
    assigner = TumblingEventTimeWindows.of(Time.seconds(5))
    assert assigner.assign_windows("x", 4_999, AtTime(77)) == [TimeWindow(0, 5_000)]
    assert assigner.assign_windows("x", 5_000, AtTime(77)) == [TimeWindow(5_000, 10_000)]
    assert assigner.assign_windows("x", -1, AtTime(77)) == [TimeWindow(-5_000, 0)]


def test_processing_time_windows_go_by_the_clock_and_ignore_the_timestamp() -> None:
    assigner = TumblingProcessingTimeWindows.of(Time.seconds(5))
    assert assigner.assign_windows("x", MIN_TIMESTAMP_MS, AtTime(7_000)) == [TimeWindow(5_000, 10_000)]


def test_an_offset_shifts_the_windows() -> None:
    assigner = TumblingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(3))
    assert assigner.assign_windows("x", 2, AtTime(0)) == [TimeWindow(-7, 3)]
    assigner = TumblingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(-3))
    assert assigner.assign_windows("x", 7, AtTime(0)) == [TimeWindow(7, 17)]


@pytest.mark.parametrize("kind", [TumblingEventTimeWindows, TumblingProcessingTimeWindows])
@pytest.mark.parametrize(("size", "offset"), [(0, 0), (-1, 0), (10, 10), (10, -10)])
def test_an_impossible_size_or_offset_is_refused_when_the_assigner_is_made(kind: Any, size: int, offset: int) -> None:
    with pytest.raises(ProgramError, match=r"expected size > 0 and abs\(offset\) < size"):
        kind.of(Time.milliseconds(size), Time.milliseconds(offset))


def test_an_element_without_timestamp_in_event_time_is_an_error_that_names_the_missing_call() -> None:
    with pytest.raises(ProgramError, match=r"Long.MIN_VALUE.*did you forget to call assign_timestamps_and_watermarks"):
        TumblingEventTimeWindows.of(Time.seconds(1)).assign_windows("x", MIN_TIMESTAMP_MS, AtTime(0))


def test_each_assigner_brings_the_trigger_of_its_time() -> None:
    assert type(TumblingEventTimeWindows.of(Time.seconds(1)).get_default_trigger(None)) is EventTimeTrigger
    assert type(TumblingProcessingTimeWindows.of(Time.seconds(1)).get_default_trigger(None)) is ProcessingTimeTrigger
