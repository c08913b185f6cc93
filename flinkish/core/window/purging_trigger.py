"""A trigger that purges the window whenever a nested trigger fires. Semantics: Flink's ``PurgingTrigger``."""

from __future__ import annotations

from typing import Any

from flinkish.core.window.trigger import Trigger, TriggerResult, TriggerTraits, traits_of
from flinkish.core.window.window import Window


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


class PurgingTrigger(Trigger[Any, Window]):
    """Does what ``nested_trigger`` does, and purges whenever that one fires.

    Example::

        stream.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(100)))
    """

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """The purging form of a trigger."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)

    def traits(self) -> TriggerTraits:
        return traits_of(self.nested_trigger)

    def __repr__(self) -> str:
        return f"PurgingTrigger({self.nested_trigger!r})"
