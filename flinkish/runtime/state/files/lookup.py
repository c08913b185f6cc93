"""Looking up many entries, or all entries of many groups, in the runs of a subtask.

Rule: the newest row of an entry decides, unless a newer run has cleared its group. What is found does not depend on how
far compaction is. Only what was found becomes Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.hashes import Hashes
from flinkish.runtime.state.files.merge import Equality, resolve
from flinkish.runtime.state.files.references import FileReference, Run
from flinkish.runtime.state.files.rows import CLEAR, DELETE, NO_TIME, Array, Rows, no_bytes
from flinkish.runtime.state.files.runs import live_between
from flinkish.runtime.state.files.search import lower_bounds, places_of_ranges


@dataclass(frozen=True)
class Found:
    """What a look-up has found, in the order of what was looked up."""

    #: None where there is no entry
    values: list[bytes | None]
    orders: Array
    #: of the last access (ms); `NO_TIME` where there is none
    times: Array


@dataclass(frozen=True)
class Group:
    """The entries of one group, by their order."""

    entries: list[bytes]
    values: list[bytes]
    orders: list[int]
    #: of the last access (ms); None where there is none
    times: list[int | None]


@dataclass(frozen=True)
class Entries:
    """What is looked up: entries of one state. All columns are parallel."""

    state: str
    hashes: Hashes
    ids: Any
    entry_hashes: Array
    entries: Any

    def take(self, places: Array) -> Entries:
        """Those at these places."""
        indices = pa.array(places)
        return Entries(
            self.state,
            self.hashes[places],
            self.ids.take(indices),
            self.entry_hashes[places],
            self.entries.take(indices),
        )


class Lookup:
    """One look-up of some entries, run by run."""

    def __init__(self, directory: StateDirectory, entries: Entries, equality: Equality) -> None:
        self._directory = directory
        self._equality = equality
        count = len(entries.hashes)
        #: sorted, so that what lies in one file is one range of them
        if entries.entry_hashes.any():
            self._places = np.lexsort((entries.entry_hashes, entries.hashes))
        else:
            self._places = np.argsort(entries.hashes, kind="stable")
        self._entries = entries.take(self._places)
        self._open = np.ones(count, bool)
        self._values: list[bytes | None] = [None] * count
        self._orders = np.zeros(count, np.int64)
        self._times = np.full(count, NO_TIME)

    def result(self, runs: Sequence[Run]) -> Found:
        """What the runs, newest first, have."""
        for run in runs:
            if not self._open.any():
                break
            clears = self._entries.entry_hashes.any() and any(file.tombstones for file in run)
            cleared = self._cleared(run) if clears else None
            for file in run:
                self._look_into(file)
            if cleared is not None:
                self._open &= ~cleared
        return Found(self._values, self._orders, self._times)

    def _wanted(self, file: FileReference, entry_hashes: Array) -> Array:
        """The places, in the sorted order, of what is still open and may lie in a file."""
        bounds = np.array([file.low[0], file.high[0]], np.uint64)
        of_entries = np.array([file.low[1], file.high[1]], np.uint64)
        hashes = self._entries.hashes
        start, stop = np.searchsorted(hashes, bounds[:1])[0], np.searchsorted(hashes, bounds[1:], "right")[0]
        places = np.flatnonzero(self._open[start:stop]) + start
        # entries of one hash may lie in several files
        wanted_hashes, wanted = hashes[places], entry_hashes[places]
        inside = (wanted_hashes != bounds[0]) | (wanted >= of_entries[0])
        inside &= (wanted_hashes != bounds[1]) | (wanted <= of_entries[1])
        inside_places: Array = places[inside]
        return inside_places

    def _look_into(self, file: FileReference) -> None:
        places = self._wanted(file, self._entries.entry_hashes)
        if not len(places):
            return
        rows = self._directory.open(file)
        hashes, entry_hashes = self._entries.hashes[places], self._entries.entry_hashes[places]
        at = lower_bounds(rows.hash, rows.entry_hash, hashes, entry_hashes)
        same = _at_position(rows, at, hashes, entry_hashes)
        places, at = places[same], at[same]
        if not len(places):
            return
        several = _at_position(rows, at + 1, hashes[same], entry_hashes[same])
        wanted = self._entries.take(places)
        right = rows.state[at] == rows.state_of(wanted.state)
        right &= _equal(rows.id, at, wanted.ids) & _equal(rows.entry, at, wanted.entries)
        right &= ~several
        for place in np.flatnonzero(~right).tolist():
            found = self._one_by_one(rows, int(at[place]), int(places[place]))
            right[place] = found >= 0
            at[place] = found
        self._take(rows, at[right], places[right])

    def _take(self, rows: Rows, at: Array, places: Array) -> None:
        """Rows that decide about entries."""
        self._open[places] = False
        op = rows.op[at]
        if op.any():
            present = (op != DELETE) & (op != CLEAR)
            at, places = at[present], places[present]
        answers = self._places[places]
        self._orders[answers] = rows.order[at]
        self._times[answers] = rows.time[at]
        values = self._values
        for answer, value in zip(answers.tolist(), rows.value.take(pa.array(at)).to_pylist()):
            values[answer] = value

    def _one_by_one(self, rows: Rows, at: int, place: int) -> int:
        """Where rows share a position, or bytes differ: the row that decides about an entry, or -1."""
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

    def _cleared(self, run: Run) -> Array:
        """Whose groups a run has cleared. A CLEAR lies at the lowest position of its group."""
        cleared = np.zeros(len(self._open), bool)
        none = np.zeros(len(self._open), np.uint64)
        for file in run:
            places = self._wanted(file, none)
            if not file.tombstones or not len(places):
                continue
            rows = self._directory.open(file)
            hashes = self._entries.hashes[places]
            at = np.searchsorted(rows.hash, hashes)
            found = _at_position(rows, at, hashes, none[places])
            found[found] = rows.op[at[found]] == CLEAR
            for place, first in zip(places[found].tolist(), at[found].tolist()):
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
    """Whether rows have these positions."""
    inside = at < len(rows)
    at = np.minimum(at, len(rows) - 1)
    same: Array = inside & (rows.hash[at] == hashes) & (rows.entry_hash[at] == entry_hashes)
    return same


def _equal(column: Any, at: Array, wanted: Any) -> Array:
    """Whether the bytes of rows are the wanted ones."""
    equal = pc.equal(column.take(pa.array(at)).cast(wanted.type), wanted)
    return np.asarray(equal.to_numpy(zero_copy_only=False), bool)


def binary(values: Sequence[bytes] | None, length: int) -> Any:
    """A column of bytes; None: all are empty."""
    return no_bytes(length) if values is None else pa.array(values, pa.binary())


# ------------------------------------------------------------------------------------------------------ groups


def groups(
    directory: StateDirectory, runs: Sequence[Run], state: str, hashes: Hashes, ids: Sequence[bytes], equality: Equality
) -> list[Group]:
    """All entries of many groups, of which no two are equal."""
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
    """The number of rows that all runs have of each hash."""
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
    """The entries of one group in their order, in batches: a large one never becomes Python objects as a whole."""
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
    """The rows of a file that have one of these hashes, which are sorted."""
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
    """The number of the group that each row belongs to; -1 for rows of others that share a hash with one."""
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
