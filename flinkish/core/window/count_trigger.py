"""A trigger that fires when a window has a number of elements. Semantics: Flink's ``CountTrigger``."""

from __future__ import annotations

from typing import Any, cast

from flinkish.common.typeinfo import Types
from flinkish.core.functions import ReduceFunction
from flinkish.core.state import ReducingState, ReducingStateDescriptor
from flinkish.core.window.assigner import checked_count
from flinkish.core.window.trigger import Trigger, TriggerResult, TriggerTraits
from flinkish.core.window.window import Window


class _Sum(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class CountTrigger(Trigger[Any, Window]):
    """Fires at every ``window_size``-th element of a key and window. It does not purge: see PurgingTrigger."""

    def __init__(self, window_size: int) -> None:
        self._window_size = checked_count("the number of elements at which CountTrigger fires", window_size)
        # reducing state, not a plain value: when windows merge, their counts add up
        self._count = ReducingStateDescriptor("trigger-count", _Sum(), Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """The trigger that fires at every ``window_size``-th element."""
        return CountTrigger(window_size)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        count = self._count_of(ctx)
        count.add(1)
        if (count.get() or 0) < self._window_size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        self._count_of(ctx).clear()

    def _count_of(self, ctx: Trigger.TriggerContext) -> ReducingState[int]:
        return cast("ReducingState[int]", ctx.get_partitioned_state(self._count))

    def traits(self) -> TriggerTraits:
        return TriggerTraits(sees_watermarks=False, uses_processing_time=False)

    def __repr__(self) -> str:
        return f"CountTrigger({self._window_size})"
