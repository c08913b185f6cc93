"""Whether this driver still owns its job. Asked immediately before anything that cannot be undone."""

from __future__ import annotations

from typing import Protocol


class Fence(Protocol):
    """What commits ask. Picklable: it travels to the executors with the job."""

    @property
    def token(self) -> int:
        """Grows with each driver of the job."""

    def check(self) -> None:
        """FencedError if a newer driver has taken the job over. Cheap enough to be asked at each commit."""


class NoFence:
    """Of jobs that nobody else can know: those in a temporary directory or without Spark."""

    token = 0

    def check(self) -> None:
        """Always fine."""


NO_FENCE: Fence = NoFence()
