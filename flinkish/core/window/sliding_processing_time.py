"""Sliding windows of a fixed size, by processing time. Semantics: Flink's ``SlidingProcessingTimeWindows``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.common.time import Duration, Time
from flinkish.core.window.assigner import WindowAssigner, check_sliding, in_milliseconds
from flinkish.core.window.processing_time_trigger import ProcessingTimeTrigger
from flinkish.core.window.serializers import TimeWindowSerializer
from flinkish.core.window.window import TimeWindow


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
