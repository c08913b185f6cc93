"""The history of a job, which outlives its driver: Delta tables that SQL reads.

Rule: history never holds up a job. Each method but `close` returns at once, and none raises; what cannot be written is
logged as a warning.
"""

from __future__ import annotations

from typing import Protocol

from flinkish.jobmanager.job.description import CheckpointDescription, ExceptionDescription, ExecutionDescription
from flinkish.jobmanager.job.lifecycle import Event


class History(Protocol):
    """Records what happens to a job."""

    def status(self, event: Event, attempt: int) -> None:
        """Record that the job has changed its status."""

    def execution(self, vertex: int, uid: str, task: str, subtask: int, end: ExecutionDescription) -> None:
        """Record an execution that has ended."""

    def exception(self, description: ExceptionDescription) -> None:
        """Record a failure with which the job has ended or from which it recovers."""

    def checkpoint(self, description: CheckpointDescription) -> None:
        """Record a checkpoint or savepoint that has completed or failed."""

    def close(self) -> None:
        """Write what is left, because the job has ended. The one method that takes its time."""


class NoHistory:
    """Records nothing: for jobs without a directory of their own, or with ``flinkish.history.enabled: false``."""

    def status(self, event: Event, attempt: int) -> None:
        """Does nothing."""

    def execution(self, vertex: int, uid: str, task: str, subtask: int, end: ExecutionDescription) -> None:
        """Does nothing."""

    def exception(self, description: ExceptionDescription) -> None:
        """Does nothing."""

    def checkpoint(self, description: CheckpointDescription) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
