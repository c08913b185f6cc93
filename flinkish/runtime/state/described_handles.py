"""Creates the state handle that user code gets for a descriptor."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from flinkish.core.state import AggregatingStateDescriptor, ReducingStateDescriptor, State, StateDescriptor
from flinkish.errors import StateAccessError
from flinkish.runtime.state.savepoint_rows import WATERMARK
from flinkish.runtime.state.state_handles import (
    AggregatingHandle,
    ListHandle,
    MapHandle,
    ReducingHandle,
    ValueHandle,
)
from flinkish.runtime.state.state_rows import TIMERS_PREFIX
from flinkish.runtime.state.ttl import (
    TTL_PREFIX,
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlPolicy,
    TtlReducingState,
    TtlValueState,
)

if TYPE_CHECKING:
    from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend


def handle_of(backend: KeyedStateBackend, descriptor: StateDescriptor, namespace: Hashable) -> Any:
    """The handle for state without time-to-live.

    Raises:
        StateAccessError: the name is one that the engine gives.
    """
    name = descriptor.name
    if name.startswith((TTL_PREFIX, TIMERS_PREFIX)) or name == WATERMARK:
        raise StateAccessError(
            f"the state name {name!r} is one of the engine's own",
            where=backend.where,
            expected=f"a name that does not begin with {TTL_PREFIX!r} or {TIMERS_PREFIX!r}, and is not {WATERMARK!r}",
            hint="give the state another name",
        )
    if isinstance(descriptor, ReducingStateDescriptor):
        return ReducingHandle(backend, name, namespace, descriptor)
    if isinstance(descriptor, AggregatingStateDescriptor):
        function = descriptor.get_agg_function()
        return AggregatingHandle(backend, name, namespace, function)
    if descriptor.kind == "list":
        return ListHandle(backend, name, namespace, descriptor)
    if descriptor.kind == "map":
        return MapHandle(backend, name, namespace, descriptor)
    return ValueHandle(backend, name, namespace, descriptor)


def expiring_handle_of(
    backend: KeyedStateBackend, descriptor: StateDescriptor, namespace: Hashable, policy: TtlPolicy
) -> State:
    """The handle for state with time-to-live: it keeps the time of the last access beside each value."""
    state = handle_of(backend, descriptor, namespace)
    times = TTL_PREFIX + descriptor.name
    if descriptor.kind == "list":
        return TtlListState(state, ListHandle(backend, times, namespace), policy)
    if descriptor.kind == "map":
        return TtlMapState(state, MapHandle(backend, times, namespace), policy)
    time_state = ValueHandle(backend, times, namespace)
    if descriptor.kind == "reducing":
        return TtlReducingState(state, time_state, policy)
    if descriptor.kind == "aggregating":
        return TtlAggregatingState(state, time_state, policy)
    return TtlValueState(state, time_state, policy)
