"""The changelog: the changes of an epoch to the state of a subtask, entry by entry, for incremental checkpoints.

Rule: the changes of an epoch, applied to the rows of the previous epoch, result in the rows of the epoch, however state
was changed: written, cleared, expired, timers that fired or were deleted, watermarks. A change holds all rows that its
entry has now (none: it is gone); so only the last change of an entry counts, and applying it twice does no harm.

A map changes as a whole (when it was cleared, say) or by single entries. In one epoch a key has changes of only one of
these two sorts. A change of the whole map holds all entries, and supersedes changes of single entries in earlier
epochs.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain, product
from typing import Any, NamedTuple

from flinkish.errors import CorruptStateError
from flinkish.runtime.exchange.keys import ListKey, TupleKey
from flinkish.runtime.state.column_changes import ColumnChanges
from flinkish.runtime.state.map_table import MapTable
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.state_rows import (
    BROADCAST_STATE_KIND,
    LIST_STATE_KIND,
    TIMERS_PREFIX,
    UNION_STATE_KIND,
    WATERMARK,
    StateRow,
)
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.stored_state import MISSING
from flinkish.runtime.state.timer_queue import TimerQueue
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads
from flinkish.runtime.stored.texts import to_text

#: The limit of texts per key, because a tuple of many zeros and ones has too many equal tuples.
_MAX_TEXTS = 16

#: Equal values of these types have the same text, and no value of another type is equal to them.
_PLAIN_KEYS = {str, bytes, type(None), datetime.date}


def key_texts(key: Any) -> list[str] | None:
    """The texts of all keys or namespaces that equal this one, under which an entry of state may lie in a table; None:
    they cannot be listed.

    Python's ``1``, ``True`` and ``1.0`` are one key, but three texts; and equal objects need not have the same pickle.
    So an incremental checkpoint deletes the rows of all texts of a key, and is impossible if they cannot be listed.

    >>> key_texts("a"), key_texts(1), key_texts(2.0)
    (['"a"'], ['1', 'true'], None)
    """
    twins = _twins(key)
    return None if twins is None else [to_text(twin) for twin in twins]


def can_be_told(key: Any) -> bool:
    """Whether the texts of all keys that equal this one can be listed."""
    return type(key) in _PLAIN_KEYS or type(key) is int or _twins(key) is not None


def _twins(key: Any) -> list[Any] | None:
    kind = type(key)
    if kind in _PLAIN_KEYS:
        return [key]
    if kind is int or kind is bool:
        return [int(key), bool(key)] if key in (0, 1) else [key]
    if kind not in (tuple, ListKey, TupleKey):
        return None
    twins = [_twins(item) for item in key]
    if any(item is None for item in twins):
        return None
    of_kind: type[Any] = list if kind is ListKey else tuple
    combined = [of_kind(items) for items in product(*(item or [] for item in twins))]
    return combined if len(combined) <= _MAX_TEXTS else None


#: Version of the encoded form.
FORMAT_VERSION = 2
#: Version of the encoded form with changes in columns.
COLUMNS_FORMAT_VERSION = 3


class Change(NamedTuple):
    """One changed entry of state as it is at the end of an epoch. Each timer is an entry of its own, identified by
    ``timer_ms``, its timestamp."""

    uid: str
    state: str
    kind: str
    namespace: Hashable
    key: Any
    timer_ms: int | None
    #: the values of its rows; empty: the entry is gone
    values: tuple[Any, ...]
    #: for a single entry of a map: (the stored map key,), for which `can_be_told` must hold; empty: the whole entry
    map_key: tuple[Any, ...] = ()

    def rows(self) -> Iterator[StateRow]:
        """The rows that the entry has now."""
        for value in self.values:
            yield StateRow(self.state, self.kind, self.namespace, self.key, value)


def keyed_changes(
    uid: str, tables: dict[str, StateTable], timers: dict[str, TimerQueue]
) -> Iterator[Change | ColumnChanges]:
    """The changes of keyed state and timers since `forget_changes` was last called."""
    for name, table in tables.items():
        yield from table.changed_columns(uid)
        for namespace, key in table.changed_keys():
            entries = table.changed_entries(namespace, key) if isinstance(table, MapTable) else None
            if isinstance(table, MapTable) and entries is not None and all(map(can_be_told, entries)):
                yield from _entry_changes(uid, table, namespace, key, entries)
            else:
                yield Change(uid, name, table.kind, namespace, key, None, _row_values(table, namespace, key))
    for service, queue in timers.items():
        for domain, timestamp_ms, namespace, key, present in queue.changed_timers():
            state = TIMERS_PREFIX + service
            yield Change(uid, state, domain.name, namespace, key, timestamp_ms, (timestamp_ms,) if present else ())


def _entry_changes(uid: str, table: MapTable, namespace: Hashable, key: Any, entries: set[Any]) -> Iterator[Change]:
    """The changes of single entries of a map."""
    for user_key in entries:
        if isinstance(table.timed, MapTable):
            # a time that lies in files is read with its entry
            table.timed.entry(namespace, key, user_key)
        entry = table.entry(namespace, key, user_key)
        values = () if entry is None else ((user_key, entry[1]),)
        yield Change(uid, table.name, table.kind, namespace, key, None, values, (user_key,))


def _row_values(table: StateTable, namespace: Hashable, key: Any) -> tuple[Any, ...]:
    """The values of the rows that a key has now."""
    table.fetch(namespace, (key,))
    value = table.namespace(namespace).get(key, MISSING)
    if value is MISSING:
        return ()
    if isinstance(table, MapTable):
        entries = table.whole(namespace, key)
        return () if entries is None else tuple(entries.pairs().items())
    return (value,)


def operator_changes(uid: str, subtask: int, parallelism: int, state: OperatorState) -> Iterator[Change]:
    """The changes of the state of one operator in one of ``parallelism`` subtasks. Broadcast states and lists change as
    a whole."""
    for kind, name in state.changed_names():
        if kind == BROADCAST_STATE_KIND:
            entries = tuple(state.broadcast(name).items())
            yield Change(uid, name, kind, parallelism, subtask, None, entries)
        elif kind in (LIST_STATE_KIND, UNION_STATE_KIND):
            yield Change(uid, name, kind, parallelism, subtask, None, tuple(enumerate(state.elements(kind, name))))
        else:
            values = (state.get(name),) if name in state.names() else ()
            yield Change(uid, name, kind, None, subtask, None, values)


def watermark_change(uid: str, namespace: Any, key: Any, watermark_ms: int | None) -> Change:
    """The change of one of the `TaskHeader.event_times` of a vertex; None: it is gone."""
    return Change(uid, WATERMARK, WATERMARK, namespace, key, None, () if watermark_ms is None else (watermark_ms,))


def encode_changes(
    epoch: int, changes: Iterable[Change | ColumnChanges], classes: ProgramClasses = NO_CLASSES
) -> bytes:
    """The encoded changes of one subtask in an epoch. See `dumps` for errors."""
    ones, columns = list[Any](), list[Any]()
    for change in changes:
        if isinstance(change, ColumnChanges):
            columns.append(change.encode(classes))
        else:
            ones.append(tuple(change))
    if not columns:
        return dumps((epoch, ones), FORMAT_VERSION, classes)
    return dumps((epoch, ones, columns), COLUMNS_FORMAT_VERSION, classes)


def decode_changes(data: bytes, where: str = "", classes: ProgramClasses = NO_CLASSES) -> tuple[int, list[Change]]:
    """The inverse of `encode_changes`: (epoch, changes).

    Raises:
        CorruptStateError: the data cannot be decoded; see `loads` for other errors.
    """
    version = COLUMNS_FORMAT_VERSION if data[1:2] == bytes((COLUMNS_FORMAT_VERSION,)) else FORMAT_VERSION
    decoded = loads(data, version, "the changelog of an epoch", where, classes)
    try:
        epoch, ones, *columns = decoded
        changes = [Change(*change) for change in ones]
        for stored in chain(*columns):
            for uid, state, namespace, key, values in ColumnChanges.entries(stored, classes):
                changes.append(Change(uid, state, "value", namespace, key, None, values))
        return epoch, changes
    except (TypeError, ValueError) as error:
        raise CorruptStateError(
            f"the changes of an epoch cannot be decoded: {error}", where=where, hint="take a full checkpoint"
        ) from error


def apply_changes(rows: dict[tuple[Any, ...], tuple[StateRow, ...]], changes: Iterable[Change]) -> None:
    """Apply changes in place to rows, which are held by entry, as an incremental checkpoint does to its table."""
    for change in changes:
        entry = (change.uid, change.state, change.namespace, change.key, change.kind, change.timer_ms)
        now = tuple(change.rows())
        if change.map_key:
            now = (*(row for row in rows.get(entry, ()) if row.value[0] != change.map_key[0]), *now)
        if now:
            rows[entry] = now
        else:
            rows.pop(entry, None)
