"""The end of an epoch: one Spark action runs all levels and commits; ``foreachBatch`` calls it.

Writer sinks commit inside that action, in the executors; what must reach the driver (reports, printed lines, collected
records) is what the action returns. Sinks that take DataFrames read the epoch's cached rows afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.sink import DataFrameSink, WriterSink
from flinkish.runtime.buffer import Buffer, decode
from flinkish.runtime.committing import (
    CommitReport,
    commit_buffers,
    commit_context,
    commits_on_driver,
    is_sink_vertex,
    sink_of,
)
from flinkish.runtime.deployment import CHANGELOG_VERTEX, REPORT_VERTEX, JobDescriptor, SinkDescriptor
from flinkish.runtime.epoch_report import EpochReport, sum_up
from flinkish.runtime.failure import describe_failure
from flinkish.runtime.operators.sink_writer import decode_committables
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.report import TaskReport
from flinkish.runtime.task import EpochStamp, sink_vertex
from flinkish.spark.changelog import write_changes
from flinkish.spark.rows import ROW_SCHEMA, to_arrow
from flinkish.spark.worker import Deployment, current_partition, failures_marked

#: Vertex number of rows that carry a commit's report, at the very end of an epoch.
_COMMIT_REPORT = -(2**31)

#: (job, buffers for sinks that commit in the driver, epoch) -> reports
DriverCommit = Callable[[JobDescriptor, list[Buffer], int], list[CommitReport]]


@dataclass(frozen=True)
class CommitFunction:
    """Commits the rows of writer sinks in an executor; hands everything for the driver on."""

    deployment: Deployment
    epoch: int
    #: directory of the changelog, or None when there is none
    changelog: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One Spark partition of the epoch's output."""
        with failures_marked():
            self.deployment.begin_task()
            manager = self.deployment.task_manager()
            buffers: list[Buffer] = []
            rows: list[tuple[int, int, bytes]] = []
            changes: list[bytes] = []
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in ("vertex", "channel", "buffer"))
                for vertex, channel, data in zip(*columns):
                    if vertex == CHANGELOG_VERTEX:
                        changes.append(data)
                    elif self._commits_here(manager.job, vertex):
                        buffers.append(decode(data))
                    elif not self._is_frame_sink(manager.job, vertex):
                        rows.append((vertex, channel, data))
            if self.changelog is not None:
                self.deployment.fence.check()
                write_changes(self.changelog, self.epoch, current_partition(), changes)
            for report in commit_buffers(manager.job, buffers, self.epoch, fence=self.deployment.fence):
                rows.append((_COMMIT_REPORT, 0, report.encode()))
            yield from to_arrow(rows, self.deployment.book(), manager.job.levels + 1)

    @staticmethod
    def _is_frame_sink(job: JobDescriptor, vertex: int) -> bool:
        return is_sink_vertex(vertex) and isinstance(job.sink(sink_of(vertex)).sink, DataFrameSink)

    def _commits_here(self, job: JobDescriptor, vertex: int) -> bool:
        if not is_sink_vertex(vertex) or self._is_frame_sink(job, vertex):
            return False
        return not commits_on_driver(job.sink(sink_of(vertex)))


@dataclass(frozen=True)
class DecodeFunction:
    """Turns the buffers of a DataFrame sink into rows of its declared type."""

    input_type: TypeInformation
    deployment: Deployment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One Spark partition."""
        with failures_marked():
            classes = self.deployment.job().classes
            for batch in batches:
                buffers = sorted(map(decode, batch.column("buffer").to_pylist()), key=lambda b: b.header)
                for buffer in buffers:
                    yield records_to_arrow(decode_committables(buffer.payload, classes)[1], self.input_type)


def records_to_arrow(values: list[Any], input_type: TypeInformation) -> pa.RecordBatch:
    """Records of a declared type as columns."""
    fields = list(input_type.to_arrow_fields())
    schema = pa.schema(fields)
    if len(fields) == 1 and fields[0].name == "value" and not hasattr(input_type, "get_field_names"):
        columns = [values]
    else:
        columns = [list(column) for column in zip(*values)] if values else [[] for _ in fields]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, fields)], schema=schema)


@dataclass(frozen=True)
class EpochRunner:
    """The function that ``foreachBatch`` calls. Self-contained and picklable: under Spark Connect it runs in a process
    of its own."""

    deployment: Deployment
    #: directory of the changelog, or None when there is none
    changelog: str | None = None

    def run(self, frame: Any, epoch: int, commit: DriverCommit | None = None) -> EpochReport:
        """Run one epoch to its end. ``commit`` gets what belongs to sinks that commit in the driver."""
        job = self.deployment.job()
        frame_sinks = [sink for sink in job.sinks if isinstance(sink.sink, DataFrameSink)]
        if frame_sinks:
            frame = frame.persist()
        try:
            table = self._act(frame, epoch, job)
            report = self._deliver(table, epoch, job, commit or partial(commit_buffers, fence=self.deployment.fence))
            for sink in frame_sinks:
                self._write_frame(frame, sink, report)
        finally:
            if frame_sinks:
                frame.unpersist()
        return report

    def _act(self, frame: Any, epoch: int, job: JobDescriptor) -> list[tuple[int, int, bytes]]:
        """The one action."""
        here = any(isinstance(sink.sink, WriterSink) and not commits_on_driver(sink) for sink in job.sinks)
        if here or self.changelog is not None:
            if job.levels == 0:
                # the rows of one (sink, subtask) must meet in one Spark task; behind a shuffle they already do
                frame = frame.repartition(self.deployment.partitions, "vertex", "channel")
            frame = frame.mapInArrow(CommitFunction(self.deployment, epoch, self.changelog), ROW_SCHEMA)
        else:
            # nothing to commit in the executors: spare the way through another Python worker
            hidden = _frame_sink_vertices(job)
            frame = frame.where(~frame["vertex"].isin(hidden)) if hidden else frame
        result = frame.toArrow()
        columns = (result.column(name).to_pylist() for name in ("vertex", "channel", "buffer"))
        return list(zip(*columns))

    def _deliver(
        self, rows: list[tuple[int, int, bytes]], epoch: int, job: JobDescriptor, commit: DriverCommit
    ) -> EpochReport:
        tasks, commits, buffers = [], [], []
        for vertex, _, data in rows:
            if vertex == REPORT_VERTEX:
                tasks.append(TaskReport.decode(data))
            elif vertex == _COMMIT_REPORT:
                commits.append(CommitReport.decode(data))
            else:
                buffers.append(decode(data))
        commits.extend(commit(job, buffers, epoch))
        time_ms = max((task.processing_time_ms for task in tasks), default=0)
        return sum_up(job, epoch, time_ms, tasks, commits)

    def _write_frame(self, frame: Any, sink: SinkDescriptor, report: EpochReport) -> None:
        assert isinstance(sink.sink, DataFrameSink)
        job = self.deployment.job()
        rows = frame.where(f"vertex = {sink_vertex(sink.id)}").select("buffer")
        records = rows.mapInArrow(DecodeFunction(sink.input_type, self.deployment), _ddl(sink.input_type))
        stamp = EpochStamp(report.epoch, report.time_ms)
        context = commit_context(job, sink, 0, stamp, report.end_of_input, self.deployment.fence)
        passed(Phase.SINK_PREPARED, sink=sink.uid, subtask=0, epoch=report.epoch)
        self.deployment.fence.check()
        try:
            sink.sink.write_frame(records, context)
        except Exception as error:
            raise describe_failure(error, f"sink '{sink.name}'", report.epoch) from error
        passed(Phase.SINK_COMMITTED, sink=sink.uid, subtask=0, epoch=report.epoch)


def _frame_sink_vertices(job: JobDescriptor) -> list[int]:
    return [sink_vertex(sink.id) for sink in job.sinks if isinstance(sink.sink, DataFrameSink)]


def _ddl(input_type: TypeInformation) -> Any:
    """The Spark schema of a declared type."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema(list(input_type.to_arrow_fields())))
