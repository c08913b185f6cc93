"""The run of a job on Spark: its attempts, one after the other, until the job ends, and the plan of each of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flinkish.checkpoint.claim import describe_restored, read_restored
from flinkish.checkpoint.manifest import Manifest
from flinkish.common.job_status import JobStatus
from flinkish.core.source import SplitSource
from flinkish.error_display import with_sources
from flinkish.errors import (
    CorruptStateError,
    FlinkishError,
    TypeMismatchError,
    UserCodeError,
    redact,
)
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.waiting_epoch import DrainMarker
from flinkish.jobmanager.attempt import AttemptPlan, QueryAttempt
from flinkish.jobmanager.decision import Failure, Outcome
from flinkish.jobmanager.drain import DrainAttempt, begin_drain
from flinkish.jobmanager.epoch_gate import StateReaders
from flinkish.jobmanager.job.lifecycle import StateMachine
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.jobmanager.kept_run import KeptRun
from flinkish.jobmanager.remote import WAIT_FILE
from flinkish.jobmanager.restart import Restarts
from flinkish.jobmanager.savepoint import StopWithSavepoint, check_target, take_savepoint, write_by_spark
from flinkish.launch.driver import replay_command
from flinkish.runtime.epoch.commit import COMMIT_HINT
from flinkish.runtime.job.accumulators import AccumulatorFiles, accumulators_directory
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.spark.failures import translate
from flinkish.spark.session import is_remote

_LOG = logging.getLogger("flinkish.JobMaster")


class SparkRun(KeptRun):
    """Runs one job on Spark, and drains it.

    Args:
        spark: the Spark session.
        plan: the plan of the first attempt.
        next_plan: makes the plan of the attempt that follows a failed one.
        settings: the driver's settings.
        directory: the job directory, claimed by this driver; it is released when the job has ended.
        temporary: whether the directory is a temporary one, which is deleted when the job has ended.
        restarts: decides whether a failed attempt is followed by another one.
        life: the state machine of the job since its submission.
    """

    def __init__(
        self,
        spark: Any,
        plan: AttemptPlan,
        next_plan: Callable[[], AttemptPlan],
        settings: DriverSettings,
        directory: JobDirectory,
        temporary: bool,
        restarts: Restarts | None = None,
        life: StateMachine[JobStatus] | None = None,
    ) -> None:
        super().__init__(plan.job, settings, directory, temporary, restarts, life)
        self.spark = spark
        self._next_plan = next_plan
        self.attempt = self._make_attempt(plan)
        #: lets the next attempt begin with the last checkpoint in Delta, and returns a text that says so
        self.fall_back: Callable[[CorruptStateError], str] | None = None
        #: those for whom epochs wait
        self.readers = StateReaders(self._readers_changed)

    def _make_attempt(self, plan: AttemptPlan) -> QueryAttempt:
        self._plan = plan
        marker = DrainMarker.read(self.directory)
        if marker is not None:
            return DrainAttempt(self.spark, plan, self.settings, self.directory, self, marker)
        return QueryAttempt(self.spark, plan, self.settings, self.directory, self, self._stop)

    @property
    def job(self) -> JobDescriptor:
        return self._plan.job

    def committed_epoch(self) -> int | None:
        return self.attempt.committed_epoch()

    def take_savepoint(self, directory: str | None) -> str:
        return take_savepoint(self, directory)

    def write_savepoint(self, epoch: int, path: str) -> Manifest:
        with self.saving.noted(path):
            return write_by_spark(self, epoch, path)

    def _input_has_ended(self) -> bool:
        return self.attempt.ended

    def _is_bounded(self) -> bool:
        return all(source.bounded for source in self.attempt.sources.values())

    def _wake(self) -> None:
        self.attempt.wake()

    def last_epoch_to_begin(self) -> float:
        """The last epoch that may begin now: a later one waits for those who read the state of an earlier one."""
        return self.readers.last_epoch

    def _readers_changed(self) -> None:
        wait = self.readers.described()
        if wait is None:
            self.warnings.pop("epochs wait", None)
        else:
            _LOG.warning("job '%s': %s", self.name, wait)
            self.warnings["epochs wait"] = wait
        if not is_remote(self.spark):
            return
        if wait is None:
            self.directory.delete(WAIT_FILE)
        else:
            self.directory.write(WAIT_FILE, {"token": self.directory.token, "last_epoch": int(self.readers.last_epoch)})

    # ------------------------------------------------------------------ the thread

    def _run_attempt(self, again: bool) -> None:
        try:
            if again:
                self.attempt = self._make_attempt(self._next_plan())
                self._attempt_started()
            self._run_or_fall_back()
            self._failure = None
        except FlinkishError as error:
            self._failure = self._with_replay(error)
            raise
        except Exception as error:
            self._failure = self._with_replay(translate(error, f"job '{self.name}', directory {self.directory.path}"))
            raise self._failure from error

    def _with_replay(self, failure: FlinkishError) -> FlinkishError:
        """The same error; one of user code in a task also says how to run its epoch again, and has the lines of the
        program, of which the workers do not know those of a notebook's cells."""
        if isinstance(failure, UserCodeError):
            failure.user_traceback = redact(with_sources(failure.user_traceback))
        of_task = isinstance(failure, (UserCodeError, TypeMismatchError)) and failure.place
        planned = all(isinstance(source, SplitSource) for source in self.attempt.sources.values())
        kept = planned and not self._temporary and not is_remote(self.spark)
        if of_task and kept and failure.epoch is not None and COMMIT_HINT not in failure.hint:
            command = replay_command(self.directory.path, failure.epoch)
            if command:
                failure.hint += f"; to see the epoch again: {command}"
        return failure

    def _run_or_fall_back(self) -> None:
        """Run the attempt; when the query's own checkpoint is damaged, run another one from the last checkpoint in
        Delta."""
        while True:
            try:
                return self.attempt.run()
            except CorruptStateError as error:
                if self.fall_back is None:
                    raise
                self._compare(Outcome.FAILED, "GoBack", failure=Failure.DAMAGED)
                # the hint shows in the exceptions of the job
                error.hint = self.fall_back(error)
                self._attempt_failed(error, 0)
                self._tell(error.hint)
                cancels = self._stopped_anyway and self._end_as is JobStatus.CANCELED
                done = self._end_of_attempt(self._stopping) if cancels else "Prepare the next attempt"
                self._compare(Outcome.WENT_BACK, done)
                if cancels:
                    return None
            self.attempt = self._make_attempt(self._next_plan())
            self.read_totals()
            self._attempt_started()

    def read_totals(self) -> None:
        """Read the totals of the accumulators from the job directory, and what the job was restored from: at the start,
        and after a fallback to a checkpoint."""
        self.restored = describe_restored(read_restored(self.directory))
        if self.record is not None:
            first_epoch = self.directory.query_location().first_epoch
            files = AccumulatorFiles(accumulators_directory(self.directory.path), first_epoch)
            self.record.accumulators = files.before(None)

    # ------------------------------------------------------------------ a drain

    def _is_draining(self) -> bool:
        return isinstance(self.attempt, DrainAttempt)

    def _drain_has_begun(self) -> bool:
        return not self._is_draining() and DrainMarker.read(self.directory) is not None

    def _begin_to_drain(self) -> None:
        self.attempt = self._make_attempt(self._plan)

    def _write_savepoint_of(self, stop: StopWithSavepoint) -> None:
        """Write the savepoint; or, if the job is to be drained, the marker after which it can only be drained."""
        drains = stop.drain and not self.attempt.ended
        if self._failure is None and self._is_draining():
            return
        if self._failure is None and drains:
            check_target(stop.directory, f"job '{self.name}'")
            begin_drain(self.attempt, self.directory, stop.directory)
        else:
            super()._write_savepoint_of(stop)

    def _remember_end(self) -> None:
        """A job that was drained is over after its final savepoint."""
        if isinstance(self.attempt, DrainAttempt):
            self._drained_savepoint = self.take_savepoint(self.attempt.savepoint_directory)
            self.end_as(JobStatus.FINISHED)
            self._write_end(self._drained_savepoint, done=True)
        else:
            super()._remember_end()
