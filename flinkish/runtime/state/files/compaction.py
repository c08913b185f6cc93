"""Compaction: merges the files of a subtask, a bounded amount per call.

It does two things. Small deltas are merged with each other, so that the number of deltas grows only with the logarithm
of their size. When the deltas together have become large, a **cycle** begins: it merges the deltas of that moment into
the base, from the lowest position to the highest, a few files per call, and drops these deltas at the end.

Rule: the result of look-ups never changes. In the middle of a cycle its deltas still lie above the part of the base
that they were already merged into, and hold the same rows as it does. Only expired state goes earlier or later; a
caller that reads rows with a time has to check it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.merge import Equality, resolve
from flinkish.runtime.state.files.references import END, FIRST, FileReference, FileSet, Position, Run, run_bytes
from flinkish.runtime.state.files.rows import NO_TIME, Array, Rows
from flinkish.runtime.state.files.run_writer import FILE_BYTES, FILE_ROWS, write_run
from flinkish.runtime.state.files.runs import bounded_stop, live_between, newer_between, rows_between

#: A call rewrites about so many times as many bytes as were added since the last call, within these bounds.
BUDGET_PER_ADDED, MIN_BUDGET_BYTES, MAX_BUDGET_BYTES = 16, 4 * 1024 * 1024, 64 * 1024 * 1024

#: A cycle begins when the deltas have more bytes than the first number, and than one part in the second of the base.
MIN_CYCLE_BYTES, CYCLE_PART_OF_BASE = 4 * 1024 * 1024, 4

#: Up to so many deltas are not merged. If there are more, the newest is merged with the next older one, and so on, as
#: long as that one is at most ``DELTA_GROWTH`` times as large as all newer ones together.
FEW_DELTAS, DELTA_GROWTH = 4, 4

#: About how many bytes of files one step of a cycle has in memory.
STEP_BYTES = FILE_BYTES


@dataclass(frozen=True)
class Expiry:
    """Says which rows have expired: those of states in ``ttl_ms`` (state name -> ms) with time + ttl <= ``now_ms``."""

    now_ms: int
    ttl_ms: Mapping[str, int]

    def expired(self, rows: Rows) -> Array:
        """A mask of the rows that have expired."""
        ttl = np.array([self.ttl_ms.get(name, -1) for name in rows.names], np.int64)[rows.state]
        # in this order nothing overflows
        expired: Array = (ttl >= 0) & (rows.time != NO_TIME) & (rows.time <= self.now_ms - ttl)
        return expired


class Compaction:
    """One call of compaction.

    Args:
        directory: the files of the subtask.
        equality: which different bytes stand for equal values.
        epoch: the epoch that writes the files.
        budget_bytes: about how much may be rewritten; None: in proportion to what was added.
        expiry: the rows that may be dropped when they are rewritten.
        start: rows below this position do not count any more and are dropped.
    """

    def __init__(
        self,
        directory: StateDirectory,
        equality: Equality,
        epoch: int,
        *,
        budget_bytes: int | None = None,
        expiry: Expiry | None = None,
        start: Position = FIRST,
    ) -> None:
        self._directory = directory
        self._equality = equality
        self._epoch = epoch
        self._budget_bytes = budget_bytes
        self._expiry = expiry
        self._start = start
        self._spent = 0

    def run(self, files: FileSet, *, sweep: bool = False) -> FileSet:
        """Compact files; returns the files that are referred to from now on. ``sweep``: begin a cycle even if little
        was added, to drop expired state."""
        budget = self._budget_bytes
        if budget is None:
            budget = min(max(MIN_BUDGET_BYTES, BUDGET_PER_ADDED * files.added), MAX_BUDGET_BYTES)
        files = replace(self._without_consumed(files), added=0)
        files = self._merge_deltas(files, budget // 2)
        # a cycle that is under way always goes on, so that it ends
        stepped = False
        while self._spent < budget or not stepped:
            if files.cursor is None:
                if not sweep and not _worth_a_cycle(files):
                    break
                files = replace(files, cursor=FIRST, cycle=len(files.deltas))
                sweep = False
            files = self._step(files)
            stepped = True
        return files

    # ------------------------------------------------------------------------------------------------ deltas

    def _merge_deltas(self, files: FileSet, budget: int) -> FileSet:
        """Merge the newest of the deltas that do not belong to the cycle."""
        deltas = files.deltas[files.cycle :]
        sizes = [run_bytes(run) for run in reversed(deltas)]
        if len(sizes) <= FEW_DELTAS:
            return files
        merged, count = sizes[0], 1
        while count < len(sizes) and sizes[count] <= DELTA_GROWTH * merged and merged + sizes[count] <= budget:
            merged += sizes[count]
            count += 1
        if count == 1:
            return files
        self._spent += merged
        parts = [rows_between(self._directory, run, FIRST, END) for run in reversed(deltas[-count:])]
        rows = resolve(parts, self._equality, drop_tombstones=False)
        run = () if rows is None else write_run(self._directory, rows, self._epoch)
        return replace(files, deltas=(*files.deltas[:-count], *((run,) if run else ())))

    # ------------------------------------------------------------------------------------------------ cycle

    def _step(self, files: FileSet) -> FileSet:
        """Rewrite the next few files of the base."""
        start = files.cursor
        assert start is not None
        remaining = [file for file in files.base if file.low >= start]
        group = _small_neighbours(remaining)
        end = remaining[len(group)].low if len(group) < len(remaining) else END
        deltas = tuple(reversed(files.deltas[: files.cycle]))
        stop = bounded_stop(self._directory, (*deltas, tuple(group)), start, end, STEP_BYTES)
        changed = any(newer_between(self._directory, run, start, stop) for run in deltas)
        base = files.base
        # a file is kept as it is only if the step covers the whole of it, and no row of it changes
        if changed or stop < end or len(group) > 1 or self._has_expired(tuple(group), start, stop):
            base = self._rewritten(base, deltas, start, stop)
        if stop == END:
            return replace(files, base=base, deltas=files.deltas[files.cycle :], cursor=None, cycle=0)
        return replace(files, base=base, cursor=stop)

    def _rewritten(self, base: Run, deltas: tuple[Run, ...], start: Position, stop: Position) -> Run:
        """The base with the deltas merged into it from one position up to another one."""
        rows = live_between(self._directory, (*deltas, base), start, stop, self._equality)
        if rows is not None and self._expiry is not None:
            expired = self._expiry.expired(rows)
            if expired.any():
                rows = rows.take(np.flatnonzero(~expired))
        written = write_run(self._directory, rows, self._epoch) if rows is not None and len(rows) else ()
        self._spent += run_bytes(written)
        before = [file for file in base if file.low < start]
        behind = [replace(file, low=max(file.low, stop)) for file in base if file.low >= start and file.high >= stop]
        return (*before, *written, *behind)

    def _has_expired(self, run: Run, start: Position, stop: Position) -> bool:
        if self._expiry is None or not self._expiry.ttl_ms:
            return False
        parts = rows_between(self._directory, run, start, stop)
        # only two columns are read, of about 10 bytes per row
        self._spent += 10 * sum(map(len, parts))
        return any(bool(self._expiry.expired(rows).any()) for rows in parts)

    # ------------------------------------------------------------------------------------------------ consumed

    def _without_consumed(self, files: FileSet) -> FileSet:
        """The files without what lies below the start."""
        if self._start == FIRST:
            return files
        deltas = [self._from_start(run) for run in files.deltas]
        cycle = sum(1 for run in deltas[: files.cycle] if run)
        cursor = None if files.cursor is None else max(files.cursor, self._start)
        files = replace(files, base=self._from_start(files.base), deltas=tuple(run for run in deltas if run))
        return replace(files, cursor=cursor, cycle=cycle)

    def _from_start(self, run: Run) -> Run:
        return tuple(replace(file, low=max(file.low, self._start)) for file in run if file.high >= self._start)


def _small_neighbours(run: list[FileReference]) -> list[FileReference]:
    """The first files of a run that fit into one file together, or the first one alone if it is too large."""
    rows = size = 0
    for count, file in enumerate(run):
        rows += file.rows
        size += file.size_bytes
        if count and (rows > FILE_ROWS or size > FILE_BYTES):
            return run[:count]
    return run


def _worth_a_cycle(files: FileSet) -> bool:
    size = sum(map(run_bytes, files.deltas))
    return size > max(MIN_CYCLE_BYTES, run_bytes(files.base) // CYCLE_PART_OF_BASE)
