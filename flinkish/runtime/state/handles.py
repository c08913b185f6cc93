"""The state handles that user code holds: they read and write the tables of the keyed state backend.

A handle is valid over all keys and epochs: it looks its dict up again whenever the backend's ``generation`` has
changed, which means that state was restored or evicted, or that the key was unset. Dicts of the void namespace stay the
same within a generation; those of other namespaces may be removed at any time and are looked up at each call.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flinkish.common.detach import SHARED, SHARED_IF_FLAT, cannot_change, detached, handed_over
from flinkish.common.serialization import abbreviated
from flinkish.common.typeinfo import BasicTypeInfo, PickledBytesTypeInfo, TypeInformation
from flinkish.common.typeinfo.basic import BasicType, for_map_keys
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
from flinkish.runtime.state.loans import EntryLoan, Loan
from flinkish.runtime.state.state_rows import VOID_NAMESPACE
from flinkish.runtime.state.state_table import NONE_MARKED
from flinkish.runtime.state.stored_state import MISSING

if TYPE_CHECKING:
    from flinkish.runtime.state.backend import KeyedStateBackend
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


def _may_change(value: Any) -> bool:
    """Whether something in a value may change, as far as this is easily seen."""
    cls = value.__class__
    if cls in SHARED:
        return False
    if cls is tuple:
        for item in value:  # noqa: SIM110 - no generator: a hot path
            if item.__class__ not in SHARED:
                return True
        return False
    return True


def number_as_text(value: Any, declared: TypeInformation | None) -> Any:
    """The text of a whole number if texts are declared, as in PyFlink; any other value as it is."""
    return str(value) if value.__class__ is int and _class_of(declared) is str else value


class NoKey:
    """The type of `NO_KEY`, which is the ``current_key`` while there is none."""

    def __repr__(self) -> str:
        return "<no key>"


NO_KEY = NoKey()


class StateHandle:
    """Base class of the handles of keyed state: binds a handle to the table and the dict of its state."""

    __slots__ = ("_backend", "_generation", "_kind", "_loan", "_table", "_values", "name", "namespace")

    #: the class of the loans of what user code reads and puts into the state
    _loan_class: Any = Loan

    _table: StateTable
    _values: dict[Any, Any]

    def __init__(self, backend: KeyedStateBackend, name: str, kind: str, namespace: Hashable) -> None:
        self._backend = backend
        self.name = name
        self._kind = kind
        self.namespace = namespace
        self._generation = _NEVER

    def _bind(self) -> None:
        backend = self._backend
        if backend.current_key is NO_KEY:
            table = backend.unkeyed.table(backend, self.name, self._kind)
            if table is None:
                raise StateAccessError(
                    f"state {self.name!r} was used while no record is processed",
                    where=backend.where,
                    expected="a current key",
                    hint="get the handle in open(), but read and write it only while a record or a timer is processed; "
                    "broadcast elements have no key: ctx.apply_to_keyed_state(descriptor, function) reaches all keys",
                )
            # bound anew at each use
            self._table, self._values, self._generation = table, table.namespace(self.namespace), _NEVER
            self._loan = backend.loans.of_table(self._loan_class, table)
            return
        self._table = backend.table(self.name, self._kind)
        self._values = self._table.namespace(self.namespace)
        if self.namespace is VOID_NAMESPACE:
            self._generation = backend.generation
            self._loan = backend.loans.of_table(self._loan_class, self._table)

    def _lending(self) -> Any:
        """The loan of the state, for values that can change. Bound before."""
        if self.namespace is VOID_NAMESPACE:
            return self._loan
        return self._backend.loans.of(self._loan_class, self._table, self.namespace)

    def _live(self) -> dict[Any, Any]:
        """The dict of the namespace, with the value of the current key if there is one."""
        if self._generation != self._backend.generation:
            self._bind()
        if self._backend.current_key not in self._values:
            self._table.fetch(self.namespace, (self._backend.current_key,))
        return self._values

    def _mark(self) -> None:
        self._table.mark(self.namespace, self._backend.current_key)

    def _fitting(self, value: Any, declared: TypeInformation | None) -> Any:
        """The value converted to the declared type; a whole number under STRING becomes text, as in PyFlink. Raises
        TypeMismatchError if that cannot be done."""
        value = number_as_text(value, declared)
        if declared is None or isinstance(declared, PickledBytesTypeInfo):
            return value
        try:
            if value is not None:
                return declared.convert(value)
        except TypeMismatchError:
            pass
        raise TypeMismatchError(
            f"state {self.name!r} was given {abbreviated(value)}",
            where=f"{self._backend.where}, key {abbreviated(self._backend.current_key)}",
            expected=f"a value of the declared type, {declared!r}",
            hint="call clear() to remove the value" if value is None else "declare the type that values have",
        )

    def clear(self) -> None:
        """Remove the state of the current key."""
        if self._live():
            self._table.remove(self.namespace, self._backend.current_key)


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
        if self.namespace is VOID_NAMESPACE:
            self._marked = self._table.marked()

    def value(self) -> Any:
        backend = self._backend
        if self._generation != backend.generation:
            self._bind()
        value: Any = self._values.get(backend.current_key)
        if value is None:
            value = self._live().get(backend.current_key)
        cls = type(value)
        if cls in self._shared or cls is tuple and not _may_change(value):
            return value
        return self._lending().lend(value)

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
            self._table.mark(self.namespace, key)
        if type(value) not in SHARED and _may_change(value):
            if type(value) is tuple and self._shared is SHARED_IF_FLAT:
                # a part of it can change, so it is not of the declared type
                value = self._fitting(detached(value), self._declared)
            else:
                self._lending().give(value)
        self._values[key] = value


class ListHandle(_TypedHandle, ListState[Any]):
    """The handle of ListState: one list per key."""

    __slots__ = ()
    _loan_class = EntryLoan

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace: Hashable, descriptor: StateDescriptor | None = None
    ) -> None:
        super().__init__(backend, name, "list", namespace, None if descriptor is None else descriptor.entry_types()[1])

    def get(self) -> list[Any]:
        elements = self._live().get(self._backend.current_key)
        if not elements:
            return []
        if cannot_change(elements):
            return elements.copy()  # type: ignore[no-any-return]
        lend = self._lending().lend
        return [
            element if element.__class__ in SHARED else lend(index, element) for index, element in enumerate(elements)
        ]

    def size(self) -> int:
        """The length of the list of the current key."""
        return len(self._live().get(self._backend.current_key, ()))

    def add(self, value: Any) -> None:
        value, key = self._converted(value), self._backend.current_key
        lists = self._live()
        self._table.mark_grown(self.namespace, (key,))
        elements = lists.setdefault(key, [])
        elements.append(value)
        if value.__class__ not in SHARED and _may_change(value):
            self._lending().give(len(elements) - 1, value)

    def add_all(self, values: Iterable[Any]) -> None:
        values = self._elements(values)
        if values:
            lists, key = self._live(), self._backend.current_key
            self._table.mark_grown(self.namespace, (key,))
            elements = lists.setdefault(key, [])
            elements.extend(values)
            self._give(values, len(elements) - len(values))

    def update(self, values: Iterable[Any]) -> None:
        values = self._elements(values)
        if not values:
            self.clear()
            return
        lists = self._live()
        self._mark()
        lists[self._backend.current_key] = values
        self._give(values, 0)

    def _give(self, values: list[Any], begin: int) -> None:
        """Note that values, which are the elements from an index on, are still in the hands of user code."""
        if not cannot_change(values):
            give = self._lending().give
            for index, value in enumerate(values, begin):
                if _may_change(value):
                    give(index, value)

    def _elements(self, values: Iterable[Any]) -> list[Any]:
        values, wanted, fitting = list(values), self._class, self._range
        if wanted is None or not values:
            return values
        if set(map(type, values)) == {wanted} and (
            fitting is None or (min(values) in fitting and max(values) in fitting)
        ):
            return values
        return [self._fitting(value, self._declared) for value in values]


class MapHandle(StateHandle, MapState[Any, Any]):
    """The handle of MapState: one map per key, which is read and written entry by entry."""

    __slots__ = ("_classes", "_declared", "_key_range", "_range")
    _loan_class = EntryLoan

    _table: MapTable

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace: Hashable, descriptor: StateDescriptor | None = None
    ) -> None:
        super().__init__(backend, name, "map", namespace)
        #: the declared types of the map's keys and values
        key_type, value_type = (None, None) if descriptor is None else descriptor.entry_types()
        self._classes = _class_of(key_type), _class_of(value_type)
        self._key_range = None if self._classes[0] is float else _range_of(key_type)
        self._range = _range_of(value_type)
        self._declared = None if key_type is None else for_map_keys(key_type), value_type

    def _maps(self) -> MapTable:
        if self._generation != self._backend.generation:
            self._bind()
        return self._table

    def _all(self) -> dict[Any, tuple[int, Any]]:
        entries = self._maps().whole(self.namespace, self._backend.current_key)
        return {} if entries is None else entries.entries

    def get(self, key: Any) -> Any:
        key = self.user_key(key)
        entry = self._maps().entry(self.namespace, self._backend.current_key, key)
        if entry is None:
            return None
        value = entry[1]
        return value if value.__class__ in SHARED else self._lending().lend(key, value)

    def user_key(self, key: Any) -> Any:
        """The key under which the map has an entry that is put or asked for with a key."""
        return str(key) if key.__class__ is int and self._classes[0] is str else key

    def _lent(self, key: Any, value: Any) -> Any:
        return value if value.__class__ in SHARED else self._lending().lend(key, value)

    def put(self, key: Any, value: Any) -> None:
        key, value = self._entry(key, value)
        self._maps().put(self.namespace, self._backend.current_key, {key: value})
        if value.__class__ not in SHARED and _may_change(value):
            self._lending().give(key, value)

    def put_all(self, dict_value: dict[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        pairs = dict_value.items() if isinstance(dict_value, Mapping) else dict_value
        added = dict(itertools.starmap(self._entry, pairs))
        if added:
            self._maps().put(self.namespace, self._backend.current_key, added)
            for key, value in added.items():
                if _may_change(value):
                    self._lending().give(key, value)

    def _entry(self, key: Any, value: Any) -> tuple[Any, Any]:
        key_class, value_class = self._classes
        if key_class is not None and (
            key.__class__ is not key_class or (self._key_range is not None and key not in self._key_range)
        ):
            key = self._fitting(self.user_key(key), self._declared[0])
        if value_class is not None and value is not None:
            if value.__class__ is not value_class or (self._range is not None and value not in self._range):
                value = self._fitting(value, self._declared[1])
        return key, value

    def remove(self, key: Any) -> None:
        self._maps().discard(self.namespace, self._backend.current_key, self.user_key(key))

    def contains(self, key: Any) -> bool:
        return self._maps().entry(self.namespace, self._backend.current_key, self.user_key(key)) is not None

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, self._lent(key, value)) for key, (_, value) in self._all().items()]

    def keys(self) -> list[Any]:
        return list(self._all())

    def values(self) -> list[Any]:
        return [self._lent(key, value) for key, (_, value) in self._all().items()]

    def is_empty(self) -> bool:
        return not self._all()

    def clear(self) -> None:
        if self._maps().of(self.namespace, self._backend.current_key) is not None:
            self._maps().remove(self.namespace, self._backend.current_key)


class ReducingHandle(_TypedHandle, ReducingState[Any]):
    """The handle of ReducingState: one reduced value per key."""

    __slots__ = ("_reduce",)

    def __init__(
        self, backend: KeyedStateBackend, name: str, namespace: Hashable, descriptor: ReducingStateDescriptor
    ) -> None:
        super().__init__(backend, name, "reducing", namespace, descriptor.type_info)
        self._reduce = descriptor.get_reduce_function().reduce

    def get(self) -> Any:
        value = self._live().get(self._backend.current_key)
        return value if value.__class__ in SHARED else self._lending().lend(value)

    def add(self, value: Any) -> None:
        values = self._live()
        key = self._backend.current_key
        self._mark()
        if key not in values:
            value = values[key] = self._converted(value)
            if _may_change(value):
                self._lending().give(value)
            return
        left = values[key]
        if self._backend.loans.open and (lent := self._lending().lent(left)) is not left:
            # what user code has of the state is what it reduces
            value = values[key] = self._converted(self._reduce(lent, detached(value)))
            self._lending().give(value)
            return
        value = self._reduce(left, detached(value))
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
        accumulator = self._live().get(self._backend.current_key, MISSING)
        if accumulator is MISSING:
            return None
        if accumulator.__class__ not in SHARED:
            accumulator = self._lending().lend(accumulator)
        return self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value; None clears the state, as in Flink."""
        values = self._live()
        if value is None:
            self.clear()
            return
        key = self._backend.current_key
        self._mark()
        own = values[key] if key in values else detached(self._function.create_accumulator())
        lent = self._lending().lent(own)
        values[key] = accumulator = self._function.add(detached(value), lent)
        if lent is not own:
            # what user code has of the state is what it adds to
            self._lending().give(accumulator)
