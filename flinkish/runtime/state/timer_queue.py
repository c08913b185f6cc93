"""The timers of one timer service in one subtask, in both time domains.

The rule: a timer is (domain, timestamp, key, namespace), at most once; it fires in timestamp order, timers of one
timestamp in the order in which they were registered; and before a timer fires it is gone from the queue, so that what
user code does to the queue while timers fire (register, delete, register the same again) has its full effect at once,
as in Flink's ``InternalTimerServiceImpl.advanceWatermark``.

In memory are the timers that were registered lately, and those that are due; the others lie in files (`FiledTimers`),
sorted by time. Timers of one timestamp share a bucket: with windows, many keys have one timestamp. A bucket is there as
long as it holds a timer, so memory holds no more than the timers that are in it, however many were deleted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Any, NamedTuple, Protocol

from flinkish.core.time_domain import TimeDomain

#: (namespace, key), the order in which changes are reported
_Entry = tuple[Hashable, Any]
#: timers of one (timestamp, namespace) in the order of registration
TimerRun = tuple[int, Hashable, list[Any]]

#: Before all timestamps: nothing has been taken out of files yet.
NONE_TAKEN = -(1 << 63) - 1


class StoredTimers(NamedTuple):
    """What of a queue lies in no file, by the name of the domain."""

    #: timers in firing order
    runs: dict[str, list[TimerRun]]
    #: timers that may lie in files and were deleted
    deleted: dict[str, list[tuple[int, Hashable, Any]]]
    #: timers in files up to this timestamp were taken out of them
    taken_ms: dict[str, int]


class FiledTimers(Protocol):
    """The timers of a service that lie in files."""

    def earliest(self, domain: TimeDomain, after_ms: int) -> int | None:
        """The timestamp of the first timer behind ``after_ms``."""

    def due(self, domain: TimeDomain, after_ms: int, upto_ms: int) -> tuple[list[tuple[int, list[_Entry]]], int]:
        """Timers behind ``after_ms`` and up to ``upto_ms`` at most, by timestamp and in the order of registration, and
        the timestamp up to which these are all."""


class _NoFiles:
    def earliest(self, domain: TimeDomain, after_ms: int) -> int | None:
        return None

    def due(self, domain: TimeDomain, after_ms: int, upto_ms: int) -> tuple[list[tuple[int, list[_Entry]]], int]:
        return [], upto_ms


_NO_FILES = _NoFiles()


class TimerQueue:
    """See the module.

    >>> q = TimerQueue(); q.register(TimeDomain.EVENT_TIME, 10, "a"); q.register(TimeDomain.EVENT_TIME, 10, "a")
    >>> list(q.pop_due(TimeDomain.EVENT_TIME, 10))
    [(10, 'a', None)]
    """

    __slots__ = ("_changed", "_event", "_files", "_fired", "_processing")

    def __init__(self, files: FiledTimers = _NO_FILES) -> None:
        #: (domain, timestamp) -> what came or went there
        self._changed: dict[tuple[TimeDomain, int], set[_Entry]] = {}
        self._files = files
        self._fired = 0
        self._event = _DomainTimers(TimeDomain.EVENT_TIME)
        self._processing = _DomainTimers(TimeDomain.PROCESSING_TIME)

    def register(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        """Add a timer; nothing happens if it is there already."""
        entry = (namespace, key)
        bucket = self._domain(domain).bucket(timestamp_ms)
        if entry not in bucket:
            bucket[entry] = None
            self._mark(domain, timestamp_ms).add(entry)

    def register_all(
        self, domain: TimeDomain, timestamp_ms: int, keys: Iterable[Any], namespace: Hashable = None
    ) -> None:
        """``register`` for many keys (which may repeat) of one timestamp and namespace."""
        entries = dict.fromkeys(zip(repeat(namespace), keys))
        if not entries:
            return
        bucket = self._domain(domain).bucket(timestamp_ms)
        fresh = dict.fromkeys(entry for entry in entries if entry not in bucket) if bucket else entries
        bucket.update(fresh)
        self._mark(domain, timestamp_ms).update(fresh)

    def delete(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        """Forget a timer; nothing happens if there is none."""
        entry = (namespace, key)
        timers = self._domain(domain)
        bucket = timers.buckets.get(timestamp_ms)
        if bucket and entry in bucket:
            del bucket[entry]
            if not bucket:
                timers.drop(timestamp_ms)
        elif not timers.in_files(timestamp_ms):
            return
        if timers.in_files(timestamp_ms):
            timers.deleted.setdefault(timestamp_ms, set()).add(entry)
        self._mark(domain, timestamp_ms).add(entry)

    def next(self, domain: TimeDomain) -> int | None:
        """The timestamp of the earliest timer. It may be too early where timers that lie in files were deleted."""
        timers = self._domain(domain)
        first, stored = timers.first(), self._next_in_files(timers)
        return stored if first is None else first if stored is None else min(first, stored)

    def pop_due(self, domain: TimeDomain, upto_ms: int) -> Iterator[tuple[int, Any, Hashable]]:
        """Take out the timers with a timestamp <= ``upto_ms`` one by one, also those registered meanwhile:
        (timestamp, key, namespace). What is not consumed stays in the queue."""
        timers = self._domain(domain)
        while True:
            timestamp_ms = timers.first()
            stored_ms = self._next_in_files(timers)
            if stored_ms is not None and stored_ms <= upto_ms and (timestamp_ms is None or stored_ms <= timestamp_ms):
                self._take_out(timers, upto_ms)
                continue
            if timestamp_ms is None or timestamp_ms > upto_ms:
                return
            entry = timers.pop(timestamp_ms)
            self._mark(domain, timestamp_ms).add(entry)
            namespace, key = entry
            self._fired += 1
            yield timestamp_ms, key, namespace

    def take_fired(self) -> int:
        """How many timers `pop_due` has given since the last call."""
        fired, self._fired = self._fired, 0
        return fired

    def due_keys(self, domain: TimeDomain, upto_ms: int, limit: int) -> dict[Hashable, list[Any]]:
        """Namespace -> keys of about ``limit`` of the timers that `pop_due` will give next."""
        timers = self._domain(domain)
        stored_ms = self._next_in_files(timers)
        first_ms = timers.first()
        if stored_ms is not None and stored_ms <= upto_ms and (first_ms is None or stored_ms <= first_ms):
            self._take_out(timers, upto_ms)
        found: dict[Hashable, list[Any]] = {}
        count = 0
        for timestamp_ms in sorted(ms for ms in timers.buckets if ms <= upto_ms):
            for namespace, key in timers.buckets[timestamp_ms]:
                found.setdefault(namespace, []).append(key)
                count += 1
                if count >= limit:
                    return found
        return found

    # ------------------------------------------------------------------------------------------------ files

    def _next_in_files(self, timers: _DomainTimers) -> int | None:
        if not timers.next_known:
            timers.next_in_files = self._files.earliest(timers.domain, timers.taken_ms)
            timers.next_known = True
        return timers.next_in_files

    def _take_out(self, timers: _DomainTimers, upto_ms: int) -> None:
        """Bring timers that are due from files to memory."""
        found, taken_ms = self._files.due(timers.domain, timers.taken_ms, upto_ms)
        for timestamp_ms, entries in found:
            deleted = timers.deleted.get(timestamp_ms, ())
            older = dict.fromkeys(entry for entry in entries if entry not in deleted)
            later = timers.buckets.get(timestamp_ms, {})
            if older:
                timers.bucket(timestamp_ms)
                timers.buckets[timestamp_ms] = {**older, **later}
        timers.take(taken_ms)

    def write_to(self, write: Any) -> None:
        """Hand over to ``write(domain, registered, deleted before, deleted)`` all timers that may lie in files from now
        on, and forget them: lists of (timestamp, namespace, key), those registered in the order of registration, and of
        each whether it had been deleted before."""
        for timers in (self._event, self._processing):
            registered: list[tuple[int, Hashable, Any]] = []
            again: list[bool] = []
            for timestamp_ms in sorted(ms for ms in timers.buckets if ms > timers.taken_ms):
                deleted = timers.deleted.get(timestamp_ms, set())
                for entry in timers.buckets.pop(timestamp_ms):
                    registered.append((timestamp_ms, *entry))
                    again.append(entry in deleted)
                    deleted.discard(entry)
            gone = [(ms, *entry) for ms, entries in sorted(timers.deleted.items()) for entry in entries]
            timers.deleted = {}
            timers.rebuild()
            if registered or gone:
                write(timers.domain, registered, again, gone)
                timers.has_files = True
            timers.next_known = False

    @property
    def in_memory(self) -> int:
        """The number of timers that may be handed over by `write_to`."""
        return sum(
            len(bucket)
            for timers in (self._event, self._processing)
            for ms, bucket in timers.buckets.items()
            if ms > timers.taken_ms
        )

    def taken_ms(self, domain: TimeDomain) -> int:
        """Timers in files up to this timestamp do not count any more."""
        return self._domain(domain).taken_ms

    def __len__(self) -> int:
        """The number of timers in memory."""
        return sum(map(len, self._event.buckets.values())) + sum(map(len, self._processing.buckets.values()))

    @property
    def changed(self) -> bool:
        """Whether a timer came or went since `forget_changes`."""
        return any(self._changed.values())

    def changed_keys(self) -> set[_Entry]:
        """{(namespace, key)} whose timers changed since `forget_changes`."""
        return set[_Entry]().union(*self._changed.values())

    def changed_timers(self) -> Iterator[tuple[TimeDomain, int, Hashable, Any, bool]]:
        """(domain, timestamp, namespace, key, whether it is there now) of the timers that changed since
        `forget_changes`. Before `write_to`."""
        for (domain, timestamp_ms), entries in self._changed.items():
            bucket = self._domain(domain).buckets.get(timestamp_ms, {})
            for entry in entries:
                yield domain, timestamp_ms, *entry, entry in bucket

    def forget_changes(self) -> None:
        """The changes are written."""
        self._changed = {}

    def _mark(self, domain: TimeDomain, timestamp_ms: int) -> set[_Entry]:
        """The changed entries of a timestamp."""
        changed = self._changed.get((domain, timestamp_ms))
        if changed is None:
            changed = self._changed[domain, timestamp_ms] = set()
        return changed

    # ------------------------------------------------------------------------------------------------ stored form

    def stored(self) -> StoredTimers | None:
        """What lies in no file; None: nothing."""
        both = (self._event, self._processing)
        runs = {timers.domain.name: found for timers in both if (found := timers.runs())}
        deleted = {
            timers.domain.name: [(ms, *entry) for ms, entries in timers.deleted.items() for entry in entries]
            for timers in both
            if timers.deleted
        }
        taken = {timers.domain.name: timers.taken_ms for timers in both if timers.has_files}
        return StoredTimers(runs, deleted, taken) if runs or deleted or taken else None

    def load(self, stored: StoredTimers) -> None:
        """Take in what `stored` gave, into an empty queue; no change is recorded."""
        for timers in (self._event, self._processing):
            name = timers.domain.name
            for timestamp_ms, namespace, keys in stored.runs.get(name, ()):
                timers.buckets.setdefault(timestamp_ms, {}).update(dict.fromkeys(zip(repeat(namespace), keys)))
            for timestamp_ms, namespace, key in stored.deleted.get(name, ()):
                timers.deleted.setdefault(timestamp_ms, set()).add((namespace, key))
            if name in stored.taken_ms:
                timers.has_files, timers.taken_ms, timers.next_known = True, stored.taken_ms[name], False
            timers.rebuild()

    def _domain(self, domain: TimeDomain) -> _DomainTimers:
        return self._event if domain is TimeDomain.EVENT_TIME else self._processing


#: A heap of so few timestamps is not worth being made anew.
_SMALL_HEAP = 64


class _DomainTimers:
    """Buckets by timestamp, none of them empty. ``heap`` holds each key of ``buckets``, and timestamps whose bucket is
    gone, which are passed over when they come first. It is made anew when those are more than half of it, so it stays
    proportional to the buckets, and a deletion costs a constant share of that work."""

    __slots__ = ("buckets", "deleted", "domain", "has_files", "heap", "next_in_files", "next_known", "taken_ms")

    def __init__(self, domain: TimeDomain) -> None:
        self.domain = domain
        self.heap: list[int] = []
        self.buckets: dict[int, dict[_Entry, None]] = {}
        #: timestamp -> timers that may lie in files and do not count
        self.deleted: dict[int, set[_Entry]] = {}
        #: there may be timers in files, behind this timestamp
        self.has_files = False
        self.taken_ms = NONE_TAKEN
        #: the first timestamp in files, once it was looked for
        self.next_in_files: int | None = None
        self.next_known = True

    def in_files(self, timestamp_ms: int) -> bool:
        """Whether timers of that timestamp may lie in files."""
        return self.has_files and timestamp_ms > self.taken_ms

    def take(self, taken_ms: int) -> None:
        """The timers up to that timestamp are in memory now."""
        self.taken_ms = max(self.taken_ms, taken_ms)
        self.deleted = {ms: entries for ms, entries in self.deleted.items() if ms > self.taken_ms}
        self.next_known = False

    def runs(self) -> list[TimerRun]:
        """All timers in memory in firing order, joined where timestamp and namespace are the same."""
        runs: list[TimerRun] = []
        for timestamp_ms, bucket in sorted(self.buckets.items()):
            run: TimerRun | None = None
            for namespace, key in bucket:
                if run is None or run[1] != namespace:
                    run = (timestamp_ms, namespace, [])
                    runs.append(run)
                run[2].append(key)
        return runs

    def rebuild(self) -> None:
        """Make the heap anew."""
        self.heap = list(self.buckets)
        heapify(self.heap)

    def bucket(self, timestamp_ms: int) -> dict[_Entry, None]:
        """The bucket of a timestamp, created if absent."""
        bucket = self.buckets.get(timestamp_ms)
        if bucket is None:
            bucket = self.buckets[timestamp_ms] = {}
            heappush(self.heap, timestamp_ms)
        return bucket

    def first(self) -> int | None:
        """The earliest timestamp that has a timer."""
        while self.heap and self.heap[0] not in self.buckets:
            heappop(self.heap)
        return self.heap[0] if self.heap else None

    def drop(self, timestamp_ms: int) -> None:
        """Forget a bucket, which has become empty."""
        del self.buckets[timestamp_ms]
        if len(self.heap) > max(_SMALL_HEAP, 2 * len(self.buckets)):
            self.heap = list(self.buckets)
            heapify(self.heap)

    def pop(self, timestamp_ms: int) -> _Entry:
        """Take the first timer out of a bucket that has one."""
        bucket = self.buckets[timestamp_ms]
        if len(bucket) == 1:
            self.drop(timestamp_ms)
            return next(iter(bucket))
        # taking the first item of a plain dict again and again is quadratic; an OrderedDict costs too much memory to
        # be used for timers that only wait
        if not isinstance(bucket, OrderedDict):
            bucket = self.buckets[timestamp_ms] = OrderedDict(bucket)
        return bucket.popitem(last=False)[0]
