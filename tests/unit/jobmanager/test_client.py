"""What the handle of a running job promises about the job's end."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration
from flinkish.common.completable_future import CompletableFuture
from flinkish.common.job_status import JobStatus
from flinkish.errors import OperationError
from flinkish.jobmanager import client as client_module
from flinkish.jobmanager.attempt.query_attempt import AttemptPlan
from flinkish.jobmanager.client import RunClient
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.job_run import JobObserver
from flinkish.jobmanager.settings import driver_settings
from flinkish.jobmanager.spark_run import SparkRun
from flinkish.runtime.deployment import JobDescriptor
from flinkish.spark.plan import PlanOptions

TIMEOUT_S = 30


class Directory(JobDirectory):
    """Is given back only when the test has got hold of the future."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.watched: CompletableFuture[str] | None = None
        self.watching = threading.Event()
        self.done_at_release: bool | None = None

    def watch(self, future: CompletableFuture[str]) -> None:
        self.watched = future
        self.watching.set()

    def release(self) -> None:
        assert self.watching.wait(TIMEOUT_S)
        assert self.watched is not None
        self.done_at_release = self.watched.done()
        super().release()


class Run(SparkRun):
    """Has no queries: ends when it is asked to, or fails then."""

    def __init__(self, folder: Path, failure: OperationError | None = None) -> None:
        job = JobDescriptor("ab" * 16, "clicks", (), ())
        settings = replace(driver_settings(Configuration()), job_dir=str(folder))
        self.watched_directory = Directory(str(folder))
        plan = AttemptPlan(job, {}, PlanOptions())
        super().__init__(None, plan, lambda: plan, settings, self.watched_directory, False)
        self._failure = failure
        self.done_at_status: bool | None = None
        self.observers.append(Watcher(self))

    def _run_attempt(self, again: bool) -> None:
        assert self._stop.wait(TIMEOUT_S)
        if self._failure is not None:
            raise self._failure


class Watcher(JobObserver):
    """Sees whether the future was done when the job's status had become final."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def job_done(self, status: JobStatus) -> None:
        assert self._run.watched_directory.watched is not None
        self._run.done_at_status = self._run.watched_directory.watched.done()


def stopped(run: Run) -> CompletableFuture[str]:
    run.directory.claim(run.name)
    run.start()
    future = RunClient(run).stop_with_savepoint(False, "savepoints")
    run.watched_directory.watch(future)
    return future


def released(run: Run) -> bool:
    return bool((run.directory.read("owner.json") or {}).get("released"))


def assert_ended_first(run: Run, status: JobStatus) -> None:
    assert (run.watched_directory.done_at_release, run.done_at_status) == (False, False)
    assert (run.status, released(run)) == (status, True)
    assert run.result.done()


def test_a_stop_with_savepoint_is_done_only_when_the_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released_at_savepoint = []

    def take(run: Any, parent: str | None) -> str:
        released_at_savepoint.append(released(run))
        return f"{parent}/savepoint-1"

    monkeypatch.setattr(client_module, "take_savepoint", take)
    run = Run(tmp_path)
    assert stopped(run).result(TIMEOUT_S) == "savepoints/savepoint-1"
    assert released_at_savepoint == [False]
    assert_ended_first(run, JobStatus.FINISHED)


def test_a_savepoint_that_fails_is_told_when_the_job_has_ended_and_the_job_does_not_fail_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(run: Any, parent: str | None) -> str:
        raise OperationError("the disk is full")

    monkeypatch.setattr(client_module, "take_savepoint", take)
    run = Run(tmp_path)
    with pytest.raises(OperationError, match="the disk is full"):
        stopped(run).result(TIMEOUT_S)
    assert_ended_first(run, JobStatus.CANCELED)


def test_a_job_that_fails_while_it_is_stopped_has_no_savepoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(client_module, "take_savepoint", lambda run, parent: taken.append(run))
    run = Run(tmp_path, OperationError("the source is gone"))
    with pytest.raises(OperationError, match="the source is gone"):
        stopped(run).result(TIMEOUT_S)
    assert taken == []
    assert_ended_first(run, JobStatus.FAILED)


def test_a_job_that_has_ended_cannot_be_stopped(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.watched_directory.watch(CompletableFuture.completed(""))
    run.directory.claim(run.name)
    run.start()
    RunClient(run).cancel().result(TIMEOUT_S)
    with pytest.raises(OperationError, match=r"the job has ended \(CANCELED\): it cannot be stopped"):
        RunClient(run).stop_with_savepoint(False, "savepoints").result(TIMEOUT_S)


def test_a_cancellation_with_savepoint_ends_as_canceled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "take_savepoint", lambda run, parent: f"{parent}/savepoint-1")
    run = Run(tmp_path)
    run.directory.claim(run.name)
    run.start()
    future = RunClient(run).cancel_with_savepoint("savepoints")
    run.watched_directory.watch(future)
    assert future.result(TIMEOUT_S) == "savepoints/savepoint-1"
    assert_ended_first(run, JobStatus.CANCELED)
