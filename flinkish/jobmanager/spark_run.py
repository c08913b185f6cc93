"""A job on Spark: its attempts, one after the other, until it ends."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Callable
from typing import Any

from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.errors import CorruptStateError, FinalOperationError, FlinkishError, SavepointError
from flinkish.jobmanager.attempt.query_attempt import AttemptPlan, QueryAttempt
from flinkish.jobmanager.attempt.remote_reports import STOP_FILE
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.directory.ownership import take_ownership
from flinkish.jobmanager.directory.path_check import temporary_directory
from flinkish.jobmanager.drain.attempt import DrainAttempt
from flinkish.jobmanager.drain.marker import DrainMarker
from flinkish.jobmanager.drain.procedure import begin_drain
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.lifecycle.state_machine import StateMachine
from flinkish.jobmanager.restart.decision import Restarts
from flinkish.jobmanager.savepoints.savepoint import take_savepoint
from flinkish.jobmanager.settings import DriverSettings
from flinkish.spark.failures import translate

#: Where the job directory says that a bounded job has got to its end.
FINISHED_FILE = "finished.json"


class SparkRun(JobRun):
    """One job. ``next_plan`` makes the plan of the attempt after a failed one."""

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
        super().__init__(JobID.from_hex_string(plan.job.job_id), plan.job.name, life, restarts)
        if plan.job.attempt:
            times = f"{plan.job.attempt} time{'s'[: plan.job.attempt != 1]}"
            self.taken_over = f"earlier drivers have started it {times} in {directory.path}"
        self.shutdown_timeout_s = settings.shutdown_timeout_s
        self.spark = spark
        self.directory = directory
        self.settings = settings
        self._next_plan = next_plan
        self._temporary = temporary
        self.attempt = self._make_attempt(plan)
        #: what the last attempt has failed with, in the midst of an epoch
        self._failure: FlinkishError | None = None
        #: lets the next attempt begin with the last checkpoint in Delta, and says what was done
        self.fall_back: Callable[[CorruptStateError], str] | None = None
        #: None: too late to ask
        self._at_end: list[Callable[[BaseException | None], None]] | None = []
        #: the savepoint directory of a drain that was asked for, in a list of one
        self._drain_to: list[str | None] = []
        #: the savepoint that a drain has ended with
        self.drained_savepoint: str | None = None

    def _make_attempt(self, plan: AttemptPlan) -> QueryAttempt:
        self._plan = plan
        marker = DrainMarker.read(self.directory)
        if marker is not None:
            return DrainAttempt(self.spark, plan, self.settings, self.directory, self, marker)
        return QueryAttempt(self.spark, plan, self.settings, self.directory, self, self._stop)

    # ------------------------------------------------------------------ the thread

    def _work(self) -> None:
        try:
            if self.directory.read(FINISHED_FILE) is None:
                self._run_attempts(self._run_attempt)
                self._drain_if_asked()
                self._take_last_checkpoint()
                self._remember_end()
            # a stop that came between two attempts has no epoch at whose end everything stands
            self._keep_promises(self._failure)
        except BaseException as error:
            self._keep_promises(error)
            raise
        finally:
            self.checkpoints.close(delete=self._needs_no_checkpoints())
            self.directory.release()
            if self._temporary:
                shutil.rmtree(self.directory.path, ignore_errors=True)

    def _run_attempt(self, again: bool) -> None:
        try:
            if again:
                self.attempt = self._make_attempt(self._next_plan())
                self._attempt_started()
            self._run_or_fall_back()
            self._failure = None
        except FlinkishError as error:
            self._failure = error
            raise
        except Exception as error:
            self._failure = translate(error, f"job '{self.name}', directory {self.directory.path}")
            raise self._failure from error

    def _run_or_fall_back(self) -> None:
        """Run the attempt; when the query's own checkpoint is damaged, another one from the last in Delta."""
        while True:
            try:
                return self.attempt.run()
            except CorruptStateError as error:
                if self.fall_back is None:
                    raise
                # told to whoever keeps the exceptions of the job
                error.hint = self.fall_back(error)
                self._attempt_failed(error, 0)
                self._tell(error.hint)
            self.attempt = self._make_attempt(self._next_plan())
            self._attempt_started()

    def _needs_no_checkpoints(self) -> bool:
        """Whether nobody will go on with the job: it is cancelled and they are not to be kept then, or it is done.

        A job that has failed, or that was stopped, can be started again in its directory.
        """
        if self.directory.read(FINISHED_FILE) is not None:
            return True
        cancelled = self._stop.is_set() and self._end_as is JobStatus.CANCELED
        return cancelled and not self.settings.checkpoints.retain_on_cancellation

    def _take_last_checkpoint(self) -> None:
        """Of a job that will go on: a signal has stopped it, or it has worked through all there was."""
        suspended = self._stop.is_set() and self._end_as is JobStatus.SUSPENDED
        up_to_date = not self._stop.is_set() and not self.attempt.ended
        if not (suspended or up_to_date):
            return
        self.doing = "the last checkpoint"
        path = self.checkpoints.take_last()
        if path is None and self.settings.checkpoints.enabled and self.attempt.committed_epoch() is not None:
            self._tell(
                "no last checkpoint was taken (the log says why); the job goes on from its directory all the same"
            )

    def _drain_if_asked(self) -> None:
        if self._drain_to and self._failure is None and not self.attempt.ended:
            begin_drain(self.attempt, self.directory, self._drain_to[0])
            self.attempt = self._make_attempt(self._plan)
            self._run_attempts(self._run_attempt)

    def _remember_end(self) -> None:
        """Write down that the job has got to its end, if it has."""
        end: dict[str, Any] = {"job_id": self.job_id.to_hex_string(), "last_epoch": self.last_epoch}
        bounded = all(source.bounded for source in self.attempt.sources.values())
        if isinstance(self.attempt, DrainAttempt):
            self.drained_savepoint = take_savepoint(self, self.attempt.savepoint_directory)
            self.end_as(JobStatus.FINISHED)
            end["savepoint"] = self.drained_savepoint
        elif not bounded or self._stop.is_set() and not self.attempt.ended:
            return
        self.directory.write(FINISHED_FILE, end)

    def _keep_promises(self, failure: BaseException | None) -> None:
        """What was asked for the end of the job, while the directory is still there and still its own."""
        with self._lock:
            promised, self._at_end = self._at_end or [], None
        for at_end in promised:
            at_end(failure)

    def stop_and(
        self, at_end: Callable[[BaseException | None], None], end: JobStatus, drain_to: list[str | None] | None = None
    ) -> None:
        """End after the running epoch, then call this with what the job failed with, if it did.

        It is called while the job still holds its directory: :meth:`wait` for the end.

        Args:
            at_end: what to do then.
            end: what the job then is: FINISHED or CANCELED.
            drain_to: the directory (None: the default one) of the savepoint that follows after event time has gone to
                its end; no list: without that.

        Raises:
            FinalOperationError: the job has ended before.
        """
        with self._lock:
            if self._at_end is None:
                raise FinalOperationError(
                    f"the job has ended ({self.status.name}): it cannot be stopped",
                    where=f"job '{self.name}'",
                    expected="a running job",
                )
            self._at_end.append(at_end)
            self._drain_to = drain_to or self._drain_to
        self.request_stop(end, "stop with savepoint")

    def savepoint_directory(self) -> str:
        """Where savepoints go if nobody says it."""
        if self.settings.savepoint_directory is not None:
            return self.settings.savepoint_directory
        if self._temporary:
            raise SavepointError(
                "it is not known where to write the savepoint: the job's directory is a temporary one",
                where=f"job '{self.name}'",
                expected="a directory in the call, or execution.checkpointing.savepoint-dir",
                hint="name a directory",
            )
        return posixpath.join(self.directory.path, "savepoints")

    def request_stop(self, end: JobStatus = JobStatus.CANCELED, cause: str = "asked for") -> None:
        """End after the running epoch."""
        super().request_stop(end, cause)
        self.attempt.wake()


def prepare_directory(spark: Any, settings: DriverSettings, name: str) -> tuple[JobDirectory, bool]:
    """The job's directory, claimed; True when it is a temporary one, which nobody else can know."""
    temporary = settings.job_dir is None
    directory = JobDirectory(temporary_directory() if settings.job_dir is None else settings.job_dir)
    if temporary:
        directory.claim(name)
    else:
        take_ownership(spark, directory, name, settings.takeover)
    directory.delete(STOP_FILE)
    return directory, temporary
