"""Distributes the rows of a savepoint to the subtasks of a job, encoded as buffers, and restores them in a subtask
before its first record.

The rows are distributed to subtasks by hashing their keys again, so parallelism and max parallelism may differ from
those of the savepoint.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from flinkish.common.arguments import abbreviated
from flinkish.core.time import TimeDomain
from flinkish.errors import CorruptStateError
from flinkish.runtime.exchange.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.exchange.keys import OwnKeys, subtasks_of_keys
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.map_table import MapTable
from flinkish.runtime.state.operator_state import OperatorState, StoredOperatorState
from flinkish.runtime.state.state_rows import (
    BROADCAST_STATE_KIND,
    KINDS_WITHOUT_KEY,
    LIST_STATE_KIND,
    OPERATOR_STATE_KIND,
    TIMERS_PREFIX,
    UNION_STATE_KIND,
    StateColumns,
    StateRow,
)
from flinkish.runtime.state.state_table import StateTable
from flinkish.runtime.state.ttl import TTL_PREFIX
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads


class SavepointRows:
    """Restores the rows of a savepoint into one subtask, whose state is empty at first. Large state is written to files
    meanwhile. Rows of one state keep their order."""

    def __init__(
        self,
        states: dict[str, OperatorState],
        head_uid: str,
        keyed: KeyedStateBackend | None,
        subtask: int,
        own: OwnKeys | None = None,
    ) -> None:
        """``own`` checks that the keys belong to the subtask."""
        self._states = states
        self._head_uid = head_uid
        self._keyed = keyed
        self._own = own
        self._where = f"operator uid {head_uid}, subtask {subtask}"
        #: (uid, kind, name) -> (subtask that wrote the element, or -1; index in its list; element)
        self._elements: dict[tuple[str, str, str], list[tuple[int, int, Any]]] = {}
        #: the times of the last access, which are restored after the values that they belong to
        self._times: list[StateColumns] = []

    def take_in(self, uid: str, columns: StateColumns) -> None:
        """Add rows of one state of an operator. Rows of operators that the task does not have are ignored.

        Raises:
            CorruptStateError: there are two rows for one entry, or one state has rows of two kinds.
            InvalidKeyError: a key belongs to another subtask.
        """
        if columns.kind == OPERATOR_STATE_KIND:
            if uid in self._states:
                for value in columns.values:
                    self._states[uid].put(columns.state, value)
        elif columns.kind == BROADCAST_STATE_KIND:
            if uid in self._states:
                self._take_in_broadcast(self._states[uid], columns)
        elif columns.kind in (LIST_STATE_KIND, UNION_STATE_KIND):
            elements = self._elements.setdefault((uid, columns.kind, columns.state), [])
            for subtask, (place, element) in zip(columns.keys, columns.values, strict=True):
                elements.append((-1 if subtask is None else subtask, place, element))
        elif self._keyed is not None and uid == self._head_uid:
            if self._own is not None:
                self._own.check(columns.keys)
            if columns.state.startswith(TTL_PREFIX):
                self._times.append(columns)
            else:
                self._take_in_keyed(self._keyed, columns)
                self._keyed.make_room()

    def end(self) -> None:
        """Finish after the last row: set the lists of operator state and the times of the last access, and count all
        keyed state as stored, so that none of it is a change."""
        for (uid, kind, name), elements in self._elements.items():
            if uid in self._states:
                elements.sort(key=itemgetter(0, 1))
                self._states[uid].set_list(kind, name, [], [element for _, _, element in elements])
        if self._keyed is not None:
            for columns in self._times:
                self._take_in_keyed(self._keyed, columns)
                self._keyed.make_room()
            self._keyed.forget_changes()

    def _take_in_broadcast(self, state: OperatorState, columns: StateColumns) -> None:
        entries = state.broadcast(columns.state)
        for key, value in columns.values:
            if key in entries:
                raise self._bad_rows(
                    f"broadcast state {columns.state!r} has two rows for map key {abbreviated(key)} in one copy"
                )
            entries[key] = value
        state.mark_broadcast(columns.state)

    def _take_in_keyed(self, keyed: KeyedStateBackend, columns: StateColumns) -> None:
        if columns.state.startswith(TIMERS_PREFIX):
            queue = keyed.timers(columns.state[len(TIMERS_PREFIX) :])
            for timestamp_ms, key, namespace in zip(columns.values, columns.keys, columns.namespaces, strict=True):
                queue.register(TimeDomain[columns.kind], timestamp_ms, key, namespace)
            return
        table = keyed.restored_table(columns.state, columns.kind)
        if table.kind != columns.kind:
            raise self._bad_rows(f"state {columns.state!r} has rows of kind {table.kind} and of kind {columns.kind}")
        if columns.state.startswith(TTL_PREFIX) and table.timed is None:
            # times of a state that has no values
            return
        start = 0
        for namespace, run in groupby(columns.namespaces):
            stop = start + sum(1 for _ in run)
            self._put(table, namespace, columns.keys[start:stop], columns.values[start:stop])
            start = stop

    def _put(self, table: StateTable, namespace: Any, keys: list[Any], values: list[Any]) -> None:
        # a time is written to files together with its value, which may lie there already
        table.fetch(namespace, keys if table.timed is not None else ())
        if isinstance(table, MapTable):
            for key, (user_key, value) in zip(keys, values, strict=True):
                if isinstance(table.timed, MapTable):
                    table.timed.entry(namespace, key, user_key)
                if table.entry(namespace, key, user_key) is not None:
                    raise self._twice(table, namespace, key)
                table.put(namespace, key, {user_key: value})
            return
        present = table.namespace(namespace)
        if len(set(keys)) < len(keys) or not present.keys().isdisjoint(keys):
            seen = set(present)
            for key in keys:
                if key in seen:
                    raise self._twice(table, namespace, key)
                seen.add(key)
        present.update(zip(keys, values, strict=True))
        table.mark_all(namespace, keys)

    def _twice(self, table: StateTable, namespace: Any, key: Any) -> CorruptStateError:
        return self._bad_rows(
            f"state {table.name!r} has two rows for namespace {abbreviated(namespace)}, key {abbreviated(key)}"
        )

    def _bad_rows(self, what: str) -> CorruptStateError:
        return CorruptStateError(
            what, where=self._where, expected="one row per entry", hint="mend the savepoint's table"
        )


def operator_state_rows(subtask: int, parallelism: int, stored: StoredOperatorState) -> Iterator[StateRow]:
    """The rows of the operator state that one of ``parallelism`` subtasks has stored for an operator."""
    for name, value in stored.get(OPERATOR_STATE_KIND, {}).items():
        yield StateRow(name, OPERATOR_STATE_KIND, None, subtask, value)
    for name, entries in stored.get(BROADCAST_STATE_KIND, {}).items():
        for entry in entries.items():
            yield StateRow(name, BROADCAST_STATE_KIND, parallelism, subtask, entry)
    for kind in (LIST_STATE_KIND, UNION_STATE_KIND):
        for name, elements in stored.get(kind, {}).items():
            for element in enumerate(elements):
                yield StateRow(name, kind, parallelism, subtask, element)


def subtasks_of_row(kind: str, key: Any, namespace: Any, value: Any, parallelism: int) -> Iterable[int]:
    """The subtasks, of ``parallelism`` ones, that a row of operator state is restored to.

    Of a broadcast state each subtask gets the copy of the subtask with its number; if there are more subtasks than
    copies, the others get the copies round robin, as in Flink. Lists stay with their subtask if the parallelism is the
    same; else the elements of each list are distributed round robin, beginning at the subtask with the same number. The
    elements of union lists go to all subtasks, and a named value to the subtask with its number modulo the parallelism.
    """
    if kind == OPERATOR_STATE_KIND:
        return (int(key) % parallelism,)
    if kind == UNION_STATE_KIND:
        return range(parallelism)
    if kind == LIST_STATE_KIND:
        place = 0 if namespace == parallelism else int(value[0])
        return (((key or 0) + place) % parallelism,)
    return range(parallelism) if key is None else range(key, parallelism, namespace)


#: Version of the encoded form of rows.
_FORMAT_VERSION = 3


def places_of(job: JobDescriptor) -> dict[str, int]:
    """Operator uid -> id of its vertex, of all operators that can have state."""
    return {d.uid: vertex.id for vertex in job.vertices if vertex.level > 0 for d in vertex.operators}


def columns_by_subtask(
    columns: StateColumns, parallelism: int, max_parallelism: int
) -> Iterator[tuple[int, StateColumns]]:
    """(subtask, rows) for the rows of one state of an operator. Rows of broadcast state and of union lists may go to
    several subtasks."""
    for subtask, numbers in _by_subtask(columns, parallelism, max_parallelism).items():
        parts = ([column[number] for number in numbers] for column in columns[2:])
        yield subtask, StateColumns(columns.state, columns.kind, *parts)


def state_buffers(job: JobDescriptor, uid: str, columns: StateColumns) -> Iterator[tuple[int, int, bytes]]:
    """(vertex, subtask, buffer) for the rows of one state of an operator; none if the job has no such operator."""
    place = places_of(job).get(uid)
    if place is None:
        return
    vertex = job.vertex(place)
    for subtask, some in columns_by_subtask(columns, vertex.parallelism, vertex.max_parallelism):
        header = BufferHeader(BufferKind.STATE, vertex.id, subtask, 0, "", 0, 0, len(some.keys))
        yield vertex.id, subtask, encode(header, encode_columns(uid, some, job.classes))


def first_calls(job: JobDescriptor) -> Iterator[tuple[int, int, bytes]]:
    """(vertex, subtask, buffer) of no rows for each subtask that begins with a savepoint, so that all are called in the
    first epoch: what they begin with is then stored, and in the next savepoint."""
    nothing = encode_columns("", StateColumns("", OPERATOR_STATE_KIND, [], [], []))
    for vertex in (one for one in job.vertices if one.level > 0):
        for subtask in range(vertex.parallelism):
            header = BufferHeader(BufferKind.STATE, vertex.id, subtask, 0, "", 0, 0, 0)
            yield vertex.id, subtask, encode(header, nothing)


def _by_subtask(columns: StateColumns, parallelism: int, max_parallelism: int) -> dict[int, list[int]]:
    """Subtask -> the indices of its rows."""
    numbers: dict[int, list[int]] = defaultdict(list)
    if columns.kind in KINDS_WITHOUT_KEY:
        rows = zip(columns.keys, columns.namespaces, columns.values, strict=True)
        for number, (key, namespace, value) in enumerate(rows):
            for subtask in subtasks_of_row(columns.kind, key, namespace, value, parallelism):
                numbers[subtask].append(number)
        return numbers
    owners = subtasks_of_keys(columns.keys, parallelism, max_parallelism)
    return {int(subtask): np.flatnonzero(owners == subtask).tolist() for subtask in np.unique(owners)}


def encode_columns(uid: str, columns: StateColumns, classes: ProgramClasses = NO_CLASSES) -> bytes:
    """Encode rows of one state of an operator, as the tuple (uid, state, kind, namespaces, keys, values): the payload
    of a STATE buffer, for the subtask that restores them."""
    return dumps((uid, *columns), _FORMAT_VERSION, classes)


def decode_columns(payload: bytes, classes: ProgramClasses = NO_CLASSES) -> tuple[str, StateColumns]:
    """The inverse of `encode_columns`: (uid, rows). See `loads` for errors."""
    uid, *columns = loads(payload, _FORMAT_VERSION, "the rows of a savepoint", "", classes)
    return uid, StateColumns(*columns)
