"""Tumbling windows of a fixed number of elements. Semantics: PyFlink's ``CountTumblingWindowAssigner``; windows that
have fired are purged."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flinkish.common.typeinfo import Types
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.window.assigner import WindowAssigner, checked_count
from flinkish.core.window.count_trigger import CountTrigger
from flinkish.core.window.purging_trigger import PurgingTrigger
from flinkish.core.window.serializers import CountWindowSerializer
from flinkish.core.window.trigger import Trigger
from flinkish.core.window.window import CountWindow

#: the number of elements of the key so far
_TUMBLING_COUNT = ValueStateDescriptor("tumbling-count-assigner", Types.LONG())


class CountTumblingWindowAssigner(WindowAssigner[Any, CountWindow]):
    """The n-th window of a key holds ``size`` of its elements from number ``n * size`` on (both count from 0)."""

    def __init__(self, window_size: int) -> None:
        self._size = checked_count("the size of count windows", window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """The assigner of windows of ``window_size`` elements."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        state = context.get_runtime_context().get_state(_TUMBLING_COUNT)
        count = state.value() or 0
        state.update(count + 1)
        return [CountWindow(count // self._size)]

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
        return f"CountTumblingWindowAssigner({self._size})"
