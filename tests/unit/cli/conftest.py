"""Drivers of fake jobs that answer by REST in this process, directories of jobs, and commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flinkish.cli import main
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import announce_rest
from tests.support.job_files import put
from tests.support.rest_jobs import FakeJobs
from tests.support.served_jobs import Served, Told


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which no driver has announced itself."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FLINK_REST_CLIENT_HEADERS", raising=False)
    return tmp_path / "home"


@pytest.fixture
def driver() -> Iterator[Callable[..., Served]]:
    """Starts a driver of fake jobs."""
    started: list[Served] = []

    def start(jobs: FakeJobs | None = None, certificate: Path | None = None) -> Served:
        started.append(Served(jobs or FakeJobs(), certificate))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Callable[..., JobDirectory]]:
    """Makes the directory of a job whose driver is this process."""
    made: list[JobDirectory] = []

    def make(job_id: str, served: Served | None = None, name: str = "clicks", below: str = "jobs") -> JobDirectory:
        one = JobDirectory(str(tmp_path / below / name))
        announce_rest(None if served is None else served.url)
        one.claim(name)
        put(one, "job.json", {"job_id": job_id, "name": name, "structure": _STRUCTURE})
        made.append(one)
        return one

    yield make
    announce_rest(None)
    for one in made:
        one.release()


_STRUCTURE = {"partitions": 0, "sources": [], "vertices": []}


@pytest.fixture
def flinkish(capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """Runs a command in this process."""

    def run(*arguments: str) -> Told:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        told = capsys.readouterr()
        return Told(code, told.out, told.err)

    return run
