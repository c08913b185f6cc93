"""A trigger that fires at regular intervals of event time. Semantics: Flink's ``ContinuousEventTimeTrigger``."""

from __future__ import annotations

from typing import Any, cast

from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.common.typeinfo import Types
from flinkish.core.state import ReducingState, ReducingStateDescriptor
from flinkish.core.time_limits import MAX_WATERMARK_MS
from flinkish.core.window.trigger import Trigger, TriggerResult, TriggerTraits, checked_interval
from flinkish.core.window.window import TimeWindow


class ContinuousEventTimeTrigger(Trigger[Any, TimeWindow]):
    """Fires at each multiple of the interval that the watermark passes, and at the end of the window.

    Raises:
        ProgramError: the interval is not more than 0 ms.
    """

    def __init__(self, interval: int) -> None:
        self._interval = checked_interval("ContinuousEventTimeTrigger", interval)
        # reducing state, not a plain value: when windows merge, the earliest time counts
        self._state = ReducingStateDescriptor("fire-timestamp", min, Types.LONG())

    @staticmethod
    def of(interval: Time | Duration) -> ContinuousEventTimeTrigger:
        """The trigger that fires every ``interval``."""
        return ContinuousEventTimeTrigger(milliseconds_of(interval, "the interval", "ContinuousEventTimeTrigger.of()"))

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        fire_timestamp = self._fire_timestamp(ctx)
        if fire_timestamp.get() is None:
            self.register_next_fire_timestamp(timestamp - timestamp % self._interval, window, ctx, fire_timestamp)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        fire_timestamp = self._fire_timestamp(ctx)
        if fire_timestamp.get() != time:
            return TriggerResult.CONTINUE
        fire_timestamp.clear()
        self.register_next_fire_timestamp(time, window, ctx, fire_timestamp)
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._state)
        next_fire_ms = self._fire_timestamp(ctx).get()
        if next_fire_ms is not None:
            ctx.register_event_time_timer(next_fire_ms)

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        fire_timestamp = self._fire_timestamp(ctx)
        next_fire_ms = fire_timestamp.get()
        if next_fire_ms is not None:
            ctx.delete_event_time_timer(next_fire_ms)
            fire_timestamp.clear()

    def register_next_fire_timestamp(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext, fire_timestamp_state: ReducingState[int]
    ) -> None:
        """Register the next firing an interval after ``time``, but not behind the end of the window."""
        last_ms = window.max_timestamp()
        # after the end of the input a window without an end (GlobalWindows) fires once more, not for ever
        ended = ctx.get_current_watermark() == last_ms == MAX_WATERMARK_MS
        next_fire_ms = last_ms if ended else min(time + self._interval, last_ms)
        fire_timestamp_state.add(next_fire_ms)
        ctx.register_event_time_timer(next_fire_ms)

    def _fire_timestamp(self, ctx: Trigger.TriggerContext) -> ReducingState[int]:
        return cast("ReducingState[int]", ctx.get_partitioned_state(self._state))

    def traits(self) -> TriggerTraits:
        return TriggerTraits(sees_watermarks=True, uses_processing_time=False)

    def __repr__(self) -> str:
        return f"ContinuousEventTimeTrigger({self._interval})"
