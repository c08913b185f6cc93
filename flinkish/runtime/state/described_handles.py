"""Creates the state handle that user code gets for a descriptor, caches handles, because triggers, window assigners and
window functions ask for their state at each record, and holds what user code writes where there is no key."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flinkish.core.state import AggregatingStateDescriptor, ReducingStateDescriptor, State, StateDescriptor
from flinkish.errors import StateAccessError
from flinkish.runtime.state.list_table import ListTable
from flinkish.runtime.state.map_table import MapTable
from flinkish.runtime.state.state_handles import (
    AggregatingHandle,
    ListHandle,
    MapHandle,
    ReducingHandle,
    ValueHandle,
)
from flinkish.runtime.state.state_rows import TIMERS_PREFIX, VOID_NAMESPACE, WATERMARK
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.stored_state import StoredState
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

#: The cache is cleared when it holds so many handles, because those of windows that are gone are not needed any more.
_MAX_HANDLES = 1_000

_LOG = logging.getLogger("flinkish.KeyedStateBackend")


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


class HandleCache:
    """The state handles of one backend by descriptor (compared by identity) and namespace. A handle is valid over all
    keys and epochs."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        #: the descriptor is kept with its handle, so that no other object gets its id
        self._handles: dict[tuple[int, Hashable], tuple[StateDescriptor, State]] = {}

    def state(self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE) -> State:
        """The handle that the backend's ``partitioned_state`` returns, cached."""
        found = self._handles.get((id(descriptor), namespace))
        if found is None:
            if len(self._handles) >= _MAX_HANDLES:
                self._handles.clear()
            found = (descriptor, self._backend.partitioned_state(descriptor, namespace))
            self._handles[id(descriptor), namespace] = found
        return found[1]


class UnkeyedState:
    """What methods such as ``open`` write into keyed state: there is no key, so it is seen in the same call and by no
    record, as in PyFlink. One line in the log says so, for each state."""

    def __init__(self) -> None:
        self._tables: dict[str, StateTable] = {}
        self._warned: set[str] = set()
        self._method: str | None = None
        self._quiet = False

    @contextmanager
    def during(self, backend: KeyedStateBackend, method: str, quiet: bool = False) -> Iterator[None]:
        """Let this method of user code, which has no key, use keyed state. ``quiet``: without a line in the log."""
        backend.leave_key()
        self._method, self._quiet = method, quiet
        try:
            yield
        finally:
            self._method = None
            self._tables.clear()
            backend.loans.forget()

    def table(self, backend: KeyedStateBackend, name: str, kind: str) -> StateTable | None:
        """The table that the running method reads and writes in place of that of the state; None: no such method
        runs."""
        if self._method is None:
            return None
        if not (self._quiet or name.startswith(TTL_PREFIX) or name in self._warned):
            self._warned.add(name)
            _LOG.warning(
                "%s: state %r was used in %s, where no record is processed: what is written there belongs to no key, "
                "and no record will see it",
                backend.where,
                name,
                self._method,
            )
        found = self._tables.get(name)
        if found is None:
            in_memory = StoredState()
            if kind == "list":
                found = ListTable(name, kind, in_memory)
            elif kind == "map":
                found = MapTable(name, kind, in_memory, itertools.count().__next__)
            else:
                found = StateTable(name, kind, in_memory)
            self._tables[name] = found
        return found
