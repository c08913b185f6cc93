"""State that belongs to a subtask and to no key (Flink's operator state).

Three kinds: values and lists, of which a subtask has its own, and broadcast states, which are maps that all subtasks
have copies of. When the parallelism changes, a value goes to one subtask, the elements of lists are dealt out (of union
lists all elements go to all subtasks), and of a broadcast state each subtask gets one copy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from flinkish.core.state import MapStateDescriptor, StateDescriptor
from flinkish.runtime.state.detach import detached
from flinkish.runtime.state.state_rows import (
    BROADCAST_STATE_KIND,
    LIST_STATE_KIND,
    OPERATOR_STATE_KIND,
    UNION_STATE_KIND,
)

if TYPE_CHECKING:
    from flinkish.runtime.state.undo_log import UndoLog

#: Kind -> state name -> value, of one operator's subtask.
StoredOperatorState = dict[str, dict[str, Any]]


class OperatorState:
    """Named values and broadcast states of one operator's subtask.

    >>> s = OperatorState(); s.put("count", 1); s.get("count")
    1
    >>> s.broadcast("rules")["a"] = 1; s.mark_broadcast("rules"); s.snapshot()
    {'operator': {'count': 1}, 'broadcast': {'rules': {'a': 1}}}
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._broadcast: dict[str, dict[Any, Any]] = {}
        #: (kind, name) -> list
        self._lists: dict[tuple[str, str], list[Any]] = {}
        #: name -> kind and descriptor of the states that a CheckpointedFunction has asked for
        self.asked: dict[str, tuple[str, StateDescriptor]] = {}
        #: (kind, name)
        self._changed: set[tuple[str, str]] = set()
        #: of an operator with ``on_error``
        self.undo_log: UndoLog | None = None
        #: the broadcast states that the program has named
        self.declared: dict[str, MapStateDescriptor] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or ``default``."""
        return self._values.get(name, default)

    def put(self, name: str, value: Any) -> None:
        """Set the value; it is written at the next barrier."""
        self._values[name] = value
        self._changed.add((OPERATOR_STATE_KIND, name))

    def remove(self, name: str) -> None:
        """Forget the value."""
        if self._values.pop(name, None) is not None:
            self._changed.add((OPERATOR_STATE_KIND, name))

    def touch(self) -> None:
        """Say that a value was changed in place."""
        self._changed.update((OPERATOR_STATE_KIND, name) for name in self._values)

    def broadcast(self, name: str) -> dict[Any, Any]:
        """The live map of a broadcast state; who changes it calls `mark_broadcast`."""
        return self._broadcast.setdefault(name, {})

    def keep_entries(self, name: str, keys: Iterable[Any]) -> None:
        """Entries of a broadcast state are going to be set: if the running call fails, they are what they were."""
        if self.undo_log is not None and self.undo_log.open:
            entries = self.broadcast(name)
            for key in keys:
                if key in entries:
                    self.undo_log.keep(partial(entries.__setitem__, key, entries[key]))
                else:
                    self.undo_log.keep(partial(entries.pop, key, None))

    def keep_map(self, name: str) -> None:
        """Entries of a broadcast state are going to be removed: if the running call fails, they come back in their
        order."""
        if self.undo_log is not None and self.undo_log.open:
            self.undo_log.keep(partial(_refill, self.broadcast(name), dict(self.broadcast(name))))

    def mark_broadcast(self, name: str) -> None:
        """Record that a broadcast state was changed; it is written at the next barrier."""
        self._changed.add((BROADCAST_STATE_KIND, name))

    def elements(self, kind: str, name: str) -> list[Any]:
        """The live elements of a list; only `set_list` changes them."""
        return self._lists.get((kind, name), [])

    def set_list(self, kind: str, name: str, beginning: list[Any], rest: Iterable[Any]) -> None:
        """Set a list: its own elements (``beginning``) or none, and the rest."""
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

    def given(self, value: Any) -> Any:
        """What passes between state and user code in place of a value: a copy, and a deep one where the call may be
        undone."""
        return detached(value) if self.undo_log is None else copy.deepcopy(value)

    def kind_of(self, name: str) -> str | None:
        """The kind under which a state of that name was asked for."""
        if name in self.asked:
            return self.asked[name][0]
        return BROADCAST_STATE_KIND if name in self.declared else None

    def known(self) -> dict[str, tuple[str, StateDescriptor]]:
        """Name -> kind and descriptor of all states but values."""
        broadcast = {name: (BROADCAST_STATE_KIND, descriptor) for name, descriptor in self.declared.items()}
        return {**broadcast, **self.asked}

    def declare(self, kind: str, descriptor: StateDescriptor) -> None:
        """A CheckpointedFunction has asked for a state."""
        self.asked[descriptor.name] = kind, descriptor

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return bool(self._changed)

    def changed_names(self) -> list[tuple[str, str]]:
        """What there is to write: (kind, name) of what was set, changed or removed."""
        return sorted(self._changed)

    def names(self) -> list[str]:
        """Names of all values."""
        return sorted(self._values)

    def restore(self, stored: StoredOperatorState) -> None:
        """Take in what an earlier barrier wrote."""
        self._values = dict(stored.get(OPERATOR_STATE_KIND, {}))
        self._broadcast = {name: dict(entries) for name, entries in stored.get(BROADCAST_STATE_KIND, {}).items()}
        self._lists = {
            (kind, name): list(elements)
            for kind in (LIST_STATE_KIND, UNION_STATE_KIND)
            for name, elements in stored.get(kind, {}).items()
        }
        self._changed = set()

    def stored(self) -> StoredOperatorState:
        """All that there is. The maps are the live ones."""
        broadcast = {name: entries for name, entries in self._broadcast.items() if entries}
        found: StoredOperatorState = {OPERATOR_STATE_KIND: dict(self._values), BROADCAST_STATE_KIND: broadcast}
        for (kind, name), elements in self._lists.items():
            if elements:
                found.setdefault(kind, {})[name] = elements
        return {kind: values for kind, values in found.items() if values}

    def snapshot(self) -> StoredOperatorState:
        """All that there is, to be written now."""
        self._changed = set()
        return self.stored()


def _refill(entries: dict[Any, Any], before: dict[Any, Any]) -> None:
    entries.clear()
    entries.update(before)
