"""The timers of one subtask in files.

A timer is (service, domain, timestamp, namespace, key), at most once. Timers of one service and domain lie in files of
their own (a `FileSet` each), as map state does, with the timestamp in the place of the hash: a timestamp is a group,
and each of its timers is an entry, whose order is when it was registered. So the files are sorted by time, and what is
due lies together.

Rules:

* Timers fire by timestamp, those of one timestamp in the order of registration: that of the earliest registration after
  the last deletion. To register a timer that is there already changes nothing.
* Timers that have fired leave no trace in the files. The caller says up to which timestamp they have (``fired_ms``);
  what is at or before it does not count, and goes in compaction without being read.
  So a timer that is registered for a time that has fired already, which fires when time goes on next, does not belong
  into files: the caller keeps it until it has fired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.runtime.state.files.compaction import Compaction
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.hashes import Hashes
from flinkish.runtime.state.files.lookup import Entries, Lookup, binary, group_batches
from flinkish.runtime.state.files.merge import Equality, SameBytes, never_same
from flinkish.runtime.state.files.references import END, Position, Run
from flinkish.runtime.state.files.rows import DELETE, PUT, REPLACE, Rows, RowsBuilder, concat, no_bytes
from flinkish.runtime.state.files.runs import scan
from flinkish.runtime.state.files.search import between
from flinkish.runtime.state.files.state_files import add
from flinkish.runtime.state.files.timer_sets import TimerQueueName, TimerSets

#: The encoded (namespace, key) of timers.
Ids: TypeAlias = "Sequence[bytes] | pa.LargeBinaryArray"

#: Nothing has fired yet.
NONE_FIRED = -(1 << 63)

_BIAS = 1 << 63
_STATE = "timers"
#: How much of the files is resolved at once, at first, in search of a timer that was not deleted.
_FIRST_SCAN_BYTES = 64 * 1024


class TimerChanges:
    """What became of the timers of one service and domain: at most one of `register`, `delete` and `register_again`
    for each timer. ``hashes``: of their ids, the same for equal ones."""

    def __init__(self) -> None:
        self._rows = RowsBuilder()

    def register(self, timestamps_ms: Sequence[int], hashes: Hashes, ids: Ids, sequences: Sequence[int]) -> None:
        """Timers that are there now, and may have been before. ``sequences``: when they were registered."""
        self._put(timestamps_ms, hashes, ids, sequences, PUT)

    def register_again(self, timestamps_ms: Sequence[int], hashes: Hashes, ids: Ids, sequences: Sequence[int]) -> None:
        """Timers that were deleted, and then registered."""
        self._put(timestamps_ms, hashes, ids, sequences, REPLACE)

    def delete(self, timestamps_ms: Sequence[int], hashes: Hashes, ids: Ids) -> None:
        """Timers that are not there any more, and were not fired."""
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
        """When they fire."""
        return (self._rows.hash ^ np.uint64(_BIAS)).view(np.int64).tolist()  # type: ignore[no-any-return]

    @property
    def ids(self) -> list[bytes]:
        """Their encoded (namespace, key)."""
        return self._rows.entry.to_pylist()  # type: ignore[no-any-return]

    @property
    def dictionary(self) -> tuple[list[int], list[bytes]]:
        """The place of each timer's id in a list of the different ones, and that list."""
        encoded = self._rows.entry.dictionary_encode()
        return encoded.indices.to_numpy().tolist(), encoded.dictionary.to_pylist()

    @property
    def sequences(self) -> list[int]:
        """When they were registered."""
        return self._rows.order.tolist()  # type: ignore[no-any-return]


class TimerFiles:
    """See the module. ``same_id``: whether ids that differ stand for equal timers."""

    def __init__(self, directory: StateDirectory, same_id: SameBytes = never_same) -> None:
        self.directory = directory
        self._equality = Equality(same_entry=same_id, keeps_place=True)

    def add(self, sets: TimerSets, changes: Mapping[TimerQueueName, TimerChanges], epoch: int) -> TimerSets:
        """Write what an epoch has changed."""
        for queue, changed in sorted(changes.items()):
            files = add(self.directory, sets.of(queue), changed.build(), epoch, self._equality)
            sets = sets.replaced(queue, files)
        return sets

    def earliest(self, sets: TimerSets, queue: TimerQueueName, fired_ms: int) -> int | None:
        """The timestamp of the first timer that has not fired."""
        runs = sets.of(queue).newest_first
        start = _after(fired_ms)
        firsts = [first for run in runs if (first := self._first(run, start)) is not None]
        if not firsts:
            return None
        position = min(first for first, _ in firsts)
        # the newest run decides about its own timers
        present = next(present for first, present in firsts if first == position)
        if present:
            return _timestamp_ms(position)
        live = scan(self.directory, runs, self._equality, start=(position, 0), first_bytes=_FIRST_SCAN_BYTES)
        return next((_timestamp_ms(int(rows.hash[0])) for rows in live), None)

    def _first(self, run: Run, start: Position) -> tuple[int, bool] | None:
        """The lowest hash of a run from a position on, and whether one of its timers is there."""
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
        """Which of these timers are there and have not fired."""
        count = len(ids)
        wanted = Entries(_STATE, _positions(timestamps_ms), no_bytes(count), hashes, binary(ids, count))
        found = Lookup(self.directory, wanted, self._equality).result(sets.of(queue).newest_first)
        return [value is not None and at > fired_ms for value, at in zip(found.values, timestamps_ms)]

    def at(
        self, sets: TimerSets, queue: TimerQueueName, timestamp_ms: int, batch_rows: int = 10_000
    ) -> Iterator[list[bytes]]:
        """The ids of the timers of one timestamp in the order in which they fire, in batches."""
        position = timestamp_ms + _BIAS
        runs = sets.of(queue).newest_first
        for group in group_batches(self.directory, runs, _STATE, position, b"", self._equality, batch_rows):
            yield group.entries

    def scan(self, sets: TimerSets, queue: TimerQueueName, fired_ms: int) -> Iterator[Timers]:
        """All timers that have not fired, by timestamp, in batches that are bounded in bytes. Within one timestamp they
        come by their sequence only inside of a batch."""
        runs = sets.of(queue).newest_first
        for rows in scan(self.directory, runs, self._equality, start=_after(fired_ms)):
            yield _in_order(rows)

    def due(self, sets: TimerSets, queue: TimerQueueName, fired_ms: int, upto_ms: int) -> Iterator[Timers]:
        """The timers that fire next, up to a timestamp, in the order in which they fire and in batches. Timers of one
        timestamp are never parted."""
        runs = sets.of(queue).newest_first
        stop = (upto_ms + 1 + _BIAS, 0)
        rest: Rows | None = None
        for rows in scan(
            self.directory, runs, self._equality, start=_after(fired_ms), stop=stop, first_bytes=_FIRST_SCAN_BYTES
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
        """Bring files together, a bounded amount, and drop those of which all timers have fired."""
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
    """Timestamps as numbers without sign, in the same order."""
    signed: npt.NDArray[np.int64] = np.asarray(timestamps_ms, np.int64)
    positions: Hashes = signed.view(np.uint64) ^ np.uint64(_BIAS)
    return positions


def _timestamp_ms(position: int) -> int:
    return position - _BIAS


def _after(fired_ms: int) -> Position:
    """The first position behind the timers that have fired."""
    return (0, 0) if fired_ms == NONE_FIRED else (fired_ms + 1 + _BIAS, 0)
