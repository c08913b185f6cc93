"""How the ``foreachBatch`` function reaches the JobManager in the same process.

The function must be picklable (under Spark Connect it runs in another process), so it finds its JobManager by job id.
In a process without one it works on its own and leaves its reports in the job directory.
"""

from __future__ import annotations

import logging
from typing import Protocol

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
