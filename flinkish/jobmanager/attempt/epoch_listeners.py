"""How the ``foreachBatch`` function reaches the JobManager in the same process.

The function must be picklable (under Spark Connect it runs in another process), so it finds its JobManager by job id.
In a process without one it works on its own and leaves its reports in the job directory.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from typing import Any, Protocol

from flinkish.runtime.epoch_report import EpochReport


class EpochListener(Protocol):
    """Is told about each epoch before and after it runs; implemented by the attempt."""

    def before_epoch(self, epoch: int) -> None:
        """Called before an epoch runs; raises `StopQuery` or FencedError to prevent it."""

    def after_epoch(self, report: EpochReport) -> None:
        """Called when the sinks have committed the epoch and only Spark's own commit is left."""


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
    """Raised before an epoch runs, to end the query. Nothing of that epoch has happened."""


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
