"""Writes sorted rows as a run: files of a bounded size, each with a range of positions of its own."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.references import Run
from flinkish.runtime.state.files.rows import Array, Rows
from flinkish.runtime.state.files.search import lower_bounds

#: About how many rows and bytes a file has at most; a value is never split.
FILE_ROWS, FILE_BYTES = 256 * 1024, 16 * 1024 * 1024

#: About how many bytes the columns of numbers take per row.
_NUMBERS_BYTES = 16


def write_run(directory: StateDirectory, rows: Rows, epoch: int) -> Run:
    """Write sorted rows to as few files as they fit in, all of about the same size; returns the run of these files."""
    bounds = _bounds(rows)
    run = tuple(directory.write(rows.slice(a, b), epoch) for a, b in zip(bounds, bounds[1:]))
    return run


def _bounds(rows: Rows) -> list[int]:
    """The indices at which the files begin and end. Rows with the same position are never separated."""
    sizes = row_bytes(rows)
    parts = -(-max(len(rows) * FILE_BYTES, int(sizes.sum()) * FILE_ROWS) // (FILE_ROWS * FILE_BYTES))
    if parts == 1:
        return [0, len(rows)]
    weights = np.cumsum(sizes / FILE_BYTES + 1 / FILE_ROWS)
    cuts = np.searchsorted(weights, weights[-1] * np.arange(1, parts) / parts)
    cuts = lower_bounds(rows.hash, rows.entry_hash, rows.hash[cuts], rows.entry_hash[cuts])
    return sorted({0, *cuts.tolist(), len(rows)})


def row_bytes(rows: Rows) -> Array:
    """The approximate size of each row in a file, in bytes."""
    columns = (np.asarray(pc.binary_length(column), np.int64) for column in (rows.id, rows.entry, rows.value))
    sizes: Array = np.add.reduce([*columns, np.full(len(rows), _NUMBERS_BYTES)])
    return sizes
