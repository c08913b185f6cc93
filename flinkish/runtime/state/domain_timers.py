"""The timers of one time domain that are in memory, found by time.

Timers lie in *slots* of 256 ms, in each of them by timestamp, so that a heap holds a number per slot and not one per
timestamp: most streams register timers at ever new timestamps. One timestamp has mostly one timer, which is kept as
it is; with windows, many keys have one timestamp, and a dict keeps them in the order of registration.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from flinkish.core.time_domain import TimeDomain

#: (namespace, key)
Entry = tuple[Hashable, Any]
#: timers of one (timestamp, namespace) in the order of registration
TimerRun = tuple[int, Hashable, list[Any]]
#: the timers of one timestamp: the only one, or several
_Bucket = Entry | dict[Entry, None]

#: Before all timestamps.
BEFORE_ALL = -(1 << 63) - 1

#: A timestamp without its last bits is the number of its slot.
_SLOT_BITS = 8

#: A heap of so few slots is not worth being made anew.
_SMALL_HEAP = 64


class DomainTimers:
    """See the module. ``heap`` holds the number of each slot, and numbers whose slot is gone, which are passed over
    when they come first. It is made anew when those are more than half of it."""

    __slots__ = (
        "changed",
        "deleted",
        "domain",
        "due",
        "due_upto_ms",
        "has_files",
        "heap",
        "next_in_files",
        "next_known",
        "slots",
        "taken_ms",
    )

    def __init__(self, domain: TimeDomain) -> None:
        self.domain = domain
        #: (timestamp, timer) that came or went, if somebody asks for them
        self.changed: dict[tuple[int, Entry], None] = {}
        self.heap: list[int] = []
        self.slots: dict[int, dict[int, _Bucket]] = {}
        #: while timers fire: the timestamps up to ``due_upto_ms`` that have timers, and perhaps some that have none
        self.due: list[int] = []
        self.due_upto_ms = BEFORE_ALL
        #: timestamp -> timers that may lie in files and do not count
        self.deleted: dict[int, set[Entry]] = {}
        #: there may be timers in files, behind this timestamp
        self.has_files = False
        self.taken_ms = BEFORE_ALL
        #: the first timestamp in files, once it was looked for
        self.next_in_files: int | None = None
        self.next_known = True

    # ------------------------------------------------------------------------------------------------ one by one

    def add(self, timestamp_ms: int, entry: Entry) -> bool:
        """Add a timer; whether it was not there."""
        slot = self.slots.get(timestamp_ms >> _SLOT_BITS)
        if slot is None:
            slot = self._new_slot(timestamp_ms >> _SLOT_BITS)
        bucket = slot.get(timestamp_ms)
        if bucket is None:
            slot[timestamp_ms] = entry
            if timestamp_ms <= self.due_upto_ms:
                heappush(self.due, timestamp_ms)
        elif isinstance(bucket, dict):
            if entry in bucket:
                return False
            bucket[entry] = None
        elif bucket == entry:
            return False
        else:
            slot[timestamp_ms] = {bucket: None, entry: None}
        return True

    def remove(self, timestamp_ms: int, entry: Entry) -> bool:
        """Forget a timer; whether it was there."""
        bucket = self.bucket(timestamp_ms)
        if isinstance(bucket, dict):
            if entry not in bucket:
                return False
            del bucket[entry]
            if not bucket:
                self._drop(timestamp_ms)
        elif bucket is None or bucket != entry:
            return False
        else:
            self._drop(timestamp_ms)
        return True

    def bucket(self, timestamp_ms: int) -> _Bucket | None:
        """The timers of a timestamp; None: there are none."""
        slot = self.slots.get(timestamp_ms >> _SLOT_BITS)
        return None if slot is None else slot.get(timestamp_ms)

    def has(self, timestamp_ms: int, entry: Entry) -> bool:
        """Whether a timer is there."""
        bucket = self.bucket(timestamp_ms)
        return bucket is not None and entry in entries_of(bucket)

    def _new_slot(self, number: int) -> dict[int, _Bucket]:
        slot = self.slots[number] = {}
        heappush(self.heap, number)
        return slot

    def _drop(self, timestamp_ms: int) -> None:
        """Forget a timestamp, which has no timer left."""
        number = timestamp_ms >> _SLOT_BITS
        slot = self.slots[number]
        del slot[timestamp_ms]
        if not slot:
            del self.slots[number]
            if len(self.heap) > max(_SMALL_HEAP, 2 * len(self.slots)):
                self._rebuild()

    def _rebuild(self) -> None:
        self.heap = list(self.slots)
        heapify(self.heap)

    # ------------------------------------------------------------------------------------------------ many

    def add_all(self, timestamp_ms: int, entries: dict[Entry, None]) -> dict[Entry, None]:
        """Add timers of one timestamp; those of them that were not there."""
        slot = self.slots.get(timestamp_ms >> _SLOT_BITS)
        if slot is None:
            slot = self._new_slot(timestamp_ms >> _SLOT_BITS)
        bucket = slot.get(timestamp_ms)
        if bucket is None:
            slot[timestamp_ms] = dict(entries)
            if timestamp_ms <= self.due_upto_ms:
                heappush(self.due, timestamp_ms)
            return entries
        if not isinstance(bucket, dict):
            bucket = slot[timestamp_ms] = {bucket: None}
        fresh = dict.fromkeys(entry for entry in entries if entry not in bucket)
        bucket.update(fresh)
        return fresh

    def add_before(self, timestamp_ms: int, older: list[Entry]) -> None:
        """Add timers of one timestamp that were registered before those that are there."""
        later = self.bucket(timestamp_ms)
        if later is not None:
            self._drop(timestamp_ms)
            older = [*older, *entries_of(later)]
        if len(older) == 1:
            self.add(timestamp_ms, older[0])
        elif older:
            self.add_all(timestamp_ms, dict.fromkeys(older))

    def replace(self, timers: Iterable[tuple[int, _Bucket]]) -> None:
        """These timers, and no others, are there from now on."""
        slots: dict[int, dict[int, _Bucket]] = {}
        for timestamp_ms, bucket in timers:
            slots.setdefault(timestamp_ms >> _SLOT_BITS, {})[timestamp_ms] = bucket
        self.slots = slots
        self._rebuild()

    # ------------------------------------------------------------------------------------------------ in time order

    def first_slot(self) -> int | None:
        """The number of the first slot."""
        heap, slots = self.heap, self.slots
        while heap and heap[0] not in slots:
            heappop(heap)
        return heap[0] if heap else None

    def first(self) -> int | None:
        """The earliest timestamp that has a timer."""
        number = self.first_slot()
        return None if number is None else min(self.slots[number])

    def items(self) -> Iterator[tuple[int, _Bucket]]:
        """Timestamps with their timers, in time order."""
        for number in sorted(self.slots):
            yield from sorted(self.slots[number].items(), key=_timestamp)

    def first_slot_ms(self) -> tuple[int, int] | None:
        """The first and the last millisecond of the first slot."""
        number = self.first_slot()
        return None if number is None else (number << _SLOT_BITS, ((number + 1) << _SLOT_BITS) - 1)

    def count(self, behind_ms: int = BEFORE_ALL) -> int:
        """The number of timers behind a timestamp."""
        return sum(
            len(bucket) if isinstance(bucket, dict) else 1
            for slot in self.slots.values()
            for timestamp_ms, bucket in slot.items()
            if timestamp_ms > behind_ms
        )

    def runs(self) -> list[TimerRun]:
        """All timers in firing order, joined where timestamp and namespace are the same."""
        runs: list[TimerRun] = []
        for timestamp_ms, bucket in self.items():
            run: TimerRun | None = None
            for namespace, key in entries_of(bucket):
                if run is None or run[1] != namespace:
                    run = (timestamp_ms, namespace, [])
                    runs.append(run)
                run[2].append(key)
        return runs

    def due_buckets(self, upto_ms: int) -> Iterator[_Bucket]:
        """The timers up to a timestamp, slot by slot."""
        last = upto_ms >> _SLOT_BITS
        for number in sorted(number for number in self.slots if number <= last):
            for timestamp_ms, bucket in self.slots[number].items():
                if timestamp_ms <= upto_ms:
                    yield bucket

    def pop_first_slot(self, upto_ms: int) -> Iterator[tuple[int, Entry]]:
        """Take out the timers of the first slot up to a timestamp, one by one, and those that are added up to there
        meanwhile. Who stops early leaves the rest."""
        number = self.first_slot()
        if number is None:
            return
        upto_ms = min(upto_ms, ((number + 1) << _SLOT_BITS) - 1)
        due = self.due = [timestamp_ms for timestamp_ms in self.slots[number] if timestamp_ms <= upto_ms]
        heapify(due)
        self.due_upto_ms = upto_ms
        slots = self.slots
        try:
            while due:
                timestamp_ms = heappop(due)
                bucket = self.bucket(timestamp_ms)
                if isinstance(bucket, tuple):
                    slot = slots[timestamp_ms >> _SLOT_BITS]
                    del slot[timestamp_ms]
                    if not slot:
                        del slots[timestamp_ms >> _SLOT_BITS]
                    yield timestamp_ms, bucket
                elif bucket is not None:
                    yield from self._pop_bucket(timestamp_ms, bucket)
        finally:
            self.due_upto_ms = BEFORE_ALL

    def _pop_bucket(self, timestamp_ms: int, bucket: dict[Entry, None]) -> Iterator[tuple[int, Entry]]:
        for entry in list(bucket):
            if entry in bucket:
                del bucket[entry]
                if not bucket:
                    self._drop(timestamp_ms)
                yield timestamp_ms, entry
                if self.due and self.due[0] < timestamp_ms:
                    # added meanwhile
                    break
        if self.bucket(timestamp_ms) is bucket:
            heappush(self.due, timestamp_ms)

    # ------------------------------------------------------------------------------------------------ files

    def in_files(self, timestamp_ms: int) -> bool:
        """Whether timers of that timestamp may lie in files."""
        return self.has_files and timestamp_ms > self.taken_ms

    def take(self, taken_ms: int) -> None:
        """The timers up to that timestamp are in memory now."""
        self.taken_ms = max(self.taken_ms, taken_ms)
        self.deleted = {ms: entries for ms, entries in self.deleted.items() if ms > self.taken_ms}
        self.next_known = False


def entries_of(bucket: _Bucket) -> Iterable[Entry]:
    """The timers of one timestamp, in the order of registration."""
    return bucket if isinstance(bucket, dict) else (bucket,)


def _timestamp(item: tuple[int, _Bucket]) -> int:
    return item[0]
