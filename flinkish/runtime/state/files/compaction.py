"""The keyed state of one subtask in files, a small LSM tree, and its compaction, which merges the files, a bounded
amount per call.

Compaction does two things. Small deltas are merged with each other, so that the number of deltas grows only with the
logarithm of their size. When the deltas together have become large, a **cycle** begins: it merges the deltas of that
moment into the base, from the lowest position to the highest, a few files per call, and drops these deltas at the end.

Rule: the result of look-ups never changes. In the middle of a cycle its deltas still lie above the part of the base
that they were already merged into, and hold the same rows as it does. Only expired state goes earlier or later; a
caller that reads rows with a time has to check it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flinkish.errors import InternalError
from flinkish.runtime.exchange.hashes import Hashes
from flinkish.runtime.state.files import lookup as lookups
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.lookup import Entries, Found, Group, Lookup, binary
from flinkish.runtime.state.files.merge import (
    FILE_BYTES,
    FILE_ROWS,
    Equality,
    SameBytes,
    bounded_stop,
    live_between,
    never_same,
    newer_between,
    repeats_an_entry,
    resolve,
    rows_between,
    scan,
    write_run,
)
from flinkish.runtime.state.files.references import END, FIRST, FileReference, FileSet, Position, Run, run_bytes
from flinkish.runtime.state.files.rows import NO_TIME, Array, Rows, in_order

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


class StateFiles:
    """Reads, writes and compacts the files with the keyed state of one subtask: a small LSM tree of which each state is
    an immutable `FileSet`.

    Rule: every operation takes a `FileSet` and leaves it unchanged. An operation that changes the state returns a new
    one; files that are not in the new one are deleted once no retained epoch refers to them (`references.deletable`).

    Args:
        directory: where the files lie.
        same_id: whether two different encodings of (namespace, key) stand for equal values, as those of ``1`` and
            ``True`` do; it is called only if their hashes are equal.
        same_entry: the same for two encodings of user keys.
    """

    def __init__(
        self, directory: StateDirectory, same_id: SameBytes = never_same, same_entry: SameBytes = never_same
    ) -> None:
        self.directory = directory
        self._equality = Equality(same_id, same_entry)

    def add(self, files: FileSet, rows: Rows, epoch: int) -> FileSet:
        """Write the changes of an epoch as a delta, or as the base if there are no files yet.

        Raises:
            InternalError: there are several rows for one entry.
        """
        return add(self.directory, files, rows, epoch, self._equality)

    def lookup(
        self,
        files: FileSet,
        state: str,
        hashes: Hashes,
        ids: Sequence[bytes],
        entries: Sequence[bytes] | None = None,
        entry_hashes: Array | None = None,
    ) -> Found:
        """The newest values of many entries. If ``entries`` is None, these are the single entries of the groups (value,
        reducing and aggregating state); else one entry of each group (groups may repeat)."""
        count = len(hashes)
        of_entries = np.zeros(count, np.uint64) if entry_hashes is None else np.asarray(entry_hashes, np.uint64)
        wanted = Entries(state, hashes, binary(ids, count), of_entries, binary(entries, count))
        return Lookup(self.directory, wanted, self._equality).result(files.newest_first)

    def groups(self, files: FileSet, state: str, hashes: Hashes, ids: Sequence[bytes]) -> list[Group]:
        """All entries of many groups, no two of which are equal; the entries of each are sorted by their order."""
        return lookups.groups(self.directory, files.newest_first, state, hashes, ids, self._equality)

    def group_rows(self, files: FileSet, hashes: Hashes) -> list[int]:
        """An upper bound of the number of rows of the groups with these hashes; hidden rows count, too."""
        counts: list[int] = lookups.group_rows(self.directory, files.newest_first, hashes).tolist()
        return counts

    def group_batches(
        self, files: FileSet, state: str, hash_: int, key: bytes, batch_rows: int = 10_000
    ) -> Iterator[Group]:
        """The entries of one group, sorted by their order, in batches."""
        runs = files.newest_first
        return lookups.group_batches(self.directory, runs, state, int(hash_), key, self._equality, batch_rows)

    def scan(self, files: FileSet) -> Iterator[Rows]:
        """All rows that count, sorted by hash, in batches of bounded size. All are PUT; expired rows may be among them,
        and a group may continue in the next batch."""
        return scan(self.directory, files.newest_first, self._equality)

    def compact(
        self,
        files: FileSet,
        epoch: int,
        *,
        budget_bytes: int | None = None,
        expiry: Expiry | None = None,
        sweep: bool = False,
    ) -> FileSet:
        """Compact the files, a bounded amount; returns the files that are referred to from now on.

        Args:
            files: The files to compact.
            epoch: The epoch that writes new files.
            budget_bytes: About how many bytes may be rewritten; by default 16 times as many as were added since the
                last call, but at least 4 MiB and at most 64 MiB.
            expiry: Which rows may be dropped when they are rewritten.
            sweep: Go through the base for expired state even if little was added. Once a sweep has begun, later calls
                continue it.
        """
        return Compaction(self.directory, self._equality, epoch, budget_bytes=budget_bytes, expiry=expiry).run(
            files, sweep=sweep
        )


def add(directory: StateDirectory, files: FileSet, rows: Rows, epoch: int, equality: Equality) -> FileSet:
    """Write rows as a new delta, or as the base if there are no files yet; raises InternalError if they hold an entry
    twice."""
    if not len(rows):
        return files
    rows = in_order(rows)
    if repeats_an_entry(rows, equality):
        raise InternalError(
            f"epoch {epoch} writes an entry of the state twice", where=directory.path, expected="one row per entry"
        )
    if not files.files:
        first = resolve([[rows]], equality, drop_tombstones=True)
        return replace(files, base=write_run(directory, first, epoch)) if first is not None else files
    run = write_run(directory, rows, epoch)
    return replace(files, deltas=(*files.deltas, run), added=files.added + run_bytes(run))
