"""Which jobs there are, of three sources: drivers, archives, directories."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flinkish.jobdir.fencing import SILENCE_S
from flinkish.runtime.phases import ManualClock
from flinkish.session.archives import Archives
from flinkish.session.children import Child
from flinkish.session.job_folder import JobFolder
from flinkish.session.registry import Registry
from tests.unit.session.folders import (
    ELSEWHERE,
    JOB,
    OTHER,
    THIRD,
    URL,
    FakeDriver,
    FakeRestarts,
    archive,
    job_directory,
    line,
    write,
)


class Watched:
    """A registry of a folder, with a clock of its own."""

    def __init__(self, folder: Path, **restarts: str) -> None:
        self.folder = folder
        self.now_s = 100.0
        self.drivers: dict[str, FakeDriver] = {}
        self.restarts = FakeRestarts(**restarts)
        self.registry = Registry(
            JobFolder(str(folder), lambda: self.now_s),
            Archives([str(folder / ".flinkish/archive")]),
            self._driver,  # type: ignore[arg-type]
            self.restarts,
            ManualClock(20_000),
            lambda: self.now_s,
        )

    def _driver(self, url: str, host: str) -> FakeDriver:
        driver = self.drivers.setdefault(url, FakeDriver(url, host))
        if not driver.jobs:
            driver.jobs = (line(),)
        return driver

    def states(self) -> dict[str, str]:
        """The states of all jobs, in the order of the list, a second later."""
        self.now_s += 1.0
        return {job_id: job["state"] for job_id, job in self.registry.jobs().jobs.items()}


#: What lies in the job directory, what the session knows of its driver -> the status of the job in the list.
WITHOUT_DRIVER: list[tuple[str, dict[str, Any], dict[str, str], str]] = [
    ("it has finished", {"released": True, "end": {"status": "FINISHED"}}, {}, "FINISHED"),
    ("it was cancelled", {"released": True, "end": {"status": "CANCELED"}}, {}, "CANCELED"),
    ("its driver was killed, and nobody starts it again", {"pid": 1 << 22}, {}, "SUSPENDED"),
    ("it was suspended by a signal", {"released": True}, {}, "SUSPENDED"),
    ("its driver was killed, and is started again", {"pid": 1 << 22}, {"job": "RESTARTING"}, "RESTARTING"),
    ("it was cancelled while it waited for its driver", {"pid": 1 << 22}, {"job": "CANCELED"}, "CANCELED"),
    ("its driver has failed", {"released": True}, {"job": "FAILED"}, "FAILED"),
    ("it has ended, whatever became of its driver", {"released": True, "end": {}}, {"job": "FAILED"}, "FINISHED"),
    ("its driver has no REST API", {}, {}, "RECONCILING"),
    ("its driver is on another machine and listens to that alone", {**ELSEWHERE, "rest": URL}, {}, "RECONCILING"),
]


@pytest.mark.parametrize(
    ("directory", "restarts", "status"), [case[1:] for case in WITHOUT_DRIVER], ids=[case[0] for case in WITHOUT_DRIVER]
)
def test_a_job_without_a_driver_that_answers_has_the_status_that_its_files_tell(
    directory: dict[str, Any], restarts: dict[str, str], status: str, tmp_path: Path
) -> None:
    job_directory(tmp_path / "job", **{"rest": None, **directory})
    watched = Watched(tmp_path, **restarts)
    assert watched.states() == {JOB: status}
    assert watched.drivers == {} and watched.registry.jobs().drivers == {}


def test_jobs_of_drivers_archives_and_directories_are_one_list_the_running_ones_first(tmp_path: Path) -> None:
    job_directory(tmp_path / "one", JOB)
    job_directory(tmp_path / "two", OTHER, rest=None, released=True, renewed_s=50.0, end={"status": "CANCELED"})
    job_directory(tmp_path / "one" / "jobs" / "further", None)
    archive(tmp_path / ".flinkish/archive", THIRD, "FAILED")
    watched = Watched(tmp_path)
    assert list(watched.states().items()) == [(JOB, "RUNNING"), (OTHER, "CANCELED"), (THIRD, "FAILED")]
    assert {job_id: driver.url for job_id, driver in watched.registry.jobs().drivers.items()} == {JOB: URL}


def test_a_driver_knows_better_than_an_archive_and_an_archive_than_a_directory(tmp_path: Path) -> None:
    directory = job_directory(tmp_path / "one")
    archive(tmp_path / ".flinkish/archive", JOB, "CANCELED")
    watched = Watched(tmp_path)
    assert watched.states() == {JOB: "RUNNING"}
    # it listens no more: what it has said last is older than its archive
    watched.drivers[URL].is_silent = watched.drivers[URL].is_gone = True
    assert watched.states() == {JOB: "CANCELED"}
    job_directory(directory, pid=1 << 22)
    assert watched.states() == {JOB: "CANCELED"} and watched.registry.jobs().drivers == {}


def test_a_job_that_goes_on_after_its_end_was_archived_has_not_ended(tmp_path: Path) -> None:
    archive(tmp_path / ".flinkish/archive", JOB, "FAILED")
    # by a driver that has no REST API
    directory = job_directory(tmp_path / "one", rest=None)
    watched = Watched(tmp_path)
    assert watched.states() == {JOB: "RECONCILING"} and watched.registry.jobs().running == 1
    job_directory(directory, rest=None, released=True)
    assert watched.states() == {JOB: "FAILED"}


def test_a_driver_that_has_given_its_directory_back_is_asked_for_as_long_as_its_process_lives(tmp_path: Path) -> None:
    job_directory(tmp_path / "one", released=True, end={"status": "FINISHED"})
    watched = Watched(tmp_path)
    watched.drivers[URL] = FakeDriver()
    watched.drivers[URL].jobs = (line(JOB, "FINISHED"),)
    assert watched.states() == {JOB: "FINISHED"} and set(watched.registry.jobs().drivers) == {JOB}


def test_a_silent_driver_leaves_its_jobs_in_the_list(tmp_path: Path) -> None:
    job_directory(tmp_path / "one")
    watched = Watched(tmp_path)
    assert watched.states() == {JOB: "RUNNING"}
    watched.drivers[URL].is_silent = True
    watched.drivers[URL].jobs = (line(JOB), line(OTHER, "FINISHED"))
    assert watched.states() == {JOB: "RECONCILING", OTHER: "FINISHED"}


def test_whatever_comes_in_a_driver_is_asked_once_a_second(tmp_path: Path) -> None:
    job_directory(tmp_path / "one")
    watched = Watched(tmp_path)
    for _ in range(50):
        watched.registry.jobs()
    assert watched.drivers[URL].asked_for_jobs == 1
    watched.states()
    assert watched.drivers[URL].asked_for_jobs == 2


def test_of_two_drivers_that_tell_of_a_job_the_one_counts_that_runs_it(tmp_path: Path) -> None:
    job_directory(tmp_path / "one", rest="http://127.0.0.1:1")
    job_directory(tmp_path / "two", rest="http://127.0.0.1:2")
    watched = Watched(tmp_path)
    for url, state in (("http://127.0.0.1:1", "RUNNING"), ("http://127.0.0.1:2", "FAILED")):
        watched.drivers[url] = FakeDriver(url)
        watched.drivers[url].jobs = (line(JOB, state),)
    assert watched.states() == {JOB: "RUNNING"}
    assert watched.registry.jobs().drivers[JOB].url == "http://127.0.0.1:1"


def test_a_directory_that_was_deleted_and_is_used_again_shows_its_new_job(tmp_path: Path) -> None:
    job_directory(tmp_path / "one", JOB, None)
    watched = Watched(tmp_path)
    assert watched.states() == {JOB: "RECONCILING"}
    shutil.rmtree(tmp_path / "one")
    job_directory(tmp_path / "one", None, None, token="another run")
    assert watched.states() == {}
    job_directory(tmp_path / "one", OTHER, None, token="another run")
    assert watched.states() == {OTHER: "RECONCILING"}
    # whatever its owner is called
    job_directory(tmp_path / "one", THIRD, None, token="another run")
    assert watched.states() == {THIRD: "RECONCILING"}


def test_another_process_at_the_address_of_a_driver_is_another_driver(tmp_path: Path) -> None:
    job_directory(tmp_path / "one", JOB, **ELSEWHERE, pid=1, rest="http://another:1")
    watched = Watched(tmp_path)
    watched.states()
    before = watched.registry.jobs().drivers[JOB]
    before.jobs = (line(THIRD),)
    job_directory(tmp_path / "one", JOB, **ELSEWHERE, pid=2, rest="http://another:1")
    watched.drivers.clear()
    assert watched.states() == {JOB: "RUNNING"} and watched.registry.jobs().drivers[JOB] is not before


def test_a_driver_whose_directory_was_deleted_is_asked_for_as_long_as_it_answers(tmp_path: Path) -> None:
    job_directory(tmp_path / "one")
    watched = Watched(tmp_path)
    assert watched.states() == {JOB: "RUNNING"}
    shutil.rmtree(tmp_path / "one")
    assert watched.states() == {JOB: "RUNNING"} and set(watched.registry.jobs().drivers) == {JOB}
    watched.drivers[URL].is_silent = watched.drivers[URL].is_gone = True
    assert watched.states() == {} and watched.registry.jobs().drivers == {}


def test_a_driver_of_another_machine_is_dead_once_it_was_watched_without_a_sign_of_life(tmp_path: Path) -> None:
    directory = job_directory(tmp_path / "one", JOB, None, **ELSEWHERE)
    watched = Watched(tmp_path)
    assert watched.states() == {JOB: "RECONCILING"} and watched.registry.jobs().running == 1
    watched.now_s += SILENCE_S
    job_directory(directory, JOB, None, **ELSEWHERE, renewals=2)
    assert watched.states() == {JOB: "RECONCILING"}
    watched.now_s += SILENCE_S
    assert watched.states() == {JOB: "SUSPENDED"} and watched.registry.jobs().running == 0


def test_how_a_job_has_ended_is_known_if_only_its_driver_could_say_it(tmp_path: Path) -> None:
    directory = job_directory(tmp_path / "one")
    watched = Watched(tmp_path, one="FAILED")
    watched.states()
    watched.drivers[URL].jobs = (line(JOB, "FINISHED", end=5_000),)
    assert watched.states() == {JOB: "FINISHED"}
    job_directory(directory, rest=None, released=True)
    assert watched.states() == {JOB: "FINISHED"}, "it has given its directory back, and could not write why"
    job_directory(directory, pid=1 << 22)
    assert watched.states() == {JOB: "FAILED"}, "another process, of which nothing was said"
    watched = Watched(tmp_path, one="RESTARTING")
    job_directory(directory)
    watched.states()
    watched.drivers[URL].jobs = (line(JOB, "FAILED", end=5_000),)
    assert watched.states() == {JOB: "FAILED"}
    job_directory(directory, rest=None, released=True)
    assert watched.states() == {JOB: "RESTARTING"}, "its driver is started again"


def test_programs_without_a_job_are_listed_and_only_jobs_with_a_living_driver_run(tmp_path: Path) -> None:
    job_directory(tmp_path / "one")
    job_directory(tmp_path / "waits", OTHER, None, pid=1 << 22)
    watched = Watched(tmp_path, waits="RESTARTING")
    hangs, known = (Child(name, "", [], {}, "", 0, job_id=THIRD) for name in ("hangs", "one"))
    watched.restarts.programs = [(hangs, "INITIALIZING"), (known, "RUNNING")]
    assert watched.states() == {JOB: "RUNNING", OTHER: "RESTARTING", THIRD: "INITIALIZING"}
    assert watched.registry.jobs().running == 1


#: What is no job directory, or a damaged one, or one that names what no driver can be asked at.
STRANGE: list[tuple[str, Callable[[Path], object]]] = [
    ("an empty directory", lambda path: path.mkdir()),
    ("a file", lambda path: path.write_text("x")),
    ("a damaged owner", lambda path: (path.mkdir(), (path / "owner.json").write_text("{"))),
    ("an owner of another shape", lambda path: write(path / "owner.json", {"token": 1})),
    ("a pipe as an owner", lambda path: (path.mkdir(), __import__("os").mkfifo(path / "owner.json"))),
    ("an address that is none", lambda path: job_directory(path, None, "http://[::1:x")),
    ("an address of a file", lambda path: job_directory(path, None, "file:///etc/passwd")),
    ("an address without a port", lambda path: job_directory(path, None, "http://localhost")),
]


@pytest.mark.parametrize("make", [case[1] for case in STRANGE], ids=[case[0] for case in STRANGE])
def test_what_is_no_job_directory_is_left_out(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "strange")
    job_directory(tmp_path / "one")
    watched = Watched(tmp_path)
    assert watched.states() == {JOB: "RUNNING"} and list(watched.drivers) == [URL]
