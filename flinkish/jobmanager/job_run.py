"""A job at work: the thread that starts its queries, follows their epochs and ends them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from flinkish.common.completable_future import CompletableFuture
from flinkish.common.job_execution_result import JobExecutionResult
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.errors import FlinkishError, InternalError
from flinkish.jobmanager.history.history import History, NoHistory
from flinkish.runtime.epoch_report import EpochReport


class JobObserver:
    """Whoever wants to see a job at work. Each method does nothing unless it is overridden; none may raise."""

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


class JobRun:
    """Base of runs on Spark and in the minicluster."""

    def __init__(self, job_id: JobID, name: str) -> None:
        self.job_id = job_id
        self.name = name
        self.status = JobStatus.CREATED
        self.result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        self.observers: list[JobObserver] = []
        self.history: History = NoHistory()
        self.reports: list[EpochReport] = []
        self.last_epoch: int | None = None
        self._attempts = -1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"flinkish-job-{name}", daemon=True)
        self._lock = threading.Lock()

    #: Reports of so many epochs are kept.
    MAX_REPORTS = 1000

    def start(self) -> None:
        """Begin."""
        self._attempt_started()
        self._thread.start()

    def request_stop(self) -> None:
        """End after the running epoch."""
        if self.status is JobStatus.RUNNING:
            self.status = JobStatus.CANCELLING
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Until the job has ended."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self._work()
        except FlinkishError as error:
            self._end(JobStatus.FAILED, error)
        except BaseException as error:
            wrapped = InternalError(
                f"{type(error).__name__}: {error}", where=f"job '{self.name}'", hint="please report this"
            )
            wrapped.__cause__ = error
            self._end(JobStatus.FAILED, wrapped)
        else:
            self._end(JobStatus.CANCELED if self._stop.is_set() else JobStatus.FINISHED, None, started)

    def _work(self) -> None:
        raise InternalError("a run without work")

    def _end(self, status: JobStatus, error: FlinkishError | None, started: float = 0.0) -> None:
        self.status = status
        for observer in self.observers:
            observer.job_done(status)
        if error is not None:
            self.result.complete_exceptionally(error)
        else:
            runtime_ms = int((time.monotonic() - started) * 1000)
            self.result.complete(JobExecutionResult(self.job_id, runtime_ms))

    def _attempt_started(self) -> None:
        if not self._stop.is_set():
            self.status = JobStatus.RUNNING
        self._attempts += 1
        for observer in self.observers:
            observer.attempt_started(self._attempts)

    def _attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        if restart_delay_ms is not None and not self._stop.is_set():
            self.status = JobStatus.RESTARTING
        for observer in self.observers:
            observer.attempt_failed(failure, restart_delay_ms)

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

    def __init__(self, job_id: JobID, name: str, make_cluster: Callable[[], Any]) -> None:
        super().__init__(job_id, name)
        self._make_cluster = make_cluster

    def _work(self) -> None:
        cluster = self._make_cluster()
        try:
            while not cluster.store.finished and not self._stop.is_set():
                self.epoch_done(cluster.run_epoch())
        finally:
            cluster.dispose()
