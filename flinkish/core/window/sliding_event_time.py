"""Sliding windows of a fixed size, by timestamp. Semantics: Flink's ``SlidingEventTimeWindows``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.common.time import Duration, Time
from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.core.window.assigner import WindowAssigner, check_sliding, in_milliseconds, missing_timestamp
from flinkish.core.window.event_time_trigger import EventTimeTrigger
from flinkish.core.window.serializers import TimeWindowSerializer
from flinkish.core.window.window import TimeWindow


class SlidingEventTimeWindows(WindowAssigner[Any, TimeWindow]):
    """A window of ``size`` begins every ``slide`` ms, at ``offset`` (mod slide). Windows overlap where the slide is
    smaller than the size; where it is greater, some elements belong to no window.

    Example: the sum of the last ten minutes, every minute::

        ds.key_by(lambda v: v[0]).window(SlidingEventTimeWindows.of(Time.minutes(10), Time.minutes(1))).sum(1)
    """

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        check_sliding("SlidingEventTimeWindows", size, slide, offset)
        self._size = size
        self._slide = slide
        self._offset = offset

    @staticmethod
    def of(
        size: Time | Duration, slide: Time | Duration, offset: Time | Duration | None = None
    ) -> SlidingEventTimeWindows:
        """The assigner of windows of ``size`` that begin every ``slide``, shifted by ``offset``.

        Raises:
            ProgramError: unless ``abs(offset) < slide`` and ``size > 0``.
        """
        return SlidingEventTimeWindows(
            *in_milliseconds("SlidingEventTimeWindows.of()", size=size, slide=slide, offset=offset or Time(0))
        )

    @property
    def size_ms(self) -> int:
        """The length of a window in ms."""
        return self._size

    @property
    def slide_ms(self) -> int:
        """The time between the starts of two successive windows, in ms."""
        return self._slide

    @property
    def offset_ms(self) -> int:
        """The start of windows modulo the slide, in ms."""
        return self._offset

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        if timestamp <= MIN_TIMESTAMP_MS:
            raise missing_timestamp(self)
        last = TimeWindow.get_window_start_with_offset(timestamp, self._offset, self._slide)
        starts = range(last, timestamp - self._size, -self._slide)
        return [TimeWindow(start, start + self._size) for start in starts]

    def get_default_trigger(self, env: Any) -> EventTimeTrigger:
        return EventTimeTrigger.create()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"SlidingEventTimeWindows({self._size}, {self._slide}, {self._offset})"
