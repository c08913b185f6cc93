"""The state handles that user code gets for descriptors, without and with time-to-live (TTL): the latter keep the time
of the last access beside each value.

The times are in a state of their own, ``__ttl__/<name>``, of the same shape (a value, a list parallel to the list, a
map with the same keys). So values look the same in savepoints with and without time-to-live, and it can be switched on
and off: a value that has no time yet counts as written now. An entry has expired once
``time of last access + ttl <= now`` (Flink's ``TtlUtils.expired``), where now is the processing time of the epoch.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flinkish.core.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    MapState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    StateTtlConfig,
    ValueState,
)
from flinkish.errors import StateAccessError
from flinkish.runtime.state.handles import AggregatingHandle, ListHandle, MapHandle, ReducingHandle, ValueHandle
from flinkish.runtime.state.list_table import ListTable
from flinkish.runtime.state.map_table import MapEntries, MapTable
from flinkish.runtime.state.state_rows import TIMERS_PREFIX, VOID_NAMESPACE, WATERMARK
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.stored_state import StoredState

if TYPE_CHECKING:
    from flinkish.runtime.state.backend import KeyedStateBackend


TTL_PREFIX = "__ttl__/"


@dataclass(frozen=True)
class TtlPolicy:
    """The settings of a StateTtlConfig, and the clock that says what has expired.

    ``purge``: whether expired values are removed even if nobody reads them (one of Flink's cleanup strategies is set).
    """

    ttl_ms: int
    renew_on_read: bool
    return_expired: bool
    purge: bool
    now_ms: Callable[[], int]

    @staticmethod
    def of(config: StateTtlConfig, now_ms: Callable[[], int]) -> TtlPolicy:
        """The policy of an enabled configuration."""
        strategies = config.get_cleanup_strategies()
        return TtlPolicy(
            ttl_ms=config.get_ttl().to_milliseconds(),
            renew_on_read=config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite,
            return_expired=(
                config.get_state_visibility() is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
            ),
            purge=strategies.is_cleanup_in_background()
            or strategies.in_full_snapshot()
            or strategies.get_incremental_cleanup_strategy() is not None
            or strategies.get_rocksdb_compact_filter_cleanup_strategy() is not None,
            now_ms=now_ms,
        )

    def expired(self, accessed_ms: int | None) -> bool:
        """Whether a value with this time of the last access (ms) has expired; a value without a time has not."""
        return accessed_ms is not None and accessed_ms + self.ttl_ms <= self.now_ms()


class _TtlSingle:
    """A state with one value per key, and the state with the times of these values."""

    __slots__ = ("_policy", "_state", "_times")

    def __init__(
        self,
        state: ValueHandle | ReducingHandle | AggregatingHandle,
        times: ValueHandle,
        policy: TtlPolicy,
    ) -> None:
        self._state: Any = state
        self._times = times
        self._policy = policy

    def clear(self) -> None:
        self._state.clear()
        self._times.clear()

    def _checked(self, value: Any) -> Any:
        """What a read returns that has found ``value``. An expired value is removed; the time of another one is
        renewed, if that is configured, or set, if there is none."""
        if value is None:
            return None
        accessed_ms = self._times.value()
        if self._policy.expired(accessed_ms):
            self.clear()
            return value if self._policy.return_expired else None
        if self._policy.renew_on_read or accessed_ms is None:
            self._times.update(self._policy.now_ms())
        return value

    def _drop_expired(self) -> None:
        if self._policy.expired(self._times.value()):
            self.clear()


class TtlValueState(_TtlSingle, ValueState[Any]):
    """ValueState with time-to-live."""

    __slots__ = ()

    def value(self) -> Any:
        return self._checked(self._state.value())

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        self._state.update(value)
        self._times.update(self._policy.now_ms())


class _TtlAppending(_TtlSingle):
    __slots__ = ()

    def get(self) -> Any:
        return self._checked(self._state.get())

    def add(self, value: Any) -> None:
        self._drop_expired()
        self._state.add(value)
        self._times.update(self._policy.now_ms())


class TtlReducingState(_TtlAppending, ReducingState[Any]):
    """ReducingState with time-to-live: a value that is added after expiry starts a new reduction."""

    __slots__ = ()


class TtlAggregatingState(_TtlAppending, AggregatingState[Any, Any]):
    """AggregatingState with time-to-live: a value that is added after expiry starts a new accumulator."""

    __slots__ = ()


class TtlListState(ListState[Any]):
    """ListState with time-to-live: each element expires by itself."""

    __slots__ = ("_policy", "_state", "_times")

    def __init__(self, state: ListHandle, times: ListHandle, policy: TtlPolicy) -> None:
        self._state = state
        self._times = times
        self._policy = policy

    def get(self) -> list[Any]:
        self._align()
        elements, times = self._state.get(), self._times.get()
        alive = [not self._policy.expired(accessed_ms) for accessed_ms in times]
        if not all(alive):
            if not any(alive):
                self.clear()
            else:
                kept = [element for element, lives in zip(elements, alive, strict=True) if lives]
                # expired elements that may still be read are kept until all have expired, unless this read renews the
                # times and so writes the list anyway: only the other elements are renewed
                if self._policy.renew_on_read or not self._policy.return_expired:
                    self._state.update(kept)
                    self._times.update([time for time, lives in zip(times, alive, strict=True) if lives])
            if not self._policy.return_expired:
                elements = [element for element, lives in zip(elements, alive, strict=True) if lives]
        if self._policy.renew_on_read and any(alive):
            now_ms = self._policy.now_ms()
            self._times.update([now_ms] * self._state.size())
        return elements

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: Iterable[Any]) -> None:
        self._align()
        self._state.add_all(values)
        self._align()

    def update(self, values: Iterable[Any]) -> None:
        self._state.update(values)
        self._times.clear()
        self._align()

    def clear(self) -> None:
        self._state.clear()
        self._times.clear()

    def _align(self) -> None:
        """Make the times parallel to the elements: elements without a time count as written now."""
        missing = self._state.size() - self._times.size()
        if missing > 0:
            self._times.add_all([self._policy.now_ms()] * missing)
        elif missing < 0:
            self._times.update(self._times.get()[-missing:])


class TtlMapState(MapState[Any, Any]):
    """MapState with time-to-live: each entry expires by itself."""

    __slots__ = ("_policy", "_state", "_times")

    def __init__(self, state: MapHandle, times: MapHandle, policy: TtlPolicy) -> None:
        self._state = state
        self._times = times
        self._policy = policy

    def _visible(self, key: Any) -> bool:
        """Whether a read may see an existing entry. An expired entry is removed; the time of another one is renewed, if
        that is configured, or set, if there is none."""
        accessed_ms = self._times.get(key)
        if self._policy.expired(accessed_ms):
            self.remove(key)
            return self._policy.return_expired
        if self._policy.renew_on_read or accessed_ms is None:
            self._times.put(key, self._policy.now_ms())
        return True

    def get(self, key: Any) -> Any:
        key = self._state.user_key(key)
        if not self._state.contains(key):
            return None
        value = self._state.get(key)
        return value if self._visible(key) else None

    def put(self, key: Any, value: Any) -> None:
        key = self._state.user_key(key)
        self._state.put(key, value)
        self._times.put(key, self._policy.now_ms())

    def put_all(self, dict_value: dict[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        pairs = {self._state.user_key(key): value for key, value in dict(dict_value).items()}
        self._state.put_all(pairs)
        now_ms = self._policy.now_ms()
        self._times.put_all(dict.fromkeys(pairs, now_ms))

    def remove(self, key: Any) -> None:
        key = self._state.user_key(key)
        self._state.remove(key)
        self._times.remove(key)

    def contains(self, key: Any) -> bool:
        key = self._state.user_key(key)
        return self._state.contains(key) and self._visible(key)

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, value) for key, value in self._state.items() if self._visible(key)]

    def keys(self) -> list[Any]:
        return [key for key in self._state.keys() if self._visible(key)]  # noqa: SIM118 - a state, no dict

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        """Whether a read would find no entry. It is no read itself: it neither removes nor renews an entry."""
        if self._policy.return_expired:
            return self._state.is_empty()
        return all(self._policy.expired(self._times.get(key)) for key in self._state.keys())  # noqa: SIM118 - no dict

    def clear(self) -> None:
        self._state.clear()
        self._times.clear()


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
    """The state handles of one backend by descriptor (compared by identity) and namespace, cached because triggers,
    window assigners and window functions ask for their state at each record. A handle is valid over all keys and
    epochs."""

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


def purge_expired(state: StateTable, times: StateTable, policy: TtlPolicy) -> None:
    """Remove expired entries that nobody reads from a state and from the table of its times, and times whose value is
    gone, each time state is stored (Flink's cleanup strategies). This is for subtasks without state in files; from
    files, compaction removes expired rows."""
    for namespace, accessed in times.items():
        values = state.namespace(namespace)
        for key, accessed_ms in list(accessed.items()):
            if key not in values:
                times.remove(namespace, key)
            elif state.kind in ("map", "list"):
                purge = _purge_map if state.kind == "map" else _purge_list
                if purge(values[key], accessed_ms, policy):
                    state.mark(namespace, key)
                    times.mark(namespace, key)
            elif policy.expired(accessed_ms):
                _remove(state, times, namespace, key)
            if state.kind in ("map", "list") and key in values and not values[key]:
                _remove(state, times, namespace, key)


def _remove(state: StateTable, times: StateTable, namespace: Hashable, key: Any) -> None:
    state.remove(namespace, key)
    times.remove(namespace, key)


def _purge_map(values: MapEntries, times: MapEntries, policy: TtlPolicy) -> bool:
    """Remove the expired entries of a map; returns whether anything was removed."""
    entries, accessed = values.entries, times.entries
    before = len(accessed)
    values.ascending = None
    for user_key, (_, accessed_ms) in list(accessed.items()):
        if user_key not in entries:
            del accessed[user_key]
        elif policy.expired(accessed_ms):
            del entries[user_key], accessed[user_key]
    return len(accessed) < before


def _purge_list(elements: list[Any], accessed: list[int], policy: TtlPolicy) -> bool:
    """Remove the expired elements of a list; returns whether anything was removed."""
    expired = any(map(policy.expired, accessed))
    if expired:
        # elements beyond the end of the times have no time yet, and stay
        kept = [(element, time) for element, time in zip(elements, accessed, strict=False) if not policy.expired(time)]
        elements[: len(accessed)] = [element for element, _ in kept]
        accessed[:] = [time for _, time in kept]
    return expired
