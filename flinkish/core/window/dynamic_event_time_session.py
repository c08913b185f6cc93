"""Session windows by timestamp, with a gap of its own for each element. Semantics: Flink's
``DynamicEventTimeSessionWindows``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.core.window.assigner import WindowAssigner, missing_timestamp
from flinkish.core.window.event_time_trigger import EventTimeTrigger
from flinkish.core.window.session_gap import (
    SessionWindows,
    SessionWindowTimeGapExtractor,
    checked_extractor,
    dynamic_gap,
)
from flinkish.core.window.window import TimeWindow


class DynamicEventTimeSessionWindows(SessionWindows):
    """The window of an element lasts until its timestamp and its own gap are over; sessions that overlap or touch are
    one.

    Raises:
        TypeError: the extractor is not a SessionWindowTimeGapExtractor.
    """

    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._extractor = checked_extractor(session_window_time_gap_extractor)

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """The assigner of sessions with the gaps that the extractor gives."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        if timestamp <= MIN_TIMESTAMP_MS:
            raise missing_timestamp(self)
        return [TimeWindow(timestamp, timestamp + dynamic_gap(self._extractor, element))]

    def ends_ms(self, values: list[Any], timestamps: list[int]) -> list[int]:
        """The ends (exclusive, in ms) of the windows of many elements, for the engine."""
        return [timestamp_ms + dynamic_gap(self._extractor, value) for timestamp_ms, value in zip(timestamps, values)]

    def get_default_trigger(self, env: Any) -> EventTimeTrigger:
        return EventTimeTrigger.create()

    def is_event_time(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"DynamicEventTimeSessionWindows({type(self._extractor).__name__})"
