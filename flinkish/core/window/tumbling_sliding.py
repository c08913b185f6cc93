"""Tumbling and sliding windows of a fixed size, by timestamp and by processing time.

Semantics: Flink's assigners of the same names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.common.time import Duration, Time
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.core.window.assigner import (
    WindowAssigner,
    check_sliding,
    check_tumbling,
    in_milliseconds,
    missing_timestamp,
)
from flinkish.core.window.trigger import EventTimeTrigger, ProcessingTimeTrigger
from flinkish.core.window.window import TimeWindow, TimeWindowSerializer


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


class SlidingProcessingTimeWindows(WindowAssigner[Any, TimeWindow]):
    """A window of ``size`` begins every ``slide`` ms, at ``offset`` (mod slide); an element belongs to those that hold
    its epoch's processing time."""

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        check_sliding("SlidingProcessingTimeWindows", size, slide, offset)
        self._size = size
        self._slide = slide
        self._offset = offset

    @staticmethod
    def of(
        size: Time | Duration, slide: Time | Duration, offset: Time | Duration | None = None
    ) -> SlidingProcessingTimeWindows:
        """The assigner of windows of ``size`` that begin every ``slide``, shifted by ``offset``.

        Raises:
            ProgramError: unless ``abs(offset) < slide`` and ``size > 0``.
        """
        return SlidingProcessingTimeWindows(
            *in_milliseconds("SlidingProcessingTimeWindows.of()", size=size, slide=slide, offset=offset or Time(0))
        )

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = context.get_current_processing_time()
        last = TimeWindow.get_window_start_with_offset(now_ms, self._offset, self._slide)
        return [TimeWindow(start, start + self._size) for start in range(last, now_ms - self._size, -self._slide)]

    def get_default_trigger(self, env: Any) -> ProcessingTimeTrigger:
        return ProcessingTimeTrigger.create()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"SlidingProcessingTimeWindows({self._size}, {self._slide}, {self._offset})"


class TumblingEventTimeWindows(WindowAssigner[Any, TimeWindow]):
    """Each element belongs to the one window ``[start, start + size)`` with ``start = offset (mod size)``; in ms.

    Example::

        ds.key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(Time.minutes(1))).reduce(lambda a, b: a + b)
    """

    def __init__(self, size: int, offset: int = 0) -> None:
        check_tumbling("TumblingEventTimeWindows", size, offset)
        self._size = size
        self._offset = offset

    @staticmethod
    def of(size: Time | Duration, offset: Time | Duration | None = None) -> TumblingEventTimeWindows:
        """The assigner of windows of ``size``, shifted by ``offset`` (``Time.hours(-8)`` for days that begin at
        midnight in UTC+8).

        Raises:
            ProgramError: unless ``abs(offset) < size``.
        """
        return TumblingEventTimeWindows(
            *in_milliseconds("TumblingEventTimeWindows.of()", size=size, offset=offset or Time(0))
        )

    @property
    def size_ms(self) -> int:
        """The length of a window in ms."""
        return self._size

    @property
    def offset_ms(self) -> int:
        """The start of windows modulo the size, in ms."""
        return self._offset

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        if timestamp <= MIN_TIMESTAMP_MS:
            raise missing_timestamp(self)
        start = TimeWindow.get_window_start_with_offset(timestamp, self._offset, self._size)
        return [TimeWindow(start, start + self._size)]

    def get_default_trigger(self, env: Any) -> EventTimeTrigger:
        return EventTimeTrigger.create()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"TumblingEventTimeWindows({self._size}, {self._offset})"


class TumblingProcessingTimeWindows(WindowAssigner[Any, TimeWindow]):
    """Each element belongs to the window ``[start, start + size)`` that holds its epoch's processing time; in ms."""

    def __init__(self, size: int, offset: int = 0) -> None:
        check_tumbling("TumblingProcessingTimeWindows", size, offset)
        self._size = size
        self._offset = offset

    @staticmethod
    def of(size: Time | Duration, offset: Time | Duration | None = None) -> TumblingProcessingTimeWindows:
        """The assigner of windows of ``size``, shifted by ``offset``.

        Raises:
            ProgramError: unless ``abs(offset) < size``.
        """
        return TumblingProcessingTimeWindows(
            *in_milliseconds("TumblingProcessingTimeWindows.of()", size=size, offset=offset or Time(0))
        )

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = context.get_current_processing_time()
        start = TimeWindow.get_window_start_with_offset(now_ms, self._offset, self._size)
        return [TimeWindow(start, start + self._size)]

    def get_default_trigger(self, env: Any) -> ProcessingTimeTrigger:
        return ProcessingTimeTrigger.create()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"TumblingProcessingTimeWindows({self._size}, {self._offset})"
