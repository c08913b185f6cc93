"""The timers of a subtask that lie in files, as Python objects: `TimerFiles` has the same as bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.core.time import MAX_WATERMARK_MS, TimeDomain
from flinkish.runtime.state.domain_timers import Timer
from flinkish.runtime.state.timer_queue import NONE_TAKEN, TimerQueue
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps_groups, loads_all

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory
    from flinkish.runtime.state.files.references import TimerSets
    from flinkish.runtime.state.files.timer_files import TimerFiles, Timers

#: (timestamp, namespace, key)
_Timer = tuple[int, Hashable, Any]

#: About the number of timers that are brought to memory at once.
DUE_TIMERS = 20_000

#: The state name with which the namespaces and keys of timers are hashed.
_NAME = "timers"

_TIMESTAMP = itemgetter(0)


class _ReadAhead(NamedTuple):
    """All timers of a service and domain with ``after_ms`` < timestamp <= ``upto_ms`` in these files, in firing order.
    It is valid as long as the files are the same."""

    sets: TimerSets
    after_ms: int
    upto_ms: int
    timers: list[Timer]

    def between(self, after_ms: int, upto_ms: int) -> list[Timer]:
        """The timers after a timestamp and not after another one."""
        begin = bisect_right(self.timers, after_ms, key=_TIMESTAMP)
        return self.timers[begin : bisect_right(self.timers, upto_ms, begin, key=_TIMESTAMP)]

    def first(self, after_ms: int) -> int | None:
        """The timestamp of the first timer after a timestamp."""
        begin = bisect_right(self.timers, after_ms, key=_TIMESTAMP)
        return self.timers[begin][0] if begin < len(self.timers) else None


class TimersInFiles:
    """Reads and writes the timers of all timer services of one subtask that lie in files.

    Args:
        directory: where the files lie; None: no timer ever lies in files.
        sequence: returns the next n numbers, which order timers by registration.
        where: names the task in errors.
        classes: the classes of the program that state may hold.
    """

    def __init__(
        self,
        directory: StateDirectory | None,
        sequence: Callable[[int], range],
        where: str = "",
        classes: ProgramClasses = NO_CLASSES,
    ) -> None:
        self.directory = directory
        #: the files; None: no timer was ever written
        self.sets: TimerSets | None = None
        self._sequence = sequence
        self._where = where
        self._classes = classes
        self._files: TimerFiles | None = None
        self._ahead: dict[tuple[str, str], _ReadAhead] = {}

    @property
    def files(self) -> TimerFiles:
        """Reads and writes the files; created at the first use."""
        if self._files is None:
            from flinkish.runtime.state.files.timer_files import TimerFiles

            assert self.directory is not None
            self._files = TimerFiles(self.directory, self._same)
        return self._files

    def _same(self, left: bytes, right: bytes) -> bool:
        first, second = self._decoded([left, right])
        return bool(first == second)

    def _decoded(self, ids: Sequence[bytes]) -> list[Any]:
        return loads_all(ids, "a timer in a file", self._where, self._classes)

    @property
    def names(self) -> frozenset[str]:
        """The names of all files with timers."""
        return frozenset() if self.sets is None else self.sets.names

    # ------------------------------------------------------------------------------------------------ reading

    def earliest(self, service: str, domain: TimeDomain, after_ms: int) -> int | None:
        """The timestamp of the first timer after ``after_ms``; None: there is none."""
        if self.sets is None:
            return None
        ahead = self._read_ahead((service, domain.name), after_ms)
        if ahead is not None:
            if (first_ms := ahead.first(after_ms)) is not None:
                return first_ms
            after_ms = ahead.upto_ms
        return self.files.earliest(self.sets, (service, domain.name), after_ms)

    def due(self, service: str, domain: TimeDomain, after_ms: int, upto_ms: int) -> tuple[list[Timer], int]:
        """(timers, timestamp): the first timers after ``after_ms`` and not after ``upto_ms``, about `DUE_TIMERS` at
        most, in firing order, and the timestamp up to which these are all. Timers with the same timestamp are never
        separated.

        A search costs as much as some hundred timers. So from the second one in the same files on, timers that are due
        later are read as well, because watermarks may rise in many small steps."""
        if self.sets is None:
            return [], upto_ms
        queue = service, domain.name
        ahead = self._read_ahead(queue, after_ms)
        if ahead is None:
            again = queue in self._ahead and self._ahead[queue].sets is self.sets
            ahead = (
                self._read(queue, after_ms, MAX_WATERMARK_MS, 1)
                if again
                else self._read(queue, after_ms, upto_ms, DUE_TIMERS)
            )
            self._ahead[queue] = ahead
        return ahead.between(after_ms, upto_ms), min(upto_ms, ahead.upto_ms)

    def _read_ahead(self, queue: tuple[str, str], after_ms: int) -> _ReadAhead | None:
        """What was read of the timers after ``after_ms``; None: the next ones are unknown."""
        ahead = self._ahead.get(queue)
        valid = ahead is not None and ahead.sets is self.sets and ahead.after_ms <= after_ms < ahead.upto_ms
        return ahead if valid else None

    def _read(self, queue: tuple[str, str], after_ms: int, upto_ms: int, count: int) -> _ReadAhead:
        """Read the first timers after ``after_ms`` and up to ``upto_ms``: ``count`` or more if there are so many."""
        assert self.sets is not None
        found: list[Timer] = []
        for timers in self.files.due(self.sets, queue, after_ms, upto_ms):
            found += self._timers(timers)
            if len(found) >= count:
                return _ReadAhead(self.sets, after_ms, found[-1][0], found)
        return _ReadAhead(self.sets, after_ms, upto_ms, found)

    def _timers(self, timers: Timers) -> list[Timer]:
        """Timers from files as objects. Each key is decoded once, because a key has many timers."""
        places, ids = timers.dictionary
        entries = self._decoded(ids)
        namespaces, keys = zip(*entries)
        of_timers: Iterable[Hashable] = repeat(None)
        if namespaces.count(None) < len(namespaces):
            of_timers = map(namespaces.__getitem__, places)
        return list(zip(timers.timestamps_ms, map(keys.__getitem__, places), of_timers))

    def batches(
        self, service: str, domain: TimeDomain, after_ms: int, not_there: set[_Timer]
    ) -> Iterator[list[_Timer]]:
        """All timers after ``after_ms`` except for those in ``not_there``, in batches: (timestamp, namespace, key)."""
        if self.sets is None:
            return
        for timers in self.files.scan(self.sets, (service, domain.name), after_ms):
            entries = ((ms, namespace, key) for ms, key, namespace in self._timers(timers))
            yield [timer for timer in entries if timer not in not_there]

    # ------------------------------------------------------------------------------------------------ writing

    def write(self, queues: dict[str, TimerQueue], epoch: int) -> int:
        """Write the changes of all timer queues that may lie in files; returns the number of timers written."""
        from flinkish.runtime.state.files.references import TimerSets
        from flinkish.runtime.state.files.timer_files import TimerChanges

        changes: dict[tuple[str, str], TimerChanges] = {}
        count = 0
        for service, queue in queues.items():

            def hand_over(
                domain: TimeDomain,
                registered: list[Timer],
                again: list[bool],
                gone: list[Timer],
                service: str = service,
            ) -> None:
                nonlocal count
                count += len(registered) + len(gone)
                changed = changes[service, domain.name] = TimerChanges()
                numbers = self._sequence(len(registered))
                if not any(again):
                    if registered:
                        changed.register(*self._columns(registered), numbers)
                else:
                    for deleted_before, register in ((False, changed.register), (True, changed.register_again)):
                        chosen = list(map(deleted_before.__eq__, again))
                        timers = list(compress(registered, chosen))
                        if timers:
                            register(*self._columns(timers), list(compress(numbers, chosen)))
                if gone:
                    changed.delete(*self._columns(gone))

            queue.write_to(hand_over)
        if changes:
            self.sets = self.files.add(self.sets if self.sets is not None else TimerSets({}), changes, epoch)
        return count

    def _columns(self, timers: list[Timer]) -> tuple[Sequence[int], Any, Any]:
        import pyarrow as pa

        from flinkish.runtime.exchange.hashes import group_hashes_in

        timestamps, keys, namespaces = zip(*timers)
        # each key is encoded once, because a key has many timers
        places: dict[Any, int] = {}
        if namespaces.count(None) == len(namespaces):
            at = [places.setdefault(key, len(places)) for key in keys]
            keys, namespaces = tuple(places), (None,) * len(places)
        else:
            at = [places.setdefault(group, len(places)) for group in zip(keys, namespaces)]
            keys, namespaces = zip(*places)
        hashes = group_hashes_in(_NAME, namespaces, keys)
        ids = pa.array(dumps_groups(namespaces, keys, self._classes), pa.large_binary())
        if len(places) < len(timers):
            hashes, ids = hashes[at], ids.take(pa.array(at))
        return timestamps, hashes, ids

    def compact(self, queues: dict[str, TimerQueue], epoch: int) -> None:
        """Compact the files, a bounded amount, and drop those of which all timers have fired."""
        if self.sets is None:
            return
        taken = {}
        for service, queue in queues.items():
            for domain in TimeDomain:
                if (taken_ms := queue.taken_ms(domain)) > NONE_TAKEN:
                    taken[service, domain.name] = taken_ms
        self.sets = self.files.compact(self.sets, taken, epoch)


class ServiceTimers:
    """The timers of one timer service that lie in files (implements `timer_queue.FiledTimers`)."""

    def __init__(self, owner: TimersInFiles, service: str) -> None:
        self._owner = owner
        self._service = service

    def earliest(self, domain: TimeDomain, after_ms: int) -> int | None:
        """As in `TimersInFiles.earliest`."""
        return self._owner.earliest(self._service, domain, after_ms)

    def due(self, domain: TimeDomain, after_ms: int, upto_ms: int) -> tuple[list[Timer], int]:
        """As in `TimersInFiles.due`."""
        return self._owner.due(self._service, domain, after_ms, upto_ms)
