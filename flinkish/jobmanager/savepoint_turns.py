"""The savepoints of a run that are in flight: one is written at a time, in the order in which they were asked for, and
none outlives the job.

Rule: whoever asks before the first epoch is committed gets a savepoint of that epoch. What is in flight when the job
ends is aborted, its part is removed, and whoever has asked is told why; nothing is written to the job's directory after
it is given back. A cancellation aborts the savepoint of a stop as well.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from flinkish.checkpoint.coordinator import SavepointLog
from flinkish.errors import SavepointError

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")

#: Seconds between two looks at whether the first epoch is committed, if nothing tells of it.
_LOOK_S = 1.0
#: How long the end of a job waits for the savepoints that it has aborted, in seconds.
CLOSE_S = 20.0


class SavedRun(Protocol):
    """What is needed of the run whose savepoints these are."""

    name: str
    savepoints: SavepointLog

    def committed_epoch(self) -> int | None:
        """The last committed epoch; None: there is none yet."""

    def take_savepoint(self, directory: str | None) -> str:
        """Write a savepoint of the last committed epoch; returns its path."""


@dataclass(eq=False)
class _InFlight:
    """One savepoint that was asked for and has not come to its end."""

    of_stop: bool
    #: why it is not to go on; None: it may
    aborted: str | None = None
    #: ends what Spark does for it; returns at once
    interrupt: Callable[[], None] = lambda: None


class SavepointTurns:
    """Lets the savepoints of one run take their turns. Any thread may use it.

    Args:
        run: the run.
        timeout_s: how long a savepoint may take from its turn on.
    """

    def __init__(self, run: SavedRun, timeout_s: float) -> None:
        self._run = run
        self._timeout_s = timeout_s
        #: reentrant, and notified whenever something may go on
        self._changed = threading.Condition()
        self._in_flight: deque[_InFlight] = deque()
        #: how often an epoch was committed
        self._commits = 0
        #: why no more savepoints are taken; None: they are
        self._closed: str | None = None

    def take(self, directory: str, of_stop: bool = False) -> str:
        """Wait for its turn and for the first committed epoch, and write a savepoint; returns its path.

        Raises:
            SavepointError: it was aborted, or there was no committed epoch in time.
            FlinkishError: it could not be written.
        """
        mine = _InFlight(of_stop)
        with self._changed:
            if self._closed is not None:
                raise self.abortion(self._closed)
            self._in_flight.append(mine)
            self._changed.notify_all()
        try:
            with self._run.savepoints.waiting(self._run.committed_epoch() or 0) as number:
                self._wait_for_turn(mine)
                deadline_s = time.monotonic() + self._timeout_s
                self._wait_for_epoch(mine, deadline_s)
                with self._timed(mine, deadline_s), self._run.savepoints.turn_of(number):
                    return self._run.take_savepoint(directory)
        finally:
            with self._changed:
                self._in_flight.remove(mine)
                self._changed.notify_all()

    def _wait_for_turn(self, mine: _InFlight) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._in_flight[0] is mine or mine.aborted is not None)
        self._check(mine)

    def _wait_for_epoch(self, mine: _InFlight, deadline_s: float) -> None:
        while not mine.of_stop:
            seen = self._commits
            if self._run.committed_epoch() is not None:
                return
            with self._changed:
                if mine.aborted is None and self._commits == seen:
                    self._changed.wait(_LOOK_S)
                # the job's own thread waits behind this one: there will be no epoch
                stops = any(one.of_stop for one in self._in_flight)
            self._check(mine)
            if stops or time.monotonic() > deadline_s:
                raise SavepointError(
                    "no epoch has been committed yet" + ("" if stops else f", after {self._timeout_s:g} s"),
                    where=f"job '{self._run.name}'",
                    expected="one within execution.checkpointing.timeout",
                    hint="try again after the first epoch",
                )

    def epoch_committed(self) -> None:
        """Savepoints that wait for the first epoch need not wait any longer."""
        with self._changed:
            self._commits += 1
            self._changed.notify_all()

    @contextmanager
    def _timed(self, mine: _InFlight, deadline_s: float) -> Iterator[None]:
        """Abort what runs in the block when it has taken too long."""
        reason = f"it took longer than {self._timeout_s:g} s (execution.checkpointing.timeout)"
        watch = threading.Timer(max(deadline_s - time.monotonic(), 0), self._abort, [[mine], reason])
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            watch.cancel()

    # ------------------------------------------------------------------ what the one asks that is being written

    def check(self) -> None:
        """Raise SavepointError when the savepoint that is being written is not to go on."""
        with self._changed:
            mine = self._in_flight[0] if self._in_flight else None
        if mine is not None:
            self._check(mine)

    def of_stop(self) -> bool:
        """Whether the savepoint that is being written is that of a stop."""
        with self._changed:
            return bool(self._in_flight) and self._in_flight[0].of_stop

    def of_running_job(self) -> bool:
        """Whether the savepoint that is being written is of a job that goes on meanwhile."""
        with self._changed:
            return bool(self._in_flight) and not self._in_flight[0].of_stop

    @contextmanager
    def interrupted_by(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Within the block, call this, which returns at once, when the savepoint that is being written is aborted.
        Raises as `check` does."""
        with self._changed:
            mine = self._in_flight[0] if self._in_flight else _InFlight(of_stop=False)
            mine.interrupt = interrupt
        try:
            self._check(mine)
            yield
        finally:
            mine.interrupt = lambda: None

    def _check(self, mine: _InFlight) -> None:
        if mine.aborted is not None:
            raise self.abortion(mine.aborted)

    def abortion(self, reason: str) -> SavepointError:
        """The error of a savepoint that is aborted."""
        return SavepointError(f"the savepoint was aborted: {reason}", where=f"job '{self._run.name}'")

    # ------------------------------------------------------------------ the end of the job

    def abort(self, reason: str) -> None:
        """Abort all that are in flight, those of a stop, too, and take no more. Returns at once."""
        with self._changed:
            self._closed = self._closed or reason
            all_of_them = list(self._in_flight)
        self._abort(all_of_them, reason)

    def close(self, reason: str) -> None:
        """Abort all that are in flight, because the job ends, and wait until they have come to their end, for
        `CLOSE_S` seconds at most: one that takes longer is never completed."""
        self.abort(reason)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._in_flight, CLOSE_S):
                _LOG.warning("job '%s': a savepoint that was aborted has not ended: %s", self._run.name, reason)

    def _abort(self, those: list[_InFlight], reason: str) -> None:
        with self._changed:
            new = [one for one in those if one.aborted is None]
            for one in new:
                one.aborted = reason
            self._changed.notify_all()
        for one in new:
            one.interrupt()
