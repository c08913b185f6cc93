"""Folders of job directories, as drivers leave them, and drivers that say what a test tells them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flinkish.jobdir.fencing import this_process
from flinkish.rest.api import Answer
from flinkish.session.children import Child
from flinkish.session.drivers import DriverError
from flinkish.storage.sealed import sealed

JOB, OTHER, THIRD = "a" * 32, "b" * 32, "c" * 32
URL = "http://127.0.0.1:1"
#: An owner that is not of this machine.
ELSEWHERE = {"host": "another", "machine": "another"}


def write(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sealed({"version": 2, **value}))


def job_directory(
    path: Path, job_id: str | None = JOB, rest: str | None = URL, end: Mapping[str, Any] | None = None, **owner: Any
) -> Path:
    """A job directory; its owner is this process unless ``owner`` says something else."""
    write(path / "owner.json", {**this_process("run", 1, 1).content(), "rest": rest, **owner})
    structure = {"partitions": 0, "sources": [], "vertices": []}
    if job_id is not None:
        write(path / "job.json", {"job_id": job_id, "name": path.name, "structure": structure})
    if end is not None:
        write(path / "ended.json", end)
    return path


def line(job_id: str = JOB, state: str = "RUNNING", start: int = 1_000, end: int = -1) -> dict[str, Any]:
    """A job in a list of jobs."""
    return {
        "jid": job_id,
        "name": "clicks",
        "state": state,
        "start-time": start,
        "end-time": end,
        "duration": 5,
        "last-modification": start,
        "tasks": {"total": 1},
    }


def archive(folder: Path, job_id: str, state: str = "FINISHED", **paths: Any) -> Path:
    """The archive of a job."""
    contents = {
        "/jobs/overview": {"jobs": [line(job_id, state, end=9_000)]},
        f"/jobs/{job_id}": {"jid": job_id, "state": state, "timestamps": {"RUNNING": 1_000, state: 9_000}},
        f"/jobs/{job_id}/exceptions": {
            "exceptionHistory": {"entries": [{"exceptionName": "a.Error", "stacktrace": "a.Error: no\n  at x"}]}
        },
        **paths,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / job_id
    path.write_text(json.dumps({"archive": [{"path": at, "json": json.dumps(one)} for at, one in contents.items()]}))
    return path


class FakeDriver:
    """A driver without a socket. ``asked`` has the requests that were forwarded to it."""

    def __init__(self, url: str = URL, host: str = "host") -> None:
        self.url, self.host = url, host
        self.jobs: tuple[dict[str, Any], ...] = ()
        self.task_managers: tuple[dict[str, Any], ...] = ()
        self.is_late = self.is_silent = self.is_gone = False
        self.asked_for_jobs = 0
        self.asked: list[tuple[str, str, str, bytes]] = []
        self.answer: Answer | DriverError = Answer(200, b"{}")

    def ask_for_jobs(self) -> None:
        self.asked_for_jobs += 1

    def wait_for_jobs(self, timeout_s: float) -> None:
        assert 0 <= timeout_s <= 1

    def forget(self) -> None:
        pass

    def forward(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        self.asked.append((method, path, query, body))
        if isinstance(self.answer, DriverError):
            raise self.answer
        return self.answer


class FakeRestarts:
    """Says of each directory what a test says."""

    def __init__(self, **statuses: str) -> None:
        self.statuses = statuses
        self.cancelled: list[tuple[str, bool]] = []
        self.programs: list[tuple[Child, str]] = []

    def status(self, directory: str) -> str | None:
        return self.statuses.get(Path(directory).name)

    def without_job(self, directories: Collection[str]) -> list[tuple[Child, str]]:
        return [one for one in self.programs if not any(Path(path).name == one[0].name for path in directories)]

    def all(self) -> tuple[Child, ...]:
        return tuple(child for child, _ in self.programs)

    def cancel(self, directory: str, asked: bool = False) -> bool:
        self.cancelled.append((Path(directory).name, asked))
        return self.status(directory) == "RESTARTING" or any(one.name == Path(directory).name for one in self.all())
