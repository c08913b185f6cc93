"""Sliding windows of a fixed number of elements. Semantics: PyFlink's ``CountSlidingWindowAssigner``; windows that have
fired are purged."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.common.typeinfo import Types
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.window.assigner import WindowAssigner, checked_count
from flinkish.core.window.count_trigger import CountTrigger
from flinkish.core.window.count_tumbling import CountTumblingWindowAssigner
from flinkish.core.window.purging_trigger import PurgingTrigger
from flinkish.core.window.serializers import CountWindowSerializer
from flinkish.core.window.trigger import Trigger
from flinkish.core.window.window import CountWindow

#: the number of elements of the key so far
_SLIDE_COUNT = ValueStateDescriptor("slide-count-assigner", Types.LONG())


class CountSlidingWindowAssigner(WindowAssigner[Any, CountWindow]):
    """The n-th window of a key holds ``size`` of its elements from number ``n * slide`` on (both count from 0).

    Only full windows fire, as in PyFlink; Java's ``countWindow(size, slide)`` also fires the first ones, which are not
    full (``GlobalWindows`` with ``CountEvictor.of(size)`` and ``CountTrigger.of(slide)``).
    """

    def __init__(self, window_size: int, window_slide: int) -> None:
        self._size = checked_count("the size of count windows", window_size)
        self._slide = checked_count("the slide of count windows", window_slide)

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """The assigner of windows of ``window_size`` elements that begin at every ``window_slide``-th element."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        state = context.get_runtime_context().get_state(_SLIDE_COUNT)
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

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self._size}, {self._slide})"


def count_windows(size: int, slide: int) -> WindowAssigner[Any, CountWindow]:
    """The assigner of ``count_window(size, slide)``; a slide of 0 means windows side by side."""
    return CountSlidingWindowAssigner(size, slide) if slide else CountTumblingWindowAssigner(size)
