"""A trigger that fires at regular intervals of processing time. Semantics: Flink's
``ContinuousProcessingTimeTrigger``."""

from __future__ import annotations

from typing import Any, cast

from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.common.typeinfo import Types
from flinkish.core.state import ReducingState, ReducingStateDescriptor
from flinkish.core.window.trigger import Trigger, TriggerResult, TriggerTraits, checked_interval
from flinkish.core.window.window import TimeWindow


class ContinuousProcessingTimeTrigger(Trigger[Any, TimeWindow]):
    """Fires at each multiple of the interval, also without new elements, and at the end of the window.

    Raises:
        ProgramError: the interval is not more than 0 ms.
    """

    def __init__(self, interval: int) -> None:
        self._interval = checked_interval("ContinuousProcessingTimeTrigger", interval)
        # reducing state, not a plain value: when windows merge, the earliest time counts
        self._state = ReducingStateDescriptor("fire-timestamp", min, Types.LONG())

    @staticmethod
    def of(interval: Time | Duration) -> ContinuousProcessingTimeTrigger:
        """The trigger that fires every ``interval``."""
        return ContinuousProcessingTimeTrigger(
            milliseconds_of(interval, "the interval", "ContinuousProcessingTimeTrigger.of()")
        )

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        fire_timestamp = self._fire_timestamp(ctx)
        if fire_timestamp.get() is None:
            now_ms = ctx.get_current_processing_time()
            self.register_next_fire_timestamp(now_ms - now_ms % self._interval, window, ctx, fire_timestamp)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        fire_timestamp = self._fire_timestamp(ctx)
        if fire_timestamp.get() != time:
            return TriggerResult.CONTINUE
        fire_timestamp.clear()
        if time < window.max_timestamp():
            # there is no next firing at the end of the window: registering the same time again would go on for ever
            self.register_next_fire_timestamp(time, window, ctx, fire_timestamp)
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._state)
        next_fire_ms = self._fire_timestamp(ctx).get()
        if next_fire_ms is not None:
            ctx.register_processing_time_timer(next_fire_ms)

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        fire_timestamp = self._fire_timestamp(ctx)
        next_fire_ms = fire_timestamp.get()
        if next_fire_ms is not None:
            ctx.delete_processing_time_timer(next_fire_ms)
            fire_timestamp.clear()

    def register_next_fire_timestamp(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext, fire_timestamp_state: ReducingState[int]
    ) -> None:
        """Register the next firing an interval after ``time``, but not behind the end of the window."""
        next_fire_ms = min(time + self._interval, window.max_timestamp())
        fire_timestamp_state.add(next_fire_ms)
        ctx.register_processing_time_timer(next_fire_ms)

    def _fire_timestamp(self, ctx: Trigger.TriggerContext) -> ReducingState[int]:
        return cast("ReducingState[int]", ctx.get_partitioned_state(self._state))

    def traits(self) -> TriggerTraits:
        return TriggerTraits(sees_watermarks=False, uses_processing_time=True)

    def __repr__(self) -> str:
        return f"ContinuousProcessingTimeTrigger({self._interval})"
