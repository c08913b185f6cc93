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
    """A client of one job; ``StreamExecutionEnvironment.execute_async`` gives it."""

    @abc.abstractmethod
    def get_job_id(self) -> JobID:
        """The job's identifier."""

    @abc.abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """The job's state now."""

    @abc.abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job; done when it has ended."""

    @abc.abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Stop after a savepoint; the result is its path, there when the job has ended. Fails when there is no
        savepoint, and then the job goes on.

        Args:
            advance_to_end_of_event_time: first emit the highest watermark, so that all event-time timers fire.
            savepoint_directory: where to; if None, ``execution.checkpointing.savepoint-dir``.
        """

    @abc.abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Write a savepoint of the running job; the result is its path."""

    @abc.abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """The job's accumulators now."""

    @abc.abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Done when the job has finished; fails as the job does."""
