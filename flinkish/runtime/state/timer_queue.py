"""The timers of one timer service in one subtask, in both time domains.

The rule: a timer is (domain, timestamp, key, namespace), at most once; it fires in timestamp order, timers of one
timestamp in the order in which they were registered; and before a timer fires it is gone from the queue, so that what
user code does to the queue while timers fire (register, delete, register the same again) has its full effect at once,
as in Flink's ``InternalTimerServiceImpl.advanceWatermark``.

Timers of one timestamp share a bucket: with windows, many keys have one timestamp. A bucket is there as long as it
holds a timer, so the queue is as large as the timers that it holds, however many were deleted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Any

from flinkish.core.time_domain import TimeDomain

#: (namespace, key), the order in which changes are reported
_Entry = tuple[Hashable, Any]
#: timers of one (timestamp, namespace) in the order of registration
TimerRun = tuple[int, Hashable, list[Any]]


class TimerQueue:
    """See the module.

    >>> q = TimerQueue(); q.register(TimeDomain.EVENT_TIME, 10, "a"); q.register(TimeDomain.EVENT_TIME, 10, "a")
    True
    False
    >>> list(q.pop_due(TimeDomain.EVENT_TIME, 10))
    [(10, 'a', None)]
    """

    __slots__ = ("_changed", "_event", "_processing")

    def __init__(self) -> None:
        #: (domain, timestamp) -> what came or went there
        self._changed: dict[tuple[TimeDomain, int], set[_Entry]] = {}
        self._event = _DomainTimers()
        self._processing = _DomainTimers()

    def register(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> bool:
        """Add a timer; False if it is there already."""
        entry = (namespace, key)
        bucket = self._domain(domain).bucket(timestamp_ms)
        if entry in bucket:
            return False
        bucket[entry] = None
        self._mark(domain, timestamp_ms).add(entry)
        return True

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

    def delete(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> bool:
        """Forget a timer; False if there is none."""
        entry = (namespace, key)
        bucket = self._domain(domain).buckets.get(timestamp_ms)
        if not bucket or entry not in bucket:
            return False
        del bucket[entry]
        if not bucket:
            self._domain(domain).drop(timestamp_ms)
        self._mark(domain, timestamp_ms).add(entry)
        return True

    def next(self, domain: TimeDomain) -> int | None:
        """The timestamp of the earliest timer."""
        return self._domain(domain).first()

    def pop_due(self, domain: TimeDomain, upto_ms: int) -> Iterator[tuple[int, Any, Hashable]]:
        """Take out the timers with a timestamp <= ``upto_ms`` one by one, also those registered meanwhile:
        (timestamp, key, namespace). What is not consumed stays in the queue."""
        timers = self._domain(domain)
        while (timestamp_ms := timers.first()) is not None and timestamp_ms <= upto_ms:
            entry = timers.pop(timestamp_ms)
            self._mark(domain, timestamp_ms).add(entry)
            namespace, key = entry
            yield timestamp_ms, key, namespace

    def __len__(self) -> int:
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
        `forget_changes`."""
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

    def runs(self, domain: TimeDomain) -> list[TimerRun]:
        """All timers of a domain in firing order, joined where timestamp and namespace are the same."""
        runs: list[TimerRun] = []
        for timestamp_ms, bucket in sorted(self._domain(domain).buckets.items()):
            run: TimerRun | None = None
            for namespace, key in bucket:
                if run is None or run[1] != namespace:
                    run = (timestamp_ms, namespace, [])
                    runs.append(run)
                run[2].append(key)
        return runs

    def load_runs(self, domain: TimeDomain, runs: Iterable[TimerRun]) -> None:
        """Take in what `runs` gave, into an empty domain; no change is recorded."""
        timers = self._domain(domain)
        for timestamp_ms, namespace, keys in runs:
            timers.buckets.setdefault(timestamp_ms, {}).update(dict.fromkeys(zip(repeat(namespace), keys)))
        timers.heap = list(timers.buckets)
        heapify(timers.heap)

    def _domain(self, domain: TimeDomain) -> _DomainTimers:
        return self._event if domain is TimeDomain.EVENT_TIME else self._processing


#: A heap of so few timestamps is not worth being made anew.
_SMALL_HEAP = 64


class _DomainTimers:
    """Buckets by timestamp, none of them empty. ``heap`` holds each key of ``buckets``, and timestamps whose bucket is
    gone, which are passed over when they come first. It is made anew when those are more than half of it, so it stays
    proportional to the buckets, and a deletion costs a constant share of that work."""

    __slots__ = ("buckets", "heap")

    def __init__(self) -> None:
        self.heap: list[int] = []
        self.buckets: dict[int, dict[_Entry, None]] = {}

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
