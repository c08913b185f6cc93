"""Rows of keyed state as columns, in which form they are written to files, read from files and merged, and the format
of these files.

A *group* is (state name, namespace, key). It consists of *entries*: a single one for value, reducing and aggregating
state, one per user key for map state, one per appended chunk for list state. A row is a change of an entry or of a
whole group:

=========  ==================================================================================================
op
=========  ==================================================================================================
PUT        the entry has this value
DELETE     the entry is gone
CLEAR      the group is gone, with all entries of older rows; rows written together with it count as newer
REPLACE    PUT after a DELETE of the same entry. It differs from PUT only where an entry keeps its first place
           (timers)
=========  ==================================================================================================

An entry is identified by (state, id, entry_hash, entry). ``id`` and ``entry`` are bytes that the caller has encoded;
different bytes may still stand for equal values, which only the caller can tell.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.errors import IncompatibleJobError
from flinkish.runtime.exchange.hashes import Hashes

Array = npt.NDArray[Any]

PUT, DELETE, CLEAR, REPLACE = range(4)

#: the ``time`` of a row without a time of the last access
NO_TIME = -(1 << 63)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as parallel columns. ``state`` holds indices into ``names``. Columns of numbers are numpy arrays, columns of
    bytes Arrow arrays. Rows of a file are a view of its content and sorted by (hash, entry_hash, CLEAR first)."""

    names: tuple[str, ...]
    hash: Hashes
    state: Array
    id: Any
    entry_hash: Hashes
    entry: Any
    order: Array
    op: Array
    time: Array
    value: Any

    def __len__(self) -> int:
        return len(self.hash)

    def take(self, indices: Array) -> Rows:
        """The rows at these indices, in that order."""
        places = pa.array(indices)
        return Rows(
            self.names,
            self.hash[indices],
            _taken(self.state, indices),
            _taken_bytes(self.id, places),
            _taken(self.entry_hash, indices),
            _taken_bytes(self.entry, places),
            _taken(self.order, indices),
            _taken(self.op, indices),
            _taken(self.time, indices),
            _taken_bytes(self.value, places),
        )

    def slice(self, start: int, stop: int) -> Rows:
        """The rows from index ``start`` up to, but without, ``stop``, without a copy."""
        part = slice(start, stop)
        length = max(stop - start, 0)
        return Rows(
            self.names,
            self.hash[part],
            self.state[part],
            self.id.slice(start, length),
            self.entry_hash[part],
            self.entry.slice(start, length),
            self.order[part],
            self.op[part],
            self.time[part],
            self.value.slice(start, length),
        )

    def state_of(self, name: str) -> int:
        """The index of a state in ``names``; -1 if it is not there."""
        return self.names.index(name) if name in self.names else -1

    @property
    def tombstones(self) -> int:
        """The number of rows that only hide older ones."""
        return int(np.count_nonzero((self.op == DELETE) | (self.op == CLEAR)))


def _taken(column: Array, indices: Array) -> Array:
    """The numbers at these indices. A column of `zeros`, as most are, stays one, which takes no time per row."""
    if column.strides == (0,) and len(column):
        return np.broadcast_to(column[:1], len(indices))
    return column[indices]


def _taken_bytes(column: Any, places: Any) -> Any:
    """The bytes at these indices. A column of `no_bytes` stays one."""
    if not has_bytes(column):
        return no_bytes(len(places))
    return column.take(places)


def concat(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, one part after the other. The names of their states are united."""
    if len(parts) == 1:
        return parts[0]
    names: dict[str, int] = {}
    for part in parts:
        for name in part.names:
            names.setdefault(name, len(names))
    renumbered = [np.array([names[name] for name in part.names], np.uint16)[part.state] for part in parts]
    return Rows(
        tuple(names),
        np.concatenate([part.hash for part in parts]),
        np.concatenate(renumbered),
        _joined([part.id for part in parts]),
        np.concatenate([part.entry_hash for part in parts]),
        _joined([part.entry for part in parts]),
        np.concatenate([part.order for part in parts]),
        np.concatenate([part.op for part in parts]),
        np.concatenate([part.time for part in parts]),
        _joined([part.value for part in parts]),
    )


def _joined(columns: list[Any]) -> Any:
    """Concatenate Arrow columns, which may have offsets of 32 bits (in files) or of 64 bits."""
    kinds = {column.type for column in columns}
    if len(kinds) > 1 or sum(column.nbytes for column in columns) >= 1 << 31:
        columns = [column.cast(pa.large_binary()) for column in columns]
    return pa.concat_arrays(columns)


def sort_order(rows: Rows) -> Array:
    """The indices that sort rows as in a file; the sort is stable."""
    if not rows.entry_hash.any() and not rows.op.any():
        return np.argsort(rows.hash, kind="stable")
    return np.lexsort((rows.op != CLEAR, rows.entry_hash, rows.hash))


def in_order(rows: Rows) -> Rows:
    """The rows sorted as in a file."""
    if (rows.hash[1:] > rows.hash[:-1]).all():
        return rows
    return rows.take(sort_order(rows))


def has_bytes(column: Any) -> bool:
    """Whether any row of an Arrow column of bytes, which may be a view, has a byte."""
    if not len(column):
        return False
    offsets = np.frombuffer(column.buffers()[1], np.int32 if column.type == pa.binary() else np.int64)
    return bool(offsets[column.offset] != offsets[column.offset + len(column)])


def no_bytes(length: int) -> Any:
    """An Arrow column of empty bytes."""
    offsets = pa.py_buffer(bytes(4 * (length + 1)))
    return pa.Array.from_buffers(pa.binary(), length, [None, offsets, pa.py_buffer(b"")])


def zeros(length: int, dtype: Any, value: int = 0) -> Array:
    """A read-only column in which each row has the same number; it takes no memory per row."""
    return np.broadcast_to(np.array(value, dtype), length)


class RowsBuilder:
    """Builds rows from Python lists, state by state; the lists of a call are parallel.

    At most one row per entry and one CLEAR per group may be added: the net change. A CLEAR counts as older than the
    other rows of its group.
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._parts: list[Rows] = []

    def put(
        self,
        state: str,
        hashes: Hashes,
        ids: Sequence[bytes],
        values: Sequence[bytes] | pa.LargeBinaryArray,
        *,
        entries: Sequence[bytes] | pa.LargeBinaryArray | None = None,
        entry_hashes: Array | None = None,
        orders: Sequence[int] | Array | None = None,
        times: Sequence[int | None] | Array | None = None,
        op: int = PUT,
    ) -> None:
        """Add entries with their values. ``times``: the times of the last access (ms), for state with time-to-live."""
        if times is not None and not isinstance(times, np.ndarray):
            times = [NO_TIME if time is None else time for time in times]
        self._add(state, op, hashes, ids, entries, entry_hashes, values=values, orders=orders, times=times)

    def delete(
        self,
        state: str,
        hashes: Hashes,
        ids: Sequence[bytes],
        *,
        entries: Sequence[bytes] | pa.LargeBinaryArray | None = None,
        entry_hashes: Array | None = None,
    ) -> None:
        """Add entries that are gone."""
        self._add(state, DELETE, hashes, ids, entries, entry_hashes)

    def clear(self, state: str, hashes: Hashes, ids: Sequence[bytes]) -> None:
        """Add groups that are gone, or that now have only the entries that are put with this builder."""
        self._add(state, CLEAR, hashes, ids, None, None)

    def _add(
        self,
        state: str,
        op: int,
        hashes: Hashes,
        ids: Sequence[bytes],
        entries: Sequence[bytes] | pa.LargeBinaryArray | None,
        entry_hashes: Array | None,
        *,
        values: Sequence[bytes] | pa.LargeBinaryArray | None = None,
        orders: Any = None,
        times: Any = None,
    ) -> None:
        length = len(hashes)
        number = self._names.setdefault(state, len(self._names))
        self._parts.append(
            Rows(
                (),
                hashes,
                zeros(length, np.uint16, number),
                _binary(ids),
                zeros(length, np.uint64) if entry_hashes is None else np.asarray(entry_hashes, np.uint64),
                no_bytes(length) if entries is None else _binary(entries),
                zeros(length, np.int64) if orders is None else np.asarray(orders, np.int64),
                zeros(length, np.uint8, op),
                zeros(length, np.int64, NO_TIME) if times is None else np.asarray(times, np.int64),
                no_bytes(length) if values is None else _binary(values),
            )
        )

    def build(self) -> Rows:
        """All rows that were added, not sorted."""
        names = tuple(self._names)
        if not self._parts:
            self._add("", PUT, np.zeros(0, np.uint64), [], None, None)
        return concat([replace(part, names=names) for part in self._parts])


def _binary(values: Any) -> Any:
    return values if isinstance(values, pa.Array) else pa.array(values, pa.large_binary())


#: Version of the format that `encode` writes.
FORMAT_VERSION = 1

_VERSION, _STATES = b"flinkish.state.version", b"flinkish.state.names"

#: column -> (type, value of all rows if the column is left out)
_NUMBERS: dict[str, tuple[Any, int]] = {
    "hash": (np.uint64, 0),
    "state": (np.uint16, 0),
    "entry_hash": (np.uint64, 0),
    "order": (np.int64, 0),
    "op": (np.uint8, 0),
    "time": (np.int64, NO_TIME),
}
_BYTES = ("id", "entry", "value")


def encode(rows: Rows) -> Any:
    """The content of a file with these rows, which are sorted and at least one, as an Arrow buffer: one batch of rows
    as an Arrow IPC file.

    The columns are hash (uint64), state (uint16), id (binary), entry_hash (uint64), entry (binary), order (int64), op
    (uint8), time (int64) and value (binary). A column is left out if all of its rows have its trivial value: 0, no time
    or no bytes. The metadata of the schema hold the version of the format and the names of the states, which the
    numbers in the column state stand for.
    """
    columns: dict[str, Any] = {}
    for name, (_, trivial) in _NUMBERS.items():
        column = getattr(rows, name)
        if (column != trivial).any():
            columns[name] = pa.array(column)
    for name in _BYTES:
        column = getattr(rows, name).cast(pa.binary())
        # a column that is a view also holds the bytes of the rows around it, and would write them
        if has_bytes(column):
            columns[name] = column
    if not columns:
        columns["hash"] = pa.array(rows.hash)
    batch = pa.record_batch(columns).replace_schema_metadata(
        {_VERSION: str(FORMAT_VERSION), _STATES: json.dumps(rows.names)}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def decode(buffer: Any, path: str) -> Rows:
    """The rows in the content of a file, without a copy of the buffer. ``path`` names the file in errors.

    Rule: a file of another version is rejected with a clear error, and never read in part.

    Raises:
        IncompatibleJobError: another version of flinkish has written the file.
        pa.ArrowInvalid: the content is no Arrow IPC file.
    """
    with pa.ipc.open_file(buffer) as reader:
        metadata = reader.schema.metadata or {}
        _check_version(metadata.get(_VERSION), path)
        batch = reader.get_batch(0)
    length = batch.num_rows
    present = set(batch.schema.names)
    columns: dict[str, Any] = {
        name: batch.column(name).to_numpy() if name in present else zeros(length, dtype, trivial)
        for name, (dtype, trivial) in _NUMBERS.items()
    }
    columns |= {name: batch.column(name) if name in present else no_bytes(length) for name in _BYTES}
    return Rows(names=tuple(json.loads(metadata[_STATES])), **columns)


def _check_version(version: bytes | None, path: str) -> None:
    if version == str(FORMAT_VERSION).encode():
        return
    raise IncompatibleJobError(
        f"a file of the state has format version {version.decode(errors='replace') if version else '0'}",
        where=path,
        expected=f"format version {FORMAT_VERSION}",
        hint="run the version of flinkish that has written it, or start in a new job directory: from the beginning, "
        "or from a savepoint with declared types",
    )
