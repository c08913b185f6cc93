"""Assigners: which windows an element belongs to. Flink's hashes of whole numbers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common.time import Time
from flinkish.core.functions import RuntimeContext
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.core.window.assigner import GlobalWindows, WindowAssigner
from flinkish.core.window.sessions import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from flinkish.core.window.trigger import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger
from flinkish.core.window.tumbling_sliding import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from flinkish.core.window.window import GlobalWindow, TimeWindow
from flinkish.datastream.window import long_to_int_with_bit_mixing, mod_inverse
from flinkish.errors import ProgramError


class AtTime(WindowAssigner.WindowAssignerContext):
    """A fixed processing time."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def get_current_processing_time(self) -> int:
        return self._now_ms

    def get_runtime_context(self) -> RuntimeContext:
        raise AssertionError("tumbling windows need no runtime context")


@pytest.mark.parametrize(
    ("assigner", "timestamp", "now_ms", "window"),
    [
        (TumblingEventTimeWindows.of(Time.seconds(5)), 4_999, 77, (0, 5_000)),
        (TumblingEventTimeWindows.of(Time.seconds(5)), 5_000, 77, (5_000, 10_000)),
        (TumblingEventTimeWindows.of(Time.seconds(5)), -1, 77, (-5_000, 0)),
        (TumblingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(3)), 2, 0, (-7, 3)),
        (TumblingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(-3)), 7, 0, (7, 17)),
        (TumblingProcessingTimeWindows.of(Time.seconds(5)), MIN_TIMESTAMP_MS, 7_000, (5_000, 10_000)),
    ],
)
def test_event_time_windows_go_by_the_timestamp_others_by_the_clock_and_an_offset_shifts_them(
    assigner: WindowAssigner[Any, Any], timestamp: int, now_ms: int, window: tuple[int, int]
) -> None:
    assert assigner.assign_windows("x", timestamp, AtTime(now_ms)) == [TimeWindow(*window)]


def test_sliding_windows_come_the_last_one_first_and_hold_the_element() -> None:
    assigner = SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(4), Time.milliseconds(1))
    assert assigner.assign_windows("x", 9, AtTime(0)) == [TimeWindow(9, 19), TimeWindow(5, 15), TimeWindow(1, 11)]
    assert assigner.assign_windows("x", 11, AtTime(0)) == [TimeWindow(9, 19), TimeWindow(5, 15)]
    assert assigner.assign_windows("x", -1, AtTime(0)) == [TimeWindow(-3, 7), TimeWindow(-7, 3)]
    by_clock = SlidingProcessingTimeWindows.of(Time.milliseconds(10), Time.milliseconds(4), Time.milliseconds(1))
    assert by_clock.assign_windows("x", MIN_TIMESTAMP_MS, AtTime(11)) == [TimeWindow(9, 19), TimeWindow(5, 15)]


def test_between_sliding_windows_with_gaps_an_element_belongs_to_none() -> None:
    assigner = SlidingEventTimeWindows.of(Time.milliseconds(2), Time.milliseconds(5))
    assert assigner.assign_windows("x", 6, AtTime(0)) == [TimeWindow(5, 7)]
    assert assigner.assign_windows("x", 7, AtTime(0)) == []


TUMBLING = (TumblingEventTimeWindows, TumblingProcessingTimeWindows)
SLIDING = (SlidingEventTimeWindows, SlidingProcessingTimeWindows)


@pytest.mark.parametrize(
    ("kinds", "impossible", "below"),
    [
        (TUMBLING, [(0, 0), (-1, 0), (10, 10), (10, -10)], "size"),
        (SLIDING, [(0, 1, 0), (10, 0, 0), (10, 5, 5), (10, 5, -5)], "slide"),
    ],
)
def test_an_impossible_size_slide_or_offset_is_refused_when_the_assigner_is_made(
    kinds: Any, impossible: list[tuple[int, ...]], below: str
) -> None:
    for kind, times in itertools.product(kinds, impossible):
        with pytest.raises(ProgramError, match=rf"expected size > 0 and abs\(offset\) < {below}"):
            kind.of(*map(Time.milliseconds, times))


class Gap(SessionWindowTimeGapExtractor):
    """Elements are gaps."""

    def extract(self, element: Any) -> int:
        return element  # type: ignore[no-any-return]


def test_a_session_begins_with_its_element_and_ends_a_gap_later() -> None:
    assert EventTimeSessionWindows.with_gap(Time.milliseconds(5)).assign_windows("x", 7, AtTime(0)) == [
        TimeWindow(7, 12)
    ]
    assert EventTimeSessionWindows.with_dynamic_gap(Gap()).assign_windows(3, 7, AtTime(0)) == [TimeWindow(7, 10)]
    by_clock = ProcessingTimeSessionWindows.with_gap(Time.milliseconds(5))
    assert by_clock.assign_windows("x", MIN_TIMESTAMP_MS, AtTime(7)) == [TimeWindow(7, 12)]
    assert ProcessingTimeSessionWindows.with_dynamic_gap(Gap()).assign_windows(3, 0, AtTime(7)) == [TimeWindow(7, 10)]


@pytest.mark.parametrize("kind", [EventTimeSessionWindows, ProcessingTimeSessionWindows])
def test_a_gap_of_nothing_is_refused(kind: Any) -> None:
    with pytest.raises(ProgramError, match="expected a gap of more than 0 ms"):
        kind.with_gap(Time.milliseconds(0))
    for gap in (0, -1, 1.5, None):
        with pytest.raises(ProgramError, match=f"Gap gave the gap {gap!r} for {gap!r} .*; expected a gap of more"):
            kind.with_dynamic_gap(Gap()).assign_windows(gap, 0, AtTime(0))
    with pytest.raises(TypeError, match="expected a SessionWindowTimeGapExtractor"):
        kind.with_dynamic_gap(5)


def test_there_is_one_global_window_and_nothing_fires_it() -> None:
    assert GlobalWindows.create().assign_windows("x", MIN_TIMESTAMP_MS, AtTime(0)) == [GlobalWindow.get()]
    assert type(GlobalWindows.create().get_default_trigger(None)) is NeverTrigger
    assert not GlobalWindows.create().needs_processing_time()


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(Time.seconds(1)),
        SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(1)),
        EventTimeSessionWindows.with_gap(Time.seconds(1)),
        EventTimeSessionWindows.with_dynamic_gap(Gap()),
    ],
)
def test_an_element_without_timestamp_in_event_time_is_an_error_that_names_the_missing_call(assigner: Any) -> None:
    with pytest.raises(ProgramError, match=r"Long.MIN_VALUE.*did you forget to call assign_timestamps_and_watermarks"):
        assigner.assign_windows("x", MIN_TIMESTAMP_MS, AtTime(0))


def test_each_assigner_brings_the_trigger_of_its_time() -> None:
    for kind in (TumblingEventTimeWindows(9), SlidingEventTimeWindows(9, 3), EventTimeSessionWindows(9)):
        assert type(kind.get_default_trigger(None)) is EventTimeTrigger
        assert kind.is_event_time()
    by_clock = (TumblingProcessingTimeWindows(9), SlidingProcessingTimeWindows(9, 3), ProcessingTimeSessionWindows(9))
    for assigner in by_clock:
        assert type(assigner.get_default_trigger(None)) is ProcessingTimeTrigger
        assert not assigner.is_event_time() and assigner.needs_processing_time()


@given(st.integers(-(2**63), 2**63 - 1))
def test_inverses_are_ones_of_32_bits(x: int) -> None:
    if x % 2 == 0:
        with pytest.raises(ValueError, match="not invertible"):
            mod_inverse(x)
    else:
        assert -(2**31) <= mod_inverse(x) < 2**31
        assert mod_inverse(x) * x % 2**32 == 1


@pytest.mark.parametrize(
    ("state", "mixed"),
    # what the generator splitmix64 gives first of all from the seed 0, and then, by its authors' own listing
    [(0x9E3779B97F4A7C15, 0xE220A8397B1DCDAF), (0x3C6EF372FE94F82A, 0x6E789E6AA1B965F4), (0, 0)],
)
def test_bits_are_mixed_as_by_splitmix64(state: int, mixed: int) -> None:
    for x in (state, state - (1 << 64)):
        assert long_to_int_with_bit_mixing(x) % 2**32 == mixed % 2**32
        assert -(2**31) <= long_to_int_with_bit_mixing(x) < 2**31
