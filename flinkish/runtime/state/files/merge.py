"""Runs of files: writes sorted rows as a run, reads ranges of runs, and merges the rows of several runs, of which the
newest row of each entry is left, unless a newer row hides it.

Rule: the result of merging depends on the rows and on their ages, and on nothing else. Rows of one age were written
together and have at most one row per entry; a CLEAR among them counts as older than the other ones.

Merging works on whole columns. Only if different groups, or different bytes, share a hash do rows become Python
objects, and the caller's functions say which are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.references import END, FileReference, Position, Run
from flinkish.runtime.state.files.rows import CLEAR, DELETE, PUT, REPLACE, Array, Rows, concat, sort_order

#: A function that says whether two different encodings stand for equal values.
SameBytes = Callable[[bytes, bytes], bool]

#: An age above that of every row.
_OLDEST = 1 << 30


def never_same(_: bytes, __: bytes) -> bool:
    """A `SameBytes` for which different encodings are always different values."""
    return False


@dataclass(frozen=True)
class Equality:
    """Says which ids of groups, and which entries within a group, are equal although their bytes differ.
    ``keeps_place``: an entry that is put again keeps the ``order`` that it had. Such rows have no CLEAR."""

    same_id: SameBytes = never_same
    same_entry: SameBytes = never_same
    keeps_place: bool = False


def resolve(runs: Sequence[Sequence[Rows]], equality: Equality, *, drop_tombstones: bool) -> Rows | None:
    """The rows of these runs that count, sorted as in a file; None if there are none.

    Args:
        runs: Newest first; the rows of each run are sorted and of one age.
        equality: Which different bytes stand for equal values.
        drop_tombstones: Whether DELETE and CLEAR are dropped, because there are no older rows that they would hide.
    """
    parts = [(age, rows) for age, run in enumerate(runs) for rows in run if len(rows)]
    if not parts:
        return None
    rows = concat([rows for _, rows in parts])
    if parts[0][0] == parts[-1][0] and not rows.op.any():
        # rows of a single age, none of which hides another
        return rows
    ages = np.repeat([age for age, _ in parts], [len(rows) for _, rows in parts])
    result = _Resolution(rows, ages, equality).result(drop_tombstones)
    return result if len(result) else None


def repeats_an_entry(rows: Rows, equality: Equality) -> bool:
    """Whether sorted rows of one age have several rows for one entry, or several CLEARs for one group."""
    same = (rows.hash[1:] == rows.hash[:-1]) & (rows.entry_hash[1:] == rows.entry_hash[:-1])
    same &= (rows.op[1:] == CLEAR) == (rows.op[:-1] == CLEAR)
    if not same.any():
        return False
    return _Resolution(rows, np.zeros(len(rows), np.int64), equality).entries < len(rows)


class _Resolution:
    """Merges rows of several ages. All arrays are in the sorted order of rows (`sort_order`)."""

    def __init__(self, rows: Rows, ages: Array, equality: Equality) -> None:
        self._rows = rows
        self._equality = equality
        #: the index of each row in ``rows``
        self._places = sort_order(rows)
        self._op = rows.op[self._places]
        self._age = ages[self._places]
        hashes, entry_hashes = rows.hash[self._places], rows.entry_hash[self._places]
        clears = self._op == CLEAR
        new_group, new_entry = np.ones(len(rows), bool), np.ones(len(rows), bool)
        new_group[1:] = hashes[1:] != hashes[:-1]
        new_entry[1:] = new_group[1:] | (entry_hashes[1:] != entry_hashes[:-1]) | (clears[1:] != clears[:-1])
        self._new_entry = new_entry
        #: the number of the group, and of the entry, that each row belongs to
        self._group = np.cumsum(new_group) - 1
        self._entry = np.cumsum(new_entry) - 1
        self._shared = False
        if not new_group.all():
            self._separate(new_group, new_entry)

    def _separate(self, new_group: Array, new_entry: Array) -> None:
        """Give numbers of their own to groups and entries that only share a hash."""
        first = np.flatnonzero(new_group)
        others = np.flatnonzero(~new_group)
        firsts = first[self._group[others]]
        state = self._rows.state[self._places]
        differ = (state[others] != state[firsts]) | ~self._equal("id", others, firsts)
        shared = set(np.unique(self._group[others[differ]]).tolist())
        others = np.flatnonzero(~new_entry)
        firsts = np.flatnonzero(new_entry)[self._entry[others]]
        differ = ~self._equal("entry", others, firsts)
        shared.update(np.unique(self._group[others[differ]]).tolist())
        if not shared:
            return
        self._shared = True
        stops = [*first[1:].tolist(), len(self._places)]
        next_number = len(self._places)
        for group in sorted(shared):
            next_number = self._separate_group(range(int(first[group]), stops[group]), next_number)

    def _equal(self, column: str, left: Array, right: Array) -> Array:
        """A mask of the pairs of rows that have the same bytes in a column."""
        values = getattr(self._rows, column)
        equal = pc.equal(values.take(pa.array(self._places[left])), values.take(pa.array(self._places[right])))
        return np.asarray(equal.to_numpy(zero_copy_only=False), bool)

    def _separate_group(self, rows: range, next_number: int) -> int:
        """Number the groups and entries of rows that share one hash, from an unused number on; returns the next unused
        number."""
        groups: dict[int, _Numbers] = {}
        entries: dict[tuple[int, int, bool], _Numbers] = {}
        for row in rows:
            place = int(self._places[row])
            of_state = groups.setdefault(int(self._rows.state[place]), _Numbers(self._equality.same_id))
            group = of_state.number(self._rows.id[place].as_py(), next_number)
            address = group, int(self._rows.entry_hash[place]), bool(self._op[row] == CLEAR)
            of_group = entries.setdefault(address, _Numbers(self._equality.same_entry))
            self._group[row] = group
            self._entry[row] = of_group.number(self._rows.entry[place].as_py(), next_number + 1)
            next_number += 2
        return next_number

    @property
    def entries(self) -> int:
        """The number of entries; the CLEARs of a group count as one."""
        return len(np.unique(self._entry))

    def result(self, drop_tombstones: bool) -> Rows:
        """The rows that count, in sorted order."""
        # the rows of one entry are neighbours, the newest first
        if self._shared:
            by_entry = np.argsort(self._entry, kind="stable")
            begins = np.ones(len(by_entry), bool)
            begins[1:] = self._entry[by_entry[1:]] != self._entry[by_entry[:-1]]
        else:
            by_entry, begins = np.arange(len(self._entry)), self._new_entry
        starts = np.flatnonzero(begins)
        newest = by_entry[starts]
        kept = self._not_hidden(newest, drop_tombstones)
        op = self._op[newest]
        chosen = newest
        if self._equality.keeps_place:
            chosen, op = self._first_places(by_entry, starts)
        if drop_tombstones:
            op = np.zeros(len(op), np.uint8)
        kept = np.flatnonzero(kept)
        kept = kept[np.argsort(newest[kept], kind="stable")] if self._shared else kept
        rows = self._rows.take(self._places[chosen[kept]])
        return replace(rows, op=op[kept])

    def _not_hidden(self, newest: Array, drop_tombstones: bool) -> Array:
        """A mask of the entries whose newest row counts."""
        op = self._op[newest]
        if not op.any():
            return np.ones(len(newest), bool)
        clears = np.flatnonzero(self._op == CLEAR)
        cleared = np.full(int(self._group.max()) + 1, _OLDEST)
        np.minimum.at(cleared, self._group[clears], self._age[clears])
        cleared_at = cleared[self._group[newest]]
        kept: Array = (op == CLEAR) | (self._age[newest] <= cleared_at)
        tombstones = op == DELETE
        if drop_tombstones:
            tombstones |= op == CLEAR
        else:
            # a DELETE is not needed beside a CLEAR, which hides the same rows
            tombstones &= cleared_at < _OLDEST
        kept &= ~tombstones
        return kept

    def _first_places(self, by_entry: Array, starts: Array) -> tuple[Array, Array]:
        """For each entry the row whose ``order`` it keeps, which is the oldest PUT after the entry was last gone, and
        the op that the row gets."""
        op = self._op[by_entry]
        lasts = np.append(starts[1:], len(op)) - 1
        at = np.arange(len(op))
        #: for each entry the newest row that is no PUT, so that no older one counts; ``len(op)`` if there is none
        stop = np.minimum.reduceat(np.where(op == PUT, len(op), at), starts)
        stopped = stop < len(op)
        stop = np.where(stopped, stop, lasts)
        deleted = stopped & (op[stop] == DELETE)
        place = np.where(deleted & (stop > starts), stop - 1, stop)
        meaning = np.where(deleted & (stop == starts), DELETE, np.where(stopped, REPLACE, PUT))
        return by_entry[place], meaning.astype(np.uint8)


class _Numbers:
    """Assigns numbers to values, the same one to equal values."""

    def __init__(self, same: SameBytes) -> None:
        self._same = same
        self._known: list[tuple[bytes, int]] = []

    def number(self, value: bytes, unused: int) -> int:
        """The number of a value; a new value gets the number ``unused``."""
        for known, number in self._known:
            if known == value or self._same(known, value):
                return number
        self._known.append((value, unused))
        return unused


def lower_bounds(hashes: Array, entry_hashes: Array, of_hashes: Array, of_entry_hashes: Array) -> Array:
    """For each of the positions (``of_hashes``, ``of_entry_hashes``) the index of the first row that is not below it,
    by one binary search for all of them. The columns are sorted by (hash, entry_hash)."""
    low = np.searchsorted(hashes, of_hashes, "left")
    if not of_entry_hashes.any():
        return low
    high = np.searchsorted(hashes, of_hashes, "right")
    while (searching := low < high).any():
        middle = (low + high) >> 1
        below = entry_hashes[np.minimum(middle, len(hashes) - 1)] < of_entry_hashes
        low = np.where(searching & below, middle + 1, low)
        high = np.where(searching & ~below, middle, high)
    return low


def lower_bound(hashes: Array, entry_hashes: Array, position: Position) -> int:
    """`lower_bounds` for a single position."""
    if position >= END:
        return len(hashes)
    of_hash, of_entry_hash = np.array([position[0]], np.uint64), np.array([position[1]], np.uint64)
    return int(lower_bounds(hashes, entry_hashes, of_hash, of_entry_hash)[0])


def between(rows: Rows, start: Position, stop: Position) -> tuple[int, int]:
    """The range of indices of the rows of a file with ``start`` <= position < ``stop``."""
    return lower_bound(rows.hash, rows.entry_hash, start), lower_bound(rows.hash, rows.entry_hash, stop)


def places_of_ranges(starts: Array, stops: Array) -> Array:
    """All indices in these ranges, one range after the other; the stops are exclusive."""
    lengths = stops - starts
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: Array = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return places


#: About how many rows and bytes a file has at most; a value is never split.
FILE_ROWS, FILE_BYTES = 256 * 1024, 16 * 1024 * 1024

#: About how many bytes the columns of numbers take per row.
_NUMBERS_BYTES = 16


def write_run(directory: StateDirectory, rows: Rows, epoch: int) -> Run:
    """Write sorted rows to as few files of a bounded size as they fit in, all of about the same size, each with a range
    of positions of its own; returns the run of these files."""
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
    """All rows that count with ``start`` <= position < ``stop``, in order, in batches of bounded size: the runs are
    merged piece by piece, so that only a bounded part is in memory.

    The first batch has at most about ``first_bytes``, each next one up to four times as many, and none more than about
    `SCAN_BYTES`.
    """
    max_bytes = first_bytes
    while start < stop:
        end = bounded_stop(directory, runs, start, stop, max_bytes)
        max_bytes = min(4 * max_bytes, SCAN_BYTES)
        rows = live_between(directory, runs, start, end, equality)
        if rows is not None:
            yield rows
        start = end
