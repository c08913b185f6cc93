"""A job at work: the thread that starts its queries, follows their epochs and ends them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flinkish.common.completable_future import CompletableFuture
from flinkish.common.job_execution_result import JobExecutionResult
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.common.storage_errors import storage_error
from flinkish.errors import FencedError, FlinkishError, InternalError
from flinkish.jobmanager import live_jobs
from flinkish.jobmanager.checkpoints.no_checkpoints import Checkpoints, NoCheckpoints
from flinkish.jobmanager.history.history import History, NoHistory
from flinkish.jobmanager.lifecycle.job import JOB_TRANSITIONS
from flinkish.jobmanager.lifecycle.state_machine import StateMachine
from flinkish.jobmanager.lifecycle.story import Event
from flinkish.jobmanager.restart.decision import Restarts
from flinkish.jobmanager.restart.strategy import NoRestart
from flinkish.jobmanager.signals import stop_on_signals
from flinkish.runtime.epoch_report import EpochReport

if TYPE_CHECKING:
    from flinkish.jobmanager.job_record import JobRecord


class JobResult(CompletableFuture[JobExecutionResult]):
    """The end of a job. Signals that come while the main thread waits for it stop all jobs of the process."""

    def result(self, timeout: float | None = None) -> JobExecutionResult:
        """Wait for the end. KeyboardInterrupt at the second SIGINT."""
        with stop_on_signals(live_jobs.running):
            return super().result(timeout)


class JobObserver:
    """Whoever wants to see a job at work. Each method does nothing unless it is overridden; none may raise."""

    def status_changed(self, event: Event) -> None:
        """The job has gone from status to status."""

    def query_started(self) -> None:
        """Spark has taken on a query of the running attempt."""

    def attempt_started(self, attempt: int) -> None:
        """The job has begun to run, for the first time or again."""

    def epoch_done(self, report: EpochReport) -> None:
        """An epoch has been committed by the sinks. Called by the thread that runs epochs."""

    def epoch_committed(self, epoch: int) -> None:
        """All epochs up to this one are committed for good."""

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """An attempt has failed; the job is restarted after the delay, or (None) has failed with it."""

    def job_done(self, status: JobStatus) -> None:
        """The job has ended."""


def new_life(name: str) -> StateMachine[JobStatus]:
    """The life of a job that is being submitted."""
    return StateMachine(JOB_TRANSITIONS, f"job '{name}'")


def describe(failure: FlinkishError) -> str:
    """A failure as the cause of what follows."""
    return f"{type(failure).__name__}: {failure.message}"


class JobRun:
    """Base of runs on Spark and in the minicluster.

    ``life``: the job's, from when it was submitted on; its status is the life's state, and the story is that of all its
    transitions.
    """

    def __init__(
        self,
        job_id: JobID,
        name: str,
        life: StateMachine[JobStatus] | None = None,
        restarts: Restarts | None = None,
    ) -> None:
        self.job_id = job_id
        self.name = name
        self.restarts = restarts or Restarts(NoRestart())
        #: how long the job has to end after a SIGTERM
        self.shutdown_timeout_s = 60.0
        #: what is done once there are no more epochs
        self.doing = ""
        self.life = life or new_life(name)
        self.result: CompletableFuture[JobExecutionResult] = JobResult()
        self.observers: list[JobObserver] = []
        self.history: History = NoHistory()
        #: what can be said of the job, once it has been submitted
        self.record: JobRecord | None = None
        self.checkpoints: Checkpoints = NoCheckpoints()
        self.reports: list[EpochReport] = []
        self.last_epoch: int | None = None
        self._attempts = -1
        #: what earlier drivers have left, if they had begun the job
        self.taken_over = ""
        #: the last one that observers have heard of
        self._told_failure: FlinkishError | None = None
        #: what the job is to end as, once a stop was asked for
        self._end_as = JobStatus.CANCELED
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"flinkish-job-{name}", daemon=True)
        self._lock = threading.Lock()
        self.life.listener = self._status_changed
        self.life.to(JobStatus.CREATED, "the job graph is made")

    #: Reports of so many epochs are kept.
    MAX_REPORTS = 1000

    #: So many events are told with the failure of a job.
    TOLD_EVENTS = 10

    @property
    def attempts(self) -> int:
        """Number of the running attempt among those of this run, from 0 on."""
        return max(self._attempts, 0)

    @property
    def status(self) -> JobStatus:
        """The job's status as of now."""
        return self.life.state

    def start(self) -> None:
        """Begin."""
        if self.taken_over:
            self.life.to(JobStatus.RECONCILING, self.taken_over)
        self._attempt_started()
        live_jobs.started(self)
        self._thread.start()

    def request_stop(self, end: JobStatus = JobStatus.CANCELED, cause: str = "asked for") -> None:
        """End after the running epoch.

        Args:
            end: CANCELED; FINISHED (Flink's stop: the job goes on RUNNING until then); SUSPENDED (another driver will
                go on with it). Who asks to cancel is obeyed whatever was asked for before.
            cause: for the story.
        """
        if end is JobStatus.CANCELED:
            self.life.try_to(JobStatus.CANCELLING, cause)
        self.end_as(end)
        self._stop.set()

    def end_as(self, end: JobStatus) -> None:
        """Change what the job is to end as when it stops, as long as it has not."""
        self._end_as = end

    def stop_from_outside(self, cause: str) -> None:
        """End after the running epoch, because somebody outside of the program (a signal) asks for it.

        The job is not cancelled: started again, it goes on.
        """
        live_jobs.asked_from_outside(self)
        self.request_stop(JobStatus.SUSPENDED, cause)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can become of the job, though there may be something left to tell of it."""
        return self.life.terminal

    def unfinished(self) -> str | None:
        """What the job is at, for who cannot wait any longer; None when it has ended."""
        if not self._thread.is_alive():
            return None
        if self.has_ended:
            return "what is told of it (its history)"
        if self.doing:
            return self.doing
        return "its first epoch" if self.last_epoch is None else f"what follows epoch {self.last_epoch}"

    def wait(self, timeout_s: float | None = None) -> None:
        """Until the job has ended."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self._work()
        except FlinkishError as error:
            self._fail(error)
        except OSError as error:
            self._fail(storage_error(error, "go on with", f"job '{self.name}'"))
        except BaseException as error:
            wrapped = InternalError(
                f"{type(error).__name__}: {error}", where=f"job '{self.name}'", hint="please report this"
            )
            wrapped.__cause__ = error
            self._fail(wrapped)
        else:
            self._settle(self._end_as if self._stop.is_set() else JobStatus.FINISHED)
            self._end(None, started)

    def _work(self) -> None:
        raise InternalError("a run without work")

    def _fail(self, error: FlinkishError) -> None:
        """The end of a job that has failed; of one that another driver has taken over only this driver's part ends."""
        if error is not self._told_failure:
            self._attempt_failed(error, None)
        cause = describe(error)
        if isinstance(error, FencedError):
            self.life.to(JobStatus.SUSPENDED, cause)
        else:
            self.life.try_to(JobStatus.FAILING, cause)
            self.life.to(JobStatus.FAILED, "the failure is final")
        error.story = error.story or self.life.story.tail(self.TOLD_EVENTS)
        self._end(error)

    def _settle(self, end: JobStatus) -> None:
        """The way of a job that ends in order, from where it is."""
        if end is JobStatus.FINISHED and self.status not in (JobStatus.RUNNING, JobStatus.RECONCILING):
            # a stop that came while the job waited for its restart, or for its first query
            self.life.try_to(JobStatus.RUNNING, "there is nothing more to run")
        if self.life.try_to(end, "the job has come to its end" if not self._stop.is_set() else "stopped"):
            return
        self.life.try_to(JobStatus.CANCELLING, "stopped")
        self.life.to(JobStatus.CANCELED, "the running epoch has ended")

    def _end(self, error: FlinkishError | None, started: float = 0.0) -> None:
        for observer in self.observers:
            observer.job_done(self.status)
        live_jobs.ended(self, self.status)
        self.history.close()
        if error is not None:
            self.result.complete_exceptionally(error)
        else:
            runtime_ms = int((time.monotonic() - started) * 1000)
            self.result.complete(JobExecutionResult(self.job_id, runtime_ms, self.accumulator_results()))

    def accumulator_results(self) -> dict[str, Any]:
        """Name -> value of what user functions have added up so far."""
        return {} if self.record is None else self.record.accumulator_results()

    def _run_attempts(self, run_attempt: Callable[[bool], None], again: bool = False) -> None:
        """Attempts, one after the other, until one gets to its end, a stop is asked for, or a failure is final.

        ``run_attempt(again)`` runs one; it raises only FlinkishErrors of what may go wrong in a job.
        """
        while True:
            try:
                return run_attempt(again)
            except FlinkishError as error:
                delay_ms = self._delay_after(error)
                self._attempt_failed(error, delay_ms)
                if delay_ms is None:
                    raise
                self._tell(f"attempt {self.restarts.made} {self.restarts.line(error, delay_ms)}")
                if self._stop.wait(delay_ms / 1000):
                    return
            again = True

    def _delay_after(self, failure: FlinkishError) -> int | None:
        """How long to wait before the next attempt; None: there is none. What fails while it is being stopped is not
        begun anew."""
        return None if self._stop.is_set() else self.restarts.delay_after(failure)

    def _tell(self, text: str) -> None:
        with suppress(OSError, ValueError):
            # a new line: on a terminal the line of progress may stand there half drawn
            begin = "\n" if sys.stderr.isatty() else ""
            sys.stderr.write(f"{begin}{self.name}: {text}\n")
            sys.stderr.flush()

    def _attempt_started(self) -> None:
        self._attempts += 1
        for observer in self.observers:
            observer.attempt_started(self._attempts)

    def _attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        self._told_failure = failure
        if restart_delay_ms is not None and self.status is not JobStatus.CANCELLING:
            self.life.try_to(JobStatus.FAILING, describe(failure))
            self.life.try_to(JobStatus.RESTARTING, f"restart number {self._attempts + 1} in {restart_delay_ms} ms")
        for observer in self.observers:
            observer.attempt_failed(failure, restart_delay_ms)

    def _status_changed(self, event: Event) -> None:
        for observer in self.observers:
            observer.status_changed(event)

    def query_started(self) -> None:
        """Spark has taken on a query of the running attempt."""
        self.life.try_to(JobStatus.RUNNING, f"attempt {self._attempts} runs")
        for observer in self.observers:
            observer.query_started()

    def epoch_committed(self, epoch: int) -> None:
        """All epochs up to this one are committed for good."""
        for observer in self.observers:
            observer.epoch_committed(epoch)

    def epoch_done(self, report: EpochReport) -> None:
        """The sinks have committed an epoch."""
        with self._lock:
            self.last_epoch = report.epoch
            self.reports.append(report)
            del self.reports[: -self.MAX_REPORTS]
        for observer in self.observers:
            observer.epoch_done(report)


class MiniClusterRun(JobRun):
    """A run without Spark."""

    def __init__(
        self, job_id: JobID, name: str, make_cluster: Callable[[], Any], restarts: Restarts | None = None
    ) -> None:
        super().__init__(job_id, name, restarts=restarts)
        self._make_cluster = make_cluster

    def _work(self) -> None:
        # one cluster: it keeps the state of the last epoch, and opens functions anew after a failure
        cluster = self._make_cluster()

        def run_attempt(again: bool) -> None:
            if again:
                self._attempt_started()
            self.query_started()
            while not cluster.store.finished and not self._stop.is_set():
                self.epoch_done(cluster.run_epoch())

        try:
            self._run_attempts(run_attempt)
        finally:
            cluster.dispose()
