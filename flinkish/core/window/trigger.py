"""Triggers, which decide when a window is evaluated (fires), and when its elements are purged: their contract, and
those that come with Flink.

Semantics: Flink's triggers of the same names; ``NeverTrigger`` is that of ``GlobalWindows``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from flinkish.common.arguments import check_instance, stands_for
from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.common.typeinfo import Types
from flinkish.core.state import ReducingState, ReducingStateDescriptor
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.window import GlobalWindow, TimeWindow, W, Window
from flinkish.errors import ArgumentValueError

if TYPE_CHECKING:
    from flinkish.core.metrics import MetricGroup
    from flinkish.core.state import State, StateDescriptor


T = TypeVar("T")


class TriggerResult(Enum):
    """The decision of a trigger: evaluate the window, purge its elements, both, or nothing."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Whether the window is evaluated."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Whether the elements are purged; timers and the trigger's state are kept."""
        return self.value[1]


@dataclass(frozen=True)
class TriggerTraits:
    """The properties of a trigger that the engine must prepare for."""

    #: whether the trigger can notice at which watermark it is called: if so, sources stamp watermarks at finer
    #: intervals
    sees_watermarks: bool
    #: whether it registers processing-time timers: if so, time must advance without data
    uses_processing_time: bool


#: The traits of triggers that state none, which are those of users.
UNKNOWN_TRAITS = TriggerTraits(sees_watermarks=True, uses_processing_time=True)


class Trigger(ABC, Generic[T, W]):
    """Decides for each key and window when to evaluate and when to purge.

    Example: fire for every element, keep the elements::

        class EveryElement(Trigger):
            def on_element(self, element, timestamp, window, ctx):
                return TriggerResult.FIRE
            def on_processing_time(self, time, window, ctx):
                return TriggerResult.CONTINUE
            def on_event_time(self, time, window, ctx):
                return TriggerResult.CONTINUE
            def on_merge(self, window, ctx):
                pass
            def clear(self, window, ctx):
                pass

    A trigger keeps nothing in its attributes: one instance serves all keys and windows of a subtask.
    """

    class TriggerContext(ABC):
        """Access to time, and to timers and state of the current key and window. All times are in ms."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The processing time of the epoch."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """The operator's metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """The operator's watermark; -9223372036854775808 before the first one."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Have ``on_processing_time`` called for this key and window at ``time``; once, even if registered
            twice."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Have ``on_event_time`` called for this key and window once the watermark passes ``time``."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete the timer; nothing happens if there is none."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete the timer; nothing happens if there is none."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
            """The state of the current key and window. Do not keep the handle: get it again at each call."""

    class OnMergeContext(TriggerContext):
        """The context of ``on_merge``."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the windows that were merged into the state of the resulting window."""

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called when an element was added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called when a processing-time timer of this trigger is due, or when the window is about to be cleaned up."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called when an event-time timer of this trigger is due, or when the window is about to be cleaned up."""

    def can_merge(self) -> bool:
        """Whether the trigger supports windows that merge; if so, ``on_merge`` must handle them."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Called when several windows were merged into ``window``."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Called when the window is removed: delete the trigger's own state and timers."""

    def traits(self) -> TriggerTraits:
        """The traits of the trigger, for the engine; triggers of flinkish override it."""
        return UNKNOWN_TRAITS


def traits_of(trigger: Trigger[Any, Any]) -> TriggerTraits:
    """The traits that the trigger states. They do not count if another method was overridden since: that may do
    anything."""
    stated = stands_for(trigger, "traits", "on_element", "on_event_time", "on_processing_time", "on_merge", "clear")
    return trigger.traits() if stated else UNKNOWN_TRAITS


def checked_interval(name: str, interval_ms: int) -> int:
    """Return the length of time, in ms. Raises ProgramError unless it is more than 0."""
    hint = f"{name}.of(...) takes a Time or a Duration"
    check_instance(interval_ms, int, "the interval is", f"{name}(...)", hint, "milliseconds, as an int")
    if interval_ms <= 0:
        raise ArgumentValueError(
            f"{name} with {interval_ms} ms",
            where=f"{name}.of()",
            expected="a time of more than 0 ms",
            hint="such as Time.seconds(10)",
        )
    return interval_ms


C = TypeVar("C", bound="_ContinuousTrigger")


class QuietTrigger(Trigger[T, W]):
    """Base of Flink's own triggers, which do nothing at times of the kind that they do not ask for."""

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE


class _ContinuousTrigger(QuietTrigger[Any, TimeWindow]):
    def __init__(self, interval: int) -> None:
        self._interval = checked_interval(type(self).__name__, interval)
        # reducing state, not a plain value: when windows merge, the earliest time counts
        self._state = ReducingStateDescriptor("fire-timestamp", min, Types.LONG())

    @classmethod
    def of(cls: type[C], interval: Time | Duration) -> C:
        """The trigger that fires every ``interval``."""
        return cls(milliseconds_of(interval, "the interval", f"{cls.__name__}.of()"))

    @abstractmethod
    def _register(self, time_ms: int, ctx: Trigger.TriggerContext) -> None:
        """Register a timer of the trigger's kind of time."""

    @abstractmethod
    def _delete(self, time_ms: int, ctx: Trigger.TriggerContext) -> None:
        """Delete it."""

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._state)
        next_fire_ms = self._fire_timestamp(ctx).get()
        if next_fire_ms is not None:
            self._register(next_fire_ms, ctx)

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        fire_timestamp = self._fire_timestamp(ctx)
        next_fire_ms = fire_timestamp.get()
        if next_fire_ms is not None:
            self._delete(next_fire_ms, ctx)
            fire_timestamp.clear()

    def register_next_fire_timestamp(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext, fire_timestamp_state: ReducingState[int]
    ) -> None:
        """Register the next firing an interval after ``time``, but not behind the end of the window."""
        next_fire_ms = min(time + self._interval, window.max_timestamp())
        fire_timestamp_state.add(next_fire_ms)
        self._register(next_fire_ms, ctx)

    def _fire_timestamp(self, ctx: Trigger.TriggerContext) -> ReducingState[int]:
        return cast("ReducingState[int]", ctx.get_partitioned_state(self._state))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._interval})"


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Fires at each multiple of the interval that the watermark passes, and at the end of the window.

    Raises:
        ProgramError: the interval is not more than 0 ms.
    """

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

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        fire_timestamp = self._fire_timestamp(ctx)
        if fire_timestamp.get() != time:
            return TriggerResult.CONTINUE
        fire_timestamp.clear()
        self.register_next_fire_timestamp(time, window, ctx, fire_timestamp)
        return TriggerResult.FIRE

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        super().clear(window, ctx)

    def register_next_fire_timestamp(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext, fire_timestamp_state: ReducingState[int]
    ) -> None:
        # after the end of the input a window without an end (GlobalWindows) fires once more, not for ever
        ended = ctx.get_current_watermark() == window.max_timestamp() == MAX_WATERMARK_MS
        super().register_next_fire_timestamp(MAX_WATERMARK_MS if ended else time, window, ctx, fire_timestamp_state)

    def _register(self, time_ms: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_event_time_timer(time_ms)

    def _delete(self, time_ms: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(time_ms)

    def traits(self) -> TriggerTraits:
        return TriggerTraits(sees_watermarks=True, uses_processing_time=False)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Fires at each multiple of the interval, also without new elements, and at the end of the window.

    Raises:
        ProgramError: the interval is not more than 0 ms.
    """

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

    def _register(self, time_ms: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_processing_time_timer(time_ms)

    def _delete(self, time_ms: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(time_ms)

    def traits(self) -> TriggerTraits:
        return TriggerTraits(sees_watermarks=False, uses_processing_time=True)


class EventTimeTrigger(QuietTrigger[Any, TimeWindow]):
    """The default trigger of event-time windows. A late element within the allowed lateness fires at once."""

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
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


class NeverTrigger(QuietTrigger[Any, GlobalWindow]):
    """The default trigger of GlobalWindows, which never fires."""

    def on_element(
        self, element: Any, timestamp: int, window: GlobalWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: GlobalWindow, ctx: Trigger.OnMergeContext) -> None:
        pass

    def clear(self, window: GlobalWindow, ctx: Trigger.TriggerContext) -> None:
        pass

    def traits(self) -> TriggerTraits:
        return TriggerTraits(sees_watermarks=False, uses_processing_time=False)

    def __repr__(self) -> str:
        return "NeverTrigger()"


class ProcessingTimeTrigger(QuietTrigger[Any, TimeWindow]):
    """The default trigger of processing-time windows."""

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

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
