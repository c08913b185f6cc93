"""The interface of a run's checkpoints, and its implementation for runs that take none."""

from __future__ import annotations

from typing import Protocol

from flinkish.jobmanager.description import CheckpointDescription


class Checkpoints(Protocol):
    """Takes and describes the checkpoints of a run."""

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """The last checkpoints, oldest first."""

    def take_last(self, timeout_s: float | None = None) -> str | None:
        """Take a checkpoint of the last committed epoch and wait for it, for ``timeout_s`` seconds at most; returns its
        path, None when there is none."""

    def close(self, delete: bool = False) -> None:
        """Take no more checkpoints, because the job has ended. ``delete``: delete them, nobody will need them."""


class NoCheckpoints:
    """Takes no checkpoints: for jobs without a checkpoint interval."""

    def describe(self) -> tuple[CheckpointDescription, ...]:
        """An empty tuple: there are no checkpoints."""
        return ()

    def take_last(self, timeout_s: float | None = None) -> str | None:
        """None: the job directory holds the last committed epoch anyway."""
        return None

    def close(self, delete: bool = False) -> None:
        """Does nothing."""
