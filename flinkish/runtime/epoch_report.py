"""The report of an epoch, summed up from the reports of its tasks and commits."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.committing import CommitReport
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.input_gate import WHOLE_SOURCE
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
    #: sink uid -> number of committed records
    sink_records: dict[str, int] = field(default_factory=dict)
    #: the job's accumulators as of the end of the epoch (runtime/accumulated.py); b"" if they are unchanged
    accumulators: bytes = b""


@dataclass(frozen=True)
class EpochReport(EpochFigures):
    """The figures of one epoch of a job, and the reports of its tasks."""

    tasks: tuple[TaskReport, ...] = field(default=(), kw_only=True)

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
