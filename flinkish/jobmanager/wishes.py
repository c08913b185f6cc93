"""What was asked of a job that is about its end. Whoever asks never waits: the thread of the job sees it at its next
decision, and what it waits for meanwhile is interrupted (`Wishes.to_end`).
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from flinkish.common.job_status import JobStatus
from flinkish.jobmanager.decision import Stop, Wish


@dataclass
class StopWithSavepoint:
    """The request for a stop with a savepoint, and its outcome.

    Rule: the job ends only if the savepoint was written. That no savepoint can be written is found out, as far as
    possible, before the query is stopped; and a job whose savepoint fails after that starts its query again and goes
    on, as in Flink.
    """

    #: the directory in which the savepoint is made
    directory: str
    #: FINISHED or CANCELED: the job's status once the savepoint is written
    end: JobStatus = JobStatus.FINISHED
    #: whether event time is advanced to its end before the savepoint
    drain: bool = False
    #: whether the request came from outside of the program
    from_outside: bool = False
    #: the savepoint's path, or the error that the stop failed with
    outcome: Future[str] = field(default_factory=Future)
    #: when the running epoch is given up, in seconds of the monotonic clock
    epoch_deadline_s: float = math.inf
    #: whether the stop has failed and the job goes on
    job_goes_on: bool = False

    @property
    def kind(self) -> Stop:
        """What kind of stop it is, for the decision."""
        if self.drain:
            return Stop.DRAIN
        return Stop.CANCEL if self.end is JobStatus.CANCELED else Stop.SAVE


class Wishes:
    """The wishes of one job. Any thread may use it, and a signal handler may ask: nothing is locked."""

    _WISH = {JobStatus.CANCELED: Wish.CANCEL, JobStatus.SUSPENDED: Wish.SUSPEND, JobStatus.FINISHED: Wish.STOP}

    def __init__(self) -> None:
        self._asked: set[Wish] = set()
        self._deadline_s = math.inf
        #: the stop with a savepoint that was asked for and has neither failed nor been answered
        self.stop: StopWithSavepoint | None = None
        #: set as long as the running query, or the wait for the next one, is to end
        self.to_end = threading.Event()

    def ask(self, end: JobStatus, epoch_deadline_s: float = math.inf) -> None:
        """Ask for an end that needs no savepoint.

        Args:
            end: CANCELED, SUSPENDED or FINISHED.
            epoch_deadline_s: when the running epoch is given up, in seconds of the monotonic clock.
        """
        self._asked.add(self._WISH[end])
        self._deadline_s = min(self._deadline_s, epoch_deadline_s)
        self.to_end.set()

    @property
    def wish(self) -> Wish:
        """What was asked for that needs no savepoint; of several the one that prevails."""
        return next((wish for wish in (Wish.CANCEL, Wish.SUSPEND, Wish.STOP) if wish in self._asked), Wish.NONE)

    @property
    def end(self) -> JobStatus:
        """The status with which a job ends that obeys."""
        return next((end for end, wish in self._WISH.items() if wish is self.wish), JobStatus.FINISHED)

    @property
    def epoch_deadline_s(self) -> float:
        """When the running epoch is given up, in seconds of the monotonic clock."""
        stop = self.stop
        return min(self._deadline_s, math.inf if stop is None else stop.epoch_deadline_s)

    def drop_stop(self) -> StopWithSavepoint | None:
        """Forget the stop with a savepoint; returns it."""
        stop, self.stop = self.stop, None
        self.to_end.clear()
        if self._asked:
            # also if somebody asks just now: the wish is there before the event is set
            self.to_end.set()
        return stop
