"""Look-ups of many entries, or of all entries of many groups, in the runs of a subtask.

Rule: the newest row of an entry decides, unless a newer run has cleared its group. The result does not depend on how
far compaction is. Only rows that were found become Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.runtime.exchange.hashes import Hashes
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.merge import Equality, live_between, lower_bounds, places_of_ranges, resolve
from flinkish.runtime.state.files.references import FileReference, Run
from flinkish.runtime.state.files.rows import CLEAR, DELETE, NO_TIME, Array, Rows, concat, no_bytes


@dataclass(frozen=True)
class Found:
    """The result of a look-up of entries, in their order; the fields are parallel."""

    #: the encoded values; None where there is no entry
    values: list[bytes | None]
    orders: Array
    #: the times of the last access (ms); `NO_TIME` where there is none
    times: Array


@dataclass(frozen=True)
class Group:
    """The entries of one group, sorted by their ``orders``; the fields are parallel."""

    entries: list[bytes]
    values: list[bytes]
    orders: list[int]
    #: the times of the last access (ms); None where there is none
    times: list[int | None]


@dataclass(frozen=True)
class Entries:
    """The entries of one state that are looked up, as parallel columns. ``ids`` and ``entries`` are Arrow columns."""

    state: str
    hashes: Hashes
    ids: Any
    entry_hashes: Array
    entries: Any

    def take(self, places: Array) -> Entries:
        """The entries at these positions, in that order."""
        indices = pa.array(places)
        return Entries(
            self.state,
            self.hashes[places],
            self.ids.take(indices),
            self.entry_hashes[places],
            self.entries.take(indices),
        )


@dataclass(frozen=True)
class _Hits:
    """The rows of a file at the positions (hash, entry_hash) of looked-up entries.

    ``places`` are the indices of the entries, ``at`` the index of the first row with the position of each, and
    ``several`` says whether more rows have this position. These three are parallel.
    """

    rows: Rows
    at: Array
    places: Array
    several: Array


class Lookup:
    """One look-up of entries, which goes through the runs from the newest to the oldest."""

    def __init__(self, directory: StateDirectory, entries: Entries, equality: Equality) -> None:
        self._directory = directory
        self._equality = equality
        count = len(entries.hashes)
        #: whether any entry has an entry hash, as the entries of maps have
        self._named = bool(entries.entry_hashes.any())
        #: the order in which entries are sorted by position, so that those in one file are a contiguous range
        if self._named:
            self._places = np.lexsort((entries.entry_hashes, entries.hashes))
        else:
            self._places = np.argsort(entries.hashes, kind="stable")
        self._entries = entries.take(self._places)
        self._open = np.ones(count, bool)
        self._values: list[bytes | None] = [None] * count
        self._orders = np.zeros(count, np.int64)
        self._times = np.full(count, NO_TIME)

    def result(self, runs: Sequence[Run]) -> Found:
        """The newest values of the entries in these runs, which are given newest first."""
        for run in runs:
            places = np.flatnonzero(self._open)
            if not len(places):
                break
            clears = self._named and any(file.tombstones for file in run)
            cleared = self._cleared(run, places) if clears else None
            self._look_into(run, places)
            if cleared is not None:
                self._open &= ~cleared
        return Found(self._values, self._orders, self._times)

    def _by_file(self, run: Run, places: Array, entry_hashes: Array) -> Iterator[tuple[Rows, Array]]:
        """The files of a run in which entries may lie, each with the indices of these entries. Entries with the same
        hash may lie in several files."""
        hashes = self._entries.hashes[places]
        starts = np.searchsorted(hashes, np.array([file.low[0] for file in run], np.uint64))
        stops = np.searchsorted(hashes, np.array([file.high[0] for file in run], np.uint64), "right")
        for file, start, stop in zip(run, starts.tolist(), stops.tolist()):
            if start == stop:
                continue
            inside = places[start:stop]
            if hashes[start] == file.low[0] or hashes[stop - 1] == file.high[0]:
                inside = inside[_within(file, hashes[start:stop], entry_hashes[inside])]
            if len(inside):
                yield self._directory.open(file), inside

    def _look_into(self, run: Run, places: Array) -> None:
        """Answer open entries from the rows of a run. Work is done for all files together where possible, because a
        batch of keys has only a few keys in each of dozens of files."""
        parts = [self._hits(rows, inside) for rows, inside in self._by_file(run, places, self._entries.entry_hashes)]
        parts = [part for part in parts if len(part.places)]
        if not parts:
            return
        places = np.concatenate([part.places for part in parts])
        hits = concat([part.rows.take(part.at) for part in parts])
        wanted = self._entries.take(places)
        right = hits.state == hits.state_of(wanted.state)
        right &= _equal(hits.id, wanted.ids) & _equal(hits.entry, wanted.entries)
        right &= ~np.concatenate([part.several for part in parts])
        if right.all():
            self._take(hits, places)
            return
        self._take(hits.take(np.flatnonzero(right)), places[right])
        ends = np.cumsum([len(part.places) for part in parts])
        for wrong in np.flatnonzero(~right).tolist():
            number = int(np.searchsorted(ends, wrong, "right"))
            part = parts[number]
            at = wrong - int(ends[number]) + len(part.places)
            found = self._one_by_one(part.rows, int(part.at[at]), int(places[wrong]))
            if found >= 0:
                self._take(part.rows.take(np.array([found])), places[wrong : wrong + 1])

    def _hits(self, rows: Rows, places: Array) -> _Hits:
        """The rows of a file at the positions of these entries."""
        hashes, entry_hashes = self._entries.hashes[places], self._entries.entry_hashes[places]
        at = lower_bounds(rows.hash, rows.entry_hash, hashes, entry_hashes)
        same = _at_position(rows, at, hashes, entry_hashes)
        at = at[same]
        return _Hits(rows, at, places[same], _at_position(rows, at + 1, hashes[same], entry_hashes[same]))

    def _take(self, rows: Rows, places: Array) -> None:
        """Answer entries from the rows that decide about them."""
        self._open[places] = False
        if rows.op.any():
            present = np.flatnonzero((rows.op != DELETE) & (rows.op != CLEAR))
            rows, places = rows.take(present), places[present]
        answers = self._places[places]
        self._orders[answers] = rows.order
        self._times[answers] = rows.time
        values = self._values
        for answer, value in zip(answers.tolist(), rows.value.to_pylist()):
            values[answer] = value

    def _one_by_one(self, rows: Rows, at: int, place: int) -> int:
        """The index of the row that decides about an entry, or -1, if several rows share its position or bytes differ:
        compares row by row from index ``at``."""
        wanted = self._entries
        cleared = -1
        state, hash_, entry_hash = rows.state_of(wanted.state), wanted.hashes[place], wanted.entry_hashes[place]
        key, user_key = wanted.ids[place].as_py(), wanted.entries[place].as_py()
        while at < len(rows) and rows.hash[at] == hash_ and rows.entry_hash[at] == entry_hash:
            if rows.state[at] == state and self._same(rows.id[at].as_py(), key, self._equality.same_id):
                if rows.op[at] == CLEAR:
                    cleared = at
                elif self._same(rows.entry[at].as_py(), user_key, self._equality.same_entry):
                    return at
            at += 1
        return cleared

    @staticmethod
    def _same(left: bytes, right: bytes, same: Any) -> bool:
        return left == right or bool(same(left, right))

    def _cleared(self, run: Run, places: Array) -> Array:
        """A mask of the entries whose groups a run has cleared. A CLEAR lies at the lowest position of its group."""
        cleared = np.zeros(len(self._open), bool)
        none = np.zeros(len(self._open), np.uint64)
        for rows, inside in self._by_file(tuple(file for file in run if file.tombstones), places, none):
            hashes = self._entries.hashes[inside]
            at = np.searchsorted(rows.hash, hashes)
            found = _at_position(rows, at, hashes, none[inside])
            found[found] = rows.op[at[found]] == CLEAR
            for place, first in zip(inside[found].tolist(), at[found].tolist()):
                cleared[place] = self._has_clear(rows, first, place)
        return cleared

    def _has_clear(self, rows: Rows, at: int, place: int) -> bool:
        state, hash_ = rows.state_of(self._entries.state), rows.hash[at]
        key = self._entries.ids[place].as_py()
        while at < len(rows) and rows.hash[at] == hash_ and rows.op[at] == CLEAR:
            if rows.state[at] == state and self._same(rows.id[at].as_py(), key, self._equality.same_id):
                return True
            at += 1
        return False


def _at_position(rows: Rows, at: Array, hashes: Array, entry_hashes: Array) -> Array:
    """A mask that says whether the rows at these indices have these positions."""
    inside = at < len(rows)
    at = np.minimum(at, len(rows) - 1)
    same: Array = inside & (rows.hash[at] == hashes) & (rows.entry_hash[at] == entry_hashes)
    return same


def _within(file: FileReference, hashes: Array, entry_hashes: Array) -> Array:
    """A mask of the positions that lie in the range of a file, given that their hashes do."""
    (low, low_entry), (high, high_entry) = file.low, file.high
    within: Array = (hashes != low) | (entry_hashes >= low_entry)
    within &= (hashes != high) | (entry_hashes <= high_entry)
    return within


def _equal(column: Any, wanted: Any) -> Array:
    """A mask of the rows whose bytes equal the wanted ones."""
    equal = pc.equal(column.cast(wanted.type), wanted)
    return np.asarray(equal.to_numpy(zero_copy_only=False), bool)


def binary(values: Sequence[bytes] | None, length: int) -> Any:
    """An Arrow column of bytes; of empty ones if ``values`` is None."""
    return no_bytes(length) if values is None else pa.array(values, pa.binary())


# ------------------------------------------------------------------------------------------------------ groups


def groups(
    directory: StateDirectory, runs: Sequence[Run], state: str, hashes: Hashes, ids: Sequence[bytes], equality: Equality
) -> list[Group]:
    """All entries of many groups, no two of which are equal, in the order of the groups."""
    by_hash = np.argsort(hashes, kind="stable")
    wanted = hashes[by_hash]
    parts = [[_of_hashes(directory, file, wanted) for file in run] for run in runs]
    rows = resolve([[part for part in run if part is not None] for run in parts], equality, drop_tombstones=True)
    if rows is None:
        return [_group(None) for _ in ids]
    group = _groups_of(rows, state, by_hash, wanted, ids, equality)
    by_group = np.lexsort((rows.order, group))
    by_group = by_group[np.searchsorted(group[by_group], 0) :]
    bounds = np.searchsorted(group[by_group], np.arange(len(ids) + 1))
    sorted_rows = rows.take(by_group)
    found = _group(sorted_rows)
    return [
        Group(found.entries[a:b], found.values[a:b], found.orders[a:b], found.times[a:b])
        for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist())
    ]


def group_rows(directory: StateDirectory, runs: Sequence[Run], hashes: Hashes) -> Array:
    """The number of rows with each hash in all runs together, including hidden ones."""
    counts = np.zeros(len(hashes), np.int64)
    for run in runs:
        for file in run:
            inside = np.flatnonzero((hashes >= np.uint64(file.low[0])) & (hashes <= np.uint64(file.high[0])))
            if len(inside):
                rows, wanted = directory.open(file), hashes[inside]
                counts[inside] += np.searchsorted(rows.hash, wanted, "right") - np.searchsorted(rows.hash, wanted)
    return counts


def group_batches(
    directory: StateDirectory,
    runs: Sequence[Run],
    state: str,
    hash_: int,
    key: bytes,
    equality: Equality,
    batch_rows: int,
) -> Iterator[Group]:
    """The entries of one group in their order, in batches: a large group never becomes Python objects as a whole."""
    rows = live_between(directory, runs, (hash_, 0), (hash_ + 1, 0), equality)
    if rows is None:
        return
    hashes = np.array([hash_], np.uint64)
    group = _groups_of(rows, state, np.zeros(1, np.int64), hashes, [key], equality)
    places = np.flatnonzero(group == 0)
    places = places[np.argsort(rows.order[places], kind="stable")]
    for start in range(0, len(places), batch_rows):
        yield _group(rows.take(places[start : start + batch_rows]))


def _of_hashes(directory: StateDirectory, file: FileReference, hashes: Hashes) -> Rows | None:
    """The rows of a file that have one of these sorted hashes; None if the file has none."""
    bounds = np.array([file.low[0], file.high[0]], np.uint64)
    start, stop = np.searchsorted(hashes, bounds[:1])[0], np.searchsorted(hashes, bounds[1:], "right")[0]
    if start == stop:
        return None
    hashes = hashes[start:stop]
    hashes = hashes[np.append(True, hashes[1:] != hashes[:-1])]
    rows = directory.open(file)
    starts = np.searchsorted(rows.hash, hashes, "left")
    stops = np.searchsorted(rows.hash, hashes, "right")
    if hashes[0] == bounds[0]:
        # rows below the lowest position of the file do not count
        lowest = np.array([file.low[1]], np.uint64)
        starts[0] = lower_bounds(rows.hash, rows.entry_hash, hashes[:1], lowest)[0]
    return rows.take(places_of_ranges(starts, stops))


def _groups_of(
    rows: Rows, state: str, by_hash: Array, wanted: Hashes, ids: Sequence[bytes], equality: Equality
) -> Array:
    """The index in ``ids`` of the group that each row belongs to; -1 for rows of other groups with the same hash."""
    at = np.searchsorted(wanted, rows.hash)
    group = by_hash[at]
    keys = pa.array(ids, pa.binary())
    same = np.asarray(
        pc.equal(rows.id.cast(pa.binary()), keys.take(pa.array(group))).to_numpy(zero_copy_only=False), bool
    )
    right_state = rows.state == rows.state_of(state)
    group = np.where(right_state, group, -1)
    for place in np.flatnonzero(right_state & ~same).tolist():
        key, first = rows.id[place].as_py(), int(at[place])
        group[place] = -1
        while first < len(wanted) and wanted[first] == rows.hash[place]:
            candidate = int(by_hash[first])
            if ids[candidate] == key or equality.same_id(ids[candidate], key):
                group[place] = candidate
                break
            first += 1
    return group


def _group(rows: Rows | None) -> Group:
    if rows is None:
        return Group([], [], [], [])
    return Group(
        rows.entry.to_pylist(),
        rows.value.to_pylist(),
        rows.order.tolist(),
        [None if time == NO_TIME else time for time in rows.time.tolist()],
    )
