"""The state handles that user code holds, over the tables of the backend.

A handle is valid over all keys and epochs: it finds its dict again whenever the backend's ``generation`` says that
other state has been taken in. Dicts of the void namespace stay the same within a generation;
those of other namespaces may be dropped at any time and are looked up at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from flinkish.common.typeinfo import PickledBytesTypeInfo
from flinkish.core.functions import AggregateFunction
from flinkish.core.state import AggregatingState, ListState, MapState, ReducingState, StateDescriptor, ValueState
from flinkish.errors import StateAccessError, TypeMismatchError
from flinkish.runtime.state.detach import COPIERS, detached
from flinkish.runtime.state.keyed_state_kinds import VOID_NAMESPACE

if TYPE_CHECKING:
    from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
    from flinkish.runtime.state.map_table import MapTable
    from flinkish.runtime.state.state_table import StateTable

_NEVER = -1


class NoKey:
    """What `current_key` is while there is no key."""

    def __repr__(self) -> str:
        return "<no key>"


NO_KEY = NoKey()


class StateHandle:
    """What all handles share: finding the live dict."""

    __slots__ = ("_backend", "_generation", "_kind", "_name", "_namespace", "_table", "_values")

    _table: StateTable
    _values: dict[Any, Any]

    def __init__(self, backend: KeyedStateBackend, name: str, kind: str, namespace: Hashable) -> None:
        self._backend = backend
        self._name = name
        self._kind = kind
        self._namespace = namespace
        self._generation = _NEVER

    def _bind(self) -> None:
        backend = self._backend
        if backend.current_key is NO_KEY:
            raise StateAccessError(
                f"state {self._name!r} was used while no record is processed",
                where=backend.where,
                expected="a current key",
                hint="get the handle in open(), but read and write it only while a record or a timer is processed; "
                "broadcast elements have no key: ctx.apply_to_keyed_state(descriptor, function) reaches all keys",
            )
        self._table = backend.table(self._name, self._kind)
        self._values = self._table.namespace(self._namespace)
        if self._namespace is VOID_NAMESPACE:
            self._generation = backend.generation

    def _live(self) -> dict[Any, Any]:
        """The dict of the namespace, with the value of the current key if there is one."""
        if self._generation != self._backend.generation:
            self._bind()
        if self._backend.current_key not in self._values:
            self._table.fetch(self._namespace, (self._backend.current_key,))
        return self._values

    def _mark(self) -> None:
        self._table.mark(self._namespace, self._backend.current_key)

    def clear(self) -> None:
        """Remove the state of the current key."""
        if self._live():
            self._table.remove(self._namespace, self._backend.current_key)


class ValueHandle(StateHandle, ValueState[Any]):
    """A value per key."""

    __slots__ = ("_typed",)

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace: Hashable, descriptor: StateDescriptor | None = None
    ) -> None:
        super().__init__(backend, name, "value", namespace)
        self._typed = descriptor is not None and not isinstance(descriptor.type_info, PickledBytesTypeInfo)

    def value(self) -> Any:
        if self._generation != self._backend.generation:
            self._bind()
        value = self._values.get(self._backend.current_key)
        if value is None:
            value = self._live().get(self._backend.current_key)
        copier = COPIERS[value.__class__]
        return value if copier is None else copier(value)

    def update(self, value: Any) -> None:
        if self._generation != self._backend.generation:
            self._bind()
        if value is None and self._typed:
            raise TypeMismatchError(
                f"state {self._name!r} was updated with None",
                where=f"{self._backend.where}, key {self._backend.current_key!r}",
                expected="a value of the declared type",
                hint="call clear() to remove the value",
            )
        key = self._backend.current_key
        copier = COPIERS[value.__class__]
        self._table.mark(self._namespace, key)
        self._values[key] = value if copier is None else copier(value)


class ListHandle(StateHandle, ListState[Any]):
    """A list per key."""

    __slots__ = ()

    def __init__(self, backend: KeyedStateBackend, name: str, namespace: Hashable) -> None:
        super().__init__(backend, name, "list", namespace)

    def get(self) -> list[Any]:
        return list(self._live().get(self._backend.current_key, ()))

    def size(self) -> int:
        """Length of the list."""
        return len(self._live().get(self._backend.current_key, ()))

    def add(self, value: Any) -> None:
        lists = self._live()
        self._table.mark_grown(self._namespace, (self._backend.current_key,))
        lists.setdefault(self._backend.current_key, []).append(value)

    def add_all(self, values: list[Any]) -> None:
        values = list(values)
        if values:
            lists = self._live()
            self._table.mark_grown(self._namespace, (self._backend.current_key,))
            lists.setdefault(self._backend.current_key, []).extend(values)

    def update(self, values: list[Any]) -> None:
        values = list(values)
        if not values:
            self.clear()
            return
        lists = self._live()
        self._mark()
        lists[self._backend.current_key] = values


class MapHandle(StateHandle, MapState[Any, Any]):
    """A map per key, entry by entry; a key without map entries has no map."""

    __slots__ = ()

    _table: MapTable

    def __init__(self, backend: KeyedStateBackend, name: str, namespace: Hashable) -> None:
        super().__init__(backend, name, "map", namespace)

    def _maps(self) -> MapTable:
        if self._generation != self._backend.generation:
            self._bind()
        return self._table

    def _all(self) -> dict[Any, tuple[int, Any]]:
        entries = self._maps().whole(self._namespace, self._backend.current_key)
        return {} if entries is None else entries.entries

    def get(self, key: Any) -> Any:
        entry = self._maps().entry(self._namespace, self._backend.current_key, key)
        return None if entry is None else detached(entry[1])

    def put(self, key: Any, value: Any) -> None:
        self._maps().put(self._namespace, self._backend.current_key, {key: detached(value)})

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        if dict_value:
            added = {key: detached(value) for key, value in dict_value.items()}
            self._maps().put(self._namespace, self._backend.current_key, added)

    def remove(self, key: Any) -> None:
        self._maps().discard(self._namespace, self._backend.current_key, key)

    def contains(self, key: Any) -> bool:
        return self._maps().entry(self._namespace, self._backend.current_key, key) is not None

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, detached(value)) for key, (_, value) in self._all().items()]

    def keys(self) -> list[Any]:
        return list(self._all())

    def values(self) -> list[Any]:
        return [detached(value) for _, value in self._all().values()]

    def is_empty(self) -> bool:
        return not self._all()

    def clear(self) -> None:
        """Remove all entries of the current key."""
        if self._maps().of(self._namespace, self._backend.current_key) is not None:
            self._maps().remove(self._namespace, self._backend.current_key)


class ReducingHandle(StateHandle, ReducingState[Any]):
    """A reduced value per key."""

    __slots__ = ("_reduce",)

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace: Hashable, reduce: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__(backend, name, "reducing", namespace)
        self._reduce = reduce

    def get(self) -> Any:
        return detached(self._live().get(self._backend.current_key))

    def add(self, value: Any) -> None:
        values = self._live()
        key = self._backend.current_key
        self._mark()
        values[key] = self._reduce(values[key], value) if key in values else detached(value)


class AggregatingHandle(StateHandle, AggregatingState[Any, Any]):
    """An accumulator per key."""

    __slots__ = ("_function",)

    def __init__(self, backend: KeyedStateBackend, name: str, namespace: Hashable, function: AggregateFunction) -> None:
        super().__init__(backend, name, "aggregating", namespace)
        self._function = function

    def get(self) -> Any:
        values = self._live()
        key = self._backend.current_key
        return detached(self._function.get_result(values[key])) if key in values else None

    def add(self, value: Any) -> None:
        """Add a value; None clears the state, as in Flink."""
        values = self._live()
        if value is None:
            self.clear()
            return
        key = self._backend.current_key
        self._mark()
        accumulator = values[key] if key in values else self._function.create_accumulator()
        values[key] = self._function.add(value, accumulator)
