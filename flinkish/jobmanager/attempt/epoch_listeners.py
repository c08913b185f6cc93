"""How ``foreachBatch`` reaches the JobManager of the same process.

The function that Spark calls must be picklable (under Spark Connect it runs elsewhere), so it finds its JobManager by
job id. In a process without one it works on its own and leaves the reports in the job directory.
"""

from __future__ import annotations

import logging
from typing import Protocol

from flinkish.runtime.epoch_report import EpochReport

#: Text by which a query that was ended on purpose is known.
STOP_MARK = "flinkish-stop-query"


class EpochListener(Protocol):
    """What a JobManager wants to know of each epoch."""

    def before_epoch(self, epoch: int) -> None:
        """May raise `StopQuery`, or FencedError."""

    def after_epoch(self, report: EpochReport) -> None:
        """All of the epoch is done, only Spark's own commit is left."""


class _Quiet(logging.Filter):
    """py4j logs whatever a callback raises, with its traceback. What ends a query on purpose is no error."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and STOP_MARK in str(record.exc_info[1]))


logging.getLogger("py4j.clientserver").addFilter(_Quiet())


class StopQuery(Exception):
    """Raised before an epoch runs, to end the query. Nothing of that epoch has happened."""


_listeners: dict[str, EpochListener] = {}


def register(job_id: str, listener: EpochListener) -> None:
    """From now on this listener hears of the job's epochs."""
    _listeners[job_id] = listener


def unregister(job_id: str) -> None:
    """Forget it."""
    _listeners.pop(job_id, None)


def listener_of(job_id: str) -> EpochListener | None:
    """The job's listener in this process."""
    return _listeners.get(job_id)
