"""Entries of state as rows and as columns, as savepoints hold them: one row per value, list, map entry and timer. Also
the declarations of states, which savepoints carry with them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class DeclaredState:
    """The declaration of one state of one operator: its name, kind and types. Tasks report it, savepoints carry it, and
    readers of savepoints give their columns these types. Types are Spark SQL types as DDL text; None: not declared, or
    a type that Spark does not have (pickled values)."""

    uid: str
    name: str
    #: value, list, map, reducing, aggregating, operator, broadcast, operator_list or operator_union_list
    kind: str
    #: type of the value, of the list's elements or of the map's values; of aggregating state, of its accumulator
    value_type: str | None = None
    #: type of the map's keys
    map_key_type: str | None = None
    #: type of the key that the stream is keyed by
    key_type: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The declaration as a dict of plain values."""
        return asdict(self)

    @staticmethod
    def from_json(content: dict[str, Any]) -> DeclaredState:
        """The inverse of `to_json`."""
        return DeclaredState(**content)


#: The namespace of state that belongs to no window (Flink's ``VoidNamespace``).
VOID_NAMESPACE: None = None

#: State name of timers in rows, followed by the name of the timer service.
TIMERS_PREFIX = "__timers__/"

#: Kind of rows that hold a named value of operator state; their key is the subtask that wrote them.
OPERATOR_STATE_KIND = "operator"

#: Kind of rows that hold an entry of a broadcast state. Their key is the subtask that wrote its copy, their namespace
#: the number of subtasks of the operator; both None: the entry belongs to every copy.
BROADCAST_STATE_KIND = "broadcast"

#: Kinds of rows that hold an element of a list of operator state, with its index in the list as map key. Their key is
#: the subtask that wrote the list, their namespace the number of subtasks; both None: no subtask wrote it.
LIST_STATE_KIND, UNION_STATE_KIND = "operator_list", "operator_union_list"

#: Kinds of state that belong to a subtask and to no key.
KINDS_WITHOUT_KEY = (OPERATOR_STATE_KIND, BROADCAST_STATE_KIND, LIST_STATE_KIND, UNION_STATE_KIND)

#: The kinds of operator state whose rows also say how many subtasks there were: a restore distributes these rows by the
#: new parallelism, some of them to several subtasks.
SHARED_KINDS = frozenset({BROADCAST_STATE_KIND, LIST_STATE_KIND, UNION_STATE_KIND})

#: Kinds of rows whose value is a pair: an entry of a map, or the index and the element of a list.
MAP_KINDS = frozenset({"map", *SHARED_KINDS})


class StateRow(NamedTuple):
    """One entry of keyed state, operator state or broadcast state, or one timer.

    ``value`` is the value itself (value, reducing), the accumulator (aggregating), the list (list), the pair
    ``(map key, map value)`` (map, broadcast), or ``(index, element)`` of a list of operator state. A timer has
    ``TIMERS_PREFIX`` + service as state name, the name of its TimeDomain as kind and its timestamp as value.
    """

    state: str
    kind: str
    namespace: Hashable
    key: Any
    value: Any


class StateColumns(NamedTuple):
    """Entries of one state as parallel columns, with the fields of `StateRow`."""

    state: str
    kind: str
    namespaces: list[Hashable]
    keys: list[Any]
    values: list[Any]

    def rows(self) -> Iterator[StateRow]:
        """The entries as rows."""
        for namespace, key, value in zip(self.namespaces, self.keys, self.values, strict=True):
            yield StateRow(self.state, self.kind, namespace, key, value)


#: State name and kind of rows that hold a watermark.
WATERMARK = "__watermark__"
