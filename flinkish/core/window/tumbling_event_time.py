"""Tumbling windows of a fixed size, by timestamp. Semantics: Flink's ``TumblingEventTimeWindows``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.common.time import Duration, Time
from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.core.window.assigner import WindowAssigner, check_tumbling, in_milliseconds, missing_timestamp
from flinkish.core.window.event_time_trigger import EventTimeTrigger
from flinkish.core.window.serializers import TimeWindowSerializer
from flinkish.core.window.window import TimeWindow


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
