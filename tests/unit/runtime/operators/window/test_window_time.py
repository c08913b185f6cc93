"""Clean-up times and lateness."""

from __future__ import annotations

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.core.window.window import GlobalWindow, TimeWindow
from flinkish.runtime.operators.window.contents import WindowTime

WINDOW = TimeWindow(0, 10)


def test_a_window_is_late_once_the_watermark_reaches_its_last_timestamp_plus_the_lateness() -> None:
    time = WindowTime(event_time=True, allowed_lateness_ms=5)
    assert not time.is_window_late(WINDOW, 13)
    assert time.is_window_late(WINDOW, 14)


def test_before_the_first_watermark_nothing_is_late() -> None:
    time = WindowTime(event_time=True, allowed_lateness_ms=0)
    assert not time.is_window_late(WINDOW, MIN_TIMESTAMP_MS)
    assert not time.is_element_late(-(10**15), MIN_TIMESTAMP_MS)


def test_a_lateness_beyond_the_end_of_time_means_never() -> None:
    time = WindowTime(event_time=True, allowed_lateness_ms=MAX_WATERMARK_MS)
    assert time.cleanup_ms(WINDOW) == MAX_WATERMARK_MS
    assert time.cleanup_ms(GlobalWindow.get()) == MAX_WATERMARK_MS


def test_in_processing_time_nothing_is_late_and_the_lateness_does_not_count() -> None:
    time = WindowTime(event_time=False, allowed_lateness_ms=5)
    assert time.cleanup_ms(WINDOW) == 9
    assert not time.is_window_late(WINDOW, MAX_WATERMARK_MS)
    assert not time.is_element_late(0, MAX_WATERMARK_MS)
