"""The steps of an epoch, in the one order in which they are taken wherever its tasks run, on Spark and in the
minicluster, and the report of the epoch, summed up from the reports of its tasks and commits.

    `EpochSteps.run`    the tasks run -> the epoch is prepared (the barrier) -> the sinks commit -> totals and report
    `end_epoch`         the epoch's metadata are committed -> what nobody needs any more is deleted -> sources are told

Rule: that of ``runtime/epoch/files.py``. A step that one engine needs and the other one does not is empty there; no
engine has steps of its own.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from flinkish.common.arguments import inherits
from flinkish.core.source import SplitSource
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.epoch.commit import CommitReport
from flinkish.runtime.epoch.files import PreparedEpoch, identities_of
from flinkish.runtime.exchange.gate import WHOLE_SOURCE, vertex_of
from flinkish.runtime.job.deployment import CHANGELOG_VERTEX, REPORT_VERTEX, JobDescriptor, is_sink_vertex
from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.sources.alignment import Reached, reached_in
from flinkish.runtime.sources.job_enumerator import NOTHING_READ, coordinated_sources
from flinkish.runtime.sources.memory_bound import WorkersMemory
from flinkish.runtime.sources.progress import SourceProgress
from flinkish.runtime.sources.sizer import EpochTimes, sizes_epochs, work_of
from flinkish.runtime.sources.split_list import SegmentStore


@dataclass(frozen=True)
class EpochFigures:
    """The figures of one epoch of a job, as they also stand in the file of its report."""

    epoch: int
    time_ms: int
    records_in: int
    records_out: int
    #: lowest watermark of all tasks that have one between its minimum and its maximum; None if there is none
    watermark_ms: int | None
    #: every source has ended
    end_of_input: bool
    #: those of ``records_in`` that flinkish has read itself, split by split
    split_records_in: int = 0
    #: how long the epoch has taken in ms, until its sinks have committed it; 0: an earlier run has prepared it
    duration_ms: int = 0
    #: the part of it until all tasks have ended, and the part from the barrier until the sinks have committed
    run_ms: int = 0
    commit_ms: int = 0
    #: sink uid -> number of committed records
    sink_records: dict[str, int] = field(default_factory=dict)
    #: the job's accumulators as of the end of the epoch (runtime/job/accumulators.py); b"" if they are unchanged
    accumulators: bytes = b""

    def __getstate__(self) -> dict[str, Any]:
        """What is stored of the figures, without those that are 0 and were not there at first."""
        return {name: value for name, value in self.__dict__.items() if value or name not in ("run_ms", "commit_ms")}


class Backlog(NamedTuple):
    """What is there of a source and was not read."""

    #: the number of records; 0 if it is not known
    records: int
    #: the number of splits that have more, of a source that reads them one after the other, and what its splits are
    splits: int
    splits_are: str
    #: how old the newest record of the split that is furthest behind was when the epoch began; None: it is not known
    age_ms: int | None

    def __str__(self) -> str:
        one = self.splits == 1
        return f"{self.splits:,} {self.splits_are.removesuffix('s' * one)}" if self.splits else f"{self.records:,}"


NO_BACKLOG = Backlog(0, 0, "", None)


class SilentSplit(NamedTuple):
    """A split that holds the watermark back because nothing comes from it."""

    source_uid: str
    source_name: str
    #: its name, or ``?`` if no split of the source has ever sent anything
    split: str
    silent_ms: int


@dataclass(frozen=True)
class ReportedFigures(EpochFigures):
    """The figures of an epoch, and the reports of its tasks as the tasks have encoded them."""

    tasks: list[bytes] = field(kw_only=True)
    left: dict[str, Any] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class EpochReport(EpochFigures):
    """The figures of one epoch of a job, and the reports of its tasks."""

    tasks: tuple[TaskReport, ...] = field(default=(), kw_only=True)
    #: uid of a source that Spark reads -> what is left of it; the tasks do not know it
    left: dict[str, Backlog] = field(default_factory=dict, kw_only=True)

    def silent_splits(self, job: JobDescriptor) -> list[SilentSplit]:
        """The splits of sources that hold the watermark back because nothing comes from them."""
        longest: dict[str, int] = {}
        for task in self.tasks:
            for origin, silent_ms in task.silent_splits.items():
                longest[origin] = max(silent_ms, longest.get(origin, 0))
        found = []
        for origin, silent_ms in sorted(longest.items()):
            vertex = job.vertex(vertex_of(origin))
            found.append(SilentSplit(vertex.head.uid, vertex.head.name, origin.partition("/")[2], silent_ms))
        return found

    def backlogs(self, job: JobDescriptor) -> dict[str, Backlog]:
        """Uid of a source -> what the epoch has left of it, for the sources that it has left something of."""
        found = {uid: backlog for uid, backlog in self.left.items() if backlog.splits}
        for vertex in (one for one in job.vertices if isinstance(one.source, SplitSource)):
            tasks = [task for task in self.tasks if task.vertex == vertex.id]
            records, splits = sum(task.backlog for task in tasks), sum(task.backlog_splits for task in tasks)
            ages = [task.processing_time_ms - task.newest_ms for task in tasks if task.newest_ms is not None]
            if records or splits:
                assert isinstance(vertex.source, SplitSource)
                found[vertex.head.uid] = Backlog(records, splits, vertex.source.splits_are, max(ages, default=None))
        return found

    def stored(self) -> ReportedFigures:
        """The report as it is stored."""
        return ReportedFigures(**{**vars(self), "tasks": [task.encode() for task in self.tasks]})

    @staticmethod
    def from_stored(found: ReportedFigures) -> EpochReport:
        """The inverse of `stored`."""
        return EpochReport(**{**vars(found), "tasks": tuple(map(TaskReport.decode, found.tasks))})


def sum_up(
    job: JobDescriptor, epoch: int, time_ms: int, tasks: Iterable[TaskReport], commits: Iterable[CommitReport]
) -> EpochReport:
    """Sum up the reports of an epoch's tasks and commits."""
    sink_records: dict[str, int] = {sink.uid: 0 for sink in job.sinks}
    vertices = {operator.sink: vertex.id for vertex in job.vertices for operator in vertex.operators}
    commit_ms: dict[tuple[int, int], float] = {}
    for commit in commits:
        sink_records[job.sink(commit.sink).uid] += commit.records
        task_id = vertices[commit.sink], commit.subtask
        commit_ms[task_id] = commit_ms.get(task_id, 0.0) + commit.ms
    all_tasks = tuple(
        replace(task, commit_ms=ms) if (ms := commit_ms.pop((task.vertex, task.subtask), 0.0)) else task
        for task in tasks
    )
    sources = {vertex.id for vertex in job.vertices if vertex.source is not None}
    read_by_splits = {vertex.id for vertex in job.vertices if isinstance(vertex.source, SplitSource)}
    watermarks = [
        task.watermark_ms
        for task in all_tasks
        if task.watermark_ms is not None and MIN_TIMESTAMP_MS < task.watermark_ms < MAX_WATERMARK_MS
    ]
    return EpochReport(
        epoch=epoch,
        time_ms=time_ms,
        records_in=sum(task.records_in for task in all_tasks if task.vertex in sources),
        records_out=sum(sink_records.values()),
        split_records_in=sum(task.records_in for task in all_tasks if task.vertex in read_by_splits),
        watermark_ms=min(watermarks, default=None),
        end_of_input=sources_have_ended(job, all_tasks),
        sink_records=sink_records,
        tasks=all_tasks,
    )


def sources_have_ended(job: JobDescriptor, tasks: Sequence[TaskReport]) -> bool:
    """Whether the job has sources, and all subtasks of each report that they have ended, or one of them reports the end
    of the whole source."""
    over: dict[int, set[int]] = {vertex.id: set() for vertex in job.vertices if vertex.source is not None}
    for task in tasks:
        if task.finished and task.vertex in over:
            whole = WHOLE_SOURCE in task.ended_splits
            over[task.vertex].update(range(job.vertex(task.vertex).parallelism) if whole else [task.subtask])
    return bool(over) and all(len(ended) == job.vertex(vertex).parallelism for vertex, ended in over.items())


_log = logging.getLogger("flinkish.JobMaster")

#: id of a job -> the memory of those who run its tasks, as far as this process knows
_memory: dict[str, WorkersMemory] = {}

#: How long the end of an attempt waits for the last acknowledgement, in seconds.
_LAST_S = 5.0


class EpochSteps(ABC):
    """The steps by which one epoch gets from its plan to its report. A subclass says how its tasks run and where
    things are kept."""

    def __init__(self, job: JobDescriptor) -> None:
        self.job = job
        #: when all tasks of the epoch had ended, in seconds of the monotonic clock
        self._run_s = 0.0
        behind = [one for one in job.vertices if one.level > 0]
        #: the vertices for whose processing-time timers epochs are planned: none if these are planned in any case
        self._timed = set() if any(one.regular for one in behind) else {one.id for one in behind if one.clocked}

    def run(self, epoch: int) -> EpochReport:
        """Run one epoch until its sinks have committed it; if it is already prepared, it is only committed."""
        prepared = self._prepared(epoch)
        sized = sizes_epochs(self.job)
        if prepared is not None:
            if sized:
                self._forget_times()
            return self._commit(prepared, tuple(map(TaskReport.decode, prepared.reports)))
        begun_s = time.monotonic()
        prepared, tasks = self._prepare(epoch)
        prepared_s = time.monotonic()
        report = self._commit(prepared, tasks)
        ended_s = time.monotonic()
        if sized:
            work_ms = work_of(self.job, report.tasks)
            memory = _memory.setdefault(self.job.job_id, WorkersMemory()).after(report.tasks)
            self._keep_times(EpochTimes(_ms(ended_s - begun_s), _ms(ended_s - prepared_s), work_ms, memory))
        return replace(
            report,
            duration_ms=round((ended_s - begun_s) * 1000),
            run_ms=round((self._run_s - begun_s) * 1000),
            commit_ms=round((ended_s - prepared_s) * 1000),
        )

    # ------------------------------------------------------------------ before the barrier

    def _prepare(self, epoch: int) -> tuple[PreparedEpoch, tuple[TaskReport, ...]]:
        """Run the tasks and prepare the epoch; returns it, and the reports of its tasks, decoded."""
        job = self.job
        reports: list[bytes] = []
        committables: list[bytes] = []
        changes: list[bytes] = []
        for vertex, data in self._run_tasks(epoch):
            if vertex == REPORT_VERTEX:
                reports.append(data)
            elif is_sink_vertex(vertex):
                committables.append(data)
            elif vertex == CHANGELOG_VERTEX:
                changes.append(data)
        self._run_s = time.monotonic()
        if job.settings.changelog:
            self._list_changes(epoch, changes)
        tasks = tuple(map(TaskReport.decode, reports))
        reached = reached_in(job, tasks)
        if reached:
            self._keep_reached(epoch, reached)
        time_ms = max((task.processing_time_ms for task in tasks), default=0)
        end_of_input = sources_have_ended(job, tasks)
        prepared = PreparedEpoch(epoch, time_ms, end_of_input, tuple(reports), tuple(committables), identities_of(job))
        added = [task.accumulators for task in tasks if task.accumulators]
        if added:
            # accumulators that cannot be merged fail the epoch before it is prepared
            self._totals_after(epoch, added)
        if committables or added:
            self._keep_prepared(prepared)
            passed(Phase.EPOCH_PREPARED, epoch=epoch)
        if any(task.commit_requested for task in tasks):
            self._request_next(epoch)
        return prepared, tasks

    # ------------------------------------------------------------------ behind the barrier

    def _commit(self, prepared: PreparedEpoch, tasks: tuple[TaskReport, ...]) -> EpochReport:
        commits = self._commit_sinks(prepared)
        called = [task for task in tasks if task.vertex in self._timed]
        if called:
            self._keep_timers({f"{task.vertex}/{task.subtask}": task.timer_ms for task in called})
        report = sum_up(self.job, prepared.epoch, prepared.time_ms, tasks, commits)
        added = [task.accumulators for task in report.tasks if task.accumulators]
        if not added:
            return report
        totals = self._totals_after(prepared.epoch, added)
        self._keep_totals(prepared.epoch, totals)
        return replace(report, accumulators=totals)

    # ------------------------------------------------------------------ what an engine provides

    @abstractmethod
    def _prepared(self, epoch: int) -> PreparedEpoch | None:
        """The epoch, if an earlier run has prepared it."""

    @abstractmethod
    def _run_tasks(self, epoch: int) -> Iterable[tuple[int, bytes]]:
        """Run all tasks of the epoch; returns what leaves the job, as (vertex, data)."""

    @abstractmethod
    def _forget_times(self) -> None:
        """Forget the times of the epoch before, because those of this one will never be known."""

    @abstractmethod
    def _keep_times(self, times: EpochTimes) -> None:
        """Keep the times of the epoch, whose sinks have committed, for the plan of the next one."""

    @abstractmethod
    def _keep_timers(self, timers: dict[str, int | None]) -> None:
        """Keep when the first processing-time timers of these tasks are due, for the plan of later epochs."""

    @abstractmethod
    def _list_changes(self, epoch: int, changes: list[bytes]) -> None:
        """Write down which changes of state belong to the epoch, for the next checkpoint."""

    @abstractmethod
    def _keep_reached(self, epoch: int, reached: Reached) -> None:
        """Keep what the tasks of the sources have reached for the plan of the next epoch."""

    @abstractmethod
    def _keep_prepared(self, prepared: PreparedEpoch) -> None:
        """Make the epoch prepared."""

    @abstractmethod
    def _request_next(self, epoch: int) -> None:
        """Have the next epoch planned at once, because user code has asked for it in this one."""

    @abstractmethod
    def _commit_sinks(self, prepared: PreparedEpoch) -> list[CommitReport]:
        """Commit what the epoch has for the sinks."""

    @abstractmethod
    def _totals_after(self, epoch: int, added: Sequence[bytes]) -> bytes:
        """The accumulators of the job at the end of the epoch, given what its tasks have added."""

    @abstractmethod
    def _keep_totals(self, epoch: int, totals: bytes) -> None:
        """Keep the accumulators of the job at the end of the epoch."""


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def end_epoch(
    epoch: int,
    clean_up: Callable[[], None],
    acknowledgements: Acknowledgements,
    offset: Callable[[], str | None],
) -> None:
    """The steps behind the commit of an epoch's metadata: state and positions of its end are the ones to go on from.

    Args:
        epoch: the last epoch that is committed.
        clean_up: takes over and deletes what was kept only for the case that the epoch is delivered again.
        acknowledgements: tells the sources.
        offset: gives the positions of the sources at the end of the epoch; only called if a source is to be told.
    """
    passed(Phase.METADATA_COMMITTED, epoch=epoch)
    clean_up()
    passed(Phase.CLEANED_UP, epoch=epoch)
    if acknowledgements.wanted:
        acknowledgements.committed(offset())


class Acknowledgements:
    """Tells the sources of a job that override `SplitSource.acknowledge` up to which positions they have been read for
    good, as Flink does with notifyCheckpointComplete, in a thread that starts with the first committed epoch.

    Rule: no epoch waits for an acknowledgement, and none fails because of one. When epochs are committed faster than
    sources are told, they are told of several epochs at a time.
    """

    def __init__(self, job: JobDescriptor, store: SegmentStore) -> None:
        self._where = f"job '{job.name}'"
        self._store = store
        self._listening = {
            one.uid: one.source
            for one in coordinated_sources(job)
            if not inherits(one.source, SplitSource, "acknowledge")
        }
        #: source uid -> split -> the position that the source must be told of
        self._moved: dict[str, dict[str, int]] = {uid: {} for uid in self._listening}
        #: source uid -> index of the first split that had not ended in the last offset that was looked at, and the
        #: positions in that offset from this split on
        self._firsts = dict.fromkeys(self._listening, 0)
        self._seen: dict[str, dict[str, int]] = {uid: {} for uid in self._listening}
        self._changed = threading.Condition()
        self._offsets: list[str] = []
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def wanted(self) -> bool:
        """Whether any source wants acknowledgements."""
        return bool(self._listening)

    def committed(self, offset: str | None) -> None:
        """Acknowledge a committed epoch, without waiting for it. ``offset``: the positions of the sources at its end,
        as the query's log has them; None: there is nothing to acknowledge."""
        if offset is None:
            return
        with self._changed:
            self._offsets.append(offset)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="flinkish-acknowledge", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Acknowledge the last epochs, then end the thread; waits for a few seconds at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_LAST_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._offsets)
                offsets, self._offsets = self._offsets, []
            if not offsets:
                return
            for uid, source in self._listening.items():
                self._tell(uid, source, offsets)

    def _tell(self, uid: str, source: SplitSource, offsets: list[str]) -> None:
        try:
            moved, seen = self._moved[uid], self._seen[uid]
            for offset in map(json.loads, offsets):
                if offset != NOTHING_READ:
                    progress = SourceProgress.decode(offset["sources"][uid], self._where)
                    positions = progress.positions(self._store, self._firsts[uid])
                    moved.update((split, at) for split, at in positions.items() if seen.get(split) != at)
                    self._firsts[uid] = progress.oldest_open
                    seen = self._seen[uid] = progress.positions(self._store, progress.oldest_open)
            if moved:
                source.acknowledge(dict(moved))
                moved.clear()
        except Exception as error:
            _log.warning("%s: source uid %s could not be told what is committed: %s", self._where, uid, error)
