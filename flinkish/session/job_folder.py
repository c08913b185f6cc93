"""The job directories below a folder, as far as their files say what became of their jobs.

Rule: nothing is written there, and a directory that cannot be read is left out: it is none, or it is damaged, which its
driver says to who starts it. What is remembered is of an owner and its files: a directory that is used again is new.
"""

from __future__ import annotations

import logging
import posixpath
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from flinkish.errors import FlinkishError, message_of
from flinkish.jobdir.fencing import SILENCE_S, Liveness, liveness_of
from flinkish.jobdir.layout import Job, JobEnd, Owner
from flinkish.rest.access import is_loopback
from flinkish.session.drivers import address_of
from flinkish.storage.paths import looks_of
from flinkish.storage.stored_file import StoredFile
from flinkish.storage.stores import storage_of

_LOG = logging.getLogger("flinkish.Session")

F = TypeVar("F", bound=StoredFile)

#: The folder in a job directory with those of the further jobs of the same program.
_FURTHER = "jobs"


@dataclass(frozen=True)
class StoredJob:
    """What the files of a job directory say.

    Attributes:
        path: of the directory.
        job_id: id and ``name`` of its job; None: it has not begun.
        driver: address and host of a driver that may answer for it; None: there is none.
        process: tells the process of its last driver from all others, whatever address it has.
        is_owned: whether a driver may be at work here.
        end: how the job has ended for good, FINISHED or CANCELED; None: it has not.
        changed_ms: when its driver showed last that it is alive.
    """

    path: str
    job_id: str | None
    name: str
    driver: tuple[str, str] | None
    process: str
    is_owned: bool
    end: str | None
    changed_ms: int


@dataclass
class _Known:
    """What is remembered of a driver in a directory."""

    #: id and name of its job, which stay the same
    job: tuple[str, str] | None = None
    #: its last sign of life, and since when there is no other one
    sign: tuple[int, float] | None = None
    since_s: float = 0.0


class JobFolder:
    """Reads the job directories of a folder. One thread uses it at a time.

    Args:
        path: the folder, on any storage.
        clock_s: gives a time in seconds that never goes back.
    """

    def __init__(self, path: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock_s = clock_s
        #: path of a directory, token of its owner, how the file of its job looks -> what is remembered
        self._known: dict[tuple[object, ...], _Known] = {}

    def read(self) -> list[StoredJob]:
        """All jobs of the folder."""
        found, before = [], self._known
        self._known = {}
        for path in self._directories(self.path):
            for directory in (path, *self._directories(posixpath.join(path, _FURTHER))):
                owner = self._read(directory, Owner)
                if owner is not None:
                    key = directory, owner.token, looks_of(Job.path_in(directory))
                    known = self._known[key] = before.get(key) or _Known()
                    found.append(self._job(directory, owner, known))
        return found

    def _directories(self, path: str) -> list[str]:
        try:
            entries = storage_of(path).list(path)
        except (FlinkishError, OSError) as error:
            _LOG.warning("%s cannot be listed: %s", path, message_of(error))
            return []
        return sorted(one.path for one in entries if one.is_directory and not one.name.startswith("."))

    def _job(self, path: str, owner: Owner, known: _Known) -> StoredJob:
        if known.job is None and (job := self._read(path, Job)) is not None:
            known.job = job.job_id, job.name
        job_id, name = known.job or (None, posixpath.basename(path))
        driver, owned = _driver_of(owner)
        if known.sign != (owner.renewals, owner.renewed_s):
            known.sign, known.since_s = (owner.renewals, owner.renewed_s), self._clock_s()
        # of an owner on another machine nothing is known but its signs of life
        owned = owned and (liveness_of(owner) is Liveness.ALIVE or self._clock_s() - known.since_s <= SILENCE_S)
        end = None if owned else self._read(path, JobEnd)
        ended, changed_ms = None if end is None else end.status, int(owner.renewed_s * 1000)
        process = f"{owner.machine or owner.host}/{owner.pid}/{owner.started}"
        return StoredJob(path, job_id, name, driver, process, owned, ended, changed_ms)

    def _read(self, directory: str, kind: type[F]) -> F | None:
        try:
            return kind.read(directory)
        except (FlinkishError, OSError) as error:
            _LOG.debug("%s cannot be read: %s", kind.path_in(directory), message_of(error))
            return None


def _driver_of(owner: Owner) -> tuple[tuple[str, str] | None, bool]:
    """Address and host of the driver that owns, or owned, a directory, if it may still answer; and whether it owns it.

    A driver that has given its directory back still answers who asks for the outcome of what has ended its job.
    """
    liveness = liveness_of(owner)
    process = liveness_of(replace(owner, released=False))
    url = str(owner.rest)
    owned = liveness is not Liveness.GONE
    if process is Liveness.GONE or (process is Liveness.SILENT and owner.released):
        return None, owned
    try:
        _, name, _ = address_of(url)
    except ValueError:
        return None, owned
    if process is Liveness.SILENT and is_loopback(name):
        # of another machine: it listens to nobody else
        return None, owned
    return (url, owner.host), owned
