"""What was asked of a job that is about its end, and the one queue by which its thread learns that there is something
to look at. Whoever asks never waits: the thread of the job sees it at its next decision, and what it waits for
meanwhile is interrupted.
"""

from __future__ import annotations

import math
import queue
import time
from concurrent.futures import Future
from contextlib import suppress
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
    #: whether it no longer waits for the first epoch
    begun: bool = False
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
        #: one entry for whatever has happened that the thread of the job has not looked at
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ask(self, end: JobStatus, epoch_deadline_s: float = math.inf) -> None:
        """Ask for an end that needs no savepoint.

        Args:
            end: CANCELED, SUSPENDED or FINISHED.
            epoch_deadline_s: when the running epoch is given up, in seconds of the monotonic clock.
        """
        self._asked.add(self._WISH[end])
        self._deadline_s = min(self._deadline_s, epoch_deadline_s)
        self.notify()

    def notify(self) -> None:
        """Let the thread of the job look at once at what has happened."""
        self._news.put(None)

    def wait(self, timeout_s: float) -> None:
        """Wait until something has happened since the last wait; for the thread of the job only."""
        with suppress(queue.Empty):
            self._news.get(timeout=max(timeout_s, 0))
            while True:
                self._news.get_nowait()

    def wait_for_end(self, timeout_s: float) -> bool:
        """Wait until the query is to end, or the wait for the next one; returns whether it is."""
        deadline_s = time.monotonic() + timeout_s
        while not self.to_end and (left_s := deadline_s - time.monotonic()) > 0:
            self.wait(left_s)
        return self.to_end

    @property
    def to_end(self) -> bool:
        """Whether the running query is to end, or the wait for the next one."""
        stop = self.stop
        return bool(self._asked) or (stop is not None and stop.begun)

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
        return stop
