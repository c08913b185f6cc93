"""Session windows by processing time, with a fixed gap. Semantics: Flink's ``ProcessingTimeSessionWindows``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.dynamic_processing_time_session import DynamicProcessingTimeSessionWindows
from flinkish.core.window.processing_time_trigger import ProcessingTimeTrigger
from flinkish.core.window.session_gap import SessionWindows, SessionWindowTimeGapExtractor, checked_gap
from flinkish.core.window.window import TimeWindow


class ProcessingTimeSessionWindows(SessionWindows):
    """The window of an element lasts until its processing time and the gap are over; sessions that overlap or touch are
    one.

    Raises:
        ProgramError: the gap is not more than 0 ms.
    """

    def __init__(self, session_gap: int) -> None:
        self._gap_ms = checked_gap("ProcessingTimeSessionWindows", session_gap)

    @staticmethod
    def with_gap(size: Time | Duration) -> ProcessingTimeSessionWindows:
        """The assigner of sessions that end when no element arrives for that time."""
        return ProcessingTimeSessionWindows(milliseconds_of(size, "the gap", "ProcessingTimeSessionWindows.with_gap()"))

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """The assigner of sessions with a gap of its own for each element."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = context.get_current_processing_time()
        return [TimeWindow(now_ms, now_ms + self._gap_ms)]

    def get_default_trigger(self, env: Any) -> ProcessingTimeTrigger:
        return ProcessingTimeTrigger.create()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"ProcessingTimeSessionWindows({self._gap_ms})"
