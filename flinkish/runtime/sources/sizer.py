"""How many records the next epoch reads of each source, so that epochs take about as long as they are meant to.

A barrier, a checkpoint, a stop and the processing time of functions wait for the end of the running epoch, whatever its
records cost: microseconds, or the seconds of a model or an HTTP call. What they cost is known when an epoch has ended:

    duration = overhead + cost of a record x records

* *overhead* is what an epoch takes even if it reads nothing: planning, starting tasks, large state that tasks write, an
  empty commit. It is known from epochs of different sizes. What tasks and commits take counts as the records' until
  these show something else; the time in which none of them works counts as overhead until they do.
* The next epoch gets the records for which the rest of the target is enough. Where the overhead alone takes more than
  half of the target, the records get as much time as the overhead takes: smaller epochs would do little else.
* Sources share an epoch in proportion to what their records cost, so one with slow records does not hold back another.

The first epoch of all reads one record per subtask, because one may take minutes. It tells how long the next one may
be, which has a thousand records per subtask at most: the first records of a program are often not like the others.
From there an epoch has at most sixteen times as many records as the one before. Nothing limits how fast epochs shrink.
Where memory is scarce, epochs are smaller than their time permits (`memory_bound.py`).
Of sixteen epochs that cannot be smaller, one has two records per subtask, to see whether it is the records that take so
long.

Results must not depend on any of this: a replay reads what the offset in the query's log says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flinkish.core.source import SplitSource
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.sources.memory_bound import MemoryBound
from flinkish.storage.sealed import optional

#: The most records per subtask that an epoch may have after one that had fewer than that.
SOON = 1_000

#: How many times as many records an epoch may have as the one before.
GROWTH = 16

#: Two epochs show what the overhead is if one has this many times as many records as the other.
_TELLING = 1.8

#: Of two epochs of the same size, up to this factor, only the last one counts.
_SAME = 1.25

#: The part of an epoch in which no task works varies up to this many times its usual length without any reason in the
#: number of records.
_USUAL = 3

#: Of so many epochs that cannot be smaller, one has twice as many records, to see whether it takes longer.
_TRIAL_EVERY = 16

#: The least time in ms that a source's records are assumed to take.
_LEAST_MS = 0.01


@dataclass(frozen=True)
class EpochTimes:
    """How long an epoch has taken, in ms.

    Args:
        duration_ms: from the start of its tasks to the end of its commit.
        commit_ms: the part of it in which sinks have committed.
        work_ms: source uid -> how long the tasks of the source, and those of the vertices behind it, have worked on the
            epoch.
        memory: the share of memory, from 0 to 1, that was in use where there was least left; 0: it is not known.
    """

    duration_ms: float
    commit_ms: float
    work_ms: dict[str, float]
    memory: float = optional(0.0)


def sizes_epochs(job: JobDescriptor) -> bool:
    """Whether the epochs of a job are sized by what they take."""
    return job.settings.epoch_target_ms > 0 and any(isinstance(one.source, SplitSource) for one in job.vertices)


def work_of(job: JobDescriptor, tasks: Sequence[TaskReport]) -> dict[str, float]:
    """`EpochTimes.work_ms`, from the reports of an epoch's tasks: vertices of one level work at the same time, levels
    one after the other. Subtasks that share a worker work one after the other, too."""
    took = {vertex.id: took_ms(task for task in tasks if task.vertex == vertex.id) for vertex in job.vertices}
    found = {}
    for source in job.vertices:
        if not isinstance(source.source, SplitSource):
            continue
        behind, levels = {source.id}, {0: took[source.id]}
        for vertex in sorted(job.vertices, key=lambda one: one.level):
            if not behind.isdisjoint(one.vertex for one in vertex.inputs):
                behind.add(vertex.id)
                levels[vertex.level] = max(took[vertex.id], levels.get(vertex.level, 0.0))
        found[source.head.uid] = round(sum(levels.values()), 1)
    return found


def took_ms(tasks: Iterable[TaskReport]) -> float:
    """How long the busiest worker has worked on these tasks, such as those of a vertex."""
    workers: dict[str, float] = {}
    for task in tasks:
        workers[task.worker] = workers.get(task.worker, 0.0) + task.work_ms
    return max(workers.values(), default=0.0)


@dataclass(frozen=True)
class EpochSize:
    """The size of a planned epoch, with what was known when it was planned. It is a part of the epoch's offset.

    Args:
        limits: source uid -> the most records that the epoch reads of it.
        read: source uid -> the estimated number of records that it reads of it.
        last_records: the records of the last epoch before it that has read anything; 0: there was none.
        last_rest_ms: the part of that epoch's duration in which no task has worked and no sink has committed.
        overhead_ms: how long that part is if an epoch reads nothing.
        other_records: the records of an earlier epoch that had many more or many less, or of the last one.
        other_work_ms: how long its tasks and its commit have taken.
        empty_work_ms: how long tasks and commit of an epoch take that reads nothing.
        smallest: how many of the last epochs could not be smaller, or were only to show whether that was so.
        memory: what is known of the memory.
    """

    limits: dict[str, int]
    read: dict[str, float] = field(default_factory=dict)
    last_records: float = 0.0
    last_rest_ms: float = 0.0
    overhead_ms: float = 0.0
    other_records: float = 0.0
    other_work_ms: float = 0.0
    empty_work_ms: float = 0.0
    smallest: int = 0
    memory: MemoryBound = MemoryBound()


@dataclass(frozen=True)
class SourceBounds:
    """The bounds of what an epoch reads of one source, in records: ``floor`` (its parallelism) and ``most``."""

    floor: int
    most: int


class EpochSizer:
    """Decides on the size of each epoch of a job.

    Args:
        target_ms: how long an epoch is meant to take.
        sources: uid -> bounds of the source.

    >>> sizer = EpochSizer(2_000, {"s": SourceBounds(2, 1_000_000)})
    >>> first = EpochSize(sizer.first().limits, read={"s": 2})
    >>> first.limits, sizer.next(first, EpochTimes(5_000, 0, {"s": 200})).limits
    ({'s': 2}, {'s': 20})
    """

    def __init__(self, target_ms: int, sources: Mapping[str, SourceBounds]) -> None:
        self._target_ms = target_ms
        self._sources = dict(sources)

    def first(self) -> EpochSize:
        """The size of an epoch before which nothing is known: no epoch has ended, or the last one has not."""
        return EpochSize({uid: min(one.floor, one.most) for uid, one in self._sources.items()})

    def next(self, size: EpochSize, times: EpochTimes) -> EpochSize:
        """The size of the next epoch, given that of the last one, and the times that it has taken."""
        read = {uid: records for uid, records in size.read.items() if records > 0 and uid in self._sources}
        limits = {uid: size.limits.get(uid, limit) for uid, limit in self.first().limits.items()}
        if not read:
            return replace(size, limits=limits, read={})
        work = {uid: max(times.work_ms.get(uid, 0.0), _LEAST_MS) for uid in read}
        slowest_ms = max(work.values())
        rest_ms = max(times.duration_ms - times.commit_ms - slowest_ms, 0.0)
        known = _with_work(replace(size, limits=limits, read={}), sum(read.values()), slowest_ms + times.commit_ms)
        work_ms = max(slowest_ms + times.commit_ms - known.empty_work_ms, _LEAST_MS)
        if size.last_records:
            known = _with_overhead(known, sum(read.values()), rest_ms)
            factor = self._factor(work_ms, rest_ms, known.overhead_ms, known.empty_work_ms)
        else:
            # the time in which workers start says nothing about later epochs
            factor = self._target_ms / work_ms
        memory, most = size.memory.after(times.memory, sum(read.values()))
        for uid, records in read.items():
            one = self._sources[uid]
            wanted = records * factor * slowest_ms / work[uid]
            soonest = max(GROWTH * records, SOON * one.floor)
            if most is not None:
                # of those who have read little, nobody knows how much a record needs
                soonest = min(soonest, max(most * records, SOON * one.floor if most > 1 else 0))
            limits[uid] = int(min(max(min(wanted, soonest), one.floor), one.most))
        smallest = size.smallest + 1 if all(limits[uid] <= self._sources[uid].floor for uid in read) else 0
        if smallest % _TRIAL_EVERY == 1:
            # nothing has shown yet that it is the records that take so long; an epoch of twice the size does
            limits.update({uid: min(2 * self._sources[uid].floor, self._sources[uid].most) for uid in read})
        return replace(
            known,
            last_records=sum(read.values()),
            last_rest_ms=round(rest_ms, 1),
            smallest=smallest,
            memory=memory,
        )

    def _factor(self, work_ms: float, rest_ms: float, overhead_ms: float, empty_work_ms: float) -> float:
        """How many times as many records the next epoch is to have as the last one."""
        fixed_ms = overhead_ms + empty_work_ms
        wanted_ms = max(self._target_ms - fixed_ms, fixed_ms)
        if rest_ms <= _USUAL * overhead_ms:
            # should all of it be the records' after all, the next epoch takes no more than about twice the target
            whole_ms = work_ms + rest_ms + empty_work_ms
            return min(wanted_ms / work_ms, _TELLING * (wanted_ms + fixed_ms) / whole_ms)
        factor = wanted_ms / (work_ms + rest_ms - overhead_ms)
        if factor < 1 and rest_ms - overhead_ms > work_ms:
            # most of the time is not explained: the next epoch is so much smaller that it tells what is overhead
            factor = min(factor, 1 / (2 * _TELLING))
        return factor


def _with_overhead(size: EpochSize, records: float, rest_ms: float) -> EpochSize:
    """What is known of the overhead after an epoch. Half of it is what was known before, because an epoch may owe its
    duration to something else."""
    if not size.overhead_ms:
        return replace(size, overhead_ms=round(rest_ms, 1))
    if _tell(records, size.last_records):
        seen_ms = _at_none(records, rest_ms, size.last_records, size.last_rest_ms)
    else:
        seen_ms = min(rest_ms, _USUAL * size.overhead_ms)
    return replace(size, overhead_ms=round((size.overhead_ms + seen_ms) / 2, 1))


def _with_work(size: EpochSize, records: float, work_ms: float) -> EpochSize:
    """What is known of the work of tasks and commits after an epoch. Until two epochs tell, all of it counts as the
    records'."""
    empty_ms = min(size.empty_work_ms, work_ms)
    others = size.other_records
    if others and not _tell(records, others):
        if _SAME * min(records, others) < max(records, others):
            return replace(size, empty_work_ms=empty_ms)
    elif others:
        empty_ms = min(_at_none(records, work_ms, others, size.other_work_ms), size.other_work_ms)
    return replace(size, other_records=records, other_work_ms=round(work_ms, 1), empty_work_ms=round(empty_ms, 1))


def _tell(records: float, others: float) -> bool:
    """Whether two epochs of so many records tell what an epoch takes that reads nothing."""
    return max(records, others) >= _TELLING * min(records, others)


def _at_none(records: float, took_ms: float, others: float, others_took_ms: float) -> float:
    """What an epoch takes that reads nothing, given what two epochs have taken."""
    record_ms = max((took_ms - others_took_ms) / (records - others), 0.0)
    return max(took_ms - record_ms * records, 0.0)
