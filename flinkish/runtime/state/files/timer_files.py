"""The timers of one subtask in files.

A timer is (service, domain, timestamp, namespace, key) and is registered at most once. Timers of one service and domain
lie in files of their own (a `FileSet` each), in the form of map state with the timestamp instead of the hash: a
timestamp is a group, and each of its timers is an entry, whose order is the number of its registration. So the files
are sorted by time, and timers that are due are neighbours.

Rules:

* Timers fire by timestamp, those of one timestamp in the order of registration, where the earliest registration after
  the last deletion counts. To register a timer that is registered already changes nothing.
* That timers have fired is not written to files. The caller says up to which timestamp they have (``fired_ms``); timers
  at or before it do not count, and compaction drops them without reading them. So a timer that is registered for a
  timestamp at or before ``fired_ms``, which fires the next time the clock advances, must not be written to files: the
  caller keeps it until it has fired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.runtime.exchange.hashes import Hashes
from flinkish.runtime.state.files.compaction import Compaction, add
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.lookup import Entries, Lookup, binary, group_batches
from flinkish.runtime.state.files.merge import Equality, SameBytes, between, never_same, scan
from flinkish.runtime.state.files.references import END, Position, Run, TimerQueueName, TimerSets
from flinkish.runtime.state.files.rows import DELETE, PUT, REPLACE, Rows, RowsBuilder, concat, no_bytes

#: The encoded (namespace, key) of timers.
Ids: TypeAlias = "Sequence[bytes] | pa.LargeBinaryArray"

#: The value of ``fired_ms`` before any timer has fired.
NONE_FIRED = -(1 << 63)

_BIAS = 1 << 63
_STATE = "timers"
#: About how many bytes of files the first batch of a search for the next timers has.
FIRST_SCAN_BYTES = 64 * 1024


class TimerChanges:
    """The changes of the timers of one service and domain in an epoch: at most one of `register`, `delete` and
    `register_again` for each timer. ``hashes`` are those of the ids, which are equal for equal ids."""

    def __init__(self) -> None:
        self._rows = RowsBuilder()

    def register(self, timestamps_ms: Sequence[int], hashes: Hashes, ids: Ids, sequences: Sequence[int]) -> None:
        """Add timers that are registered now, and may have been before. ``sequences`` are numbers that ascend in the
        order of registration."""
        self._put(timestamps_ms, hashes, ids, sequences, PUT)

    def register_again(self, timestamps_ms: Sequence[int], hashes: Hashes, ids: Ids, sequences: Sequence[int]) -> None:
        """Add timers that were deleted and then registered again."""
        self._put(timestamps_ms, hashes, ids, sequences, REPLACE)

    def delete(self, timestamps_ms: Sequence[int], hashes: Hashes, ids: Ids) -> None:
        """Add timers that were deleted; timers that have fired are not added."""
        nothing = no_bytes(len(ids))
        self._rows.delete(_STATE, _positions(timestamps_ms), nothing, entries=ids, entry_hashes=hashes)

    def _put(self, timestamps_ms: Sequence[int], hashes: Hashes, ids: Ids, sequences: Sequence[int], op: int) -> None:
        nothing = no_bytes(len(ids))
        at = _positions(timestamps_ms)
        self._rows.put(_STATE, at, nothing, nothing, entries=ids, entry_hashes=hashes, orders=sequences, op=op)

    def build(self) -> Rows:
        """The changes as rows."""
        return self._rows.build()


class Timers:
    """Timers in the order in which they fire."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @property
    def timestamps_ms(self) -> list[int]:
        """The timestamps of the timers (ms)."""
        return (self._rows.hash ^ np.uint64(_BIAS)).view(np.int64).tolist()  # type: ignore[no-any-return]

    @property
    def ids(self) -> list[bytes]:
        """The encoded (namespace, key) of the timers."""
        return self._rows.entry.to_pylist()  # type: ignore[no-any-return]

    @property
    def dictionary(self) -> tuple[list[int], list[bytes]]:
        """(the index of each timer's id in a list of the distinct ids, that list)."""
        encoded = self._rows.entry.dictionary_encode()
        return encoded.indices.to_numpy().tolist(), encoded.dictionary.to_pylist()

    @property
    def sequences(self) -> list[int]:
        """The numbers of the timers in the order of registration."""
        return self._rows.order.tolist()  # type: ignore[no-any-return]


class TimerFiles:
    """Reads, writes and compacts the files with the timers of one subtask. ``same_id`` says whether two different
    encodings of (namespace, key) stand for equal values."""

    def __init__(self, directory: StateDirectory, same_id: SameBytes = never_same) -> None:
        self.directory = directory
        self._equality = Equality(same_entry=same_id, keeps_place=True)

    def add(self, sets: TimerSets, changes: Mapping[TimerQueueName, TimerChanges], epoch: int) -> TimerSets:
        """Write the changes of an epoch."""
        for queue, changed in sorted(changes.items()):
            files = add(self.directory, sets.of(queue), changed.build(), epoch, self._equality)
            sets = sets.replaced(queue, files)
        return sets

    def earliest(self, sets: TimerSets, queue: TimerQueueName, fired_ms: int) -> int | None:
        """The timestamp of the first timer that has not fired; None if there is none."""
        runs = sets.of(queue).newest_first
        start = _after(fired_ms)
        firsts = [first for run in runs if (first := self._first(run, start)) is not None]
        if not firsts:
            return None
        position = min(first for first, _ in firsts)
        # the newest run with this timestamp decides about its timers
        present = next(present for first, present in firsts if first == position)
        if present:
            return _timestamp_ms(position)
        live = scan(self.directory, runs, self._equality, start=(position, 0), first_bytes=FIRST_SCAN_BYTES)
        return next((_timestamp_ms(int(rows.hash[0])) for rows in live), None)

    def _first(self, run: Run, start: Position) -> tuple[int, bool] | None:
        """The lowest hash of a run from a position on, and whether the run has a timer for it that is not deleted; None
        if the run has no rows there."""
        for file in run:
            if file.high >= start:
                rows = self.directory.open(file)
                first, _ = between(rows, max(start, file.low), END)
                stop = int(np.searchsorted(rows.hash, rows.hash[first], "right"))
                return int(rows.hash[first]), bool((rows.op[first:stop] != DELETE).any())
        return None

    def contains(
        self,
        sets: TimerSets,
        queue: TimerQueueName,
        fired_ms: int,
        timestamps_ms: Sequence[int],
        hashes: Hashes,
        ids: Sequence[bytes],
    ) -> list[bool]:
        """For each of these timers, whether it is registered and has not fired."""
        count = len(ids)
        wanted = Entries(_STATE, _positions(timestamps_ms), no_bytes(count), hashes, binary(ids, count))
        found = Lookup(self.directory, wanted, self._equality).result(sets.of(queue).newest_first)
        return [value is not None and at > fired_ms for value, at in zip(found.values, timestamps_ms)]

    def at(
        self, sets: TimerSets, queue: TimerQueueName, timestamp_ms: int, batch_rows: int = 10_000
    ) -> Iterator[list[bytes]]:
        """The ids of the timers of one timestamp in firing order, in batches."""
        position = timestamp_ms + _BIAS
        runs = sets.of(queue).newest_first
        for group in group_batches(self.directory, runs, _STATE, position, b"", self._equality, batch_rows):
            yield group.entries

    def scan(self, sets: TimerSets, queue: TimerQueueName, fired_ms: int) -> Iterator[Timers]:
        """All timers that have not fired, by timestamp, in batches of bounded size. Timers of one timestamp are in the
        order of registration only within a batch."""
        runs = sets.of(queue).newest_first
        for rows in scan(self.directory, runs, self._equality, start=_after(fired_ms)):
            yield _in_order(rows)

    def due(self, sets: TimerSets, queue: TimerQueueName, fired_ms: int, upto_ms: int) -> Iterator[Timers]:
        """The timers that fire next, up to a timestamp, in firing order and in batches. Timers of one timestamp are
        always in the same batch."""
        runs = sets.of(queue).newest_first
        stop = (upto_ms + 1 + _BIAS, 0)
        rest: Rows | None = None
        for rows in scan(
            self.directory, runs, self._equality, start=_after(fired_ms), stop=stop, first_bytes=FIRST_SCAN_BYTES
        ):
            rows = rows if rest is None else concat([rest, rows])
            last = int(np.searchsorted(rows.hash, rows.hash[-1]))
            if last:
                yield _in_order(rows.slice(0, last))
            rest = rows.slice(last, len(rows))
        if rest is not None:
            yield _in_order(rest)

    def compact(
        self, sets: TimerSets, fired_ms: Mapping[TimerQueueName, int], epoch: int, budget_bytes: int | None = None
    ) -> TimerSets:
        """Compact the files, a bounded amount, and drop those of which all timers have fired. ``fired_ms``: queue ->
        the timestamp up to which its timers have fired."""
        for queue, files in sets.queues.items():
            start = _after(fired_ms.get(queue, NONE_FIRED))
            compaction = Compaction(self.directory, self._equality, epoch, budget_bytes=budget_bytes, start=start)
            sets = sets.replaced(queue, compaction.run(files))
        return sets


def _in_order(rows: Rows) -> Timers:
    if not (rows.hash[1:] > rows.hash[:-1]).all():
        rows = rows.take(np.lexsort((rows.order, rows.hash)))
    return Timers(rows)


def _positions(timestamps_ms: Sequence[int]) -> Hashes:
    """Timestamps as unsigned numbers in the same order, which take the place of hashes."""
    signed: npt.NDArray[np.int64] = np.asarray(timestamps_ms, np.int64)
    positions: Hashes = signed.view(np.uint64) ^ np.uint64(_BIAS)
    return positions


def _timestamp_ms(position: int) -> int:
    return position - _BIAS


def _after(fired_ms: int) -> Position:
    """The first position after the timers that have fired."""
    return (0, 0) if fired_ms == NONE_FIRED else (fired_ms + 1 + _BIAS, 0)
