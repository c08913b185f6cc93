"""Reads ranges of runs, and merges them piece by piece, so that only a bounded part is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.merge import Equality, resolve
from flinkish.runtime.state.files.references import END, FileReference, Position, Run
from flinkish.runtime.state.files.rows import CLEAR, Rows
from flinkish.runtime.state.files.search import between

#: About how many bytes a batch of a scan has at most.
SCAN_BYTES = 8 * 1024 * 1024


def rows_between(directory: StateDirectory, run: Run, start: Position, stop: Position) -> list[Rows]:
    """The rows of a run with ``start`` <= position < ``stop``, in order."""
    parts = []
    for file in _files_between(run, start, stop):
        rows = directory.open(file)
        part = rows.slice(*between(rows, max(start, file.low), stop))
        if len(part):
            parts.append(part)
    return parts


def _files_between(run: Run, start: Position, stop: Position) -> list[FileReference]:
    return [file for file in run if file.high >= start and file.low < stop]


def newer_between(directory: StateDirectory, run: Run, start: Position, stop: Position) -> list[Rows]:
    """`rows_between`, and the CLEAR rows before ``start`` that hide older rows in the range: those of a group that
    begins before it."""
    return [*_clears_before(directory, run, start), *rows_between(directory, run, start, stop)]


def _clears_before(directory: StateDirectory, run: Run, start: Position) -> list[Rows]:
    hash_, entry_hash = start
    if not entry_hash or not any(file.tombstones for file in run):
        return []
    first = rows_between(directory, run, (hash_, 0), (hash_, 1))
    clears = [rows.take(np.flatnonzero(rows.op == CLEAR)) for rows in first]
    return [rows for rows in clears if len(rows)]


def live_between(
    directory: StateDirectory, runs: Sequence[Run], start: Position, stop: Position, equality: Equality
) -> Rows | None:
    """The rows that count with ``start`` <= position < ``stop``; None: there are none. ``runs``: all, newest first."""
    parts = [newer_between(directory, run, start, stop) for run in runs]
    return resolve(parts, equality, drop_tombstones=True)


def bounded_stop(
    directory: StateDirectory, runs: Sequence[Run], start: Position, stop: Position, max_bytes: int
) -> Position:
    """A position after ``start``, at most ``stop``, up to which the runs have at most about ``max_bytes`` together.

    They can have more if many rows have the same position."""
    while True:
        sizes = [_bytes_between(directory, run, start, stop) for run in runs]
        if sum(sizes) <= max_bytes:
            return stop
        middle = _middle(directory, runs[int(np.argmax(sizes))], start, stop)
        if middle is None:
            return stop
        stop = middle


def _bytes_between(directory: StateDirectory, run: Run, start: Position, stop: Position) -> int:
    """The approximate size of the rows of a run in a range, in bytes."""
    total = 0
    for file in _files_between(run, start, stop):
        if start <= file.low and file.high < stop:
            total += file.size_bytes
        else:
            low, high = between(directory.open(file), max(start, file.low), stop)
            total += file.size_bytes * (high - low) // max(file.rows, 1)
    return total


def _middle(directory: StateDirectory, run: Run, start: Position, stop: Position) -> Position | None:
    """A position about in the middle of the rows of a run in a range; None if the range cannot be divided."""
    files = _files_between(run, start, stop)
    if len(files) > 1:
        position = files[len(files) // 2].low
        return position if start < position < stop else None
    rows = directory.open(files[0])
    low, high = between(rows, max(start, files[0].low), stop)
    for place in ((low + high) // 2, high - 1):
        position = int(rows.hash[place]), int(rows.entry_hash[place])
        if start < position < stop:
            return position
    return None


def scan(
    directory: StateDirectory,
    runs: Sequence[Run],
    equality: Equality,
    *,
    start: Position = (0, 0),
    stop: Position = END,
    first_bytes: int = SCAN_BYTES,
) -> Iterator[Rows]:
    """All rows that count with ``start`` <= position < ``stop``, in order, in batches of bounded size.

    The first batch has at most about ``first_bytes``, each next one up to four times as many, and none more than about
    `SCAN_BYTES`."""
    max_bytes = first_bytes
    while start < stop:
        end = bounded_stop(directory, runs, start, stop, max_bytes)
        max_bytes = min(4 * max_bytes, SCAN_BYTES)
        rows = live_between(directory, runs, start, end, equality)
        if rows is not None:
            yield rows
        start = end
