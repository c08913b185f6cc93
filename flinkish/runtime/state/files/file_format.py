"""The format of a state file: one batch of rows as an Arrow IPC file.

The columns are hash (uint64), state (uint16), id (binary), entry_hash (uint64), entry (binary), order (int64), op
(uint8), time (int64) and value (binary). A column is left out if all of its rows have its trivial value: 0, no time or
no bytes. The metadata of the schema hold the version of the format and the names of the states, which the numbers in
the column state stand for.

Rule: a file of another version is rejected with a clear error, and never read in part.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from flinkish.errors import IncompatibleJobError
from flinkish.runtime.state.files.rows import NO_TIME, Rows, has_bytes, no_bytes, zeros

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
    """The content of a file with these rows, which are sorted and at least one, as an Arrow buffer."""
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
