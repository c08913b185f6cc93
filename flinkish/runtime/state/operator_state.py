"""State that belongs to a subtask and to no key (Flink's operator state), and broadcast state as user functions see it.

There are three kinds: each subtask has values and lists of its own, and broadcast states are maps of which all subtasks
have the same copy. When the parallelism changes, a value goes to one subtask, the elements of lists are distributed (of
union lists all elements go to all subtasks), and each subtask gets one copy of a broadcast state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from flinkish.common.detach import SHARED, detached, handed_over
from flinkish.common.typeinfo import BasicTypeInfo
from flinkish.common.typeinfo.basic import for_map_keys
from flinkish.core.state import BroadcastState, MapStateDescriptor, StateDescriptor
from flinkish.errors import StateAccessError
from flinkish.runtime.state.handles import number_as_text
from flinkish.runtime.state.loans import differs
from flinkish.runtime.state.state_rows import (
    BROADCAST_STATE_KIND,
    LIST_STATE_KIND,
    OPERATOR_STATE_KIND,
    UNION_STATE_KIND,
)

if TYPE_CHECKING:
    from flinkish.runtime.state.undo_log import UndoLog


#: Kind -> state name -> value, of one operator in one subtask.
StoredOperatorState = dict[str, dict[str, Any]]


class OperatorState:
    """The named values, lists and broadcast states of one operator in one subtask.

    >>> s = OperatorState(); s.put("count", 1); s.get("count")
    1
    >>> s.broadcast("rules")["a"] = 1; s.mark_broadcast("rules"); s.snapshot()
    {'operator': {'count': 1}, 'broadcast': {'rules': {'a': 1}}}
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._broadcast: dict[str, dict[Any, Any]] = {}
        #: (kind, name) -> elements of a list
        self._lists: dict[tuple[str, str], list[Any]] = {}
        #: name -> (kind, descriptor) of the states that a CheckpointedFunction has asked for
        self.asked: dict[str, tuple[str, StateDescriptor]] = {}
        #: (kind, name) of the states that were changed since the last barrier
        self._changed: set[tuple[str, str]] = set()
        #: the log of the running call, if the operator has ``on_error``
        self.undo_log: UndoLog | None = None
        #: (kind, name, entry) -> (the state's own value, what user code has), of values that can change
        self._lent: dict[tuple[str, str, Any], tuple[Any, Any]] = {}
        #: name -> descriptor of the broadcast states that the program has named
        self.declared: dict[str, MapStateDescriptor] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value of this name, or ``default``."""
        return self._values.get(name, default)

    def put(self, name: str, value: Any) -> None:
        """Set the value of this name; it is written at the next barrier."""
        self._values[name] = value
        self._changed.add((OPERATOR_STATE_KIND, name))

    def remove(self, name: str) -> None:
        """Remove the value of this name; does nothing if there is none."""
        if name in self._values:
            del self._values[name]
            self._changed.add((OPERATOR_STATE_KIND, name))

    def broadcast(self, name: str) -> dict[Any, Any]:
        """The live map of a broadcast state; a caller that changes it calls `mark_broadcast`."""
        return self._broadcast.setdefault(name, {})

    def keep_entries(self, name: str, keys: Iterable[Any]) -> None:
        """Keep the entries of a broadcast state that are about to be put, to restore them if the running call fails."""
        if self.undo_log is not None and self.undo_log.open:
            entries = self.broadcast(name)
            for key in keys:
                if key in entries:
                    self.undo_log.keep(partial(entries.__setitem__, key, entries[key]))
                else:
                    self.undo_log.keep(partial(entries.pop, key, None))

    def keep_map(self, name: str) -> None:
        """Keep all entries of a broadcast state before some are removed, to restore them in their order if the running
        call fails."""
        if self.undo_log is not None and self.undo_log.open:
            self.undo_log.keep(partial(_refill, self.broadcast(name), dict(self.broadcast(name))))

    def mark_broadcast(self, name: str) -> None:
        """Record that a broadcast state was changed; it is written at the next barrier."""
        self._changed.add((BROADCAST_STATE_KIND, name))

    def lend(self, kind: str, name: str, entry: Any, own: Any) -> Any:
        """A value of a list (by index) or a broadcast state (by key) for user code: a copy if something in it can
        change, and then always the same copy until `settle`."""
        there = self._lent.get((kind, name, entry))
        if there is not None and there[0] is own:
            return there[1]
        lent = detached(own)
        if lent is not own:
            self._lent[kind, name, entry] = own, lent
        return lent

    def give(self, name: str, key: Any, own: Any, value: Any) -> None:
        """Note that user code still has the value that it has put into a broadcast state."""
        if own is not value:
            self._lent[BROADCAST_STATE_KIND, name, key] = own, value

    def settle(self) -> None:
        """Write what user code has changed in place in what it has read or put. Elements of lists stay lent while
        somebody keeps them."""
        lent, self._lent = self._lent, {}
        changed: dict[tuple[str, str], dict[Any, Any]] = {}
        for (kind, name, entry), (own, value) in lent.items():
            if self._entry(kind, name, entry) is own:
                if differs(own, value):
                    own = changed.setdefault((kind, name), {})[entry] = detached(value)
                if kind != BROADCAST_STATE_KIND and handed_over(value, 1) is not value:
                    self._lent[kind, name, entry] = own, value
        for (kind, name), entries in changed.items():
            if kind == BROADCAST_STATE_KIND:
                self.keep_entries(name, entries)
                self.broadcast(name).update(entries)
                self.mark_broadcast(name)
            else:
                self.set_list(kind, name, [], {**dict(enumerate(self.elements(kind, name))), **entries}.values())

    def forget(self) -> None:
        """A call has failed: what it has changed in place does not count."""
        self._lent = {}

    def _entry(self, kind: str, name: str, entry: Any) -> Any:
        if kind == BROADCAST_STATE_KIND:
            return self.broadcast(name).get(entry)
        elements = self.elements(kind, name)
        return elements[entry] if entry < len(elements) else None

    def elements(self, kind: str, name: str) -> list[Any]:
        """The live elements of a list, which only `set_list` may change; empty if there is no such list."""
        return self._lists.get((kind, name), [])

    def set_list(self, kind: str, name: str, beginning: list[Any], rest: Iterable[Any]) -> None:
        """Set the elements of a list. ``beginning`` is the live list, which is extended by the rest, or it is empty:
        then the rest are all elements."""
        added = list(rest)
        if self.undo_log is not None and self.undo_log.open:
            before = self.elements(kind, name)
            self.undo_log.keep(partial(self._put_back, kind, name, before, len(before)))
        if beginning:
            beginning.extend(added)
        else:
            self._lists[kind, name] = added
        self._changed.add((kind, name))

    def _put_back(self, kind: str, name: str, before: list[Any], length: int) -> None:
        del before[length:]
        self._lists[kind, name] = before

    def kind_of(self, name: str) -> str | None:
        """The kind under which the state of this name was declared; None: it was not."""
        if name in self.asked:
            return self.asked[name][0]
        return BROADCAST_STATE_KIND if name in self.declared else None

    def known(self) -> dict[str, tuple[str, StateDescriptor]]:
        """Name -> (kind, descriptor) of all declared states; named values have no descriptor."""
        broadcast = {name: (BROADCAST_STATE_KIND, descriptor) for name, descriptor in self.declared.items()}
        return {**broadcast, **self.asked}

    def declare(self, kind: str, descriptor: StateDescriptor) -> None:
        """Declare a state that a CheckpointedFunction has asked for."""
        self.asked[descriptor.name] = kind, descriptor

    @property
    def changed(self) -> bool:
        """Whether any state was changed since the last barrier."""
        return bool(self._changed)

    def changed_names(self) -> list[tuple[str, str]]:
        """(kind, name) of the states that were set, changed or removed since the last barrier."""
        return sorted(self._changed)

    def names(self) -> list[str]:
        """The names of all values."""
        return sorted(self._values)

    def restore(self, stored: StoredOperatorState) -> None:
        """Replace all state by what `snapshot` returned."""
        self._values = dict(stored.get(OPERATOR_STATE_KIND, {}))
        self._broadcast = {name: dict(entries) for name, entries in stored.get(BROADCAST_STATE_KIND, {}).items()}
        self._lists = {
            (kind, name): list(elements)
            for kind in (LIST_STATE_KIND, UNION_STATE_KIND)
            for name, elements in stored.get(kind, {}).items()
        }
        self._changed = set()
        self._lent = {}

    def stored(self) -> StoredOperatorState:
        """All state that is not empty. Its maps and lists are the live ones, not copies."""
        broadcast = {name: entries for name, entries in self._broadcast.items() if entries}
        found: StoredOperatorState = {OPERATOR_STATE_KIND: dict(self._values), BROADCAST_STATE_KIND: broadcast}
        for (kind, name), elements in self._lists.items():
            if elements:
                found.setdefault(kind, {})[name] = elements
        return {kind: values for kind, values in found.items() if values}

    def snapshot(self) -> StoredOperatorState:
        """All state as of `stored`, to be written now: it counts as unchanged afterwards."""
        self._changed = set()
        return self.stored()


def _refill(entries: dict[Any, Any], before: dict[Any, Any]) -> None:
    entries.clear()
    entries.update(before)


#: Of so many values that a batch reads it is looked whether they are changed.
_MOST_READ = 100

_LOG = logging.getLogger("flinkish.BroadcastState")


class BroadcastStates:
    """The broadcast states of one operator's subtask as user functions see them, by descriptor: handles over the maps
    of its operator state. ``where`` names the operator in errors.

    Rule: broadcast state may be written only while a broadcast element is processed. All subtasks see these elements in
    the same order, and this keeps their copies the same.
    """

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
