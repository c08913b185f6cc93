"""The report of an epoch, summed up from the reports of its tasks and commits."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from flinkish.core.source import SplitSource
from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.committing import CommitReport
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.exchange.gate import WHOLE_SOURCE, vertex_of
from flinkish.runtime.report import TaskReport


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
    #: sink uid -> number of committed records
    sink_records: dict[str, int] = field(default_factory=dict)
    #: the job's accumulators as of the end of the epoch (runtime/accumulated.py); b"" if they are unchanged
    accumulators: bytes = b""


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

    def to_json(self) -> dict[str, Any]:
        """The report as a dict of plain values."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        tasks = [base64.b64encode(task.encode()).decode() for task in self.tasks]
        return {**content, "tasks": tasks, "accumulators": base64.b64encode(self.accumulators).decode()}

    @staticmethod
    def from_json(content: dict[str, Any]) -> EpochReport:
        """The inverse of `to_json`."""
        tasks = tuple(TaskReport.decode(base64.b64decode(task)) for task in content["tasks"])
        return EpochReport(
            **{**content, "tasks": tasks, "accumulators": base64.b64decode(content.get("accumulators", ""))}
        )


def sum_up(
    job: JobDescriptor, epoch: int, time_ms: int, tasks: Iterable[TaskReport], commits: Iterable[CommitReport]
) -> EpochReport:
    """Sum up the reports of an epoch's tasks and commits."""
    all_tasks = tuple(tasks)
    sink_records: dict[str, int] = {sink.uid: 0 for sink in job.sinks}
    for commit in commits:
        sink_records[job.sink(commit.sink).uid] += commit.records
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
