"""The handles of keyed state, and the descriptors by which user functions get them, with PyFlink's names.

A handle reads and writes the state of the current key only. A value that was read from a handle, or put into it, is the
state's until the call for the key ends: what is changed in it in place by then is in the state. What is changed later
is not, unless the value is passed back (``update``, ``put``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from flinkish.common.arguments import check_instance, kind_of
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.core.functions import AggregateFunction, ReduceFunction
from flinkish.core.state_ttl import StateTtlConfig
from flinkish.errors import ArgumentTypeError

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Base of all state handles."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the state of the current key."""


class ValueState(State, Generic[T]):
    """A state with one value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """The value of the current key; None if there is none."""

    @abstractmethod
    def update(self, value: T) -> None:
        """Set the value of the current key; None clears the state.

        Raises:
            TypeMismatchError: the value does not fit the declared type.
        """


class AppendingState(State, Generic[IN, OUT]):
    """A state to which values are added."""

    @abstractmethod
    def get(self) -> OUT | None:
        """The result of all values that were added; None (for lists an empty list) if there are none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value."""


class MergingState(AppendingState[IN, OUT], Generic[IN, OUT]):
    """A state that can be merged with another one, for windows that merge."""


class ReducingState(MergingState[T, T], Generic[T]):
    """A state in which a ReduceFunction reduces all added values to one."""


class AggregatingState(MergingState[IN, OUT], Generic[IN, OUT]):
    """A state in which an AggregateFunction adds values to an accumulator; ``get`` returns its result."""


class ListState(MergingState[T, Iterable[T]], Generic[T]):
    """A state with one list per key."""

    @abstractmethod
    def get(self) -> list[T]:
        """A new list of the elements, empty if there is none: to append to it changes no state."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Set the list; an empty one clears the state."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Add the values at the end."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, Generic[K, V]):
    """A state with one map per key. It works like a dict: ``in``, ``[]``, ``[]=``, ``del``, iteration over the keys."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value of a map key; None if there is none."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a map key."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V] | Iterable[tuple[K, V]]) -> None:
        """Set the values of several map keys, which are given as a dict or as pairs."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove a map key; nothing happens if there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether the map has the key."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """The current (key, value) pairs; the map may be changed during the iteration."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """The current keys of the map."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """The current values of the map."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the map has no key."""

    def get_internal_state(self) -> MapState[K, V]:
        """This state itself: the implementation in PyFlink has such a method, and programs call it."""
        return self

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """A map of which each subtask has one copy, independent of keys. It works like a dict that cannot be changed."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value of a map key; None if there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether the map has the key."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """The current (key, value) pairs."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """The current keys of the map."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """The current values of the map."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the map has no key."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V], Generic[K, V]):
    """Broadcast state that ``process_broadcast_element`` may change; a change elsewhere raises StateAccessError."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a map key."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V] | Iterable[tuple[K, V]]) -> None:
        """Set the values of several map keys, which are given as a dict or as pairs."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove a map key; nothing happens if there is none."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class StateDescriptor(ABC):
    """The name, type and time-to-live of a state. The name is unique within an operator."""

    def __init__(self, name: str, type_info: TypeInformation) -> None:
        where = f"{type(self).__name__} {name!r}"
        check_instance(name, str, "the name of the state is", where, "the arguments are the name, then types")
        check_instance(type_info, TypeInformation, "the type of the state is", where, "such as Types.INT(), a call")
        self.name = name
        self.type_info = type_info
        self._ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        """The name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let the state expire. Call this before the descriptor is used to get the handle."""
        self._ttl_config = ttl_config

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        """The time-to-live; None if it is not enabled."""
        return self._ttl_config if self._ttl_config is not None and self._ttl_config.is_enabled() else None

    def entry_types(self) -> tuple[TypeInformation | None, TypeInformation]:
        """The type of the map's keys (None unless the state is a map), and that of one entry: the value, an element of
        the list, or a value of the map."""
        return None, self.type_info

    @property
    @abstractmethod
    def kind(self) -> str:
        """The kind of the state: value, list, map, reducing or aggregating."""


class ValueStateDescriptor(StateDescriptor):
    """Describes a ValueState."""

    kind = "value"

    def __init__(self, name: str, value_type_info: TypeInformation) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes a ListState."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation) -> None:
        super().__init__(name, Types.LIST(elem_type_info))
        self._elem_type_info = elem_type_info

    def entry_types(self) -> tuple[TypeInformation | None, TypeInformation]:
        return None, self._elem_type_info


class MapStateDescriptor(StateDescriptor):
    """Describes a MapState."""

    kind = "map"

    def __init__(self, name: str, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        super().__init__(name, Types.MAP(key_type_info, value_type_info))
        self._entry_types = key_type_info, value_type_info

    def entry_types(self) -> tuple[TypeInformation | None, TypeInformation]:
        return self._entry_types


class ReducingStateDescriptor(StateDescriptor):
    """Describes a ReducingState.

    Raises:
        TypeError: the function is neither a ReduceFunction nor callable.
    """

    kind = "reducing"

    def __init__(
        self, name: str, reduce_function: ReduceFunction | Callable[[Any, Any], Any], type_info: TypeInformation
    ) -> None:
        super().__init__(name, type_info)
        if isinstance(reduce_function, ReduceFunction):
            self._reduce_function = reduce_function
        elif callable(reduce_function):
            self._reduce_function = _CallableReduceFunction(reduce_function)
        else:
            raise ArgumentTypeError(
                f"The input must be a ReduceFunction or a callable function! It is {kind_of(reduce_function)}",
                where=f"ReducingStateDescriptor '{name}'",
                expected="a ReduceFunction or a callable",
                hint="the arguments are name, function, type",
            )

    def get_reduce_function(self) -> ReduceFunction:
        """The function that reduces two values to one."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Describes an AggregatingState; the type is that of the accumulator.

    Raises:
        TypeError: the function is not an AggregateFunction.
    """

    kind = "aggregating"

    def __init__(self, name: str, agg_function: AggregateFunction, state_type_info: TypeInformation) -> None:
        super().__init__(name, state_type_info)
        check_instance(
            agg_function,
            AggregateFunction,
            "The input must be an AggregateFunction, not",
            f"AggregatingStateDescriptor '{name}'",
            "the arguments are name, function, type of the accumulator",
        )
        self._agg_function = agg_function

    def get_agg_function(self) -> AggregateFunction:
        """The function that adds values to the accumulator."""
        return self._agg_function


class _CallableReduceFunction(ReduceFunction):
    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def reduce(self, value1: Any, value2: Any) -> Any:
        return self._function(value1, value2)
