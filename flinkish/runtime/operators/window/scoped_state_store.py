"""Keyed state for window functions: per key and window, or per key over all windows."""

from __future__ import annotations

from typing import Any, cast

from flinkish.core.functions import KeyedStateStore
from flinkish.core.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from flinkish.runtime.operators.window.window_scope import WindowScope
from flinkish.runtime.state.state_rows import VOID_NAMESPACE


class ScopedStateStore(KeyedStateStore):
    """Returns state handles in the namespace of the scope's window (``per_window``) or in the void namespace, for the
    current key."""

    def __init__(self, scope: WindowScope, per_window: bool) -> None:
        self._scope = scope
        self._per_window = per_window

    def _state(self, descriptor: StateDescriptor) -> State:
        namespace = self._scope.namespace if self._per_window else VOID_NAMESPACE
        return self._scope.handles.state(descriptor, namespace)

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return cast("ValueState[Any]", self._state(state_descriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return cast("ListState[Any]", self._state(state_descriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return cast("MapState[Any, Any]", self._state(state_descriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return cast("ReducingState[Any]", self._state(state_descriptor))

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        return cast("AggregatingState[Any, Any]", self._state(state_descriptor))
