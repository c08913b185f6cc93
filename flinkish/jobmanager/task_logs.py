"""Writes the log lines of user functions into the driver's log."""

from __future__ import annotations

from flinkish.errors import FlinkishError
from flinkish.jobmanager.job_run import JobObserver
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.epoch_report import EpochReport
from flinkish.runtime.task_log import log_in_driver


class TaskLogs(JobObserver):
    """Logs, after each epoch and each failed attempt of a job, the lines that the tasks have sent."""

    def __init__(self, job: JobDescriptor) -> None:
        self._job = job

    def epoch_done(self, report: EpochReport) -> None:
        """Log the lines of all tasks of the epoch."""
        for task in report.tasks:
            log_in_driver(task.log, self._job.vertex(task.vertex).task_name(task.subtask), report.epoch)

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """Log the lines of the failed task; those of the other tasks of that epoch are in the executors' logs."""
        log_in_driver(failure.log, failure.task, failure.epoch)
