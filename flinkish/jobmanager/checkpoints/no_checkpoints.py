"""What a run says of checkpoints when it has none."""

from __future__ import annotations

from typing import Protocol

from flinkish.jobmanager.description import CheckpointDescription


class Checkpoints(Protocol):
    """The checkpoints of a run."""

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last ones, oldest first."""

    def take_last(self, timeout_s: float | None = None) -> str | None:
        """A checkpoint of the last committed epoch; its path, None when there is none. Waits for it."""

    def close(self, delete: bool = False) -> None:
        """The job has ended. ``delete``: nobody will ask for its checkpoints."""


class NoCheckpoints:
    """Of a job without a checkpoint interval, and of the minicluster."""

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """Nothing."""
        return ()

    def take_last(self, timeout_s: float | None = None) -> str | None:
        """None: the job's directory is at the last committed epoch anyway."""
        return None

    def close(self, delete: bool = False) -> None:
        """Nothing."""
