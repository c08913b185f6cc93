"""The state handles that user code holds: they read and write the tables of the keyed state backend.

A handle is valid over all keys and epochs: it looks its dict up again whenever the backend's ``generation`` has
changed, which means that state was restored or evicted, or that the key was unset. Dicts of the void namespace stay the
same within a generation; those of other namespaces may be removed at any time and are looked up at each call.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from flinkish.common.detach import SHARED, SHARED_IF_FLAT, all_detached, detached, handed_over
from flinkish.common.serialization import abbreviated
from flinkish.common.typeinfo import BasicTypeInfo, PickledBytesTypeInfo, TypeInformation
from flinkish.common.typeinfo.basic import BasicType
from flinkish.core.functions import AggregateFunction
from flinkish.core.state import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
)
from flinkish.errors import StateAccessError, TypeMismatchError
from flinkish.runtime.state.keyed_state_kinds import VOID_NAMESPACE
from flinkish.runtime.state.table_keys import NONE_MARKED

if TYPE_CHECKING:
    from flinkish.runtime.state.keyed_state_backend import KeyedStateBackend
    from flinkish.runtime.state.map_table import MapTable
    from flinkish.runtime.state.state_table import StateTable

_NEVER = -1
#: basic type -> the class whose instances are stored as they are; other values are converted or rejected
_CLASSES: dict[BasicType, type] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.FLOAT: float,
    BasicType.DOUBLE: float,
    **dict.fromkeys((BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BIG_INT), int),
}
#: basic type -> the instances of its class that are stored as they are; others wrap, or are rounded to 32 bits
_RANGES: dict[BasicType, range] = {
    BasicType.BYTE: range(-(2**7), 2**7),
    BasicType.SHORT: range(-(2**15), 2**15),
    BasicType.INT: range(-(2**31), 2**31),
    BasicType.LONG: range(-(2**63), 2**63),
    BasicType.FLOAT: range(0),
}


def _class_of(declared: TypeInformation | None) -> type | None:
    """The class whose instances need no conversion to the declared type; None: no check by class."""
    return _CLASSES.get(declared._basic_type) if isinstance(declared, BasicTypeInfo) else None


def _range_of(declared: TypeInformation | None) -> range | None:
    """The range of the values that need no conversion to the declared type; None: all values of its class."""
    return _RANGES.get(declared._basic_type) if isinstance(declared, BasicTypeInfo) else None


class NoKey:
    """The type of `NO_KEY`, which is the ``current_key`` while there is none."""

    def __repr__(self) -> str:
        return "<no key>"


NO_KEY = NoKey()


class StateHandle:
    """Base class of the handles of keyed state: binds a handle to the table and the dict of its state."""

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

    def _fitting(self, value: Any, declared: TypeInformation | None) -> Any:
        """The value converted to the declared type. Raises TypeMismatchError if that cannot be done."""
        if declared is None or isinstance(declared, PickledBytesTypeInfo):
            return value
        try:
            if value is not None:
                return declared.convert(value)
        except TypeMismatchError:
            pass
        raise TypeMismatchError(
            f"state {self._name!r} was given {abbreviated(value)}",
            where=f"{self._backend.where}, key {abbreviated(self._backend.current_key)}",
            expected=f"a value of the declared type, {declared!r}",
            hint="call clear() to remove the value" if value is None else "declare the type that values have",
        )

    def clear(self) -> None:
        """Remove the state of the current key."""
        if self._live():
            self._table.remove(self._namespace, self._backend.current_key)


class _TypedHandle(StateHandle):
    """Base class of the handles of state whose values, or elements, have one declared type."""

    __slots__ = ("_class", "_declared", "_range")

    def __init__(
        self,
        backend: KeyedStateBackend,
        name: str,
        kind: str,
        namespace: Hashable,
        declared: TypeInformation | None,
    ) -> None:
        super().__init__(backend, name, kind, namespace)
        self._declared = declared
        self._class, self._range = _class_of(declared), _range_of(declared)

    def _converted(self, value: Any) -> Any:
        """The value converted to the declared basic type; of other types it is not checked here. Raises
        TypeMismatchError if it cannot be converted."""
        if self._class is not None and (
            value.__class__ is not self._class or (self._range is not None and value not in self._range)
        ):
            return self._fitting(value, self._declared)
        return value


class ValueHandle(_TypedHandle, ValueState[Any]):
    """The handle of ValueState: one value per key."""

    __slots__ = ("_marked", "_shared")

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace: Hashable, descriptor: StateDescriptor | None = None
    ) -> None:
        super().__init__(backend, name, "value", namespace, None if descriptor is None else descriptor.type_info)
        self._marked = NONE_MARKED
        #: the classes of values in state that user code gets as they are: with tuples, if their declared type says that
        #: nothing in them can change, and `update` has made sure of it
        self._shared = SHARED_IF_FLAT if self._declared is not None and self._declared.is_flat else SHARED

    def _bind(self) -> None:
        super()._bind()
        if self._namespace is VOID_NAMESPACE:
            self._marked = self._table.marked()

    def value(self) -> Any:
        backend = self._backend
        if self._generation != backend.generation:
            self._bind()
        value: Any = self._values.get(backend.current_key)
        if value is None:
            value = self._live().get(backend.current_key)
        return value if type(value) in self._shared else detached(value)

    def update(self, value: Any) -> None:
        backend = self._backend
        if self._generation != backend.generation:
            self._bind()
        # `_converted`, without a call for each update
        if value is None or (
            self._class is not None
            and (value.__class__ is not self._class or (self._range is not None and value not in self._range))
        ):
            if value is None:
                self.clear()
                return
            value = self._fitting(value, self._declared)
        key, marked = backend.current_key, self._marked
        if not marked.whole and key not in marked:
            self._table.mark(self._namespace, key)
        if type(value) not in SHARED:
            own = detached(value)
            if own is not value and value.__class__ is tuple and self._shared is SHARED_IF_FLAT:
                # a part of it can change, so it is not of the declared type
                own = self._fitting(own, self._declared)
            value = own
        self._values[key] = value


class ListHandle(_TypedHandle, ListState[Any]):
    """The handle of ListState: one list per key."""

    __slots__ = ()

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace: Hashable, descriptor: StateDescriptor | None = None
    ) -> None:
        super().__init__(backend, name, "list", namespace, None if descriptor is None else descriptor.entry_types()[1])

    def get(self) -> list[Any]:
        return all_detached(self._live().get(self._backend.current_key) or ())

    def size(self) -> int:
        """The length of the list of the current key."""
        return len(self._live().get(self._backend.current_key, ()))

    def add(self, value: Any) -> None:
        value = self._converted(value)
        lists = self._live()
        self._table.mark_grown(self._namespace, (self._backend.current_key,))
        lists.setdefault(self._backend.current_key, []).append(detached(value))

    def add_all(self, values: list[Any]) -> None:
        values = self._elements(values)
        if values:
            lists = self._live()
            self._table.mark_grown(self._namespace, (self._backend.current_key,))
            lists.setdefault(self._backend.current_key, []).extend(values)

    def update(self, values: list[Any]) -> None:
        values = self._elements(values)
        if not values:
            self.clear()
            return
        lists = self._live()
        self._mark()
        lists[self._backend.current_key] = values

    def _elements(self, values: list[Any]) -> list[Any]:
        values, wanted, fitting = all_detached(values), self._class, self._range
        if wanted is None or not values:
            return values
        if set(map(type, values)) == {wanted} and (
            fitting is None or (min(values) in fitting and max(values) in fitting)
        ):
            return values
        return [self._fitting(value, self._declared) for value in values]


class MapHandle(StateHandle, MapState[Any, Any]):
    """The handle of MapState: one map per key, which is read and written entry by entry."""

    __slots__ = ("_classes", "_declared", "_range")

    _table: MapTable

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace: Hashable, descriptor: StateDescriptor | None = None
    ) -> None:
        super().__init__(backend, name, "map", namespace)
        #: the declared types of the map's keys and values
        self._declared = (None, None) if descriptor is None else descriptor.entry_types()
        self._classes = _class_of(self._declared[0]), _class_of(self._declared[1])
        self._range = _range_of(self._declared[1])

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
        key, value = self._entry(key, value)
        self._maps().put(self._namespace, self._backend.current_key, {key: value})

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        if dict_value:
            added = dict(itertools.starmap(self._entry, dict_value.items()))
            self._maps().put(self._namespace, self._backend.current_key, added)

    def _entry(self, key: Any, value: Any) -> tuple[Any, Any]:
        key_class, value_class = self._classes
        if key_class is not None and key.__class__ is not key_class:
            key = self._fitting(key, self._declared[0])
        if value_class is not None and value is not None:
            if value.__class__ is not value_class or (self._range is not None and value not in self._range):
                value = self._fitting(value, self._declared[1])
        return key, detached(value)

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


class ReducingHandle(_TypedHandle, ReducingState[Any]):
    """The handle of ReducingState: one reduced value per key."""

    __slots__ = ("_reduce",)

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace: Hashable, descriptor: ReducingStateDescriptor
    ) -> None:
        super().__init__(backend, name, "reducing", namespace, descriptor.type_info)
        self._reduce = descriptor.get_reduce_function().reduce

    def get(self) -> Any:
        return detached(self._live().get(self._backend.current_key))

    def add(self, value: Any) -> None:
        values = self._live()
        key = self._backend.current_key
        self._mark()
        value = detached(value)
        if key in values:
            left = values[key]
            value = self._reduce(left, value)
            if type(value) not in SHARED:
                # a reduction that changes its first argument and returns it costs no copy: the state refers to it, too
                value = handed_over(value, 2 if value is left else 0)
        values[key] = self._converted(value)


class AggregatingHandle(StateHandle, AggregatingState[Any, Any]):
    """The handle of AggregatingState: one accumulator per key."""

    __slots__ = ("_function",)

    def __init__(self, backend: KeyedStateBackend, name: str, namespace: Hashable, function: AggregateFunction) -> None:
        super().__init__(backend, name, "aggregating", namespace)
        self._function = function

    def get(self) -> Any:
        values = self._live()
        key = self._backend.current_key
        return self._function.get_result(detached(values[key])) if key in values else None

    def add(self, value: Any) -> None:
        """Add a value; None clears the state, as in Flink."""
        values = self._live()
        if value is None:
            self.clear()
            return
        key = self._backend.current_key
        self._mark()
        accumulator = values[key] if key in values else detached(self._function.create_accumulator())
        values[key] = self._function.add(detached(value), accumulator)
