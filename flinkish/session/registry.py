"""All jobs that the session process knows: those that drivers tell of, those that have ended, and those of which only
the files of their directories are left.

Rule: each source is asked once a second at most, and of two that know a job the one that is nearer to it counts: its
driver, its archive, its directory. A driver that does not answer leaves its jobs in the list, as RECONCILING.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from flinkish.rest.views.shapes import ENDED, TASK_STATES
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.session.archives import Archives
from flinkish.session.drivers import FRESH_S, LIST_S, Driver
from flinkish.session.job_folder import JobFolder, StoredJob
from flinkish.storage.paths import is_local

Json = dict[str, Any]

_LOG = logging.getLogger("flinkish.Session")

#: Seconds between two looks at a folder that is not on a local file system, where each look is some requests.
_REMOTE_S = 10.0
#: Seconds that a list waits for such a look.
_LOOK_S = 5.0


class Restarts(Protocol):
    """What is known of drivers that the session process has started."""

    def status(self, directory: str) -> str | None:
        """The status of the job of a directory that has no driver: RESTARTING, FAILED; None: nothing is known."""


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
        #: address -> the driver
        self._drivers: dict[str, Driver] = {}
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

    def job_of(self, directory: str) -> str | None:
        """The id of the job of a directory that has just been made; None: it has none yet, or it is not known yet."""
        jobs = self.jobs()
        found = jobs.directories.get(directory)
        if found is None:
            return None
        if found.job_id is not None or found.driver is None:
            return found.job_id
        # the first one that it was given
        driver = next((one for one in jobs.all_drivers if one.url == found.driver[0]), None)
        lines = () if driver is None else driver.jobs
        return min(((line["start-time"], line["jid"]) for line in lines), default=(0, None))[1]

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
        found = self._found
        wanted = {job.driver for job in found if job.driver is not None}
        self._drivers = {
            url: known if (known := self._drivers.get(url)) and known.host == host else self._driver(url, host)
            for url, host in sorted(wanted)
        }

    def _read(self) -> None:
        try:
            self._found, self._ended = self._folder.read(), self._archives.refresh()
        except Exception:
            _LOG.exception("the jobs in %s cannot be read:", self._folder.path)

    def _merged(self) -> Snapshot:
        found = {job.job_id: self._of_directory(job) for job in self._found if job.job_id is not None}
        found.update((line["jid"], line) for line in self._ended)
        of_drivers: dict[str, Driver] = {}
        managers: dict[str, tuple[Json, Driver]] = {}
        for driver in self._drivers.values():
            for line in driver.jobs:
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
            if job.job_id is not None and job.driver is not None and job.driver[0] in self._drivers:
                of_drivers.setdefault(job.job_id, self._drivers[job.driver[0]])
        ordered = sorted(found.values(), key=_order)
        directories = {job.path: job for job in self._found}
        all_drivers = tuple(self._drivers.values())
        return Snapshot({line["jid"]: line for line in ordered}, of_drivers, managers, directories, all_drivers)

    def _of_directory(self, job: StoredJob) -> Json:
        """A job of which only its directory tells."""
        if job.is_owned:
            status = "RECONCILING"
        else:
            status = job.end or self._restarts.status(job.path) or "SUSPENDED"
        now_ms = self._clock.now_ms()
        return {
            "jid": job.job_id,
            "name": job.name,
            "jobType": "STREAMING",
            "schedulerType": "Default",
            "start-time": job.changed_ms,
            "end-time": job.changed_ms if status in ENDED else -1,
            "duration": 0 if status in ENDED else max(0, now_ms - job.changed_ms),
            "state": status,
            "last-modification": job.changed_ms,
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
