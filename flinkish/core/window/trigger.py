"""The contract of triggers, which decide when a window is evaluated (fires), and when its elements are purged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flinkish.common.arguments import check_instance, stands_for
from flinkish.core.window.window import W
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
