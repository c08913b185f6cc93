"""The jobs that run in this process: which jobs a signal stops, and whether one has ended because of a request from
outside of the program.

Rule: what a program does with its jobs is its own business (exit code 0); a stop that was asked for from outside (by a
signal or a command) is reported to whoever started the process, by the exit code.
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
    """Add a job that starts."""
    with _lock:
        _running.append(run)


def ended(run: JobRun, status: JobStatus) -> None:
    """Remove a job that has ended. A job that has failed does not count as stopped, even if a stop was asked for."""
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
    """Note that somebody outside of the program has asked this job to stop. Has no effect if it has ended."""
    with _lock:
        if run in _running:
            _asked_to_stop.add(id(run))


def is_asked_from_outside(run: JobRun) -> bool:
    """Whether somebody outside of the program has asked this job, which has not ended, to stop."""
    with _lock:
        return id(run) in _asked_to_stop


def stopped_from_outside() -> bool:
    """Whether a job of this process has ended because somebody outside asked for it."""
    return _stopped
