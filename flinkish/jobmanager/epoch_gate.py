"""How the ``foreachBatch`` function reaches the JobManager in the same process.

The function must be picklable (under Spark Connect it runs in another process), so it finds its JobManager by job id.
In a process without one it works on its own and leaves its reports in the job directory.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.task.task import RETAINED_EPOCHS


class _Quiet(logging.Filter):
    """Suppresses the log records of queries that were ended on purpose: py4j logs whatever a callback raises, with its
    traceback, though this is no error."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], StopQuery))


logging.getLogger("py4j.clientserver").addFilter(_Quiet())


def connection_of_this_thread(spark: Any) -> Any:
    """py4j's connection over which a thread of the JVM calls this thread, e.g. the thread of a query."""
    return spark.sparkContext._gateway._gateway_client.get_thread_connection()


def close_connection(connection: Any) -> None:
    """Close the connection of a thread of the JVM that has ended, which lets the thread of this process end that waits
    for its calls. py4j keeps both for ever: one thread and one file descriptor per query."""
    ended = None if connection is None else connection.socket
    if ended is not None:
        with suppress(OSError):
            ended.shutdown(socket.SHUT_RDWR)


class StopQuery(Exception):
    """Raised to end the query, before an epoch runs or when it was given up. Nothing of that epoch is committed."""


class EpochGate:
    """Decides for each epoch whether it is given up or committed: whichever is asked for first, and never both.

    The thread that runs epochs goes through the gate before it prepares one. Whoever wants to end the job at once
    closes the gate, for good, unless an epoch is behind it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._behind = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the running epoch, or the one that was about to begin, was given up."""
        return self._closed

    def begin(self) -> None:
        """A new epoch is before the gate. Raises StopQuery if the gate is closed."""
        self._move(False)

    def go_through(self) -> None:
        """The epoch may be committed from now on. Raises StopQuery if it was given up."""
        self._move(True)

    def _move(self, behind: bool) -> None:
        with self._lock:
            if self._closed:
                raise StopQuery
            self._behind = behind

    def close(self) -> bool:
        """Give up the epoch before the gate. Returns whether it was possible: there is no epoch behind the gate."""
        with self._lock:
            self._closed = self._closed or not self._behind
            return self._closed


class EpochListener(ABC):
    """Is told about each epoch before and after it runs, and may prevent it; implemented by the attempt, and by its
    other side in a process without one."""

    gate: EpochGate

    @abstractmethod
    def before_epoch(self, epoch: int) -> None:
        """Called before an epoch runs; raises `StopQuery` or FencedError to prevent it."""

    def given_up(self) -> bool:
        """Whether the running epoch was given up: what fails with it is no failure of the job."""
        return self.gate.closed

    @abstractmethod
    def after_epoch(self, report: EpochReport) -> None:
        """Called when the sinks have committed the epoch and only Spark's own commit is left."""


class StateReaders:
    """Those who read the state of a committed epoch and must not be outrun by the epochs that follow.

    Rule: Spark, the tasks and the driver delete the state of all but the last `RETAINED_EPOCHS` epochs. Some of these
    may follow the one that is read; the next one begins when the reader is done. Any thread may use it.

    Args:
        changed: called, by one thread at a time, when `last_epoch` has changed.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._lock = threading.RLock()
        #: what reads -> the epoch whose state it reads
        self._reading: dict[str, int] = {}

    @contextmanager
    def reading(self, reader: str, epoch: int) -> Iterator[None]:
        """Within the block the state of the epoch is kept. ``reader``: what reads it, which reads it once at a time."""
        with self._lock:
            self._reading[reader] = epoch
            self._changed()
        try:
            yield
        finally:
            with self._lock:
                del self._reading[reader]
                self._changed()

    @property
    def last_epoch(self) -> float:
        """The last epoch that may begin now."""
        with self._lock:
            return min(self._reading.values(), default=math.inf) + RETAINED_EPOCHS // 2

    def described(self) -> str | None:
        """What epochs wait for, in words; None: none has to."""
        with self._lock:
            if not self._reading:
                return None
            reader, epoch = min(self._reading.items(), key=lambda one: one[1])
            return f"epochs from {self.last_epoch + 1} on wait until {reader} has read the state of epoch {epoch}"


_listeners: dict[str, EpochListener] = {}


def register(job_id: str, listener: EpochListener) -> None:
    """Report the job's epochs to this listener from now on."""
    _listeners[job_id] = listener


def unregister(job_id: str) -> None:
    """Stop reporting the job's epochs to its listener, if it has one."""
    _listeners.pop(job_id, None)


def listener_of(job_id: str) -> EpochListener | None:
    """The job's listener in this process; None if there is none."""
    return _listeners.get(job_id)
