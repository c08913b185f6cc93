"""Runs a job graph epoch by epoch in memory, with the same runtime as under Spark and with any clock.

In the place of Spark's shuffles and state stores there are lists of rows and a dict of tasks, which takes an epoch's
changes only when the whole epoch has succeeded, and which may be kept in files (`StoredEpochs`). The steps of an epoch
are those on Spark (``runtime/epoch/steps.py``).
"""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import tempfile
import uuid
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from flinkish.core.sink import NO_FENCE, Fence, WriterSink
from flinkish.core.source import SplitSource
from flinkish.errors import EpochTimeoutError, ProgramError
from flinkish.minicluster.stored_epochs import Committed, StoredEpochs, StoredTasks
from flinkish.runtime.epoch.commit import CommitReport, check_sinks, commit_of
from flinkish.runtime.epoch.files import PreparedEpoch
from flinkish.runtime.epoch.steps import Acknowledgements, EpochReport, EpochSteps, end_epoch
from flinkish.runtime.exchange.buffer import Buffer, decode
from flinkish.runtime.job.accumulators import merged
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor
from flinkish.runtime.job.operator import OperatorListener
from flinkish.runtime.job.report import LifecycleCall, Row
from flinkish.runtime.phases import Clock, Phase, SystemClock, passed
from flinkish.runtime.sources.alignment import Reached
from flinkish.runtime.sources.job_enumerator import NOTHING_READ, JobEnumerator
from flinkish.runtime.sources.progress import SourceProgress, SourceShare
from flinkish.runtime.sources.sizer import EpochTimes
from flinkish.runtime.sources.split_list import SegmentFiles, SegmentsInMemory, SegmentStore
from flinkish.runtime.task.progress import ProgressReporter
from flinkish.runtime.task.task import EpochStamp, heartbeats
from flinkish.runtime.task.task_manager import StoredTask, TaskManager

#: (vertex, subtask)
_TaskId = tuple[int, int]


@dataclass
class StateStore:
    """The stored state of a job: header and body of each task, the positions of the sources, and the next epoch. It
    outlives a MiniCluster, as a job directory outlives a driver."""

    tasks: StoredTasks = field(default_factory=dict)
    next_epoch: int = 0
    #: the positions of the sources after the last committed epoch
    offset: dict[str, Any] = field(default_factory=lambda: NOTHING_READ)
    #: the positions of the sources after the next epoch, once that is planned; a retry of the epoch has the same ones
    planned: dict[str, Any] | None = None
    #: what the tasks of the sources have reached in the last epoch
    reached: Reached = field(default_factory=Reached)
    #: storage of long lists of splits
    segments: SegmentStore = field(default_factory=SegmentsInMemory)
    #: the next epoch, once it is prepared, and the state that its tasks have written
    prepared: tuple[PreparedEpoch, StoredTasks] | None = None
    #: whether all input has ended and is committed
    finished: bool = False
    #: encoded totals of the job's accumulators
    accumulators: bytes = b""
    #: directory of the files of keyed state; "": all keyed state is in ``tasks``
    keyed_state: str = ""
    #: whether these files belong to a job that runs elsewhere, so that they are only read
    read_only: bool = False
    #: rows of the savepoint that the job begins with, for the first epoch
    restored: list[Row] = field(default_factory=list)
    #: uid of a source -> its position in that savepoint
    positions: dict[str, SourceProgress] = field(default_factory=dict)
    #: the files from which another process goes on with the job; None: the state lives as long as this process
    epochs: StoredEpochs | None = None
    _sources: str = ""

    @staticmethod
    def kept_in(job_dir: str, path: str, fence: Fence, keyed_state: str) -> StateStore:
        """The stored state of the job in a directory; empty for a job that has not run there.

        Args:
            job_dir: the job directory.
            path: the directory of the stored epochs, and ``keyed_state`` that of the files of keyed state, both in the
                job directory.
            fence: is checked before each write.

        Raises:
            CorruptStateError: a file is missing or damaged.
        """
        epochs = StoredEpochs(path, fence)
        epochs.sweep()
        store = StateStore(segments=SegmentFiles(job_dir, fence), keyed_state=keyed_state, epochs=epochs)
        store._sources = posixpath.join(job_dir, "sources")
        committed = epochs.committed()
        if committed is not None:
            end = epochs.epoch(committed.epoch)
            store.tasks, store.offset, store.reached = end.stored_tasks(), end.offset, end.reached
            store.finished, store.accumulators = committed.finished, committed.accumulators
            store.next_epoch = committed.epoch + 1
        prepared = epochs.prepared(store.next_epoch - 1)
        if prepared is not None:
            end = epochs.epoch(prepared.epoch)
            store.planned, store.reached, store.next_epoch = end.offset, end.reached, prepared.epoch
            store.prepared = prepared, end.stored_tasks()
        return store

    @property
    def has_begun(self) -> bool:
        """Whether the job has run an epoch, or prepared one."""
        return self.next_epoch > 0 or self.prepared is not None

    @property
    def committed_epoch(self) -> int | None:
        """The last committed epoch; None: there is none."""
        return None if self.offset == NOTHING_READ else self.next_epoch - 1

    def keep(self, epoch: int, planned: dict[str, Any], written: StoredTasks) -> None:
        """Write what the epoch leaves to its file, if the state is kept: it counts once the epoch is prepared or
        committed."""
        if self.epochs is not None:
            self.epochs.write(epoch, planned, self.reached, {**self.tasks, **written})

    def commit(self, report: EpochReport, planned: dict[str, Any], written: StoredTasks) -> None:
        """Make the end of an epoch, whose sinks have committed it, the one to go on from."""
        accumulators = report.accumulators or self.accumulators
        # of an epoch in which nothing has happened nobody needs to know
        if self.epochs is not None and (self.prepared or written or report.records_in or report.end_of_input):
            if self.prepared is None:
                self.keep(report.epoch, planned, written)
            self.epochs.commit(Committed(report.epoch, report.end_of_input, accumulators))
        self.tasks.update(written)
        self.accumulators = accumulators
        self.next_epoch = report.epoch + 1
        self.offset = planned
        self.planned = self.prepared = None
        self.restored = []
        self.finished = report.end_of_input

    def source_directories(self) -> str:
        """Path below which sources keep files of their own: a temporary directory that is deleted with this object."""
        if not self._sources:
            self._sources = os.path.join(tempfile.gettempdir(), f"flinkish-sources-{uuid.uuid4().hex}")
            weakref.finalize(self, shutil.rmtree, self._sources, ignore_errors=True)
        return self._sources


class MiniCluster:
    """Runs one job in this process, epoch by epoch.

    Epochs are as large as the limits per source permit, whatever they take: a test of a program must have the same
    epochs on each machine. With ``sized``, those of a job that may have processing-time timers are as short as on
    Spark:
    processing time stands still in an epoch.

    Args:
        job: the job graph.
        clock: gives each epoch its processing time; None: the clock of the system.
        store: the stored state to go on from; None: an empty one.
        max_records_per_epoch: the most records that each source reads in one epoch; None: as the job's settings say.
        listener: is notified of what each operator receives and emits.
        progress: reports what the tasks do while they run, from another thread.
        sized: see above.

    Raises:
        ProgramError: Spark reads a source of the job, or a sink takes Spark DataFrames.
    """

    def __init__(
        self,
        job: JobDescriptor,
        clock: Clock | None = None,
        store: StateStore | None = None,
        max_records_per_epoch: int | None = None,
        listener: OperatorListener | None = None,
        progress: ProgressReporter | None = None,
        sized: bool = False,
    ) -> None:
        _check_runs_here(job)
        shipped = job.settings.shipped
        shipped.install("")
        job = replace(job, settings=replace(job.settings, cached_files=shipped.cached_files("")))
        self.store = store if store is not None else StateStore()
        self._clock = clock or SystemClock()
        #: the sinks of a job that begins have nothing of it
        self._sinks_checked = not self.store.has_begun
        most = max_records_per_epoch or job.settings.max_records_per_epoch
        target_ms = job.settings.epoch_target_ms if sized and any(one.clocked for one in job.vertices) else 0
        settings = replace(job.settings, max_records_per_epoch=most, epoch_target_ms=target_ms)
        self.job = job = replace(job, settings=settings)
        #: how long the last epoch has taken, where that decides on the size of the next one
        self.times: EpochTimes | None = None
        # on Spark, planning runs in a process of its own
        share = job.settings.share_functions
        planned = tuple(replace(vertex, source=vertex.own_source(share)) for vertex in job.vertices)
        self._enumerator = JobEnumerator(
            replace(job, vertices=planned),
            self.store.segments,
            self._clock,
            self.store.positions,
            directory=self.store.source_directories(),
        )
        self._task_manager = TaskManager(
            job,
            keyed_state=self.store.keyed_state,
            listener=listener,
            read_only=self.store.read_only,
            progress=progress,
        )

        self._acknowledgements = Acknowledgements(job, self.store.segments)
        self._progress = progress
        self._stopping = False
        #: whether only what there was at `freeze` is read, and whether an epoch was planned since
        self._frozen = self._planned_frozen = False

    @property
    def has_given_up(self) -> bool:
        """Whether an epoch was given up, or is about to be."""
        return self._stopping and self.store.prepared is None

    def give_up(self) -> None:
        """Give up the running epoch, unless it is prepared, and all later ones: `run_epoch` fails with
        `EpochTimeoutError` when the record in work is processed. To be called, from another thread, until it has
        returned; only a cluster with ``progress`` need not process the rest of a batch."""
        self._stopping = True
        if self._progress is not None:
            self._progress.give_up()

    def freeze(self) -> None:
        """Read from now on only what there is now, as if no new data came in."""
        self._frozen = True
        self._enumerator.freeze()

    def has_more(self) -> bool:
        """Whether there is anything left for another epoch of a cluster that was frozen. Raises what `run_epoch`
        raises."""
        if self.store.prepared is not None or self.store.finished:
            return not self.store.finished
        with self._closed_on_failure():
            return self.plan() is not self.store.offset

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """The block runs with the files of the program at hand; if it fails, functions and enumerators are closed."""
        with self.job.settings.shipped.entered_here():
            try:
                yield
            except BaseException:
                self.dispose()
                raise

    def run(
        self, max_epochs: int | None = None, on_epoch: Callable[[EpochReport], None] | None = None
    ) -> list[EpochReport]:
        """Run until the end of the input, or for at most ``max_epochs`` epochs; returns the reports of the epochs.

        ``on_epoch`` is called with the report of each epoch when the epoch is committed.
        """
        reports: list[EpochReport] = []
        while not self.store.finished and (max_epochs is None or len(reports) < max_epochs):
            reports.append(self.run_epoch())
            if on_epoch is not None:
                on_epoch(reports[-1])
        return reports

    def run_epoch(self) -> EpochReport:
        """Run one epoch, all or nothing. After a failure, the next call runs the same epoch again with new instances of
        all functions; so does another MiniCluster on the same store."""
        with self._closed_on_failure():
            report = self._run_epoch(self.plan())
        if self.store.finished:
            self.dispose()
        return report

    @property
    def trace(self) -> Sequence[LifecycleCall]:
        """The last calls of the lifecycle of operators, if they are traced."""
        return self._task_manager.trace or ()

    def dispose(self) -> None:
        """Close all functions that are still open, because the job has ended or will not go on here."""
        self._task_manager.dispose()
        self._enumerator.close()
        self._acknowledgements.close()
        self._acknowledgements = Acknowledgements(self.job, self.store.segments)

    def plan(self) -> dict[str, Any]:
        """The positions of the sources after the next epoch; the same at each call until that epoch is committed."""
        if self.store.planned is None:
            # what depends on the clock is called once, as on Spark
            forced = not self._frozen or (not self._planned_frozen and bool(heartbeats(self.job)))
            self._planned_frozen = self._frozen
            planned = self._enumerator.next_offset(
                self.store.offset, forced=forced, reached=self.store.reached, times=self.times
            )
            if planned is self.store.offset:
                return planned
            self.store.planned, self.times = planned, None
        passed(Phase.PLANNED, epoch=self.store.next_epoch)
        return self.store.planned

    def _run_epoch(self, planned: dict[str, Any]) -> EpochReport:
        store, steps = self.store, _MiniEpoch(self, planned)
        if not self._sinks_checked:
            check_sinks(self.job, store.next_epoch if store.prepared else store.next_epoch - 1)
            self._sinks_checked = True
        report = steps.run(store.next_epoch)
        store.commit(report, planned, steps.written)
        end_epoch(report.epoch, _nothing_to_delete, self._acknowledgements, lambda: json.dumps(planned))
        return report

    def run_tasks(
        self, planned: dict[str, Any], stamp: EpochStamp, heartbeat: bool = True
    ) -> tuple[list[Row], StoredTasks]:
        """Run the tasks of an epoch, and nothing of what follows: no committer runs, and the store does not change.

        Args:
            planned: the positions of the sources at the end of the epoch.
            stamp: number and processing time of the epoch.
            heartbeat: whether tasks that depend on processing time are also called if they have no data.

        Returns:
            The rows that leave the job, and the state after the epoch.
        """
        rows: list[Row] = []
        written: StoredTasks = {}
        # as on Spark, where the sources are planned a moment before the epoch gets its processing time
        of_sources = replace(stamp, time_ms=planned["time_ms"])
        for level in range(self.job.levels + 1):
            vertices = [vertex for vertex in self.job.vertices if vertex.level == level]
            if level == 0:
                calls = heartbeats(self.job) if heartbeat else ()
                rows.extend((*calls, *self.store.restored))
                rows.extend(self._read_sources(self._enumerator.shares(self.store.offset, planned), of_sources))
            else:
                rows = self._run_level(vertices, rows, stamp, written)
        self._check_wanted()
        return rows, written

    def _check_wanted(self) -> None:
        """Raise if the epoch was given up: some of its tasks may have left out records."""
        if self._stopping:
            raise EpochTimeoutError(
                "the epoch is given up, because the job is being stopped", where=f"job '{self.job.name}'"
            )

    def _read_sources(self, shares: Iterable[SourceShare], stamp: EpochStamp) -> list[Row]:
        rows: list[Row] = []
        for share in shares:
            self._check_wanted()
            for part in self._task_manager.run_source(share.vertex, share.subtask, share, stamp):
                rows.extend(part)
        return rows

    def _run_level(
        self,
        vertices: list[VertexDescriptor],
        rows: list[Row],
        stamp: EpochStamp,
        written: StoredTasks,
    ) -> list[Row]:
        here = {vertex.id for vertex in vertices}
        inputs: dict[_TaskId, list[Buffer]] = defaultdict(list)
        result = [row for row in rows if row[0] not in here]
        for vertex, subtask, data in rows:
            if vertex in here:
                inputs[vertex, subtask].append(decode(data))
        for descriptor in vertices:
            for subtask in range(descriptor.parallelism):
                identity = (descriptor.id, subtask)
                self._check_wanted()
                if identity in inputs:
                    result.extend(self._run_task(identity, inputs[identity], stamp, written))
        return result

    def _run_task(
        self,
        identity: _TaskId,
        buffers: list[Buffer],
        stamp: EpochStamp,
        written: StoredTasks,
    ) -> list[Row]:
        header, body = self.store.tasks.get(identity, (None, None))
        stored = StoredTask(header, lambda: body)
        result, rows = self._task_manager.run_task(*identity, stored, buffers, stamp)
        if result is not None:
            written[identity] = (result.header.encode(self.job.classes), result.body if result.body_written else body)
        return rows


class _MiniEpoch(EpochSteps):
    """The steps of one epoch in the minicluster. What it leaves becomes the stored state with the epoch's metadata."""

    def __init__(self, cluster: MiniCluster, planned: dict[str, Any]) -> None:
        super().__init__(cluster.job)
        self._cluster = cluster
        self._store = cluster.store
        self._planned = planned
        #: the state that the tasks of the epoch have written
        self.written: StoredTasks = {}

    def _prepared(self, epoch: int) -> PreparedEpoch | None:
        if self._store.prepared is None:
            return None
        prepared, self.written = self._store.prepared
        return prepared

    def _run_tasks(self, epoch: int) -> Iterable[tuple[int, bytes]]:
        rows, self.written = self._cluster.run_tasks(self._planned, EpochStamp(epoch, self._planned["time_ms"]))
        return [(vertex, data) for vertex, _, data in rows]

    def _forget_times(self) -> None:
        """Times count for one plan."""

    def _keep_times(self, times: EpochTimes) -> None:
        self._cluster.times = times

    def _keep_timers(self, timers: dict[str, int | None]) -> None:
        """The minicluster calls all tasks in each epoch, and has epochs without data in any case."""

    def _list_changes(self, epoch: int, changes: list[bytes]) -> None:
        """The checkpoints of the minicluster are full ones."""

    def _keep_reached(self, epoch: int, reached: Reached) -> None:
        # an epoch that runs again has the same plan, so it reads the same splits
        self._store.reached = reached.behind(self._store.reached)

    def _keep_prepared(self, prepared: PreparedEpoch) -> None:
        self._store.keep(prepared.epoch, self._planned, self.written)
        if self._store.epochs is not None:
            self._store.epochs.prepare(prepared)
        self._store.prepared = prepared, self.written

    def _request_next(self, epoch: int) -> None:
        """The minicluster plans the next epoch at once in any case."""

    def _commit_sinks(self, prepared: PreparedEpoch) -> list[CommitReport]:
        epochs = self._store.epochs
        commit = commit_of(self.job, prepared, NO_FENCE if epochs is None else epochs.fence)
        return [commit.commit(*target) for target in prepared.by_target(self.job)]

    def _totals_after(self, epoch: int, added: Sequence[bytes]) -> bytes:
        return merged(self._store.accumulators, added, self.job.classes)

    def _keep_totals(self, epoch: int, totals: bytes) -> None:
        """They are in the epoch's report, and stored with its metadata."""


def _nothing_to_delete() -> None:
    """What was prepared is forgotten with the commit of the metadata."""


def _check_runs_here(job: JobDescriptor) -> None:
    """Check that no source or sink of the job needs Spark."""
    for vertex in job.vertices:
        if vertex.source is not None and not isinstance(vertex.source, SplitSource):
            raise ProgramError(
                f"the source of '{vertex.name}' is read by Spark",
                where=f"job '{job.name}'",
                expected="a source that Python reads in the minicluster (not Delta, not from_spark)",
                hint="run the job on Spark (execution.target: spark), or put another one in its place in tests",
            )
    for sink in job.sinks:
        if not isinstance(sink.sink, WriterSink):
            raise ProgramError(
                f"the sink '{sink.name}' takes Spark DataFrames",
                where=f"job '{job.name}'",
                expected="a sink with a writer in the minicluster (print, collect, files, JDBC)",
                hint="run the job on Spark (execution.target: spark), or put another one in its place in tests",
            )
