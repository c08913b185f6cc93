"""Which planned epoch has not begun for any sink: one that a stop has prevented, or the first one of a query while the
state that it reads from storage is still being read. So an epoch that damage has kept from beginning is known as such.
"""

from __future__ import annotations

from dataclasses import dataclass

from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.directory.not_begun import epoch_not_begun, forget_not_begun, remember_not_begun
from flinkish.jobmanager.recovery.decision import Traces


@dataclass
class Beginnings:
    """Kept by the process that runs the epochs of a query, and written to the job's directory.

    ``last_planned``: the last epoch that Spark had planned before. ``from_storage``: whether there is state for the
    first epoch to read. ``begun``: an epoch has begun.
    """

    last_planned: int
    from_storage: bool
    begun: bool = False

    @staticmethod
    def after(before: Traces, stateful: bool) -> Beginnings:
        """Those of a query that goes on with what there is of it."""
        return Beginnings(before.last_planned, bool(before.committed) and stateful)

    def prevented(self, directory: JobDirectory, epoch: int) -> None:
        """The planned epoch will not happen now. Of one that was planned before nothing is known: it may have begun."""
        if epoch > self.last_planned:
            remember_not_begun(directory, epoch)

    def proves_state(self, directory: JobDirectory, epoch: int) -> bool:
        """Whether the epoch must show that all state can be read before any sink hears of it. If not, it begins."""
        if self.begun:
            return False
        self.begun = True
        # of one that an earlier query has begun nothing can be said any more
        fresh = epoch > self.last_planned or epoch == epoch_not_begun(directory)
        if fresh and self.from_storage:
            remember_not_begun(directory, epoch)
            return True
        forget_not_begun(directory)
        return False

    def state_is_proved(self, directory: JobDirectory) -> None:
        """Now the epoch begins for sinks."""
        forget_not_begun(directory)
