"""The timers of one time domain that are in memory, found by time.

Timers lie in *slots* of 256 ms, in each of them by timestamp, so that a heap holds a number per slot and not one per
timestamp: most streams register timers at ever new timestamps. One timestamp has mostly one timer, which is kept as
it is; with windows, many keys have one timestamp, and a dict keeps them in the order of registration.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

from flinkish.core.time_domain import TimeDomain

#: (timestamp, key, namespace)
Timer = tuple[int, Any, Hashable]
#: timers of one (timestamp, namespace) in the order of registration
TimerRun = tuple[int, Hashable, list[Any]]
#: the timers of one timestamp: the only one, or several
_Bucket = Timer | dict[Timer, None]

#: Before all timestamps.
BEFORE_ALL = -(1 << 63) - 1

#: A timestamp without its last bits is the number of its slot.
_SLOT_BITS = 8

#: A heap of so few slots is not worth being made anew.
_SMALL_HEAP = 64

_TIMESTAMP, _KEY, _NAMESPACE = itemgetter(0), itemgetter(1), itemgetter(2)


class DomainTimers:
    """See the module. ``heap`` holds the number of each slot, and numbers whose slot is gone, which are passed over
    when they come first. It is made anew when those are more than half of it.

    Args:
        recording: whether ``changed`` is kept.
    """

    __slots__ = (
        "changed",
        "deleted",
        "domain",
        "due_upto_ms",
        "earlier",
        "fired",
        "has_files",
        "heap",
        "next_in_files",
        "next_known",
        "slots",
        "taken_ms",
        "touched",
    )

    def __init__(self, domain: TimeDomain, recording: bool = False) -> None:
        self.domain = domain
        #: timers that came or went since the last barrier, if somebody asks for them
        self.changed: dict[Timer, None] | None = {} if recording else None
        #: whether any did
        self.touched = False
        #: how many have been popped since that was asked for
        self.fired = 0
        self.heap: list[int] = []
        self.slots: dict[int, dict[int, _Bucket]] = {}
        #: while timers of a slot fire: the last timestamp that is due there, and whether a timer up to there came
        self.due_upto_ms = BEFORE_ALL
        self.earlier = False
        #: timestamp -> timers that may lie in files and do not count
        self.deleted: dict[int, set[Timer]] = {}
        #: there may be timers in files, behind this timestamp
        self.has_files = False
        self.taken_ms = BEFORE_ALL
        #: the first timestamp in files, once it was looked for
        self.next_in_files: int | None = None
        self.next_known = True

    # ------------------------------------------------------------------------------------------------ one by one

    def register(self, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        """Add a timer; nothing happens if it is there already. User code calls this for every record."""
        slot = self.slots.get(timestamp_ms >> _SLOT_BITS)
        if slot is None:
            slot = self._new_slot(timestamp_ms >> _SLOT_BITS)
        timer = (timestamp_ms, key, namespace)
        found = slot.setdefault(timestamp_ms, timer)
        if found is timer:
            if timestamp_ms <= self.due_upto_ms:
                self.earlier = True
        elif not _add_to(slot, found, timer):
            return
        self.touched = True
        if self.changed is not None:
            self.changed[timer] = None

    def remove(self, timer: Timer) -> bool:
        """Forget a timer; whether it was there."""
        timestamp_ms = timer[0]
        bucket = self.bucket(timestamp_ms)
        if isinstance(bucket, dict):
            if timer not in bucket:
                return False
            del bucket[timer]
            if not bucket:
                self._drop(timestamp_ms)
        elif bucket is None or bucket != timer:
            return False
        else:
            self._drop(timestamp_ms)
        return True

    def note(self, timers: Iterable[Timer]) -> None:
        """These came or went."""
        self.touched = True
        if self.changed is not None:
            self.changed.update(zip(timers, repeat(None)))

    def bucket(self, timestamp_ms: int) -> _Bucket | None:
        """The timers of a timestamp; None: there are none."""
        slot = self.slots.get(timestamp_ms >> _SLOT_BITS)
        return None if slot is None else slot.get(timestamp_ms)

    def has(self, timer: Timer) -> bool:
        """Whether a timer is there."""
        bucket = self.bucket(timer[0])
        return bucket is not None and timer in timers_of(bucket)

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

    def register_all(self, timestamp_ms: int, keys: Iterable[Any], namespace: Hashable) -> None:
        """``register`` for many keys (which may repeat)."""
        timers = dict.fromkeys(zip(repeat(timestamp_ms), keys, repeat(namespace)))
        if timers:
            fresh = self._add_all(timestamp_ms, timers)
            if fresh:
                self.note(fresh)

    def _add_all(self, timestamp_ms: int, timers: dict[Timer, None]) -> Iterable[Timer]:
        """Add timers of one timestamp; those of them that were not there."""
        slot = self.slots.get(timestamp_ms >> _SLOT_BITS)
        if slot is None:
            slot = self._new_slot(timestamp_ms >> _SLOT_BITS)
        bucket = slot.get(timestamp_ms)
        if bucket is None:
            slot[timestamp_ms] = timers if len(timers) > 1 else next(iter(timers))
            if timestamp_ms <= self.due_upto_ms:
                self.earlier = True
            return list(timers)
        if not isinstance(bucket, dict):
            bucket = slot[timestamp_ms] = {bucket: None}
        fresh = [timer for timer in timers if timer not in bucket]
        bucket.update(zip(fresh, repeat(None)))
        return fresh

    def add_before(self, timers: Iterable[Timer]) -> None:
        """Add timers, sorted by time, that were registered before those of their timestamps that are there."""
        slots = self.slots
        previous_ms: int | None = None
        later: _Bucket | None = None
        for timer in timers:
            timestamp_ms = timer[0]
            slot = slots.get(timestamp_ms >> _SLOT_BITS)
            if slot is None:
                slot = self._new_slot(timestamp_ms >> _SLOT_BITS)
            if timestamp_ms == previous_ms:
                _add_to(slot, slot[timestamp_ms], timer)
            else:
                self._add_later(later)
                previous_ms, later = timestamp_ms, slot.get(timestamp_ms)
                slot[timestamp_ms] = timer
        self._add_later(later)

    def _add_later(self, later: _Bucket | None) -> None:
        if later is not None:
            for timer in timers_of(later):
                slot = self.slots[timer[0] >> _SLOT_BITS]
                _add_to(slot, slot[timer[0]], timer)

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
            yield from sorted(self.slots[number].items(), key=_TIMESTAMP)

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
        return [
            (timestamp_ms, namespace, list(map(_KEY, run)))
            for timestamp_ms, bucket in self.items()
            for namespace, run in groupby(timers_of(bucket), _NAMESPACE)
        ]

    def due_keys(self, upto_ms: int, limit: int) -> tuple[dict[Hashable, list[Any]], int]:
        """Namespace -> keys of the timers of the first slots that are due, about ``limit`` of them, and the number of
        the last of these slots."""
        found: dict[Hashable, list[Any]] = {}
        count, last = 0, upto_ms >> _SLOT_BITS
        for number in sorted(number for number in self.slots if number <= last):
            for timestamp_ms, bucket in self.slots[number].items():
                if timestamp_ms <= upto_ms:
                    for _, key, namespace in timers_of(bucket):
                        found.setdefault(namespace, []).append(key)
                        count += 1
            if count >= limit:
                return found, number
        return found, last

    def pop_slot(self, number: int, upto_ms: int) -> Iterator[Timer]:
        """Take out the timers of a slot up to a timestamp one by one, and those that are added up to there meanwhile,
        unless they are before the first one of the slot. Who stops early leaves the rest."""
        slots, changed = self.slots, self.changed
        self.due_upto_ms = upto_ms = min(upto_ms, end_ms(number))
        fired = 0
        try:
            while slot := slots.get(number):
                self.earlier = False
                due = sorted(slot)
                del due[bisect_right(due, upto_ms) :]
                if not due:
                    return
                for timestamp_ms in due:
                    bucket = slot.pop(timestamp_ms, None)
                    if isinstance(bucket, dict):
                        slot[timestamp_ms] = bucket
                        for timer in self._pop_bucket(number, bucket):
                            fired += 1
                            yield timer
                            if self.earlier:
                                break
                        if timestamp_ms in slot:
                            # more timers of that timestamp came meanwhile
                            break
                    elif bucket is not None:
                        if not slot:
                            del slots[number]
                        if changed is not None:
                            changed[bucket] = None
                        fired += 1
                        yield bucket
                    if self.earlier:
                        break
                if self.earlier and self.first_slot() != number:
                    return
        finally:
            self.due_upto_ms = BEFORE_ALL
            if fired:
                self.touched = True
                self.fired += fired

    def _pop_bucket(self, number: int, bucket: dict[Timer, None]) -> Iterator[Timer]:
        """Take out the timers of one timestamp one by one."""
        for timer in list(bucket):
            if timer in bucket:
                del bucket[timer]
                if not bucket:
                    slot = self.slots[number]
                    del slot[timer[0]]
                    if not slot:
                        del self.slots[number]
                if self.changed is not None:
                    self.changed[timer] = None
                yield timer

    # ------------------------------------------------------------------------------------------------ files

    def in_files(self, timestamp_ms: int) -> bool:
        """Whether timers of that timestamp may lie in files."""
        return self.has_files and timestamp_ms > self.taken_ms

    def take(self, taken_ms: int) -> None:
        """The timers up to that timestamp are in memory now."""
        self.taken_ms = max(self.taken_ms, taken_ms)
        self.next_known = False

    def deleted_in_files(self) -> list[Timer]:
        """The timers that may lie in files, were not taken out of them and do not count."""
        return [timer for ms, timers in sorted(self.deleted.items()) if ms > self.taken_ms for timer in timers]


def timers_of(bucket: _Bucket) -> Iterable[Timer]:
    """The timers of one timestamp, in the order of registration."""
    return bucket if isinstance(bucket, dict) else (bucket,)


def end_ms(number: int) -> int:
    """The last millisecond of a slot."""
    return ((number + 1) << _SLOT_BITS) - 1


def _add_to(slot: dict[int, _Bucket], bucket: _Bucket, timer: Timer) -> bool:
    """Add a timer to those of its timestamp; whether it was not there."""
    if isinstance(bucket, dict):
        if timer in bucket:
            return False
        bucket[timer] = None
    elif bucket == timer:
        return False
    else:
        slot[timer[0]] = {bucket: None, timer: None}
    return True
