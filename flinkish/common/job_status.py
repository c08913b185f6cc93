"""The states of a job, with Flink's numbers."""

from __future__ import annotations

from enum import Enum

__all__ = ["JobStatus"]


class JobStatus(Enum):
    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9
    #: a state of Flink's that PyFlink's enumeration lacks
    INITIALIZING = 10

    def is_globally_terminal_state(self) -> bool:
        """Whether the job is over for good: nothing will restart it."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Whether this driver is done with the job; another may still take over a SUSPENDED one."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED
