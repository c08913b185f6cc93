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


class FenceOfEpochs:
    """Checks fences at one step of each epoch, once in this process however many tasks take the step here."""

    def __init__(self) -> None:
        #: id of a job -> (fencing token, attempt, epoch) of its last check
        self._last: dict[str, tuple[int, int, int]] = {}

    def check(self, fence: Fence, job_id: str, attempt: int, epoch: int) -> None:
        """Check the fence of a job, unless this was done for this epoch of this attempt. Raises as `Fence.check`."""
        run = (fence.token, attempt, epoch)
        if self._last.get(job_id) != run:
            fence.check()
            self._last[job_id] = run


class NoFence:
    """The fence of jobs that no other driver can know of: those in a temporary directory."""

    token = 0

    def check(self) -> None:
        """Do nothing: there is no other driver."""


NO_FENCE: Fence = NoFence()
