"""The timers of one timer service in one subtask, in both time domains.

The rule: a timer is (domain, timestamp, key, namespace), at most once; it fires in timestamp order, timers of one
timestamp in the order in which they were registered; and before a timer fires it is gone from the queue, so that what
user code does to the queue while timers fire (register, delete, register the same again) has its full effect at once,
as in Flink's ``InternalTimerServiceImpl.advanceWatermark``.

In memory (`DomainTimers`) are the timers that were registered lately, and those that are due; the others lie in files
(`FiledTimers`), sorted by time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple, Protocol

from flinkish.core.time_domain import TimeDomain
from flinkish.runtime.state.domain_timers import BEFORE_ALL, DomainTimers, Entry, TimerRun, entries_of

#: Nothing has been taken out of files yet.
NONE_TAKEN = BEFORE_ALL


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

    def due(self, domain: TimeDomain, after_ms: int, upto_ms: int) -> tuple[list[tuple[int, list[Entry]]], int]:
        """Timers behind ``after_ms`` and up to ``upto_ms`` at most, by timestamp and in the order of registration, and
        the timestamp up to which these are all."""


class _NoFiles:
    def earliest(self, domain: TimeDomain, after_ms: int) -> int | None:
        return None

    def due(self, domain: TimeDomain, after_ms: int, upto_ms: int) -> tuple[list[tuple[int, list[Entry]]], int]:
        return [], upto_ms


_NO_FILES = _NoFiles()


class TimerQueue:
    """See the module.

    >>> q = TimerQueue(); q.register(TimeDomain.EVENT_TIME, 10, "a"); q.register(TimeDomain.EVENT_TIME, 10, "a")
    >>> list(q.pop_due(TimeDomain.EVENT_TIME, 10))
    [(10, 'a', None)]
    """

    __slots__ = ("_event", "_files", "_fired", "_processing", "_recording", "changed")

    def __init__(self, files: FiledTimers = _NO_FILES, recording: bool = True) -> None:
        """
        Args:
            recording: whether `changed_timers` will be asked for.
        """
        self._files = files
        self._recording = recording
        self._fired = 0
        self._event = DomainTimers(TimeDomain.EVENT_TIME)
        self._processing = DomainTimers(TimeDomain.PROCESSING_TIME)
        #: whether a timer came or went since `forget_changes`
        self.changed = False

    def register(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        """Add a timer; nothing happens if it is there already."""
        entry = (namespace, key)
        timers = self._event if domain is TimeDomain.EVENT_TIME else self._processing
        if timers.add(timestamp_ms, entry):
            self.changed = True
            if self._recording:
                timers.changed[timestamp_ms, entry] = None

    def register_all(
        self, domain: TimeDomain, timestamp_ms: int, keys: Iterable[Any], namespace: Hashable = None
    ) -> None:
        """``register`` for many keys (which may repeat) of one timestamp and namespace."""
        entries = dict.fromkeys(zip(repeat(namespace), keys))
        if not entries:
            return
        timers = self._domain(domain)
        fresh = timers.add_all(timestamp_ms, entries)
        if fresh:
            self.changed = True
            if self._recording:
                timers.changed.update(dict.fromkeys(zip(repeat(timestamp_ms), fresh)))

    def delete(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        """Forget a timer; nothing happens if there is none."""
        entry = (namespace, key)
        timers = self._domain(domain)
        in_files = timers.in_files(timestamp_ms)
        if not timers.remove(timestamp_ms, entry) and not in_files:
            return
        if in_files:
            timers.deleted.setdefault(timestamp_ms, set()).add(entry)
        self.changed = True
        if self._recording:
            timers.changed[timestamp_ms, entry] = None

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
            stored_ms = self._next_in_files(timers)
            slot_ms = timers.first_slot_ms()
            if stored_ms is not None and stored_ms <= upto_ms and (slot_ms is None or stored_ms <= slot_ms[1]):
                self._take_out(timers, upto_ms)
                continue
            if slot_ms is None or slot_ms[0] > upto_ms:
                return
            any_due = False
            for timestamp_ms, entry in timers.pop_first_slot(upto_ms):
                any_due = True
                self._fired += 1
                self.changed = True
                if self._recording:
                    timers.changed[timestamp_ms, entry] = None
                yield timestamp_ms, entry[1], entry[0]
            if not any_due:
                return

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
        for bucket in timers.due_buckets(upto_ms):
            for namespace, key in entries_of(bucket):
                found.setdefault(namespace, []).append(key)
                count += 1
            if count >= limit:
                break
        return found

    # ------------------------------------------------------------------------------------------------ files

    def _next_in_files(self, timers: DomainTimers) -> int | None:
        if not timers.next_known:
            timers.next_in_files = self._files.earliest(timers.domain, timers.taken_ms)
            timers.next_known = True
        return timers.next_in_files

    def _take_out(self, timers: DomainTimers, upto_ms: int) -> None:
        """Bring timers that are due from files to memory."""
        found, taken_ms = self._files.due(timers.domain, timers.taken_ms, upto_ms)
        for timestamp_ms, entries in found:
            deleted = timers.deleted.get(timestamp_ms)
            if deleted:
                entries = [entry for entry in entries if entry not in deleted]
            timers.add_before(timestamp_ms, entries)
        timers.take(taken_ms)

    def write_to(self, write: Any) -> None:
        """Hand over to ``write(domain, registered, deleted before, deleted)`` all timers that may lie in files from now
        on, and forget them: lists of (timestamp, namespace, key), those registered in the order of registration, and of
        each whether it had been deleted before."""
        for timers in (self._event, self._processing):
            registered: list[tuple[int, Hashable, Any]] = []
            again: list[bool] = []
            kept: list[tuple[int, Any]] = []
            for timestamp_ms, bucket in timers.items():
                if timestamp_ms <= timers.taken_ms:
                    kept.append((timestamp_ms, bucket))
                    continue
                deleted = timers.deleted.get(timestamp_ms, set())
                for entry in entries_of(bucket):
                    registered.append((timestamp_ms, *entry))
                    again.append(entry in deleted)
                    deleted.discard(entry)
            gone = [(ms, *entry) for ms, entries in sorted(timers.deleted.items()) for entry in entries]
            timers.deleted = {}
            timers.replace(kept)
            if registered or gone:
                write(timers.domain, registered, again, gone)
                timers.has_files = True
            timers.next_known = False

    @property
    def in_memory(self) -> int:
        """The number of timers that may be handed over by `write_to`."""
        return sum(timers.count(timers.taken_ms) for timers in (self._event, self._processing))

    def taken_ms(self, domain: TimeDomain) -> int:
        """Timers in files up to this timestamp do not count any more."""
        return self._domain(domain).taken_ms

    def __len__(self) -> int:
        """The number of timers in memory."""
        return self._event.count() + self._processing.count()

    def changed_timers(self) -> Iterator[tuple[TimeDomain, int, Hashable, Any, bool]]:
        """(domain, timestamp, namespace, key, whether it is there now) of the timers that changed since
        `forget_changes`. Before `write_to`."""
        for timers in (self._event, self._processing):
            for timestamp_ms, entry in timers.changed:
                yield timers.domain, timestamp_ms, *entry, timers.has(timestamp_ms, entry)

    def forget_changes(self) -> None:
        """The changes are written."""
        self.changed = False
        self._event.changed, self._processing.changed = {}, {}

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
                timers.add_all(timestamp_ms, dict.fromkeys(zip(repeat(namespace), keys)))
            for timestamp_ms, namespace, key in stored.deleted.get(name, ()):
                timers.deleted.setdefault(timestamp_ms, set()).add((namespace, key))
            if name in stored.taken_ms:
                timers.has_files, timers.taken_ms, timers.next_known = True, stored.taken_ms[name], False

    def _domain(self, domain: TimeDomain) -> DomainTimers:
        return self._event if domain is TimeDomain.EVENT_TIME else self._processing
