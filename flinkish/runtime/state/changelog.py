"""What an epoch has changed in the state of a subtask, entry by entry: what incremental checkpoints are made of.

Rule: the changes of an epoch, applied to the rows of the epoch before, give the rows of the epoch, however state
was changed: written, cleared, expired, timers that fired or were deleted, watermarks. A change says all rows that its
entry has now (none: it is gone); so only the last one of an entry counts, and applying it twice does no harm.

A map changes as a whole (it was cleared, say) or by single entries. In one epoch a key has changes of one of these two
sorts only; of the whole map the change says all entries, and changes of single entries in earlier epochs count no more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import CorruptStateError
from flinkish.runtime.program_classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.state.key_texts import can_be_told
from flinkish.runtime.state.map_table import MapTable
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.savepoint_rows import WATERMARK
from flinkish.runtime.state.state_rows import (
    BROADCAST_STATE_KIND,
    LIST_STATE_KIND,
    TIMERS_PREFIX,
    UNION_STATE_KIND,
    StateRow,
)
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.stored_state import MISSING
from flinkish.runtime.state.timer_queue import TimerQueue
from flinkish.runtime.stored_pickle import dumps, loads

#: Version of the encoded form.
FORMAT_VERSION = 2


class Change(NamedTuple):
    """One entry, as it is at the end of an epoch. Each timer is an entry of its own, told apart by ``timer_ms``."""

    uid: str
    state: str
    kind: str
    namespace: Hashable
    key: Any
    timer_ms: int | None
    #: of its rows
    values: tuple[Any, ...]
    #: of a map: (the stored map key,) if only the entry under it has changed, for which `can_be_told` must hold
    map_key: tuple[Any, ...] = ()

    def rows(self) -> Iterator[StateRow]:
        """The rows that the entry has now."""
        for value in self.values:
            yield StateRow(self.state, self.kind, self.namespace, self.key, value)


def keyed_changes(uid: str, tables: dict[str, StateTable], timers: dict[str, TimerQueue]) -> Iterator[Change]:
    """The changes of keyed state since they were forgotten last."""
    for name, table in tables.items():
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
        entry = table.entry(namespace, key, user_key)
        values = () if entry is None else ((user_key, entry[1]),)
        yield Change(uid, table.name, table.kind, namespace, key, None, values, (user_key,))


def _row_values(table: StateTable, namespace: Hashable, key: Any) -> tuple[Any, ...]:
    """The values of the rows that an entry has now."""
    table.fetch(namespace, (key,))
    value = table.namespace(namespace).get(key, MISSING)
    if value is MISSING:
        return ()
    if isinstance(table, MapTable):
        entries = table.whole(namespace, key)
        return () if entries is None else tuple(entries.pairs().items())
    return (value,)


def operator_changes(uid: str, subtask: int, parallelism: int, state: OperatorState) -> Iterator[Change]:
    """The changes of one operator's state in a subtask, of so many. A broadcast state or a list
    changes as a whole."""
    for kind, name in state.changed_names():
        if kind == BROADCAST_STATE_KIND:
            entries = tuple(state.broadcast(name).items())
            yield Change(uid, name, kind, parallelism, subtask, None, entries)
        elif kind in (LIST_STATE_KIND, UNION_STATE_KIND):
            yield Change(uid, name, kind, parallelism, subtask, None, tuple(enumerate(state.elements(kind, name))))
        else:
            values = (state.get(name),) if name in state.names() else ()
            yield Change(uid, name, kind, None, subtask, None, values)


def watermark_change(uid: str, subtask: int, watermark_ms: int) -> Change:
    """A subtask's new watermark."""
    told = MIN_TIMESTAMP_MS < watermark_ms < MAX_WATERMARK_MS
    return Change(uid, WATERMARK, WATERMARK, None, subtask, None, (watermark_ms,) if told else ())


def encode_changes(epoch: int, changes: Iterable[Change], classes: ProgramClasses = NO_CLASSES) -> bytes:
    """The form in which the changes of one subtask are stored."""
    return dumps((epoch, [tuple(change) for change in changes]), FORMAT_VERSION, classes)


def decode_changes(data: bytes, where: str = "", classes: ProgramClasses = NO_CLASSES) -> tuple[int, list[Change]]:
    """(epoch, its changes). CorruptStateError when it is something else; see `loads` for what else."""
    decoded = loads(data, FORMAT_VERSION, "the changelog of an epoch", where, classes)
    try:
        epoch, changes = decoded
        return epoch, [Change(*change) for change in changes]
    except (TypeError, ValueError) as error:
        raise CorruptStateError(
            f"the changes of an epoch cannot be decoded: {error}", where=where, hint="take a full checkpoint"
        ) from error


def apply_changes(rows: dict[tuple[Any, ...], tuple[StateRow, ...]], changes: Iterable[Change]) -> None:
    """Change rows, held by entry, in place: what a checkpoint does with a table."""
    for change in changes:
        entry = (change.uid, change.state, change.namespace, change.key, change.kind, change.timer_ms)
        now = tuple(change.rows())
        if change.map_key:
            now = (*(row for row in rows.get(entry, ()) if row.value[0] != change.map_key[0]), *now)
        if now:
            rows[entry] = now
        else:
            rows.pop(entry, None)
