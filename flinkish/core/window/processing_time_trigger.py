"""A trigger that fires when processing time passes the end of the window. Semantics: Flink's
``ProcessingTimeTrigger``."""

from __future__ import annotations

from typing import Any

from flinkish.core.window.trigger import Trigger, TriggerResult, TriggerTraits
from flinkish.core.window.window import TimeWindow


class ProcessingTimeTrigger(Trigger[Any, TimeWindow]):
    """The default trigger of processing-time windows."""

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        # a window that is already over gets no timer here: the element that caused the merge registers it
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())

    def traits(self) -> TriggerTraits:
        return TriggerTraits(sees_watermarks=False, uses_processing_time=True)

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """The trigger that fires at the end of processing-time windows."""
        return ProcessingTimeTrigger()

    def __repr__(self) -> str:
        return "ProcessingTimeTrigger()"
