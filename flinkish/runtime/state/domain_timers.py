"""The timers of one timer service and time domain that are in memory, ordered by time.

Timers lie in *slots* of 256 ms, within each in the order of registration, so that the heap holds one number per slot
and not one per timestamp: most streams register timers at ever new timestamps. A slot is sorted when it is due.

User code registers timers one by one, often millions of them that are not looked at for minutes. A slot therefore only
notes such a registration, as a number and a key in two arrays; what was registered twice is found when the slot is
looked at for the first time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import groupby, repeat
from operator import itemgetter, length_hint
from typing import Any

from flinkish.core.time import TimeDomain

#: (timestamp, key, namespace)
Timer = tuple[int, Any, Hashable]
#: (timestamp, namespace, keys in the order of registration)
TimerRun = tuple[int, Hashable, list[Any]]

#: A number below all timestamps.
BEFORE_ALL = -(1 << 63) - 1

#: A timestamp without its last ``_SLOT_BITS`` bits is the number of its slot. When a slot of which only a part is due
#: has more than ``CROWDED_SLOT`` timers, slots become narrower by ``_NARROWER_BITS`` bits.
_SLOT_BITS, _NARROWER_BITS, CROWDED_SLOT = 8, 2, 2_000

#: A slot notes at most so many registrations, or as many as it has timers.
NOTED_TIMES = 1_000

#: A heap of at most so many slots is not rebuilt.
_SMALL_HEAP = 64

_TIMESTAMP, _KEY = itemgetter(0), itemgetter(1)
_RUN = itemgetter(0, 2)


class _Slot:
    """The timers of a slot, as keys of a dict in the order of registration, and the registrations since then."""

    __slots__ = ("_known", "noted_keys", "noted_ms", "room")

    def __init__(self, known: dict[Timer, None] | None = None) -> None:
        self._known = {} if known is None else known
        #: timestamps and keys of registrations without a namespace that are not in the dict yet; they may repeat
        self.noted_ms = array("q")
        self.noted_keys: list[Any] = []
        #: the number of registrations after which they are added to the dict, as they may all be of one timer
        self.room = NOTED_TIMES

    def timers(self) -> dict[Timer, None]:
        """The live dict, with all registrations."""
        if self.noted_keys:
            self._known.update(zip(zip(self.noted_ms, self.noted_keys, repeat(None)), repeat(None)))
            self.noted_ms, self.noted_keys = array("q"), []
            self.room = max(NOTED_TIMES, len(self._known))
        return self._known

    def add_before(self, timers: Iterable[Timer]) -> None:
        """Add timers that were registered before all others."""
        self._known = {**dict.fromkeys(timers), **self._known}

    def at_most(self) -> int:
        """The number of timers, those that were registered twice counted twice."""
        return len(self._known) + len(self.noted_keys)


class DomainTimers:
    """Registers, deletes and fires the timers of one time domain that are in memory.

    ``heap`` holds the number of each slot, and stale numbers whose slot is gone, which are skipped when they come
    first. It is rebuilt when more than half of its numbers are stale.

    Args:
        domain: the time domain.
        recording: whether ``changed`` is kept.
    """

    __slots__ = (
        "bits",
        "changed",
        "deleted",
        "domain",
        "fired",
        "firing",
        "firing_known",
        "firing_upto_ms",
        "has_files",
        "heap",
        "next_in_files",
        "next_known",
        "not_fired",
        "prepared_at",
        "slots",
        "taken_ms",
        "touched",
    )

    def __init__(self, domain: TimeDomain, recording: bool = False) -> None:
        self.domain = domain
        #: timers that were registered, deleted or fired since the last barrier; None if they are not recorded
        self.changed: dict[Timer, None] | None = {} if recording else None
        #: whether any timer was registered, deleted or fired since the last barrier
        self.touched = False
        #: the number of timers that have fired so far
        self.fired = 0
        #: what ``fired`` was when room was made for the timers after that
        self.prepared_at = 0
        self.heap: list[int] = []
        self.bits = _SLOT_BITS
        self.slots: dict[int, _Slot] = {}
        #: timers that were taken out of their slot to fire, by time
        self.firing: list[Timer] = []
        #: iterates over the timers in ``firing`` that have not fired
        self.not_fired: Iterator[Timer] = iter(())
        #: the timestamp up to which ``firing`` holds all timers in memory
        self.firing_upto_ms = BEFORE_ALL
        #: the timers in ``firing`` as a set; empty until it is first needed
        self.firing_known: set[Timer] = set()
        #: timestamp -> timers that may lie in files and were deleted
        self.deleted: dict[int, set[Timer]] = {}
        #: whether there may be timers in files
        self.has_files = False
        #: timers in files with timestamps up to this one were taken out and do not count any more
        self.taken_ms = BEFORE_ALL
        #: the first timestamp in files, or None; valid if ``next_known``
        self.next_in_files: int | None = None
        self.next_known = True

    # ------------------------------------------------------------------------------------------------ one by one

    def register(self, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        """Register a timer; does nothing if it is registered already. User code calls this for every record."""
        if timestamp_ms <= self.firing_upto_ms:
            self._register_due((timestamp_ms, key, namespace))
            return
        slot = self.slots.get(timestamp_ms >> self.bits)
        if slot is None:
            slot = self._new_slot(timestamp_ms >> self.bits)
        if namespace is None and self.changed is None:
            keys = slot.noted_keys
            slot.noted_ms.append(timestamp_ms)
            keys.append(key)
            self.touched = True
            if len(keys) > slot.room:
                slot.timers()
            return
        timer, timers = (timestamp_ms, key, namespace), slot.timers()
        before = len(timers)
        timers[timer] = None
        if len(timers) != before:
            self.note((timer,))

    def remove(self, timer: Timer) -> bool:
        """Delete a timer from memory; returns whether it was there."""
        timestamp_ms = timer[0]
        if timestamp_ms <= self.firing_upto_ms:
            place = self._place_of(timer)
            if place is not None:
                del self.firing[place]
                self.firing_known.discard(timer)
            return place is not None
        slot = self.slots.get(timestamp_ms >> self.bits)
        timers = {} if slot is None else slot.timers()
        if timer not in timers:
            return False
        del timers[timer]
        if not timers:
            del self.slots[timestamp_ms >> self.bits]
            if len(self.heap) > max(_SMALL_HEAP, 2 * len(self.slots)):
                self._rebuild_heap()
        return True

    def note(self, timers: Iterable[Timer]) -> None:
        """Record that these timers were registered, deleted or fired."""
        self.touched = True
        if self.changed is not None:
            self.changed.update(zip(timers, repeat(None)))

    def has(self, timer: Timer) -> bool:
        """Whether a timer is registered, in memory."""
        self.end_firing()
        slot = self.slots.get(timer[0] >> self.bits)
        return slot is not None and timer in slot.timers()

    def _new_slot(self, number: int, timers: dict[Timer, None] | None = None) -> _Slot:
        slot = self.slots[number] = _Slot(timers)
        heappush(self.heap, number)
        return slot

    def _rebuild_heap(self) -> None:
        self.heap = list(self.slots)
        heapify(self.heap)

    def begin_ms(self, number: int) -> int:
        """The first millisecond of a slot."""
        return number << self.bits

    def end_ms(self, number: int) -> int:
        """The last millisecond of a slot."""
        return ((number + 1) << self.bits) - 1

    # ------------------------------------------------------------------------------------------------ many

    def register_all(self, timestamp_ms: int, keys: Iterable[Any], namespace: Hashable) -> None:
        """`register` for many keys (which may repeat) of one timestamp and namespace."""
        timers = dict.fromkeys(zip(repeat(timestamp_ms), keys, repeat(namespace)))
        if timestamp_ms <= self.firing_upto_ms:
            for timer in timers:
                self._register_due(timer)
        elif timers:
            number = timestamp_ms >> self.bits
            slot = self.slots.get(number)
            if slot is None:
                self._new_slot(number, timers)
                self.note(timers)
                return
            known = slot.timers()
            fresh = [timer for timer in timers if timer not in known]
            known.update(zip(fresh, repeat(None)))
            if fresh:
                self.note(fresh)

    def add_before(self, timers: list[Timer]) -> None:
        """Add timers, sorted by time, that were registered earlier than those in memory with the same timestamps."""
        start = 0
        while start < len(timers):
            number = timers[start][0] >> self.bits
            stop = bisect_right(timers, self.end_ms(number), start, key=_TIMESTAMP)
            slot = self.slots.get(number)
            if slot is None:
                self._new_slot(number, dict.fromkeys(timers[start:stop]))
            else:
                slot.add_before(timers[start:stop])
            start = stop

    def replace(self, timers: list[Timer]) -> None:
        """Replace all timers by these, which are in the order of registration."""
        slots: dict[int, dict[Timer, None]] = {}
        for timer in timers:
            slots.setdefault(timer[0] >> self.bits, {})[timer] = None
        self.slots = {number: _Slot(of_slot) for number, of_slot in slots.items()}
        self._rebuild_heap()

    # ------------------------------------------------------------------------------------------------ in time order

    def first_slot(self) -> int | None:
        """The number of the first slot; None if there are no timers."""
        self.end_firing()
        heap, slots = self.heap, self.slots
        while heap and heap[0] not in slots:
            heappop(heap)
        return heap[0] if heap else None

    def ordered(self) -> Iterator[Timer]:
        """All timers in firing order."""
        self.end_firing()
        for number in sorted(self.slots):
            yield from sorted(self.slots[number].timers(), key=_TIMESTAMP)

    def count(self) -> int:
        """The number of timers."""
        self.end_firing()
        return sum(len(slot.timers()) for slot in self.slots.values())

    def at_most(self, behind_ms: int) -> int:
        """About the number of timers after a timestamp, at least as many as there are: those of the timestamp's slot,
        and those that were registered twice, may be counted as well."""
        self.end_firing()
        border = behind_ms >> self.bits
        return sum(slot.at_most() for number, slot in self.slots.items() if number >= border)

    def runs(self) -> list[TimerRun]:
        """All timers in firing order, neighbours with the same timestamp and namespace as one run."""
        return [
            (timestamp_ms, namespace, list(map(_KEY, run)))
            for (timestamp_ms, namespace), run in groupby(self.ordered(), _RUN)
        ]

    def due_keys(self, upto_ms: int, limit: int) -> tuple[dict[Hashable, list[Any]], int]:
        """(namespace -> keys, timestamp) of the first due timers, about ``limit`` of them: all due timers up to that
        timestamp, which is the end of a slot or ``upto_ms``."""
        found: dict[Hashable, list[Any]] = {}
        count, last = 0, upto_ms >> self.bits
        for number in sorted(number for number in self.slots if number <= last):
            for timestamp_ms, key, namespace in self.slots[number].timers():
                if timestamp_ms <= upto_ms:
                    found.setdefault(namespace, []).append(key)
                    count += 1
            if count >= limit:
                return found, self.end_ms(number)
        return found, upto_ms

    # ------------------------------------------------------------------------------------------------ firing

    def pop_slot(self, upto_ms: int) -> Iterator[Timer] | None:
        """Take the timers of the first slot up to a timestamp out, in firing order; None if there are none.

        A timer up to there that is registered during the iteration comes in its turn, and one that is deleted does not
        come. Timers that are not consumed go back when other timers are asked for (`end_firing`).
        """
        number = self.first_slot()
        if number is None or self.begin_ms(number) > upto_ms:
            return None
        slot, end_ms = self.slots[number].timers(), self.end_ms(number)
        if end_ms <= upto_ms:
            due = sorted(slot, key=_TIMESTAMP)
            del self.slots[number]
        else:
            if len(slot) > CROWDED_SLOT and self.bits:
                self._narrow_slots()
                return self.pop_slot(upto_ms)
            end_ms = upto_ms
            due = sorted([timer for timer in slot if timer[0] <= upto_ms], key=_TIMESTAMP)
            if not due:
                return None
            for timer in due:
                del slot[timer]
            if not slot:
                del self.slots[number]
        self.firing, self.not_fired, self.firing_upto_ms = due, iter(due), end_ms
        return self.not_fired

    def end_firing(self) -> None:
        """Put the timers back that were taken out and not consumed, and count the others as fired."""
        if self.firing_upto_ms == BEFORE_ALL:
            return
        firing, fired = self.firing, len(self.firing) - length_hint(self.not_fired)
        left = firing[fired:]
        # ends the iterator over this list
        del firing[fired:]
        self.firing, self.not_fired, self.firing_upto_ms, self.firing_known = [], iter(()), BEFORE_ALL, set()
        if fired:
            self.fired += fired
            self.note(firing)
        if left:
            self.add_before(left)

    def _register_due(self, timer: Timer) -> None:
        """Register a timer among those that are firing, unless it is registered there and has not fired."""
        firing, timestamp_ms = self.firing, timer[0]
        begin = len(firing) - length_hint(self.not_fired)
        if not self.firing_known:
            self.firing_known = set(firing)
        if timer in self.firing_known and (
            begin == 0 or firing[begin - 1][0] < timestamp_ms or self._place_of(timer) is not None
        ):
            return
        firing.insert(bisect_right(firing, timestamp_ms, begin, key=_TIMESTAMP), timer)
        if begin and timestamp_ms < firing[begin - 1][0]:
            # the timestamp is before those of timers that have fired, which must not look as if they were still to come
            self.firing_known = set(firing[begin:])
        self.firing_known.add(timer)
        self.note((timer,))

    def _place_of(self, timer: Timer) -> int | None:
        """The index in ``firing`` of a timer that has not fired; None if there is no such timer."""
        firing = self.firing
        begin = bisect_left(firing, timer[0], len(firing) - length_hint(self.not_fired), key=_TIMESTAMP)
        try:
            return firing.index(timer, begin, bisect_right(firing, timer[0], begin, key=_TIMESTAMP))
        except ValueError:
            # it has fired
            return None

    def _narrow_slots(self) -> None:
        """Make slots narrower, because many timers in a slot mean that watermarks rise many times within it."""
        timers = [timer for slot in self.slots.values() for timer in slot.timers()]
        self.bits = max(0, self.bits - _NARROWER_BITS)
        self.replace(timers)

    # ------------------------------------------------------------------------------------------------ files

    def in_files(self, timestamp_ms: int) -> bool:
        """Whether timers with this timestamp may lie in files."""
        return self.has_files and timestamp_ms > self.taken_ms

    def take(self, taken_ms: int) -> None:
        """Record that all timers up to this timestamp were taken out of files and are in memory now."""
        self.taken_ms = max(self.taken_ms, taken_ms)
        self.next_known = False

    def deleted_in_files(self) -> list[Timer]:
        """The deleted timers that may still lie in files, without those up to ``taken_ms``."""
        return [timer for ms, timers in sorted(self.deleted.items()) if ms > self.taken_ms for timer in timers]
