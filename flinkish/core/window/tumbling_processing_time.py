"""Tumbling windows of a fixed size, by processing time. Semantics: Flink's ``TumblingProcessingTimeWindows``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.common.time import Duration, Time
from flinkish.core.window.assigner import WindowAssigner, check_tumbling, in_milliseconds
from flinkish.core.window.processing_time_trigger import ProcessingTimeTrigger
from flinkish.core.window.serializers import TimeWindowSerializer
from flinkish.core.window.window import TimeWindow


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
