"""Broadcast state as user functions see it: handles over the maps of a subtask's operator state.

Rule upheld here: broadcast state may be written only while a broadcast element is processed. All subtasks see these
elements in the same order, and this keeps their copies the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flinkish.common.detach import all_detached, detached
from flinkish.common.typeinfo import BasicTypeInfo
from flinkish.common.typeinfo.basic import for_map_keys
from flinkish.core.state import BroadcastState, MapStateDescriptor
from flinkish.errors import StateAccessError
from flinkish.runtime.state.operator_state import OperatorState


class BroadcastStates:
    """The broadcast states of one operator's subtask, by descriptor. ``where`` names the operator in errors."""

    def __init__(self, state: OperatorState, descriptors: Sequence[MapStateDescriptor], where: str) -> None:
        self.where = where
        #: whether a broadcast element is being processed
        self.writable = False
        state.declared.update((descriptor.name, descriptor) for descriptor in descriptors)
        self._state = state
        self._handles = {descriptor.name: BroadcastHandle(self, state, descriptor) for descriptor in descriptors}
        #: name -> the descriptor that was compared last: most functions ask with the same object for each record
        self._compared: dict[str, MapStateDescriptor] = {}

    def get(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """The handle of a broadcast state.

        Raises:
            StateAccessError: the state was not named in ``broadcast(...)``, or was named there with other types.
        """
        if not isinstance(descriptor, MapStateDescriptor):
            raise StateAccessError(
                f"a {type(descriptor).__name__} was given", where=self.where, expected="a MapStateDescriptor"
            )
        if self._compared.get(descriptor.name) is not descriptor:
            self._compare(descriptor)
            self._compared[descriptor.name] = descriptor
        return self._handles[descriptor.name]

    def _compare(self, descriptor: MapStateDescriptor) -> None:
        registered = self._state.declared.get(descriptor.name)
        if registered is None:
            raise StateAccessError(
                f"The requested state does not exist: broadcast state {descriptor.name!r}.",
                where=self.where,
                expected="one of " + ", ".join(map(repr, self._handles)),
                hint="check for typos in the state descriptor, or add it to the call of broadcast(...)",
            )
        if registered.entry_types() != descriptor.entry_types():
            raise StateAccessError(
                f"broadcast state {descriptor.name!r} was asked for as {descriptor.type_info!r}",
                where=self.where,
                expected=f"{registered.type_info!r}, as in the call of broadcast(...)",
                hint="use the same descriptor in both places",
            )


class BroadcastHandle(BroadcastState[Any, Any]):
    """The handle of one broadcast state. Values are detached, as those of keyed state are (`detach.py`)."""

    def __init__(self, states: BroadcastStates, state: OperatorState, descriptor: MapStateDescriptor) -> None:
        self._states = states
        self._state = state
        self._name = descriptor.name
        key_type, self._value_type = descriptor.entry_types()
        self._key_type = for_map_keys(key_type) if isinstance(key_type, BasicTypeInfo) else None

    def _entries(self) -> dict[Any, Any]:
        return self._state.broadcast(self._name)

    def _to_change(self) -> dict[Any, Any]:
        if not self._states.writable:
            raise StateAccessError(
                f"broadcast state {self._name!r} was changed while no broadcast element is processed",
                where=self._states.where,
                expected="put, put_all, remove and clear only in process_broadcast_element",
                hint="the subtasks' copies would differ: keep what belongs to a key in keyed state, or broadcast it",
            )
        self._state.mark_broadcast(self._name)
        return self._entries()

    def get(self, key: Any) -> Any:
        return detached(self._entries().get(key))

    def contains(self, key: Any) -> bool:
        return key in self._entries()

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, detached(value)) for key, value in self._entries().items()]

    def keys(self) -> list[Any]:
        return list(self._entries())

    def values(self) -> list[Any]:
        return all_detached(self._entries().values())

    def is_empty(self) -> bool:
        return not self._entries()

    def put(self, key: Any, value: Any) -> None:
        entries = self._to_change()
        self._state.keep_entries(self._name, (key,))
        entries[key] = detached(self._fitting(key, value))

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        entries = self._to_change()
        self._state.keep_entries(self._name, dict_value)
        entries.update({key: detached(self._fitting(key, value)) for key, value in dict_value.items()})

    def _fitting(self, key: Any, value: Any) -> Any:
        """The value converted to the declared type, if that is a basic one. Raises TypeMismatchError if the key or the
        value does not fit."""
        where = f"broadcast state {self._name!r}, {self._states.where}"
        if self._key_type is not None:
            self._key_type.validate(key, where)
        if value is None or not isinstance(self._value_type, BasicTypeInfo):
            return value
        return self._value_type.convert(value, where)

    def remove(self, key: Any) -> None:
        entries = self._to_change()
        self._state.keep_map(self._name)
        entries.pop(key, None)

    def clear(self) -> None:
        entries = self._to_change()
        self._state.keep_map(self._name)
        entries.clear()
