"""What is kept of a job when its driver is gone: Delta tables that SQL reads.

Rule: history never holds up a job. Each method returns at once, and none raises; what cannot be written is a warning.
"""

from __future__ import annotations

from typing import Protocol

from flinkish.jobmanager.description import CheckpointDescription


class History(Protocol):
    """What is told to the history. A checkpoint is told when it has completed or failed."""

    def checkpoint(self, description: CheckpointDescription) -> None:
        """A checkpoint or savepoint has completed or failed."""

    def close(self) -> None:
        """Write what is left. The job has ended."""


class NoHistory:
    """Of a job without a directory of its own, or with ``flinkish.history.enabled: false``."""

    def checkpoint(self, description: CheckpointDescription) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
