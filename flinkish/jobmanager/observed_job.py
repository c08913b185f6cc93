"""A job as others see it: its status and story, and what its observers, its history and the console are told of its
attempts and epochs.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone

from flinkish.common.job_status import JobStatus
from flinkish.error_display import own_frames
from flinkish.errors import FlinkishError, UserCodeError
from flinkish.jobmanager.history import History, NoHistory
from flinkish.jobmanager.job.description import CheckpointDescription, JobObserver
from flinkish.jobmanager.job.lifecycle import JOB_TRANSITIONS, Event, StateMachine
from flinkish.jobmanager.job.task_managers import REGISTERED, RELEASED, TaskManagerEvent
from flinkish.jobmanager.restart import NoRestart, Restarts, one_line
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.report import LifecycleCall
from flinkish.runtime.phases import SystemClock
from flinkish.runtime.task.progress import EpochProgress

_LOG = logging.getLogger("flinkish.JobManager")
_MASTER_LOG = logging.getLogger("flinkish.JobMaster")


def job_machine(name: str) -> StateMachine[JobStatus]:
    """The state machine of a job that is being submitted."""
    return StateMachine(JOB_TRANSITIONS, f"job '{name}'")


def describe(failure: FlinkishError) -> str:
    """A failure in one text, as the cause of a transition: the class of the error and its message."""
    return f"{type(failure).__name__}: {failure.message}"


def _kind_of(failure: FlinkishError) -> str:
    """What failures have in common that count as the same one, wherever they have occurred."""
    return f"{type(failure).__name__}: {failure.what}"


def _log_change(job: str, event: TaskManagerEvent) -> None:
    """Log that a task manager of a job has come or gone; a loss as a warning."""
    manager = event.manager
    who = f"executor {manager.executor} on {manager.address or manager.host}"
    if manager.status == REGISTERED:
        _MASTER_LOG.info("job '%s': %s is registered: %s", job, who, event.cause)
        return
    when = f"{datetime.fromtimestamp(event.time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    if manager.status == RELEASED:
        _MASTER_LOG.info("job '%s': %s was released at %s (%s)", job, who, when, manager.reason)
        return
    _MASTER_LOG.warning(
        "job '%s': %s was lost at %s (%s); Spark runs its tasks again on another one. If that cannot be done, the "
        "epoch fails, and the restart strategy decides",
        job,
        who,
        when,
        manager.reason,
    )


class ObservedJob(JobObserver):
    """Moves a job through its statuses, and notifies its observers. Base of `JobRun`.

    ``machine`` is the state machine of the job since its submission: its state is the job's status, and its story tells
    the transitions of that status.
    """

    def __init__(
        self, name: str, machine: StateMachine[JobStatus] | None = None, restarts: Restarts | None = None
    ) -> None:
        self.name = name
        self.restarts = restarts or Restarts(NoRestart())
        self.machine = machine or job_machine(name)
        self.observers: list[JobObserver] = []
        self.history: History = NoHistory()
        #: the last epoch that the sinks have committed in this run; None before the first one
        self.last_epoch: int | None = None
        self._attempts = -1
        #: the last failure that observers were notified of
        self._notified_failure: FlinkishError | None = None
        #: the failure that was told last, and how often in a row it has come
        self._last_kind, self._same_failures = "", 0
        #: the failure of a task that was told last
        self._last_retry = ""
        #: since when the job has failed and done no epoch; None: it has not
        self._failing_since_s: float | None = None
        self.machine.listener = self.status_changed

    @property
    def attempts(self) -> int:
        """The number of the running attempt among those of this run, counted from 0."""
        return max(self._attempts, 0)

    @property
    def status(self) -> JobStatus:
        """The job's status as of now."""
        return self.machine.state

    def _notify(self, tell: Callable[[JobObserver], None]) -> None:
        """Tell all observers of something. One that fails is a nuisance for whoever looks at the job, and nothing to
        the job itself and to the other observers."""
        for observer in self.observers:
            try:
                tell(observer)
            except Exception:
                _LOG.warning("job '%s' goes on, but %s has failed:", self.name, type(observer).__name__, exc_info=True)

    def _print_restart(self, failure: FlinkishError, delay_ms: int) -> None:
        """Tell of a failure that is followed by a restart: with the traceback of user code, but in one line with a
        count if it is the one that was told last."""
        kind = _kind_of(failure)
        self._same_failures = self._same_failures + 1 if kind == self._last_kind else 1
        self._last_kind = kind
        self._failing_since_s = self._failing_since_s or time.monotonic()
        again = self._same_failures > 1
        error = f"the same error, {self._same_failures} times in a row" if again else one_line(failure)
        line = f"attempt {self.restarts.made} {self.restarts.line(error, delay_ms)}"
        if isinstance(failure, UserCodeError) and not again:
            line = f"{line}\n{own_frames(failure.user_traceback)}"
        self._print(line.rstrip())

    def _print(self, text: str) -> None:
        with suppress(OSError, ValueError):
            # begin on a new line: on a terminal the progress line may be half drawn
            begin = "\n" if sys.stderr.isatty() else ""
            sys.stderr.write(f"{begin}{self.name}: {text}\n")
            sys.stderr.flush()

    def attempt_started(self, attempt: int) -> None:
        """Count the attempt, and notify the observers."""
        self._attempts = attempt
        self._notify(lambda observer: observer.attempt_started(attempt))

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """The job is RESTARTING, if it is restarted; notify the observers."""
        self._notified_failure = failure
        if restart_delay_ms is not None and self.status is not JobStatus.CANCELLING:
            self.machine.try_to(JobStatus.FAILING, describe(failure))
            self.machine.try_to(JobStatus.RESTARTING, f"restart number {self._attempts + 1} in {restart_delay_ms} ms")
        self._notify(lambda observer: observer.attempt_failed(failure, restart_delay_ms))

    def status_changed(self, event: Event) -> None:
        """Notify the observers."""
        self._notify(lambda observer: observer.status_changed(event))

    def query_started(self) -> None:
        self.machine.try_to(JobStatus.RUNNING, f"attempt {self._attempts} runs")
        self._notify(lambda observer: observer.query_started())

    def epoch_begun(self) -> None:
        """Notify the observers that an epoch is about to run."""
        self._notify(lambda observer: observer.epoch_begun())

    def epoch_running(self, progress: EpochProgress) -> None:
        """Notify the observers of the progress of the running epoch, unless it has ended meanwhile."""
        runs = self.status in (JobStatus.RUNNING, JobStatus.CANCELLING)
        if runs and (self.last_epoch is None or progress.epoch > self.last_epoch):
            for observer in self.observers:
                observer.epoch_running(progress)

    def epoch_committed(self, epoch: int) -> None:
        """Notify the observers that the metadata of all epochs up to this one are committed."""
        self._notify(lambda observer: observer.epoch_committed(epoch))

    def lifecycle_traced(self, calls: Sequence[LifecycleCall]) -> None:
        self._notify(lambda observer: observer.lifecycle_traced(calls))

    def epoch_done(self, report: EpochReport) -> None:
        """Notify the observers of the report of an epoch that the sinks have committed."""
        self.last_epoch = report.epoch
        self._notify(lambda observer: observer.epoch_done(report))
        since_s, self._failing_since_s = self._failing_since_s, None
        if since_s is not None:
            self._print(f"recovered after {time.monotonic() - since_s:,.1f} s: epoch {report.epoch:,} is done")

    def job_done(self, status: JobStatus) -> None:
        """Notify the observers."""
        self._notify(lambda observer: observer.job_done(status))

    def checkpoint_ended(self, description: CheckpointDescription) -> None:
        """Notify the history and the observers of a checkpoint or savepoint that has completed or failed."""
        self.history.checkpoint(description)
        self._notify(lambda observer: observer.checkpoint_ended(description))

    def task_failed(self, failure: FlinkishError) -> None:
        told, kind = one_line(failure), _kind_of(failure)
        if kind != self._last_retry:
            self._last_retry = kind
            self._print(f"a task has failed; Spark runs it again: {told}")
        subject = f"task '{failure.task}'" if failure.task else "a task"
        self.machine.story.add(SystemClock().now_ms(), subject, "FAILED", "SCHEDULED", f"Spark runs it again: {told}")
        self._notify(lambda observer: observer.task_failed(failure))

    def task_manager_changed(self, event: TaskManagerEvent) -> None:
        _log_change(self.name, event)
        manager = event.manager
        told = event.time_ms, f"task manager '{manager.id}'", event.before, manager.status, event.cause
        self.machine.story.add(*told, late=True)
        self.history.task_manager(event)
        self._notify(lambda observer: observer.task_manager_changed(event))
