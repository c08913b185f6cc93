"""Broadcast state as user functions see it: handles over the maps of a subtask's operator state.

Rule upheld here: broadcast state may be written only while a broadcast element is processed. All subtasks see these
elements in the same order, and this keeps their copies the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from flinkish.common.detach import SHARED, detached
from flinkish.common.typeinfo import BasicTypeInfo
from flinkish.common.typeinfo.basic import for_map_keys
from flinkish.core.state import BroadcastState, MapStateDescriptor
from flinkish.errors import StateAccessError
from flinkish.runtime.state.loans import differs
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.state_handles import number_as_text
from flinkish.runtime.state.state_rows import BROADCAST_STATE_KIND

#: Of so many values that a batch reads it is looked whether they are changed.
_MOST_READ = 100

_LOG = logging.getLogger("flinkish.BroadcastState")


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
        #: (name, the state's own value, what user code has), of the first values that a batch has read
        self._read: list[tuple[str, Any, Any]] = []
        self._warned: set[str] = set()

    def written_by(self, call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Iterator[Any]]:
        """A function of broadcast elements, as a generator: when a call ends, what it has changed in place in values of
        these states is in the states."""

        def called(value: Any, ctx: Any) -> Iterator[Any]:
            try:
                yield from call(value, ctx) or ()
            except BaseException:
                self._state.forget()
                raise
            self._state.settle()

        return called

    def lend(self, name: str, key: Any, own: Any) -> Any:
        """A value for user code. Where the state is read-only, it is looked whether a copy is changed in place."""
        if self.writable:
            return self._state.lend(BROADCAST_STATE_KIND, name, key, own)
        lent = detached(own)
        if lent is not own and len(self._read) < _MOST_READ:
            self._read.append((name, own, lent))
        return lent

    def look(self) -> None:
        """Warn if values that were read where the state is read-only were changed. To be called after a batch."""
        read, self._read = self._read, []
        for name, own, lent in read:
            if name not in self._warned and differs(own, lent):
                self._warned.add(name)
                _LOG.warning(
                    "%s: a value of broadcast state %r was changed in place where the state is read-only: the change "
                    "is not kept; change it in process_broadcast_element, so that all subtasks do",
                    self.where,
                    name,
                )

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
    """The handle of one broadcast state. A value that a broadcast element's call reads or puts is the state's until the
    call ends, as in keyed state (`loans.py`); a CheckpointedFunction has it until the barrier."""

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
        value = self._entries().get(key)
        return value if value.__class__ in SHARED else self._states.lend(self._name, key, value)

    def contains(self, key: Any) -> bool:
        return key in self._entries()

    def items(self) -> list[tuple[Any, Any]]:
        lend = self._states.lend
        return [
            (key, value if value.__class__ in SHARED else lend(self._name, key, value))
            for key, value in self._entries().items()
        ]

    def keys(self) -> list[Any]:
        return list(self._entries())

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return not self._entries()

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: dict[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        pairs = dict(dict_value)
        entries = self._to_change()
        self._state.keep_entries(self._name, pairs)
        for key, value in {key: self._fitting(key, value) for key, value in pairs.items()}.items():
            entries[key] = own = detached(value)
            self._state.give(self._name, key, own, value)

    def _fitting(self, key: Any, value: Any) -> Any:
        """The value converted to the declared type, if that is a basic one. Raises TypeMismatchError if the key or the
        value does not fit."""
        where = f"broadcast state {self._name!r}, {self._states.where}"
        if self._key_type is not None:
            self._key_type.validate(key, where)
        if value is None or not isinstance(self._value_type, BasicTypeInfo):
            return value
        return self._value_type.convert(number_as_text(value, self._value_type), where)

    def remove(self, key: Any) -> None:
        entries = self._to_change()
        self._state.keep_map(self._name)
        entries.pop(key, None)

    def clear(self) -> None:
        entries = self._to_change()
        self._state.keep_map(self._name)
        entries.clear()
