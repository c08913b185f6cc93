"""Tumbling and sliding windows of a fixed number of elements, and the trigger that fires when a window has a number of
elements.

Semantics: PyFlink's ``CountTumblingWindowAssigner`` and ``CountSlidingWindowAssigner``, whose windows are purged when
they have fired, and Flink's ``CountTrigger``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, cast

from flinkish.common.typeinfo import Types
from flinkish.core.functions import ReduceFunction
from flinkish.core.state import ReducingState, ReducingStateDescriptor, ValueStateDescriptor
from flinkish.core.window.assigner import WindowAssigner, checked_count
from flinkish.core.window.trigger import PurgingTrigger, QuietTrigger, Trigger, TriggerResult, TriggerTraits
from flinkish.core.window.window import CountWindow, CountWindowSerializer, Window


class _Sum(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class CountTrigger(QuietTrigger[Any, Window]):
    """Fires at every ``window_size``-th element of a key and window. It does not purge: see PurgingTrigger."""

    def __init__(self, window_size: int) -> None:
        self._window_size = window_size
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


class _CountWindowAssigner(WindowAssigner[Any, CountWindow]):
    #: the state with the number of elements of the key so far
    _count: ClassVar[ValueStateDescriptor]

    def __init__(self, window_size: int, window_slide: int) -> None:
        self._size = checked_count("the size of count windows", window_size)
        self._slide = checked_count("the slide of count windows", window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        state = context.get_runtime_context().get_state(self._count)
        count = state.value() or 0
        state.update(count + 1)
        last_id = count // self._slide
        first_id = max(0, (count - self._size) // self._slide + 1)
        return [CountWindow(window_id) for window_id in range(last_id, first_id - 1, -1)]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        # a full window gets no more elements, and nothing else would ever clean it up
        return PurgingTrigger.of(CountTrigger.of(self._size))

    def get_window_serializer(self) -> CountWindowSerializer:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def needs_processing_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(_CountWindowAssigner):
    """The n-th window of a key holds ``size`` of its elements from number ``n * size`` on (both count from 0)."""

    _count = ValueStateDescriptor("tumbling-count-assigner", Types.LONG())

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """The assigner of windows of ``window_size`` elements."""
        return CountTumblingWindowAssigner(window_size)

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self._size})"


class CountSlidingWindowAssigner(_CountWindowAssigner):
    """The n-th window of a key holds ``size`` of its elements from number ``n * slide`` on (both count from 0).

    Only full windows fire, as in PyFlink; Java's ``countWindow(size, slide)`` also fires the first ones, which are not
    full (``GlobalWindows`` with ``CountEvictor.of(size)`` and ``CountTrigger.of(slide)``).
    """

    _count = ValueStateDescriptor("slide-count-assigner", Types.LONG())

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """The assigner of windows of ``window_size`` elements that begin at every ``window_slide``-th element."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self._size}, {self._slide})"


def count_windows(size: int, slide: int) -> WindowAssigner[Any, CountWindow]:
    """The assigner of ``count_window(size, slide)``; a slide of 0 means windows side by side."""
    return CountSlidingWindowAssigner(size, slide) if slide else CountTumblingWindowAssigner(size)
