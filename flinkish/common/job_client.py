"""JobClient: what a program can do with a job that it has submitted."""

from __future__ import annotations

import abc
from typing import Any

from flinkish.common.completable_future import CompletableFuture
from flinkish.common.job_execution_result import JobExecutionResult
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus

__all__ = ["JobClient"]


class JobClient(abc.ABC):
    """Access to one submitted job, as ``StreamExecutionEnvironment.execute_async`` returns it.

    Example::

        client = env.execute_async("orders")
        path = client.trigger_savepoint("/savepoints").result()
        client.cancel().result()
    """

    @abc.abstractmethod
    def get_job_id(self) -> JobID:
        """The job's identifier."""

    @abc.abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """The current status of the job."""

    @abc.abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job; the future completes when the job has ended."""

    @abc.abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint, then stop the job. The future completes with the savepoint's path when the job has ended;
        it fails if the savepoint could not be taken, and the job then goes on.

        Args:
            advance_to_end_of_event_time: first emit the highest watermark, so that all event-time timers fire.
            savepoint_directory: directory of the savepoint; None for ``execution.checkpointing.savepoint-dir``.
        """

    @abc.abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint of the running job, which goes on; the future completes with the savepoint's path."""

    @abc.abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """The current values of the job's accumulators, by name."""

    @abc.abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """The job's result: the future completes when the job has finished, and fails if the job fails."""
