"""Reading ranges of runs, and resolving them piece by piece so that only a bounded part is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.merge import Equality, resolve
from flinkish.runtime.state.files.references import END, FileReference, Position, Run
from flinkish.runtime.state.files.rows import CLEAR, Rows
from flinkish.runtime.state.files.search import between

#: A batch of a scan has about so many bytes at most.
SCAN_BYTES = 8 * 1024 * 1024


def rows_between(directory: StateDirectory, run: Run, start: Position, stop: Position) -> list[Rows]:
    """The rows of a run from one position up to another one, in order."""
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
    """`rows_between`, and what else in a run concerns the older rows of that range: the CLEAR rows of groups that begin
    before it."""
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
    """The rows that count from one position up to another one. ``runs``: all of them, newest first."""
    parts = [newer_between(directory, run, start, stop) for run in runs]
    return resolve(parts, equality, drop_tombstones=True)


def bounded_stop(
    directory: StateDirectory, runs: Sequence[Run], start: Position, stop: Position, max_bytes: int
) -> Position:
    """A position after ``start``, and not behind ``stop``, up to which the runs have about ``max_bytes`` at most.

    It can be more where many rows have one position."""
    while True:
        sizes = [_bytes_between(directory, run, start, stop) for run in runs]
        if sum(sizes) <= max_bytes:
            return stop
        middle = _middle(directory, runs[int(np.argmax(sizes))], start, stop)
        if middle is None:
            return stop
        stop = middle


def _bytes_between(directory: StateDirectory, run: Run, start: Position, stop: Position) -> int:
    """About how many bytes of a run lie in a range."""
    total = 0
    for file in _files_between(run, start, stop):
        if start <= file.low and file.high < stop:
            total += file.size_bytes
        else:
            low, high = between(directory.open(file), max(start, file.low), stop)
            total += file.size_bytes * (high - low) // max(file.rows, 1)
    return total


def _middle(directory: StateDirectory, run: Run, start: Position, stop: Position) -> Position | None:
    """The position in the middle of the rows of a run; None when all of them have one position."""
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
    """All rows that count from one position up to another one, in order, in batches that are bounded in bytes.

    The first batch has about ``first_bytes`` at most, those that follow more and more."""
    max_bytes = first_bytes
    while start < stop:
        end = bounded_stop(directory, runs, start, stop, max_bytes)
        max_bytes = min(4 * max_bytes, SCAN_BYTES)
        rows = live_between(directory, runs, start, end, equality)
        if rows is not None:
            yield rows
        start = end
