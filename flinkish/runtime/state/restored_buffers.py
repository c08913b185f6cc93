"""Encodes the rows of a savepoint as buffers for the subtasks of a job, distributed by key for its parallelism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.exchange.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.exchange.keys import subtasks_of_keys
from flinkish.runtime.state.restore import subtasks_of_row
from flinkish.runtime.state.state_rows import KINDS_WITHOUT_KEY, StateColumns
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads

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
