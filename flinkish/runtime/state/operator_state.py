"""State that belongs to a subtask and to no key (Flink's operator state).

There are three kinds: each subtask has values and lists of its own, and broadcast states are maps of which all subtasks
have the same copy. When the parallelism changes, a value goes to one subtask, the elements of lists are distributed (of
union lists all elements go to all subtasks), and each subtask gets one copy of a broadcast state.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from flinkish.common.detach import detached, handed_over
from flinkish.core.state import MapStateDescriptor, StateDescriptor
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
                    own = changed.setdefault((kind, name), {})[entry] = detached(value)  # noqa: PLW2901
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
