"""Puts what user functions have logged into the driver's log."""

from __future__ import annotations

from flinkish.errors import FlinkishError
from flinkish.jobmanager.job_run import JobObserver
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.epoch_report import EpochReport
from flinkish.runtime.task_log import log_in_driver


class TaskLogs(JobObserver):
    """Hears of each epoch and of each failed attempt of a job."""

    def __init__(self, job: JobDescriptor) -> None:
        self._job = job

    def epoch_done(self, report: EpochReport) -> None:
        """All tasks of the epoch have ended."""
        for task in report.tasks:
            log_in_driver(task.log, self._job.vertex(task.vertex).task_name(task.subtask), report.epoch)

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """The failed task tells of itself; what others have logged in that epoch is in the logs of executors."""
        log_in_driver(failure.log, failure.task, failure.epoch)
