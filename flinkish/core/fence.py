"""Fence: checks that this driver still owns its job, immediately before any step that cannot be undone."""

from __future__ import annotations

from typing import Protocol


class Fence(Protocol):
    """Checked by commits. It is picklable, since it is sent to the executors with the job."""

    @property
    def token(self) -> int:
        """A number that grows with each driver that takes over the job."""

    def check(self) -> None:
        """Raise FencedError if a newer driver has taken the job over. Cheap enough for each commit."""


class NoFence:
    """The fence of jobs that no other driver can know of: those in a temporary directory or without Spark."""

    token = 0

    def check(self) -> None:
        """Do nothing: there is no other driver."""


NO_FENCE: Fence = NoFence()
