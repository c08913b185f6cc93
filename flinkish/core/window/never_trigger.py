"""A trigger that never fires. Semantics: Flink's ``GlobalWindows.NeverTrigger``."""

from __future__ import annotations

from typing import Any

from flinkish.core.window.trigger import Trigger, TriggerResult, TriggerTraits
from flinkish.core.window.window import GlobalWindow


class NeverTrigger(Trigger[Any, GlobalWindow]):
    """The default trigger of GlobalWindows, which never fires."""

    def on_element(
        self, element: Any, timestamp: int, window: GlobalWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: GlobalWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: GlobalWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: GlobalWindow, ctx: Trigger.OnMergeContext) -> None:
        pass

    def clear(self, window: GlobalWindow, ctx: Trigger.TriggerContext) -> None:
        pass

    def traits(self) -> TriggerTraits:
        return TriggerTraits(sees_watermarks=False, uses_processing_time=False)

    def __repr__(self) -> str:
        return "NeverTrigger()"
