"""Session windows by processing time, with a gap of its own for each element. Semantics: Flink's
``DynamicProcessingTimeSessionWindows``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.processing_time_trigger import ProcessingTimeTrigger
from flinkish.core.window.session_gap import (
    SessionWindows,
    SessionWindowTimeGapExtractor,
    checked_extractor,
    dynamic_gap,
)
from flinkish.core.window.window import TimeWindow


class DynamicProcessingTimeSessionWindows(SessionWindows):
    """The window of an element lasts until its processing time and its own gap are over; sessions that overlap or touch
    are one.

    Raises:
        TypeError: the extractor is not a SessionWindowTimeGapExtractor.
    """

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._extractor = checked_extractor(session_window_time_gap_extractor)

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """The assigner of sessions with the gaps that the extractor gives."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = context.get_current_processing_time()
        return [TimeWindow(now_ms, now_ms + dynamic_gap(self._extractor, element))]

    def get_default_trigger(self, env: Any) -> ProcessingTimeTrigger:
        return ProcessingTimeTrigger.create()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"DynamicProcessingTimeSessionWindows({type(self._extractor).__name__})"
