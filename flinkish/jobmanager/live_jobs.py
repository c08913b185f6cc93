"""The jobs that run in this process: whom a signal stops, and whether one ended because somebody outside asked for it.

Rule: what a program does with its jobs is its own business (exit code 0); what is asked for from outside (a signal, a
command) is told to whoever started the process, by its exit code.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from flinkish.common.job_status import JobStatus

if TYPE_CHECKING:
    from flinkish.jobmanager.job_run import JobRun

_lock = threading.RLock()
_running: list[JobRun] = []
_asked_to_stop: set[int] = set()
_stopped = False


def started(run: JobRun) -> None:
    """A job begins."""
    with _lock:
        _running.append(run)


def ended(run: JobRun, status: JobStatus) -> None:
    """A job has ended. One that failed was not stopped, whatever was asked for."""
    global _stopped
    with _lock:
        if run in _running:
            _running.remove(run)
        asked = id(run) in _asked_to_stop
        _asked_to_stop.discard(id(run))
        _stopped = _stopped or (asked and status is not JobStatus.FAILED)


def running() -> list[JobRun]:
    """The jobs that have not ended."""
    with _lock:
        return list(_running)


def asked_from_outside(run: JobRun) -> None:
    """Somebody outside of the program asks this job to stop."""
    with _lock:
        if run in _running:
            _asked_to_stop.add(id(run))


def stopped_from_outside() -> bool:
    """Whether a job of this process has ended because somebody outside asked for it."""
    return _stopped
