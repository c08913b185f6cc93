"""A trigger that fires when the watermark passes the end of the window. Semantics: Flink's ``EventTimeTrigger``."""

from __future__ import annotations

from typing import Any

from flinkish.core.window.trigger import Trigger, TriggerResult, TriggerTraits
from flinkish.core.window.window import TimeWindow


class EventTimeTrigger(Trigger[Any, TimeWindow]):
    """The default trigger of event-time windows. A late element within the allowed lateness fires at once."""

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        # a timer at any other time is the cleanup timer, at the end of the allowed lateness
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        # no timer is registered behind the watermark: the element that caused the merge fires at once
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())

    def traits(self) -> TriggerTraits:
        return TriggerTraits(sees_watermarks=False, uses_processing_time=False)

    @staticmethod
    def create() -> EventTimeTrigger:
        """The trigger that fires at the end of event-time windows."""
        return EventTimeTrigger()

    def __repr__(self) -> str:
        return "EventTimeTrigger()"
