"""The run of a job in the minicluster: in this process and without Spark, with the job directory, savepoints,
checkpoints and restarts that it has on Spark.

Rule: the directory holds the state of the last committed epoch, so that a process that was killed goes on there.
Checkpoints, and savepoints, are those of Spark: full ones, each with a table of its own, written between two epochs.
"""

from __future__ import annotations

import base64
import logging
import posixpath
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from flinkish.checkpoint.claim import (
    check_same_savepoint,
    delete_checkpoints,
    describe_restored,
    read_restored,
    remember_restored,
    subsume_claimed,
    with_restored_times,
)
from flinkish.checkpoint.compatibility import CompatibilityReport, incompatible, read_states
from flinkish.checkpoint.coordinator import Barrier, Barriers, CheckpointCoordinator
from flinkish.checkpoint.manifest import CheckpointDirectory, Manifest, Savepoint, state_table
from flinkish.checkpoint.plain_tables import (
    Read,
    TakenIn,
    nobody_asks,
    positions_in,
    take_in_savepoint,
    write_plainly,
)
from flinkish.common.configuration import Configuration
from flinkish.common.dependencies import dependencies_of
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.core.source import Source
from flinkish.errors import CheckpointError, ConfigurationError, FencedError, FlinkishError, OperationError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.jobdir.checks import check_nothing_missing
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import Job, QueryFile, Restored
from flinkish.jobdir.ownership import take_ownership
from flinkish.jobdir.waiting_epoch import continue_sources, known_sources
from flinkish.jobmanager.decision import End
from flinkish.jobmanager.job.description import CheckpointDescription, RestoreDescription
from flinkish.jobmanager.job.lifecycle import StateMachine
from flinkish.jobmanager.job.settings import DriverSettings, directory_of_job, driver_settings
from flinkish.jobmanager.kept_run import KeptRun
from flinkish.jobmanager.restart import Restarts
from flinkish.jobmanager.savepoint import take_savepoint
from flinkish.jobmanager.submitted_program import sent_to_minicluster
from flinkish.jobmanager.wishes import StopWithSavepoint
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.sources.job_enumerator import coordinated_sources
from flinkish.runtime.sources.progress import decode_position, shown_position
from flinkish.runtime.stored.classes import files_here
from flinkish.runtime.task.progress import EpochProgress, ProgressReporter
from flinkish.runtime.task.stack_samples import SampleBoard
from flinkish.spark.failures import translate
from flinkish.spark.worker import secret_of
from flinkish.storage.files import directory_bytes
from flinkish.storage.paths import is_local

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")

#: Seconds between two looks at whether the end of an epoch is still waited for.
_LOOK_S = 0.1

#: The number of Spark partitions that the job directory remembers of a job in the minicluster.
NO_SPARK = 0


def claim_directory(
    settings: DriverSettings, name: str, waiting: Callable[[], None] = lambda: None
) -> tuple[JobDirectory, bool]:
    """The job's directory, claimed by this process; and whether it is a temporary one. ``waiting``: as for
    `prepare_directory` of Spark.

    Raises:
        ConfigurationError: the directory is not on a local file system.
        FencedError: another process runs a job there.
    """
    given = settings.job_dir
    if given is None:
        return JobDirectory(tempfile.mkdtemp(prefix="flinkish-")), True
    if not is_local(given):
        raise ConfigurationError(
            "the minicluster keeps a job on a local file system only",
            where=f"job '{name}', flinkish.job.dir = '{given}'",
            expected="a local directory",
            hint="name one, or run the job on Spark",
        )
    directory = JobDirectory(directory_of_job(given, name))
    directory.check_private()
    take_ownership(None, directory, name, settings.takeover, waiting=waiting)
    return directory, False


@dataclass(frozen=True)
class Prepared:
    """A job that is ready to run: its graph, its stored state, and source uid -> the position that the savepoint has
    with which the job has begun."""

    job: JobDescriptor
    store: StateStore
    began: dict[str, str]
    restored: RestoreDescription | None = None


def prepare(
    generator: JobGraphGenerator,
    name: str,
    settings: DriverSettings,
    directory: JobDirectory,
    temporary: bool,
    job_id: JobID | None = None,
    read: Read = nobody_asks,
) -> Prepared:
    """Make the job ready: it goes on from its directory, or begins, with a savepoint if the settings name one.

    Args:
        job_id: the id of a job that begins; None: a new one.
        read: is told how many parts of the savepoint are read, and of how many; what it raises ends the restore.

    Raises:
        FinalOperationError: the program does not fit the directory, or the savepoint cannot be restored.
    """
    job = sent_to_minicluster(generator.generate(directory.job_id() or (job_id or JobID()).to_hex_string(), name))
    attempts, store = 0, StateStore()
    remembered: Restored | None = None
    if not temporary:
        attempts, store = _opened(directory, job)
        remembered = read_restored(directory)
    job = replace(job, attempt=attempts)
    if store.has_begun:
        check_same_savepoint(job, settings, directory, remembered)
    elif settings.savepoint is not None:
        remembered = _restore(generator, job, settings, settings.savepoint, directory, store, read)
    elif remembered is not None:
        directory.delete(Restored)
        remembered = None
    if not temporary:
        # only now, so that a start which fails during its restore is a first run again when it is repeated
        directory.remember_structure(job, NO_SPARK)
        if directory.read(QueryFile) is None:
            directory.move_query("minicluster", 0)
    uids = [one.uid for one in coordinated_sources(job)]
    began: dict[str, str] = {} if remembered is None else remembered.sources
    store.positions = {uid: decode_position(began[uid], uid, store.segments) for uid in uids if uid in began}
    job = replace(
        with_restored_times(job, remembered),
        restored=remembered is not None,
        settings=replace(job.settings, given_up=directory.given_up()),
    )
    return Prepared(job, store, began, describe_restored(remembered))


def _opened(directory: JobDirectory, job: JobDescriptor) -> tuple[int, StateStore]:
    """How often the job was started in its directory, and the stored state that it has there.

    Raises:
        FinalOperationError: the program does not fit the directory, or a file is missing or damaged.
    """
    check_nothing_missing(directory.path)
    directory.check_finished_by(job)
    directory.check_compatible(job, NO_SPARK)
    attempts = directory.count_start()
    located = directory.read(QueryFile) is not None
    location = directory.query_location().path if located else posixpath.join(directory.path, "minicluster")
    store = StateStore.kept_in(directory.path, location, directory.fence, directory.keyed_state)
    if store.has_begun and directory.job_id() is None:
        raise Job.missing(directory.path)
    return attempts, store


def _restore(
    generator: JobGraphGenerator,
    job: JobDescriptor,
    settings: DriverSettings,
    savepoint: str,
    directory: JobDirectory,
    store: StateStore,
    read: Read,
) -> Restored:
    opened, taken = _taken_in(generator, job, settings, savepoint, read)
    if not taken.report.compatible:
        raise incompatible(taken.report, job)
    passed(Phase.RESTORE_PREPARED, savepoint=savepoint)
    store.restored = taken.rows
    # the rows are only in memory: until the first epoch is prepared, the next start restores the savepoint again
    found = remember_restored(directory, job, settings.claim_mode, opened, taken.times, rows="restore")
    passed(Phase.RESTORE_APPLIED, savepoint=savepoint)
    return found


def report_of(generator: JobGraphGenerator, configuration: Configuration, name: str) -> CompatibilityReport:
    """The report of what a start from the savepoint that is configured would take over; nothing is written.

    Raises:
        SavepointError: there is no such savepoint, or it is damaged.
    """
    settings = driver_settings(configuration)
    assert settings.savepoint is not None
    generator.with_shipped_files(files_here(dependencies_of(configuration)))
    job = sent_to_minicluster(generator.generate(JobID().to_hex_string(), name))
    return _taken_in(generator, job, settings, settings.savepoint)[1].report


def _taken_in(
    generator: JobGraphGenerator, job: JobDescriptor, settings: DriverSettings, savepoint: str, read: Read = nobody_asks
) -> tuple[Savepoint, TakenIn]:
    job.settings.shipped.install("")
    with job.settings.shipped.entered_here():
        return take_in_savepoint(savepoint, job, generator.migrations(), settings.ignore_unclaimed_state, read)


class MiniClusterRun(KeptRun):
    """A run in the minicluster, in this process and without Spark.

    While epochs read nothing, the pauses between them grow up to ``flinkish.heartbeat.interval``.
    """

    #: The pause after the first epoch that has read nothing.
    FIRST_PAUSE_S = 0.001

    #: The pause between two looks at whether the epoch that is given up has ended, and the longest pause before.
    _LOOK_S, _LONG_LOOK_S = 0.01, 1.0

    def __init__(
        self,
        prepared: Prepared,
        settings: DriverSettings,
        directory: JobDirectory,
        temporary: bool,
        restarts: Restarts | None = None,
        machine: StateMachine[JobStatus] | None = None,
    ) -> None:
        super().__init__(prepared.job, settings, directory, temporary, restarts, machine)
        self._job = prepared.job
        self._began = prepared.began
        self.restored = prepared.restored
        self.store = prepared.store
        self._heartbeat_interval_s = settings.heartbeat_interval_ms / 1000
        self._cluster: MiniCluster | None = None
        self._board = SampleBoard()
        self._gave_up = False
        #: whether the attempt has still to run its epochs
        self._has_more = False
        #: held while an epoch runs, and while a savepoint is written; and by whoever is the next to hold it
        self._at_work, self._next = threading.Lock(), threading.Lock()
        self.checkpoints = self._taker = FullCheckpoints(self, self.checkpoint_directory)

    @property
    def job(self) -> JobDescriptor:
        return self._job

    @property
    def sample_board(self) -> SampleBoard:
        return self._board

    def committed_epoch(self) -> int | None:
        return self.store.committed_epoch

    def take_savepoint(self, directory: str | None) -> str:
        with self.between_epochs(self.savepoint_turns.check):
            return take_savepoint(self, directory)

    @contextmanager
    def between_epochs(self, check: Callable[[], None]) -> Iterator[None]:
        """Within the block no epoch runs. ``check`` is called while the end of one is waited for; what it raises ends
        the wait."""
        with _held(self._next, check), _held(self._at_work, check):
            yield

    def write_savepoint(self, epoch: int, path: str) -> Manifest:
        states, known = read_states(self.directory), known_sources(self.directory)
        check = self.savepoint_turns.check
        with self.saving.noted(path):
            return write_plainly(self.job, self.store, epoch, path, states, known, check)

    def stop_with_savepoint(self, stop: StopWithSavepoint) -> None:
        """End the job with a savepoint; see `KeptRun.stop_with_savepoint`.

        Raises:
            OperationError: the job is to be drained, which only Spark can do.
        """
        if stop.drain:
            raise OperationError(
                "the minicluster cannot drain a job",
                where=f"job '{self.name}'",
                expected="a stop with a savepoint, without a drain",
                hint="stop the job without a drain; to drain it, start it on Spark from that savepoint",
            )
        super().stop_with_savepoint(stop)

    def _input_has_ended(self) -> bool:
        return self.store.finished

    def _is_bounded(self) -> bool:
        return all(one.source.bounded for one in coordinated_sources(self.job))

    def _wake(self) -> None:
        # a thread of its own: this one may be that of the job, or in a signal handler
        threading.Thread(target=self._give_up, name="flinkish-give-up", daemon=True).start()

    def _give_up(self) -> None:
        """Give up the epoch that has not ended in time, as long as the job is to stop."""
        pause_s = 0.0
        while not self.over.wait(pause_s) and self.wishes.to_end:
            left_s = self.wishes.epoch_deadline_s - time.monotonic()
            with self._lock:
                if left_s <= 0 and self._cluster is not None and self.wishes.to_end:
                    self._gave_up = True
                    self._cluster.give_up()
            pause_s = min(max(left_s, self._LOOK_S), self._LONG_LOOK_S)

    # ------------------------------------------------------------------ the thread

    def begin_attempt(self) -> None:
        self._continue_sources()
        self._ready_cluster()
        self._has_more = True

    def has_more_queries(self) -> bool:
        return self._has_more

    def run_query(self, again: bool) -> None:
        """Run the epochs of the attempt, which are its one query."""
        self._has_more = False
        self._run_epochs(self._ready_cluster())

    def _conclude(self, end: End) -> None:
        self._dispose()
        super()._conclude(end)

    def _conclude_failed(self, failure: FlinkishError) -> None:
        self._in_any_case(self._dispose, "the job has failed")
        super()._conclude_failed(failure)

    def _dispose(self) -> None:
        with self._lock:
            cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.dispose()
            self._trace(cluster)

    def _trace(self, cluster: MiniCluster) -> None:
        if cluster.trace:
            self.lifecycle_traced(list(cluster.trace))

    def _continue_sources(self) -> None:
        """Ask the sources whether they can go on, unless they begin, and nobody will ever ask them again."""
        if self._began or not self._temporary:
            committed = self.committed_epoch() is not None
            now = positions_in(self.job, self.store, known_sources(self.directory)) if committed else {}
            sources: dict[int, Source] = {one.vertex: one.source for one in coordinated_sources(self.job)}
            continue_sources(self.job, sources, self.directory, {**self._began, **now})

    def _ready_cluster(self) -> MiniCluster:
        """The cluster of all attempts: it opens functions anew after a failure. One whose epoch was given up is
        replaced by another one with the same stored state."""
        with self._lock:
            if self._cluster is None or self._gave_up:
                job = self.job
                reporter = ProgressReporter(
                    job,
                    lambda worker: self.epoch_running(EpochProgress.of(job, [worker])),
                    board=self._board if job.settings.flame_graphs else None,
                )
                self._cluster, self._gave_up = MiniCluster(job, store=self.store, progress=reporter, sized=True), False
                if self.settings.available_now:
                    self._cluster.freeze()
            return self._cluster

    def _run_epochs(self, cluster: MiniCluster) -> None:
        self.query_started()
        pause_s = 0.0
        while not self.store.finished and not self.wishes.wait_for_end(pause_s):
            if self.settings.available_now and not cluster.has_more():
                return
            with self._next:
                pass
            self.epoch_begun()
            try:
                with self._at_work:
                    report = cluster.run_epoch()
            except Exception:
                if self.wishes.to_end and cluster.has_given_up:
                    return
                raise
            self.epoch_done(report)
            self.epoch_committed(report.epoch)
            self._trace(cluster)
            self._taker.after_epoch(report)
            longer_s = min(2 * pause_s or self.FIRST_PAUSE_S, self._heartbeat_interval_s)
            pause_s = 0.0 if report.records_in or self.store.finished else longer_s


@contextmanager
def _held(lock: threading.Lock, check: Callable[[], None]) -> Iterator[None]:
    while not lock.acquire(timeout=_LOOK_S):
        check()
    try:
        yield
    finally:
        lock.release()


class FullCheckpoints:
    """Takes the checkpoints of a run in the minicluster, in the thread that runs epochs."""

    def __init__(self, run: MiniClusterRun, directory: CheckpointDirectory) -> None:
        self._run = run
        self._settings = run.settings.checkpoints
        self.directory = directory
        self.coordinator = CheckpointCoordinator(
            self._settings,
            f"job '{run.name}'",
            directory.next_id,
            ended=run.checkpoint_ended,
        )
        self._barriers = Barriers()
        self._barriers.begin(run.store.accumulators)
        self._taken: int | None = None
        self._closed = False
        #: held while a checkpoint is taken
        self._taking = threading.Lock()

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last checkpoints, oldest first."""
        return self.coordinator.describe()

    def barrier(self, epoch: int) -> Barrier:
        """What is known of the job at the end of an epoch."""
        return self._barriers.of(epoch)

    def after_epoch(self, report: EpochReport) -> None:
        """Take a checkpoint of a committed epoch if one is due.

        Raises:
            CheckpointError: too many checkpoints in a row have failed.
        """
        self._barriers.add(self._run.job, report)
        if self.coordinator.due_in_ms() == 0:
            with self._taking:
                self._take(report.epoch)

    def take_last(self, timeout_s: float | None = None) -> str | None:
        """Take a checkpoint of the last committed epoch, unless there is one; returns its path, None when there is
        none."""
        epoch = self._run.committed_epoch()
        if self._settings.enabled and epoch is not None and epoch != self._taken:
            try:
                with self._taking:
                    self._take(epoch)
            except CheckpointError:
                return None
        found = (one.path for one in self.describe() if one.epoch == epoch and one.status == "COMPLETED")
        return next(found, None)

    def take_now(self, full: bool) -> int:
        """Take a checkpoint by hand and wait for it; see `Checkpoints.take_now`. All of them are full ones."""
        with self._run.between_epochs(self._check_open), self._taking:
            self._check_open()
            epoch = self._run.committed_epoch()
            if epoch is None:
                raise CheckpointError("no epoch has been committed yet", where=f"job '{self._run.name}'")
            return self._take(epoch, by_hand=True)

    def _check_open(self) -> None:
        if self._closed or self._run.over.is_set():
            raise CheckpointError("the job has ended", where=f"job '{self._run.name}'")

    def close(self, delete: bool = False) -> None:
        """Take no more checkpoints, because the job has ended. ``delete``: delete them, nobody will need them."""
        with self._taking:
            self._closed = True
        if delete:
            delete_checkpoints(self.directory, self._run.directory, self._run.name)

    def _check(self) -> None:
        self._run.directory.check_owner(self._run.name)

    def _take(self, epoch: int, by_hand: bool = False) -> int:
        """Take one; returns its number, 0 if it has failed, which only too many in a row, or one by hand, raise."""
        try:
            # checked first: the number is written to a file of the job, which another process may have taken over
            self._check()
            description = self._written(self.coordinator.trigger(epoch, self.directory.checkpoint))
        except Exception as error:
            job = self._run.job
            typed = translate(error, f"job '{job.name}'", secret_of(job.job_id, job.attempt))
            reason = f"{type(typed).__name__}: {typed}"
            failure = self.coordinator.fail(reason, counts=not by_hand and not isinstance(typed, FencedError))
            _LOG.warning("job '%s': a checkpoint failed: %s", self._run.name, reason)
            if failure is not None or by_hand:
                raise (failure or typed) from error
            return 0
        self._taken = epoch
        self.coordinator.update(description)
        self.coordinator.complete()
        passed(Phase.CHECKPOINT_COMPLETED, epoch=epoch)
        try:
            left = self.directory.drop_but(self._settings.num_retained, self._check)
            subsume_claimed(self._run.directory, len(left), self._settings.num_retained)
        except Exception as error:
            _LOG.warning("job '%s': old checkpoints could not be deleted: %s", self._run.name, error)
        return description.id

    def _written(self, pending: CheckpointDescription) -> CheckpointDescription:
        run, barrier = self._run, self._barriers.of(pending.epoch)
        manifest = write_plainly(
            run.job,
            run.store,
            pending.epoch,
            self.directory.checkpoint(pending.id),
            read_states(run.directory),
            known_sources(run.directory),
            watermarks=barrier.watermarks,
            accumulators=base64.b64encode(run.store.accumulators).decode(),
        )
        assert manifest.contents is not None
        table = state_table(self.directory.checkpoint(pending.id))
        return replace(
            pending,
            bytes_written=directory_bytes(table),
            offsets={uid: shown_position(position) for uid, position in manifest.sources.items()},
            rows_written=sum(state.rows for state in manifest.contents.states),
            state_rows=manifest.contents.rows_of_operators,
            **barrier.figures(),
        )
