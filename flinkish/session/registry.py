"""All jobs that the session process knows: those that drivers tell of, those that have ended, and those of which only
the files of their directories are left.

Rule: each source is asked once a second at most, and of two that know a job the one that is nearer to it counts: its
driver, its archive (unless its directory has a driver: it goes on), its directory, and the session process where it has
started a program that has no job. A driver that does not answer leaves its jobs in the list, as RECONCILING, and one
that answers is asked whatever became of its directory. How a job has ended is a fact once its driver has said it,
whether it could be written down or not.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flinkish.rest.views.shapes import ENDED, TASK_STATES
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.session.archives import Archives
from flinkish.session.children import Child
from flinkish.session.drivers import FRESH_S, LIST_S, Driver
from flinkish.session.job_folder import JobFolder, StoredJob
from flinkish.storage.paths import is_local

Json = dict[str, Any]

_LOG = logging.getLogger("flinkish.Session")

#: Seconds between two looks at a folder that is not on a local file system, where each look is some requests.
_REMOTE_S = 10.0
#: Seconds that a list waits for such a look.
_LOOK_S = 5.0

#: The ends after which a job is not started again, whatever becomes of its driver.
_FOR_GOOD = ("FINISHED", "CANCELED")


class Restarts(Protocol):
    """What is known of drivers that the session process has started."""

    def status(self, directory: str) -> str | None:
        """The status of the job of a directory that has no driver: RESTARTING, FAILED; None: nothing is known."""

    def without_job(self, directories: Collection[str]) -> Sequence[tuple[Child, str]]:
        """The programs without a job in one of these directories, and the status of each."""


@dataclass(frozen=True)
class Snapshot:
    """The jobs at one moment."""

    #: id -> the job as ``/jobs/overview`` has it; the running ones first, then the most recently ended ones
    jobs: Mapping[str, Json] = field(default_factory=dict)
    #: id -> the driver that answers for the job
    drivers: Mapping[str, Driver] = field(default_factory=dict)
    #: id of a task manager -> its description as ``/taskmanagers`` has it, and the first driver that has told of it
    task_managers: Mapping[str, tuple[Json, Driver]] = field(default_factory=dict)
    #: directory -> what its files say
    directories: Mapping[str, StoredJob] = field(default_factory=dict)
    #: all drivers that may answer
    all_drivers: tuple[Driver, ...] = ()

    @property
    def running(self) -> int:
        """How many jobs have not ended and have a driver that lives, as far as is known."""
        owned = {job.job_id for job in self.directories.values() if job.is_owned} | self.drivers.keys()
        return sum(line["state"] not in ENDED and job_id in owned for job_id, line in self.jobs.items())


class Registry:
    """Finds the jobs. Any thread may use it.

    Args:
        folder: the job directories.
        archives: the archives of jobs that have ended.
        driver: makes the driver at an address of a host.
        restarts: what is known of drivers that were started here.
        clock: gives the times that are shown.
        clock_s: gives a time in seconds that never goes back.
    """

    def __init__(
        self,
        folder: JobFolder,
        archives: Archives,
        driver: Callable[[str, str], Driver],
        restarts: Restarts,
        clock: Clock | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._archives = archives
        self._driver = driver
        self._restarts = restarts
        self._clock = clock or SystemClock()
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._is_local = is_local(folder.path)
        self._look_s = FRESH_S if self._is_local else _REMOTE_S
        self._looking: threading.Thread | None = None
        self._looked_s: float | None = None
        self._found: list[StoredJob] = []
        self._ended: tuple[Json, ...] = ()
        #: address, host and process -> the driver, and its directories
        self._drivers: dict[tuple[str, str, str], Driver] = {}
        self._paths: dict[tuple[str, str, str], set[str]] = {}
        #: (process, id of a job) -> how the job has ended in it for good
        self._ends: dict[tuple[str, str], str] = {}
        self._snapshot = Snapshot()
        self._made_s: float | None = None

    def jobs(self) -> Snapshot:
        """All jobs, not older than a second, as far as they answer."""
        with self._lock:
            now_s = self._clock_s()
            if self._made_s is None or now_s - self._made_s >= FRESH_S:
                self._look(now_s)
                for driver in self._drivers.values():
                    driver.ask_for_jobs()
                deadline_s = now_s + LIST_S
                for driver in self._drivers.values():
                    driver.wait_for_jobs(max(0.0, deadline_s - self._clock_s()))
                self._snapshot, self._made_s = self._merged(), self._clock_s()
            return self._snapshot

    def job_of(self, directory: str, given: str) -> str | None:
        """The id of the job of a new directory, whose driver was given an id; None: it is not known to have one yet."""
        jobs = self.jobs()
        found = jobs.directories.get(directory)
        return found.job_id if found is not None and found.job_id else given if given in jobs.drivers else None

    def forget(self) -> None:
        """Let the next one who asks see what has changed just now."""
        with self._lock:
            self._made_s = None
            if self._looked_s is not None:
                self._looked_s = -math.inf
            for driver in self._drivers.values():
                driver.forget()

    def _look(self, now_s: float) -> None:
        """Look for directories and archives, unless that was done lately; beside those who ask if it takes its time."""
        if self._looking is None or not self._looking.is_alive():
            if self._looked_s is not None and now_s - self._looked_s < self._look_s:
                return
            begun_s, self._looked_s = self._looked_s, now_s
            self._looking = threading.Thread(target=self._read, name="flinkish-session-folder", daemon=True)
            self._looking.start()
            if self._is_local or begun_s is None:
                self._looking.join(_LOOK_S)
        found, paths = self._found, dict[tuple[str, str, str], set[str]]()
        for job in found:
            if job.driver is not None:
                paths.setdefault((*job.driver, job.process), set()).add(job.path)
        there = {job.path for job in found}
        for key, driver in self._drivers.items():
            # whoever deletes the directory of a driver does not end it
            if not driver.is_gone and not self._paths[key] & there:
                paths.setdefault(key, self._paths[key])
        self._paths = paths
        self._drivers = {key: self._drivers.get(key) or self._driver(*key[:2]) for key in sorted(paths)}

    def _read(self) -> None:
        try:
            self._found, self._ended = self._folder.read(), self._archives.refresh()
        except Exception:
            _LOG.exception("the jobs in %s cannot be read:", self._folder.path)

    def _merged(self) -> Snapshot:
        found = {job.job_id: self._of_directory(job) for job in self._found if job.job_id is not None}
        gone = {key[2] for key, driver in self._drivers.items() if driver.is_gone}
        owned = {job.job_id for job in self._found if job.is_owned and job.process not in gone}
        found.update((line["jid"], line) for line in self._ended if line["jid"] not in owned)
        for child, status in self._restarts.without_job({job.path for job in self._found if job.job_id is not None}):
            found.setdefault(child.job_id, self._line(child.job_id, child.name, child.started_ms, status))
        there, of_drivers = {job.path: job for job in self._found}, dict[str, Driver]()
        managers: dict[str, tuple[Json, Driver]] = {}
        for key, driver in self._drivers.items():
            if driver.is_gone and not self._paths[key] & there.keys():
                continue
            for line in driver.jobs:
                if line["state"] in _FOR_GOOD:
                    self._ends[key[2], line["jid"]] = line["state"]
                if driver.is_gone and found.get(line["jid"], {}).get("state") in ENDED:
                    continue
                shown = _reconciling(line) if driver.is_silent else line
                other = of_drivers.get(line["jid"])
                if other is None or _is_newer(shown, found[line["jid"]]):
                    found[line["jid"]], of_drivers[line["jid"]] = shown, driver
            for manager in () if driver.is_silent else driver.task_managers:
                managers.setdefault(manager["id"], (manager, driver))
        # a driver that has not said anything yet
        for job in self._found:
            key = (*(job.driver or ("", "")), job.process)
            if job.job_id is not None and key in self._drivers:
                of_drivers.setdefault(job.job_id, self._drivers[key])
        known = {job.process for job in self._found}
        self._ends = {key: state for key, state in self._ends.items() if key[0] in known}
        jobs = {line["jid"]: line for line in sorted(found.values(), key=_order)}
        return Snapshot(jobs, of_drivers, managers, there, tuple(self._drivers.values()))

    def _of_directory(self, job: StoredJob) -> Json:
        """A job of which only its directory tells."""
        assert job.job_id is not None, "it has begun"
        told = self._ends.get((job.process, job.job_id))
        if job.is_owned:
            status = "RECONCILING"
        else:
            status = job.end or told or self._restarts.status(job.path) or "SUSPENDED"
        return self._line(job.job_id, job.name, job.changed_ms, status)

    def _line(self, job_id: str, name: str, changed_ms: int, status: str) -> Json:
        return {
            "jid": job_id,
            "name": name,
            "jobType": "STREAMING",
            "schedulerType": "Default",
            "start-time": changed_ms,
            "end-time": changed_ms if status in ENDED else -1,
            "duration": 0 if status in ENDED else max(0, self._clock.now_ms() - changed_ms),
            "state": status,
            "last-modification": changed_ms,
            "tasks": {**{state.lower(): 0 for state in TASK_STATES}, "total": 0},
            "pending-operators": 0,
        }


def _reconciling(line: Json) -> Json:
    return line if line["state"] in ENDED else {**line, "state": "RECONCILING"}


def _is_newer(line: Json, other: Json) -> bool:
    """Whether of two drivers that tell of a job this one has it."""
    running, others = line["state"] not in ENDED, other["state"] not in ENDED
    return running if running != others else line["start-time"] > other["start-time"]


def _order(line: Json) -> tuple[bool, int, str]:
    ended = line["state"] in ENDED
    return ended, -line["end-time" if ended else "start-time"], line["jid"]
