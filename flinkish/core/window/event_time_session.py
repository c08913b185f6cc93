"""Session windows by timestamp, with a fixed gap. Semantics: Flink's ``EventTimeSessionWindows``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.core.window.assigner import WindowAssigner, missing_timestamp
from flinkish.core.window.dynamic_event_time_session import DynamicEventTimeSessionWindows
from flinkish.core.window.event_time_trigger import EventTimeTrigger
from flinkish.core.window.session_gap import SessionWindows, SessionWindowTimeGapExtractor, checked_gap
from flinkish.core.window.window import TimeWindow


class EventTimeSessionWindows(SessionWindows):
    """The window of an element lasts until its timestamp and the gap are over; sessions that overlap or touch are one.

    Example: the number of actions of each user in sessions that end after a pause of half an hour::

        ds.key_by(lambda v: v[0]).window(EventTimeSessionWindows.with_gap(Time.minutes(30))).aggregate(Count())

    Raises:
        ProgramError: the gap is not more than 0 ms.
    """

    def __init__(self, session_gap: int) -> None:
        self._gap_ms = checked_gap("EventTimeSessionWindows", session_gap)

    @staticmethod
    def with_gap(size: Time | Duration) -> EventTimeSessionWindows:
        """The assigner of sessions that end when no element arrives for that time."""
        return EventTimeSessionWindows(milliseconds_of(size, "the gap", "EventTimeSessionWindows.with_gap()"))

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """The assigner of sessions with a gap of its own for each element."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        if timestamp <= MIN_TIMESTAMP_MS:
            raise missing_timestamp(self)
        return [TimeWindow(timestamp, timestamp + self._gap_ms)]

    def ends_ms(self, values: list[Any], timestamps: list[int]) -> list[int]:
        """The ends (exclusive, in ms) of the windows of many elements, for the engine."""
        return [timestamp_ms + self._gap_ms for timestamp_ms in timestamps]

    def get_default_trigger(self, env: Any) -> EventTimeTrigger:
        return EventTimeTrigger.create()

    def is_event_time(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"EventTimeSessionWindows({self._gap_ms})"
