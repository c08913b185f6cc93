"""Runs a job graph epoch by epoch in memory, with the same runtime as under Spark and a clock of your choice.

What Spark does is done here with dictionaries: rows between levels are lists, the state store is a dict that takes an
epoch's changes only when the whole epoch has succeeded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flinkish.core.sink import WriterSink
from flinkish.core.source import GeneratedSource
from flinkish.errors import ProgramError
from flinkish.runtime.buffer import Buffer, decode
from flinkish.runtime.clock import Clock, SystemClock
from flinkish.runtime.committing import commit_buffers, is_sink_vertex
from flinkish.runtime.deployment import REPORT_VERTEX, JobDescriptor, VertexDescriptor
from flinkish.runtime.epoch_report import EpochReport, sum_up
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.report import TaskReport
from flinkish.runtime.source_task import read_generated
from flinkish.runtime.task import EpochStamp, Row
from flinkish.runtime.task_manager import StoredChannel, TaskManager

_ChannelId = tuple[int, int]


@dataclass
class StateStore:
    """Header and body of each channel, and the next epoch. Outlives a MiniCluster, as a job directory does."""

    channels: dict[_ChannelId, tuple[bytes, bytes | None]] = field(default_factory=dict)
    next_epoch: int = 0
    #: processing time of the next epoch, once it was tried: it is the same when it is tried again
    planned_time_ms: int | None = None
    finished: bool = False


class MiniCluster:
    """One job.

    Args:
        job: the job graph.
        clock: gives each epoch its processing time.
        store: state of an earlier run to go on from.
        max_records_per_epoch: most records that each source gives in one epoch.
    """

    def __init__(
        self,
        job: JobDescriptor,
        clock: Clock | None = None,
        store: StateStore | None = None,
        max_records_per_epoch: int | None = None,
    ) -> None:
        for vertex in job.vertices:
            if vertex.source is not None and not isinstance(vertex.source, GeneratedSource):
                raise ProgramError(
                    f"the source of '{vertex.name}' is read by Spark",
                    where=f"job '{job.name}'",
                    expected="collections, sequences or generators in the minicluster",
                    hint="run the job on Spark (execution.target: spark)",
                )
        for sink in job.sinks:
            if not isinstance(sink.sink, WriterSink):
                raise ProgramError(
                    f"the sink '{sink.name}' takes Spark DataFrames",
                    where=f"job '{job.name}'",
                    expected="a sink with a writer in the minicluster (print, collect, files, JDBC)",
                    hint="run the job on Spark (execution.target: spark)",
                )
        self.job = job
        self.store = store if store is not None else StateStore()
        self._clock = clock or SystemClock()
        self._max_records = max_records_per_epoch or job.settings.max_records_per_epoch
        self._task_manager = TaskManager(job)

    def run(
        self, max_epochs: int | None = None, on_epoch: Callable[[EpochReport], None] | None = None
    ) -> list[EpochReport]:
        """Run until the end of the input, or for that many epochs."""
        reports: list[EpochReport] = []
        while not self.store.finished and (max_epochs is None or len(reports) < max_epochs):
            reports.append(self.run_epoch())
            if on_epoch is not None:
                on_epoch(reports[-1])
        return reports

    def run_epoch(self) -> EpochReport:
        """One epoch, all or nothing. After a failure, the next call tries the same epoch again with functions that have
        not run; so does another MiniCluster on the same store."""
        try:
            report = self._run_epoch(self._plan())
        except BaseException:
            self.dispose()
            raise
        if self.store.finished:
            self.dispose()
        return report

    def dispose(self) -> None:
        """Close all functions that are still open: the job has ended, or will not go on here."""
        self._task_manager.dispose()

    def _plan(self) -> EpochStamp:
        if self.store.planned_time_ms is None:
            self.store.planned_time_ms = self._clock.now_ms()
        passed(Phase.PLANNED, epoch=self.store.next_epoch)
        return EpochStamp(self.store.next_epoch, self.store.planned_time_ms)

    def _run_epoch(self, stamp: EpochStamp) -> EpochReport:
        rows: list[Row] = []
        written: dict[_ChannelId, tuple[bytes, bytes | None]] = {}
        for level in range(self.job.levels + 1):
            vertices = [vertex for vertex in self.job.vertices if vertex.level == level]
            if level == 0:
                rows.extend(self._read_sources(vertices, stamp))
            else:
                rows = self._run_level(vertices, rows, stamp, written)
        tasks = [TaskReport.decode(data) for vertex, _, data in rows if vertex == REPORT_VERTEX]
        buffers = [decode(data) for vertex, _, data in rows if is_sink_vertex(vertex)]
        end_of_input = sum_up(self.job, stamp.epoch, stamp.time_ms, tasks, ()).end_of_input
        commits = commit_buffers(self.job, buffers, stamp.epoch, end_of_input)
        report = sum_up(self.job, stamp.epoch, stamp.time_ms, tasks, commits)
        self.store.channels.update(written)
        self.store.next_epoch += 1
        self.store.planned_time_ms = None
        self.store.finished = report.end_of_input
        passed(Phase.METADATA_COMMITTED, epoch=stamp.epoch)
        return report

    def _read_sources(self, vertices: Iterable[VertexDescriptor], stamp: EpochStamp) -> list[Row]:
        rows: list[Row] = []
        for vertex in vertices:
            source = vertex.source
            assert isinstance(source, GeneratedSource)
            for subtask in range(vertex.parallelism):
                splits = range(subtask, source.splits, vertex.parallelism)
                if splits:
                    size = self.job.settings.source_batch_size
                    batches = read_generated(source, splits, stamp.epoch, self._max_records, size)
                    for share in self._task_manager.run_source(vertex.id, subtask, batches, 0, stamp):
                        rows.extend(share)
        return rows

    def _run_level(
        self,
        vertices: list[VertexDescriptor],
        rows: list[Row],
        stamp: EpochStamp,
        written: dict[_ChannelId, tuple[bytes, bytes | None]],
    ) -> list[Row]:
        here = {vertex.id for vertex in vertices}
        inputs: dict[_ChannelId, list[Buffer]] = defaultdict(list)
        result = [row for row in rows if row[0] not in here]
        for vertex, channel, data in rows:
            if vertex in here:
                inputs[vertex, channel].append(decode(data))
        for descriptor in vertices:
            for channel_descriptor in descriptor.channels():
                identity = (descriptor.id, channel_descriptor.number)
                if identity in inputs:
                    result.extend(self._run_channel(identity, inputs[identity], stamp, written))
        return result

    def _run_channel(
        self,
        identity: _ChannelId,
        buffers: list[Buffer],
        stamp: EpochStamp,
        written: dict[_ChannelId, tuple[bytes, bytes | None]],
    ) -> list[Row]:
        header, body = self.store.channels.get(identity, (None, None))
        stored = StoredChannel(header, lambda: body)
        result, rows = self._task_manager.run_channel(*identity, stored, buffers, stamp)
        if result is not None:
            written[identity] = (result.header.encode(self.job.classes), result.body if result.body_written else body)
        return rows
