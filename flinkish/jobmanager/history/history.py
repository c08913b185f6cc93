"""What is kept of a job when its driver is gone: Delta tables that SQL reads.

Rule: history never holds up a job. Each method returns at once, and none raises; what cannot be written is a warning.
"""

from __future__ import annotations

from typing import Protocol

from flinkish.jobmanager.description import CheckpointDescription, ExceptionDescription, ExecutionDescription
from flinkish.jobmanager.lifecycle.story import Event


class History(Protocol):
    """What is told to the history."""

    def status(self, event: Event, attempt: int) -> None:
        """The job has gone from status to status."""

    def execution(self, vertex: int, uid: str, task: str, subtask: int, end: ExecutionDescription) -> None:
        """An execution has come to its end."""

    def exception(self, description: ExceptionDescription) -> None:
        """The job has failed, or got over a failure."""

    def checkpoint(self, description: CheckpointDescription) -> None:
        """A checkpoint or savepoint has completed or failed."""

    def close(self) -> None:
        """Write what is left: the job has ended. The one method that takes its time."""


class NoHistory:
    """Of a job without a directory of its own, or with ``flinkish.history.enabled: false``."""

    def status(self, event: Event, attempt: int) -> None:
        """Nothing."""

    def execution(self, vertex: int, uid: str, task: str, subtask: int, end: ExecutionDescription) -> None:
        """Nothing."""

    def exception(self, description: ExceptionDescription) -> None:
        """Nothing."""

    def checkpoint(self, description: CheckpointDescription) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
