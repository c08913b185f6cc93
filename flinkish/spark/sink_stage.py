"""Runs an epoch until its sinks have committed it, called by ``foreachBatch``: one Spark action runs all levels, then
the epoch is prepared, then a second, small Spark job commits it (the steps: ``runtime/epoch/steps.py``).

Rule: that of ``runtime/epoch/files.py``. An epoch that is already prepared when Spark delivers it (again) is only
committed: its plan does not run, and its state is what the run that prepared it has written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.sink import DataFrameSink, how_to_skip
from flinkish.errors import InternalError, ProgramError, failures_of_user_code
from flinkish.runtime.epoch.changelog_files import FEW_BYTES, has_list, write_changes, write_parts
from flinkish.runtime.epoch.commit import (
    COMMIT_HINT,
    CommitReport,
    EpochCommit,
    batches_in_order,
    commit_failure,
    commit_of,
    commits_on_driver,
)
from flinkish.runtime.epoch.files import CHANGES_IN_FILE, EpochFiles, PreparedEpoch, PreparedEpochs
from flinkish.runtime.epoch.planner import EpochRequested, PendingTimers, ReachedWatermarks, StoredEpochTimes
from flinkish.runtime.epoch.steps import EpochReport, EpochSteps
from flinkish.runtime.exchange.buffer import decode
from flinkish.runtime.job.accumulators import AccumulatorFiles
from flinkish.runtime.job.deployment import JobDescriptor, SinkDescriptor
from flinkish.runtime.operators.columns import batches_of, frame_schema
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.sources.alignment import Reached
from flinkish.runtime.sources.sizer import EpochTimes
from flinkish.spark.failures import failure_of_frame_sink, is_conflict
from flinkish.spark.settings import described_jobs
from flinkish.spark.worker import Deployment, failures_marked

#: (sink, subtask, its buffers): the committables of one subtask of a sink, which are committed together.
Target = tuple[int, int, list[bytes]]

#: Commits the targets of sinks that commit in the driver.
DriverCommit = Callable[[EpochCommit, list[Target]], list[CommitReport]]

#: The most characters of a description: the tables of Spark's UI show it in each row.
_MAX_DESCRIPTION = 300
#: The most Spark tasks that commit an epoch: a commit takes less time than a task, and each task gets all targets.
_MAX_COMMIT_TASKS = 64
#: How often a frame sink writes an epoch whose write others come in between, and the seconds between two of them.
_TRIES = 4
_PAUSE_S = 0.5
#: Directory of prepared epochs -> the attempt and the epoch that this process has begun there last. In an attempt, only
#: the first epoch, or one that is delivered again, can have been prepared.
_begun: dict[str, tuple[int, int]] = {}

_COMMIT_SCHEMA = "sink int, subtask int, records long, ms double"
_COMMIT_ARROW = pa.schema(
    [("sink", pa.int32()), ("subtask", pa.int32()), ("records", pa.int64()), ("ms", pa.float64())]
)


@dataclass(frozen=True)
class CommitFunction:
    """The function of ``mapInArrow`` that commits targets of writer sinks in an executor."""

    deployment: Deployment
    epoch: int
    time_ms: int
    end_of_input: bool
    targets: tuple[Target, ...]
    uids: Mapping[int, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Commit the targets whose positions are the rows of one Spark partition, one after the other."""
        with failures_marked(self.deployment.secret, self.epoch):
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield self._commit(*self.targets[number])

    def _commit(self, sink: int, subtask: int, buffers: list[bytes]) -> pa.RecordBatch:
        self.deployment.begin_task()
        job, fence, files = self.deployment.job(), self.deployment.fence, self.deployment.files
        commit = EpochCommit(job, self.epoch, self.time_ms, self.end_of_input, fence, files, self.uids)
        report = commit.commit(sink, subtask, buffers)
        return pa.RecordBatch.from_pylist([report.__dict__], schema=_COMMIT_ARROW)


@dataclass(frozen=True)
class ReadFunction:
    """The function of ``mapInArrow`` that reads the prepared records of a DataFrame sink, which are columns already."""

    files: EpochFiles
    #: for each subtask, its buffers
    subtasks: tuple[list[bytes], ...]
    epoch: int
    #: the deployment's, which signs errors; it must not be shown
    secret: bytes = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the records of the subtasks whose positions are the rows of one Spark partition."""
        with failures_marked(self.secret, self.epoch):
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    for committables in batches_in_order(self.subtasks[number], self.files):
                        yield from batches_of(committables)


@dataclass(frozen=True)
class EpochRunner:
    """Runs and commits epochs for the function of ``foreachBatch``. Self-contained and picklable: under Spark Connect
    that function runs in a process of its own."""

    deployment: Deployment

    def run(
        self, frame: Any, epoch: int, before_commit: Callable[[], None], commit: DriverCommit | None = None
    ) -> EpochReport:
        """Run one epoch to its end, or only commit it if it is already prepared.

        Args:
            frame: the rows that leave the job in this epoch.
            before_commit: called when the tasks have run, before the epoch is prepared, and, if it is prepared already,
                before it is committed; raises if the epoch was given up.
            commit: commits the targets of sinks that commit in the driver; None: one after the other, here.
        """
        return _SparkEpoch(self.deployment, frame, before_commit, commit or _commit_here).run(epoch)

    def is_prepared(self, epoch: int) -> bool:
        """Whether the epoch is prepared, so that sinks may have heard of it."""
        return epoch in PreparedEpochs(_files_of(self.deployment).prepared).epochs()


def _files_of(deployment: Deployment) -> EpochFiles:
    if deployment.files is None:
        raise InternalError("an epoch runs without a place for its files", hint="please report this")
    return deployment.files


class _SparkEpoch(EpochSteps):
    """The steps of one epoch on Spark, whose tasks run when the frame is asked for its rows."""

    def __init__(
        self, deployment: Deployment, frame: Any, before_commit: Callable[[], None], commit_on_driver: DriverCommit
    ) -> None:
        super().__init__(deployment.job())
        self._before_commit = before_commit
        self._deployment = deployment
        self._frame = frame
        self._commit_on_driver = commit_on_driver
        self._files = _files_of(deployment)
        self._fence = deployment.fence
        self._prepared_epochs = PreparedEpochs(self._files.prepared)
        self._accumulators = AccumulatorFiles(self._files.accumulators, deployment.first_epoch)
        self._totals: bytes | None = None

    # ------------------------------------------------------------------ before the barrier

    def _prepared(self, epoch: int) -> PreparedEpoch | None:
        attempt, path = self.job.attempt, self._files.prepared
        begun, _begun[path] = _begun.get(path), (attempt, epoch)
        if begun is not None and begun[0] == attempt and begun[1] < epoch:
            return None
        found = self._prepared_epochs.read(epoch)
        if found is not None:
            self._before_commit()
        return found

    def _run_tasks(self, epoch: int) -> Iterable[tuple[int, bytes]]:
        with described_jobs(self._frame.sparkSession, description_of_epoch(self.job, epoch)):
            result = self._frame.toArrow()
        return zip(result.column("vertex").to_pylist(), result.column("buffer").to_pylist())

    def _forget_times(self) -> None:
        StoredEpochTimes.delete(self._files.planner)

    def _keep_times(self, times: EpochTimes) -> None:
        StoredEpochTimes(times).write(self._files.planner)

    def _keep_timers(self, timers: dict[str, int | None]) -> None:
        PendingTimers(self._files.planner).update(timers)

    def _list_changes(self, epoch: int, changes: list[bytes]) -> None:
        # changes that came inline become a file here, or stay in the list if they are few
        changelog = self._files.changelog
        names = [data[1:].decode() for data in changes if data[:1] == CHANGES_IN_FILE]
        inline = [data[1:] for data in changes if data[:1] != CHANGES_IN_FILE]
        if sum(map(len, inline)) > FEW_BYTES:
            names.append(write_changes(changelog, epoch, inline))
            inline = []
        if names or inline or has_list(changelog, epoch):
            # the list is outside of the query's directory, which a newer driver has moved
            self._fence.check()
            write_parts(changelog, epoch, names, inline)

    def _keep_reached(self, epoch: int, reached: Reached) -> None:
        ReachedWatermarks(self._files.query).write(epoch, reached)

    def _keep_prepared(self, prepared: PreparedEpoch) -> None:
        self._before_commit()
        self._prepared_epochs.write(prepared, self._fence)

    def _request_next(self, epoch: int) -> None:
        EpochRequested(epoch).write(self._files.planner)

    def _totals_after(self, epoch: int, added: Sequence[bytes]) -> bytes:
        if self._totals is None:
            self._totals = self._accumulators.after(epoch, added, self.job.classes)
        return self._totals

    def _keep_totals(self, epoch: int, totals: bytes) -> None:
        self._accumulators.write(epoch, totals, self._fence)

    # ------------------------------------------------------------------ behind the barrier

    def _commit_sinks(self, prepared: PreparedEpoch) -> list[CommitReport]:
        job, session = self.job, self._frame.sparkSession
        commit = commit_of(job, prepared, self._fence, self._files)
        in_executors: list[Target] = []
        on_driver: list[Target] = []
        frames: dict[int, list[list[bytes]]] = {}
        for target in prepared.by_target(job):
            sink = job.sink(target[0])
            if isinstance(sink.sink, DataFrameSink):
                frames.setdefault(sink.id, []).append(target[2])
            elif commits_on_driver(sink):
                on_driver.append(target)
            else:
                in_executors.append(target)
        reports = self._commit_in_executors(session, prepared, in_executors) if in_executors else []
        reports.extend(self._commit_on_driver(commit, on_driver))
        for sink_id, subtasks in sorted(frames.items()):
            begun_s = time.monotonic()
            self._write_frame(session, commit, job.sink(sink_id), subtasks)
            # the sink does not say how many records it has written
            records = sum(decode(data).header.records for buffers in subtasks for data in buffers)
            reports.append(CommitReport(sink_id, 0, records, round((time.monotonic() - begun_s) * 1000, 3)))
        return reports

    def _commit_in_executors(self, session: Any, prepared: PreparedEpoch, targets: list[Target]) -> list[CommitReport]:
        uids = prepared.uids(self.job)
        function = CommitFunction(
            self._deployment, prepared.epoch, prepared.time_ms, prepared.end_of_input, tuple(targets), uids
        )
        names = [self.job.sink(number).name for number in dict.fromkeys(target[0] for target in targets)]
        with described_jobs(session, self._description_of_commit(prepared.epoch, names)):
            numbers = _numbers(session, len(targets), _MAX_COMMIT_TASKS)
            result = numbers.mapInArrow(function, _COMMIT_SCHEMA).toArrow()
        return [CommitReport(**row) for row in result.to_pylist()]

    def _write_frame(
        self, session: Any, commit: EpochCommit, sink: SinkDescriptor, subtasks: list[list[bytes]]
    ) -> None:
        assert isinstance(sink.sink, DataFrameSink)
        function = ReadFunction(self._files, tuple(subtasks), commit.epoch, self._deployment.secret)
        records = _numbers(session, len(subtasks), len(subtasks)).mapInArrow(function, _ddl(sink.sink, sink.input_type))
        passed(Phase.COMMIT_BEGUN, sink=sink.uid, subtask=0, epoch=commit.epoch)
        context = commit.context(sink, 0)
        for tries_left in reversed(range(_TRIES)):
            commit.fence.check()
            try:
                with described_jobs(session, self._description_of_commit(commit.epoch, [sink.name])):
                    sink.sink.write_frame(records, context)
                break
            except failures_of_user_code() as error:
                if tries_left and sink.sink.repeats_conflicts and is_conflict(error):
                    time.sleep(_PAUSE_S)
                    continue
                failure = failure_of_frame_sink(error, self._deployment.secret, commit.epoch, COMMIT_HINT)
                if type(failure) is ProgramError and failure is not error:
                    failure.hint = f"{failure.hint}; {how_to_skip(context)}"
                raise commit_failure(failure, f"sink '{sink.name}'", commit.epoch) from error
        passed(Phase.SINK_COMMITTED, sink=sink.uid, subtask=0, epoch=commit.epoch)

    def _description_of_commit(self, epoch: int, sinks: Sequence[str]) -> str:
        return _shortened(f"{self.job.name}: epoch {epoch}, commit of {', '.join(sinks)}")


def description_of_epoch(job: JobDescriptor, epoch: int) -> str:
    """What Spark's UI shows of the Spark job that runs the tasks of an epoch: name, epoch, and the operators of each
    vertex, such as ``clicks: epoch 9, Source: clicks -> Filter | Sum``."""
    return _shortened(f"{job.name}: epoch {epoch}, {' | '.join(vertex.name for vertex in job.vertices)}")


def _shortened(description: str) -> str:
    return description if len(description) <= _MAX_DESCRIPTION else f"{description[: _MAX_DESCRIPTION - 3]}..."


def _commit_here(commit: EpochCommit, targets: list[Target]) -> list[CommitReport]:
    return [commit.commit(*target) for target in targets]


def _numbers(session: Any, count: int, most: int) -> Any:
    """A DataFrame of the numbers from 0 to ``count`` - 1, in as many Spark partitions, but at most ``most``."""
    return session.range(0, count, 1, min(count, most))


def _ddl(sink: DataFrameSink, input_type: TypeInformation) -> Any:
    """The Spark schema of a sink's DataFrame, for ``mapInArrow``."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(frame_schema(sink, pa.schema(list(input_type.to_arrow_fields()))))
