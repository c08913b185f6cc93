"""The timers of one timer service in one subtask, in both time domains.

The rule: a timer is (domain, timestamp, key, namespace) and is registered at most once. Timers fire in timestamp order,
those of one timestamp in the order of registration. A timer is removed from the queue before it fires, so that whatever
user code does to the queue while timers fire (register, delete, register the same timer again) takes effect at once, as
in Flink's ``InternalTimerServiceImpl.advanceWatermark``.

Timers that were registered lately, and those that are due, are in memory (`DomainTimers`); the others lie in files
(`FiledTimers`), sorted by time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from flinkish.core.time import TimeDomain
from flinkish.runtime.state.domain_timers import BEFORE_ALL, DomainTimers, Timer, TimerRun

#: The value of ``taken_ms`` before any timer was taken out of files.
NONE_TAKEN = BEFORE_ALL

#: a function that fetches the state of keys, which are given by namespace
_Fetch = Callable[[dict[Hashable, list[Any]]], None]

#: The number of timers whose state is fetched together.
DUE_BATCH = 10_000

_TIMESTAMP, _RUN = itemgetter(0), itemgetter(0, 2)


class StoredTimers(NamedTuple):
    """The part of a timer queue that is stored with the task; each field is by the name of the time domain."""

    #: timers that lie in no file, in firing order
    runs: dict[str, list[TimerRun]]
    #: (timestamp, namespace, key) of timers that may lie in files and were deleted
    deleted: dict[str, list[tuple[int, Hashable, Any]]]
    #: timers in files with timestamps up to this one were taken out and do not count any more
    taken_ms: dict[str, int]


class FiledTimers(Protocol):
    """Reads the timers of one timer service that lie in files."""

    def earliest(self, domain: TimeDomain, after_ms: int) -> int | None:
        """The timestamp of the first timer after ``after_ms``; None if there is none."""

    def due(self, domain: TimeDomain, after_ms: int, upto_ms: int) -> tuple[list[Timer], int]:
        """Some of the first timers after ``after_ms`` and not after ``upto_ms``, in firing order, and the timestamp up
        to which these are all."""


class _NoFiles:
    def earliest(self, domain: TimeDomain, after_ms: int) -> int | None:
        return None

    def due(self, domain: TimeDomain, after_ms: int, upto_ms: int) -> tuple[list[Timer], int]:
        return [], upto_ms


_NO_FILES = _NoFiles()


class TimerQueue:
    """The timers of one timer service, event time and processing time, in memory and in files.

    >>> q = TimerQueue(); q.register(TimeDomain.EVENT_TIME, 10, "a"); q.register(TimeDomain.EVENT_TIME, 10, "a")
    >>> list(q.pop_due(TimeDomain.EVENT_TIME, 10))
    [(10, 'a', None)]
    """

    __slots__ = ("_event", "_files", "_processing")

    def __init__(self, files: FiledTimers = _NO_FILES, recording: bool = True) -> None:
        """
        Args:
            files: the timers of the service that lie in files.
            recording: whether `changed_timers` will be called.
        """
        self._files = files
        self._event = DomainTimers(TimeDomain.EVENT_TIME, recording)
        self._processing = DomainTimers(TimeDomain.PROCESSING_TIME, recording)

    @property
    def changed(self) -> bool:
        """Whether a timer was registered, deleted or fired since `forget_changes`."""
        return self._event.touched or self._processing.touched

    def registrar(self, domain: TimeDomain) -> Callable[[int, Any], None]:
        """`register` for one time domain, for hot paths: a function of timestamp (ms) and key."""
        return self.domain(domain).register

    def register(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        """Register a timer; does nothing if it is registered already."""
        self.domain(domain).register(timestamp_ms, key, namespace)

    def register_all(
        self, domain: TimeDomain, timestamp_ms: int, keys: Iterable[Any], namespace: Hashable = None
    ) -> None:
        """``register`` for many keys (which may repeat) of one timestamp and namespace."""
        self.domain(domain).register_all(timestamp_ms, keys, namespace)

    def delete(self, domain: TimeDomain, timestamp_ms: int, key: Any, namespace: Hashable = None) -> None:
        """Delete a timer; does nothing if it is not registered."""
        timer = (timestamp_ms, key, namespace)
        timers = self.domain(domain)
        in_files = timers.in_files(timestamp_ms)
        if not timers.remove(timer) and not in_files:
            return
        if in_files:
            timers.deleted.setdefault(timestamp_ms, set()).add(timer)
        timers.note((timer,))

    def may_be_due(self, domain: TimeDomain, upto_ms: int) -> bool:
        """Whether a timer may have a timestamp <= ``upto_ms``: False is certain, True is not, because single timers are
        not looked at. For hot paths.

        The files of both domains are opened: a damaged file should be found in the first epoch, when the job can still
        go back to its last checkpoint, and not when a watermark rises some epochs later.
        """
        if not (self._event.next_known and self._processing.next_known):
            self._next_in_files(self._event), self._next_in_files(self._processing)
        timers = self.domain(domain)
        number, stored_ms = timers.first_slot(), timers.next_in_files
        return (number is not None and timers.begin_ms(number) <= upto_ms) or (
            stored_ms is not None and stored_ms <= upto_ms
        )

    def first(self, domain: TimeDomain) -> int | None:
        """A timestamp that no timer is before; None if there are none. It may be earlier than the first timer, since
        single timers are not looked at."""
        timers = self.domain(domain)
        number, stored_ms = timers.first_slot(), self._next_in_files(timers)
        found = [stored_ms] if number is None else [stored_ms, timers.begin_ms(number)]
        return min((one for one in found if one is not None), default=None)

    def bring(self, domain: TimeDomain, upto_ms: int) -> None:
        """Bring the next timers up to a timestamp from files to memory, as many as `pop_due` brings at once: for
        callers that will let them fire in many small steps."""
        timers = self.domain(domain)
        timers.end_firing()
        stored_ms = self._next_in_files(timers)
        if stored_ms is not None and stored_ms <= upto_ms:
            self._take_out(timers, upto_ms)

    def pop_due(
        self,
        domain: TimeDomain,
        upto_ms: int,
        prepare: Callable[[int], bool] | None = None,
        fetch: _Fetch | None = None,
    ) -> Iterator[Timer]:
        """Remove the timers with a timestamp <= ``upto_ms`` from the queue one by one, including those that are
        registered meanwhile: (timestamp, key, namespace). Timers that are not consumed stay in the queue.

        Args:
            domain: the time domain.
            upto_ms: the watermark, or the processing time.
            prepare: called before each batch of about `DUE_BATCH` timers, with the number of timers that have fired
                since the last call; returns whether the state of the batch must be fetched.
            fetch: called with the keys of these timers by namespace if it must.
        """
        return chain.from_iterable(self._due_slots(self.domain(domain), upto_ms, prepare, fetch))

    def pop_due_runs(self, domain: TimeDomain, upto_ms: int) -> Iterator[tuple[int, Any, list[Any]]]:
        """`pop_due` for callers that neither register nor delete timers meanwhile: (timestamp, namespace, keys)."""
        for (timestamp_ms, namespace), run in groupby(self.pop_due(domain, upto_ms), _RUN):
            yield timestamp_ms, namespace, [key for _, key, _ in run]

    def _due_slots(
        self, timers: DomainTimers, upto_ms: int, prepare: Callable[[int], bool] | None, fetch: _Fetch | None
    ) -> Iterator[Iterator[Timer]]:
        """The due timers, slot by slot (`DomainTimers`)."""
        fetched_upto_ms = BEFORE_ALL
        while True:
            number, stored_ms = timers.first_slot(), self._next_in_files(timers)
            if (
                stored_ms is not None
                and stored_ms <= upto_ms
                and (number is None or stored_ms <= timers.end_ms(number))
            ):
                self._take_out(timers, upto_ms)
                continue
            if number is None or timers.begin_ms(number) > upto_ms:
                return
            if prepare is not None and (
                timers.begin_ms(number) > fetched_upto_ms or timers.fired >= timers.prepared_at + DUE_BATCH
            ):
                before, timers.prepared_at, fetched_upto_ms = timers.prepared_at, timers.fired, upto_ms
                if prepare(timers.fired - before) and fetch is not None:
                    keys, fetched_upto_ms = timers.due_keys(upto_ms, DUE_BATCH)
                    fetch(keys)
            due = timers.pop_slot(upto_ms)
            if due is None:
                return
            yield due

    # ------------------------------------------------------------------------------------------------ files

    def _next_in_files(self, timers: DomainTimers) -> int | None:
        if not timers.next_known:
            timers.next_in_files = self._files.earliest(timers.domain, timers.taken_ms)
            timers.next_known = True
        return timers.next_in_files

    def _take_out(self, timers: DomainTimers, upto_ms: int) -> None:
        """Bring the next due timers from files to memory."""
        found, taken_ms = self._files.due(timers.domain, timers.taken_ms, upto_ms)
        if timers.deleted:
            deleted = timers.deleted
            found = [timer for timer in found if timer not in deleted.get(timer[0], ())]
        timers.add_before(found)
        timers.take(taken_ms)

    def write_to(self, write: Any) -> None:
        """Pass all timers that may lie in files from now on to ``write``, and remove them from memory.

        ``write(domain, registered, again, deleted)`` is called once per domain that has any. ``registered`` are timers
        in firing order; ``again`` says of each whether it was deleted from the files before (empty: none was);
        ``deleted`` are timers to be deleted from the files."""
        for timers in (self._event, self._processing):
            ordered = list(timers.ordered())
            kept = bisect_right(ordered, timers.taken_ms, key=_TIMESTAMP)
            registered = ordered[kept:]
            again: list[bool] = []
            gone: list[Timer] = []
            if deleted := dict.fromkeys(timers.deleted_in_files()):
                again = [timer in deleted for timer in registered]
                there = set(registered)
                gone = [timer for timer in deleted if timer not in there]
            timers.deleted = {}
            timers.replace(ordered[:kept])
            if registered or gone:
                write(timers.domain, registered, again, gone)
                timers.has_files = True
            timers.next_known = False

    @property
    def in_memory(self) -> int:
        """About the number of timers in memory that `write_to` would write, at least as many as there are."""
        return sum(timers.at_most(timers.taken_ms) for timers in (self._event, self._processing))

    @property
    def event_timers(self) -> int:
        """The number of event-time timers in memory."""
        return self._event.count()

    def taken_ms(self, domain: TimeDomain) -> int:
        """The timestamp up to which timers in files were taken out and do not count any more."""
        return self.domain(domain).taken_ms

    def __len__(self) -> int:
        """The number of timers in memory."""
        return self._event.count() + self._processing.count()

    def changed_timers(self) -> Iterator[tuple[TimeDomain, int, Hashable, Any, bool]]:
        """(domain, timestamp, namespace, key, whether it is registered now) of the timers that were registered, deleted
        or fired since `forget_changes`. To be called before `write_to`."""
        for timers in (self._event, self._processing):
            for timer in timers.changed or ():
                timestamp_ms, key, namespace = timer
                yield timers.domain, timestamp_ms, namespace, key, timers.has(timer)

    def forget_changes(self) -> None:
        """Count all changes as stored."""
        for timers in (self._event, self._processing):
            timers.touched = False
            if timers.changed:
                timers.changed = {}

    # ------------------------------------------------------------------------------------------------ stored form

    def stored(self) -> StoredTimers | None:
        """The part of the queue that is stored with the task; None if there is none."""
        both = (self._event, self._processing)
        runs = {timers.domain.name: found for timers in both if (found := timers.runs())}
        deleted = {
            timers.domain.name: [(ms, namespace, key) for ms, key, namespace in gone]
            for timers in both
            if (gone := timers.deleted_in_files())
        }
        taken = {timers.domain.name: timers.taken_ms for timers in both if timers.has_files}
        return StoredTimers(runs, deleted, taken) if runs or deleted or taken else None

    def load(self, stored: StoredTimers) -> None:
        """Load into an empty queue what `stored` returned; no change is recorded."""
        for timers in (self._event, self._processing):
            name = timers.domain.name
            for timestamp_ms, namespace, keys in stored.runs.get(name, ()):
                timers.register_all(timestamp_ms, keys, namespace)
            for timestamp_ms, namespace, key in stored.deleted.get(name, ()):
                timers.deleted.setdefault(timestamp_ms, set()).add((timestamp_ms, key, namespace))
            if name in stored.taken_ms:
                timers.has_files, timers.taken_ms, timers.next_known = True, stored.taken_ms[name], False
        self.forget_changes()

    def domain(self, domain: TimeDomain) -> DomainTimers:
        """The timers of one time domain that lie in memory."""
        return self._event if domain is TimeDomain.EVENT_TIME else self._processing
