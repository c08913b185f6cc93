"""One named state of one subtask: namespace -> key -> value, and which of them an epoch has changed.

The rule: who writes into a dict that a table gave out, marks the keys. Nothing else records a change.
Hot loops therefore take the dict once per batch and mark once per batch::

    values = table.namespace(None)
    for key, value in zip(keys, batch):
        values[key] = ...
    table.mark_all(None, keys)

What a value is depends on the kind: a value or a reduced value itself (value, reducing), an accumulator
(aggregating), a list (list), a dict of user key -> user value (map).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from flinkish.runtime.state.keyed_state_backend import VOID_NAMESPACE


class StateTable:
    """See the module.

    >>> t = StateTable("count", "value")
    >>> t.namespace(None)["user"] = 1; t.mark(None, "user"); t.changed_keys()
    {(None, 'user')}
    """

    __slots__ = ("_changed", "_namespaces", "kind", "name")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self._namespaces: dict[Hashable, dict[Any, Any]] = {}
        self._changed: dict[Hashable, set[Any]] = {}

    def namespace(self, namespace: Hashable) -> dict[Any, Any]:
        """The live dict key -> value of a namespace, created if absent. Stays the same object until ``drop`` or the
        end of the epoch (``prune``); that of the void namespace for ever."""
        values = self._namespaces.get(namespace)
        if values is None:
            values = self._namespaces[namespace] = {}
        return values

    def existing(self, namespace: Hashable) -> dict[Any, Any] | None:
        """The live dict of a namespace; None if there is none (one that exists may be empty)."""
        return self._namespaces.get(namespace)

    def mark(self, namespace: Hashable, key: Any) -> None:
        """Record that the value of a key was set, changed in place or removed."""
        marked = self._changed.get(namespace)
        if marked is None:
            marked = self._changed[namespace] = set()
        marked.add(key)

    def mark_all(self, namespace: Hashable, keys: Iterable[Any]) -> None:
        """``mark`` for many keys."""
        self._changed.setdefault(namespace, set()).update(keys)

    def remove(self, namespace: Hashable, key: Any) -> None:
        """Forget the value of a key; nothing happens if there is none."""
        values = self._namespaces.get(namespace)
        if values is not None and key in values:
            del values[key]
            self.mark(namespace, key)

    def drop(self, namespace: Hashable) -> None:
        """Forget a namespace with all its keys. A dict of it that somebody holds is dead, but for the void one."""
        values = self._namespaces.get(namespace)
        if values is None:
            return
        if values:
            self.mark_all(namespace, values)
        if namespace is VOID_NAMESPACE:
            values.clear()
        else:
            del self._namespaces[namespace]

    def namespaces(self) -> Iterator[Hashable]:
        """All namespaces, as of now: they may be dropped while iterating."""
        return iter(list(self._namespaces))

    def items(self) -> Iterator[tuple[Hashable, dict[Any, Any]]]:
        """(namespace, its live dict) of the namespaces that hold something."""
        return ((namespace, values) for namespace, values in list(self._namespaces.items()) if values)

    @property
    def changed(self) -> bool:
        """Whether anything was marked since `forget_changes`."""
        return any(self._changed.values())

    def changed_keys(self) -> set[tuple[Hashable, Any]]:
        """{(namespace, key)} marked since `forget_changes`."""
        return {(namespace, key) for namespace, keys in self._changed.items() for key in keys}

    def forget_changes(self) -> None:
        """The changes are written."""
        self._changed = {}

    def prune(self) -> None:
        """Forget namespaces that became empty. Only between epochs: nobody may hold their dicts."""
        empty = [ns for ns, values in self._namespaces.items() if not values and ns is not VOID_NAMESPACE]
        for namespace in empty:
            del self._namespaces[namespace]
