"""Runs an epoch to its end, called by ``foreachBatch``: one Spark action runs all levels, then the epoch is prepared,
then a second, small Spark job commits it.

Rule: that of ``runtime/prepared_epoch.py``. An epoch that is already prepared when Spark delivers it (again) is only
committed: its plan does not run, and its state is what the run that prepared it has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.sink import DataFrameSink
from flinkish.errors import InternalError
from flinkish.runtime.accumulated import AccumulatorFiles
from flinkish.runtime.changelog_files import has_list, write_changes, write_parts
from flinkish.runtime.committing import (
    CommitReport,
    EpochCommit,
    batches_in_order,
    commit_failure,
    commit_of,
    commits_on_driver,
)
from flinkish.runtime.deployment import CHANGELOG_VERTEX, REPORT_VERTEX, SinkDescriptor, is_sink_vertex
from flinkish.runtime.epoch_files import CHANGES_IN_FILE, EpochFiles
from flinkish.runtime.epoch_report import EpochReport, sum_up
from flinkish.runtime.epoch_request import EpochRequest
from flinkish.runtime.operators.column_writer import batches_of
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.prepared_epoch import PreparedEpoch, PreparedEpochs
from flinkish.runtime.reached_watermarks import ReachedWatermarks
from flinkish.runtime.report import TaskReport
from flinkish.runtime.sources.alignment import watermarks_of
from flinkish.spark.worker import Deployment, failures_marked

#: (sink, subtask, its buffers): the committables of one subtask of a sink, which are committed together.
Target = tuple[int, int, list[bytes]]

#: Commits the targets of sinks that commit in the driver.
DriverCommit = Callable[[EpochCommit, list[Target]], list[CommitReport]]

_COMMIT_SCHEMA = "sink int, subtask int, records long"
_COMMIT_ARROW = pa.schema([("sink", pa.int32()), ("subtask", pa.int32()), ("records", pa.int64())])


@dataclass(frozen=True)
class CommitFunction:
    """The function of ``mapInArrow`` that commits targets of writer sinks in an executor."""

    deployment: Deployment
    epoch: int
    time_ms: int
    end_of_input: bool
    targets: tuple[Target, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Commit the targets whose positions are the rows of one Spark partition."""
        with failures_marked():
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield self._commit(*self.targets[number])

    def _commit(self, sink: int, subtask: int, buffers: list[bytes]) -> pa.RecordBatch:
        self.deployment.begin_task()
        job, fence, files = self.deployment.job(), self.deployment.fence, self.deployment.files
        commit = EpochCommit(job, self.epoch, self.time_ms, self.end_of_input, fence, files)
        report = commit.commit(sink, subtask, buffers)
        return pa.RecordBatch.from_pylist([report.__dict__], schema=_COMMIT_ARROW)


@dataclass(frozen=True)
class ReadFunction:
    """The function of ``mapInArrow`` that reads the prepared records of a DataFrame sink, which are columns already."""

    files: EpochFiles
    #: for each subtask, its buffers
    subtasks: tuple[list[bytes], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the records of the subtasks whose positions are the rows of one Spark partition."""
        with failures_marked():
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    for committables in batches_in_order(self.subtasks[number], self.files):
                        yield from batches_of(committables)


@dataclass(frozen=True)
class EpochRunner:
    """Runs and commits epochs for the function of ``foreachBatch``. Self-contained and picklable: under Spark Connect
    that function runs in a process of its own."""

    deployment: Deployment

    def run(self, frame: Any, epoch: int, commit: DriverCommit | None = None) -> EpochReport:
        """Run one epoch to its end, or only commit it if it is already prepared.

        Args:
            frame: the rows that leave the job in this epoch.
            commit: commits the targets of sinks that commit in the driver; None: one after the other, here.
        """
        prepared = self._prepared_epochs().read(epoch)
        if prepared is None:
            prepared = self._prepare(frame, epoch)
        return self._commit(frame.sparkSession, prepared, commit or _commit_here)

    def is_prepared(self, epoch: int) -> bool:
        """Whether the epoch is prepared, so that sinks may have heard of it."""
        return epoch in self._prepared_epochs().epochs()

    def _prepared_epochs(self) -> PreparedEpochs:
        return PreparedEpochs(self._files().prepared)

    def _files(self) -> EpochFiles:
        if self.deployment.files is None:
            raise InternalError("an epoch runs without a place for its files", hint="please report this")
        return self.deployment.files

    def _accumulator_files(self) -> AccumulatorFiles:
        return AccumulatorFiles(self._files().accumulators, self.deployment.first_epoch)

    # ------------------------------------------------------------------ before the barrier

    def _prepare(self, frame: Any, epoch: int) -> PreparedEpoch:
        """Run all levels in one Spark action and make the epoch prepared, which is its barrier."""
        job = self.deployment.job()
        result = frame.toArrow()
        reports: list[bytes] = []
        committables: list[bytes] = []
        changes: list[bytes] = []
        for vertex, data in zip(result.column("vertex").to_pylist(), result.column("buffer").to_pylist()):
            if vertex == REPORT_VERTEX:
                reports.append(data)
            elif is_sink_vertex(vertex):
                committables.append(data)
            elif vertex == CHANGELOG_VERTEX:
                changes.append(data)
        if job.settings.changelog:
            self._list_changes(epoch, changes)
        tasks = list(map(TaskReport.decode, reports))
        reached = watermarks_of(job, tasks)
        if reached:
            ReachedWatermarks(self._files().query).write(reached)
        time_ms = max((task.processing_time_ms for task in tasks), default=0)
        end_of_input = sum_up(job, epoch, time_ms, tasks, ()).end_of_input
        prepared = PreparedEpoch(epoch, time_ms, end_of_input, tuple(reports), tuple(committables))
        added = [task.accumulators for task in tasks if task.accumulators]
        if added:
            # accumulators that cannot be merged fail the epoch before it is prepared
            self._accumulator_files().after(epoch, added, job.classes)
        if committables or added:
            self._prepared_epochs().write(prepared, self.deployment.fence)
            passed(Phase.EPOCH_PREPARED, epoch=epoch)
        if any(task.commit_requested for task in tasks):
            EpochRequest(self._files().query).ask(epoch)
        return prepared

    def _list_changes(self, epoch: int, changes: list[bytes]) -> None:
        """Write down which files hold the epoch's changes of state. Changes that came inline become a file here."""
        changelog = self._files().changelog
        names = [data[1:].decode() for data in changes if data[:1] == CHANGES_IN_FILE]
        inline = [data[1:] for data in changes if data[:1] != CHANGES_IN_FILE]
        if inline:
            names.append(write_changes(changelog, epoch, inline))
        if names or has_list(changelog, epoch):
            self.deployment.fence.check()
            write_parts(changelog, epoch, names)

    # ------------------------------------------------------------------ behind the barrier

    def _commit(self, session: Any, prepared: PreparedEpoch, commit_on_driver: DriverCommit) -> EpochReport:
        job = self.deployment.job()
        commit = commit_of(job, prepared, self.deployment.fence, self._files())
        in_executors: list[Target] = []
        on_driver: list[Target] = []
        frames: dict[int, list[list[bytes]]] = {}
        for target in prepared.by_target():
            sink = job.sink(target[0])
            if isinstance(sink.sink, DataFrameSink):
                frames.setdefault(sink.id, []).append(target[2])
            elif commits_on_driver(sink):
                on_driver.append(target)
            else:
                in_executors.append(target)
        reports = self._commit_in_executors(session, prepared, in_executors) if in_executors else []
        reports.extend(commit_on_driver(commit, on_driver))
        for sink_id, subtasks in sorted(frames.items()):
            self._write_frame(session, commit, job.sink(sink_id), subtasks)
        report = sum_up(job, prepared.epoch, prepared.time_ms, map(TaskReport.decode, prepared.reports), reports)
        added = [task.accumulators for task in report.tasks if task.accumulators]
        if not added:
            return report
        files = self._accumulator_files()
        totals = files.after(prepared.epoch, added, job.classes)
        files.write(prepared.epoch, totals, self.deployment.fence)
        return replace(report, accumulators=totals)

    def _commit_in_executors(self, session: Any, prepared: PreparedEpoch, targets: list[Target]) -> list[CommitReport]:
        function = CommitFunction(
            self.deployment, prepared.epoch, prepared.time_ms, prepared.end_of_input, tuple(targets)
        )
        result = _numbers(session, len(targets)).mapInArrow(function, _COMMIT_SCHEMA).toArrow()
        return [CommitReport(**row) for row in result.to_pylist()]

    def _write_frame(
        self, session: Any, commit: EpochCommit, sink: SinkDescriptor, subtasks: list[list[bytes]]
    ) -> None:
        assert isinstance(sink.sink, DataFrameSink)
        function = ReadFunction(self._files(), tuple(subtasks))
        records = _numbers(session, len(subtasks)).mapInArrow(function, _ddl(sink.input_type))
        passed(Phase.COMMIT_BEGUN, sink=sink.uid, subtask=0, epoch=commit.epoch)
        commit.fence.check()
        try:
            sink.sink.write_frame(records, commit.context(sink, 0))
        except Exception as error:
            raise commit_failure(error, f"sink '{sink.name}'", commit.epoch) from error
        passed(Phase.SINK_COMMITTED, sink=sink.uid, subtask=0, epoch=commit.epoch)


def _commit_here(commit: EpochCommit, targets: list[Target]) -> list[CommitReport]:
    return [commit.commit(*target) for target in targets]


def _numbers(session: Any, count: int) -> Any:
    """A DataFrame of the numbers from 0 to ``count`` - 1, each in a Spark partition of its own."""
    return session.range(0, count, 1, count)


def _ddl(input_type: TypeInformation) -> Any:
    """The Spark schema of a declared type, for ``mapInArrow``."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema(list(input_type.to_arrow_fields())))
