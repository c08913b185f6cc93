"""What the handle of a running job promises about the job's end, and of a stop whose savepoint fails."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration
from flinkish.common.completable_future import CompletableFuture
from flinkish.common.job_status import JobStatus
from flinkish.errors import CorruptStateError, OperationError, SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager import requests
from flinkish.jobmanager import signals as live_jobs
from flinkish.jobmanager import spark_run as spark_run_module
from flinkish.jobmanager.attempt import AttemptPlan
from flinkish.jobmanager.client import RunClient
from flinkish.jobmanager.decision import Attempt
from flinkish.jobmanager.history import NoHistory
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.settings import driver_settings
from flinkish.jobmanager.restart import FixedDelay, Restarts
from flinkish.jobmanager.spark_run import SparkRun
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.spark.plan import PlanOptions
from tests.support.job_files import get, put
from tests.support.processes import wait_until
from tests.support.spark_groups import GroupsOfJobs

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

    def release(self, status: str = "", cause: str = "") -> None:
        assert self.watching.wait(TIMEOUT_S)
        assert self.watched is not None
        self.done_at_release = self.watched.done()
        super().release(status, cause)


class Run(SparkRun):
    """Has no queries: ends when it is asked to, or fails then, the first time."""

    def __init__(
        self,
        folder: Path,
        failure: OperationError | None = None,
        restarts: Restarts | None = None,
        restart: bool = False,
        committed: int | None = 1,
    ) -> None:
        job = JobDescriptor("ab" * 16, "clicks", (), ())
        settings = replace(driver_settings(Configuration()), job_dir=str(folder), restart=restart)
        self.watched_directory = Directory(str(folder))
        plan = AttemptPlan(job, {}, PlanOptions())
        super().__init__(None, plan, lambda: plan, settings, self.watched_directory, False, restarts)
        self._fails_with = failure
        self.has_run, self.queries = False, 0
        self.committed = committed
        self.deleted_checkpoints: bool | None = None
        self.checkpoints = self
        self.done_at_status: bool | None = None
        self.observers.append(Watcher(self))

    def committed_epoch(self) -> int | None:
        return self.committed

    def make_attempt(self, which: Attempt) -> None:
        self.queries = 1

    def begin_attempt(self) -> None:
        pass

    def has_more_queries(self) -> bool:
        return self.queries > 0

    def run_query(self, again: bool) -> None:
        self.queries, self.has_run = 0, True
        self.query_started()
        assert self.wishes.wait_for_end(TIMEOUT_S)
        failure, self._fails_with = self._fails_with, None
        if failure is not None:
            raise failure

    # ------------------------------------------------------------------ its own checkpoints

    def describe(self) -> tuple[Any, ...]:
        return ()

    def take_last(self, timeout_s: float | None = None) -> str | None:
        return None

    def close(self, delete: bool = False) -> None:
        self.deleted_checkpoints = delete


class Watcher(JobObserver):
    """Sees whether the future was done when the job's status had become final."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def job_done(self, status: JobStatus) -> None:
        assert self._run.watched_directory.watching.wait(TIMEOUT_S)
        assert self._run.watched_directory.watched is not None
        self._run.done_at_status = self._run.watched_directory.watched.done()


class Savepoints:
    """Stands for the taking of savepoints: fails with these errors, one after the other, and works after that."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.taken: list[Any] = []
        self.then: Callable[[Run], object] = lambda run: None

    def take(self, run: Run, parent: str | None) -> str:
        self.taken.append((run.committed, released(run)))
        self.then(run)
        if self.failures:
            raise self.failures.pop(0)
        return f"{parent}/savepoint-1"


@pytest.fixture
def savepoints(monkeypatch: pytest.MonkeyPatch) -> Savepoints:
    made = Savepoints()
    monkeypatch.setattr(spark_run_module, "take_savepoint", made.take)
    return made


@pytest.fixture(autouse=True)
def _a_process_that_nobody_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    live_jobs.forget_stops()
    monkeypatch.setattr(requests, "POLL_S", 0.02)


def started(run: Run) -> RunClient:
    run.directory.claim(run.name)
    run.start()
    return RunClient(run)


def begun(run: Run) -> RunClient:
    """Start a run of which nobody watches a future."""
    run.watched_directory.watch(CompletableFuture.completed(""))
    return started(run)


def stopped(run: Run) -> CompletableFuture[str]:
    future = started(run).stop_with_savepoint(False, target(run))
    run.watched_directory.watch(future)
    return future


def released(run: Run) -> bool:
    return bool(get(run.directory, "owner.json").get("released"))


def assert_ended_first(run: Run, status: JobStatus) -> None:
    assert (run.watched_directory.done_at_release, run.done_at_status) == (False, False)
    assert (run.status, released(run)) == (status, True)
    assert run.result.done()


def target(run: Run) -> str:
    return f"{run.directory.path}/savepoints"


def savepoint_of(run: Run) -> str:
    return f"{target(run)}/savepoint-1"


def handler_of(run: Run) -> None:
    """Lets the run answer requests in its directory."""
    handler = requests.RequestHandler(RunClient(run), run.directory)
    run.observers.append(handler)
    handler.open()


@pytest.mark.usefixtures("savepoints")
@pytest.mark.parametrize("action", ["cancel", "stop"])
def test_who_asks_for_the_end_is_answered_before_the_directory_is_released_and_the_history_is_written(
    action: str, tmp_path: Path
) -> None:
    class SlowHistory(NoHistory):
        def close(self) -> None:
            assert answered.wait(TIMEOUT_S)

    answered = threading.Event()
    run = Run(tmp_path)
    run.history = SlowHistory()
    handler_of(run)
    begun(run)
    value = requests.ask(str(tmp_path), action, TIMEOUT_S)
    assert value == (None if action == "cancel" else savepoint_of(run))
    assert not run.result.done(), "the answer waits neither for the history nor for what follows"
    answered.set()
    run.wait(TIMEOUT_S)
    assert run.status is (JobStatus.CANCELED if action == "cancel" else JobStatus.FINISHED)
    assert released(run)


def end_by_request(folder: Path, action: str) -> None:
    """Run a job that somebody outside ends with a command."""
    run = Run(folder)
    handler_of(run)
    begun(run)
    requests.ask(str(folder), action, TIMEOUT_S)
    run.wait(TIMEOUT_S)


def started_again(folder: Path, **options: Any) -> Run:
    """A run that has begun in the directory after an earlier one."""
    run = Run(folder, **options)
    begun(run)
    return run


@pytest.mark.usefixtures("savepoints")
@pytest.mark.parametrize(
    ("action", "status", "said"),
    [
        ("cancel", JobStatus.CANCELED, "this job was cancelled earlier.*start it in another directory"),
        (
            "stop",
            JobStatus.FINISHED,
            r"stopped with the savepoint (\S+/savepoint-1) earlier.*start .* \(-s \1\) in another",
        ),
    ],
    ids=["cancel", "stop"],
)
def test_a_job_that_was_ended_by_request_ends_at_once_when_it_is_started_again(
    action: str, status: JobStatus, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end_by_request(tmp_path, action)
    # a new process does not know of a stop yet
    live_jobs.forget_stops()
    for _ in range(2):
        run = started_again(tmp_path)
        run.wait(TIMEOUT_S)
        assert (run.has_run, run.status, run.deleted_checkpoints) == (False, status, False)
        assert live_jobs.stopped_from_outside(), "the exit code is the same, too"
        assert released(run)
    (line, again) = (line for line in capsys.readouterr().err.splitlines() if "nothing was run" in line)
    assert re.search(said, line) and "go on in this one (--restart, flinkish.job.restart: true)" in line
    assert line == again


def test_a_job_that_was_cancelled_goes_on_if_that_is_asked_for(tmp_path: Path) -> None:
    end_by_request(tmp_path, "cancel")
    run = started_again(tmp_path, restart=True)
    wait_until(lambda: run.has_run, TIMEOUT_S, "the job to run")
    run.stop_from_outside("SIGTERM")
    run.wait(TIMEOUT_S)
    assert (run.status, run.directory.end()) == (JobStatus.SUSPENDED, None), "from now on it is as any other job"


def test_only_the_process_that_has_cancelled_its_own_job_starts_it_again(tmp_path: Path) -> None:
    for _ in range(2):
        run = started_again(tmp_path)
        wait_until(lambda run=run: run.has_run, TIMEOUT_S, "the job to run")
        RunClient(run).cancel().result(TIMEOUT_S)
    # as the file looks to any other process
    put(run.directory, "ended.json", {**get(run.directory, "ended.json"), "run": "another"})
    run = started_again(tmp_path)
    run.wait(TIMEOUT_S)
    assert (run.has_run, run.status) == (False, JobStatus.CANCELED)


def test_a_job_that_was_suspended_or_has_failed_has_no_end(tmp_path: Path) -> None:
    gone = OperationError("the source is gone")
    for failure, status in ((None, JobStatus.SUSPENDED), (gone, JobStatus.FAILED)):
        run = started_again(tmp_path, failure=failure)
        wait_until(lambda run=run: run.has_run, TIMEOUT_S, "the job to run")
        run.stop_from_outside("SIGTERM") if failure is None else run.request_stop()
        run.wait(TIMEOUT_S)
        assert (run.status, run.directory.end()) == (status, None)
        ended = get(run.directory, "owner.json")["ended"]
        assert (ended["status"], ended["cause"] != "") == (status.name, True), "who looks later is told of it"


def test_a_job_that_is_stopped_with_a_savepoint_is_over_although_a_signal_comes_as_well(
    tmp_path: Path, savepoints: Savepoints
) -> None:
    savepoints.then = lambda run: run.stop_from_outside("SIGTERM")
    run = Run(tmp_path)
    assert stopped(run).result(TIMEOUT_S) == savepoint_of(run)
    end = run.directory.end()
    assert run.status is JobStatus.FINISHED and end is not None and end.savepoint == savepoint_of(run)


def test_a_cancellation_is_remembered_although_the_process_ends_before_the_job(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.watched_directory.watch(CompletableFuture.completed(""))
    run.directory.claim(run.name)
    run.query_started()
    assert not run.abandon() and run.directory.end() is None, "nobody has cancelled it"
    run.request_stop()
    assert run.abandon()
    end = run.directory.end()
    assert end is not None and (end.status, end.done) == ("CANCELED", False)


def test_who_cancels_a_job_that_fails_meanwhile_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path, OperationError("the source is gone"))
    handler_of(run)
    begun(run)
    with pytest.raises(OperationError, match="could not cancel: the job has failed while it was being cancelled"):
        requests.ask(str(tmp_path), "cancel", TIMEOUT_S)


def test_a_stop_with_savepoint_is_done_only_when_the_job_has_ended(tmp_path: Path, savepoints: Savepoints) -> None:
    run = Run(tmp_path)
    assert stopped(run).result(TIMEOUT_S) == savepoint_of(run)
    assert savepoints.taken == [(1, False)]
    assert_ended_first(run, JobStatus.FINISHED)
    assert run.deleted_checkpoints is False


@pytest.mark.parametrize("how", ["stop", "drain", "cancel"])
def test_a_job_whose_savepoint_fails_starts_its_query_again_and_goes_on(
    tmp_path: Path, savepoints: Savepoints, how: str
) -> None:
    # a drain fails before that: its epoch is not a committed one
    savepoints.failures += [] if how == "drain" else [OperationError("the disk is full")]
    run = Run(tmp_path, restarts=Restarts(FixedDelay(0, 0)))
    client = begun(run)
    if how == "cancel":
        future = client.cancel_with_savepoint(target(run))
    else:
        future = client.stop_from_outside(how == "drain", target(run))
    with pytest.raises(OperationError, match="the disk is full|no epoch has been committed yet"):
        future.result(TIMEOUT_S)
    assert run.status is JobStatus.RUNNING
    assert run.deleted_checkpoints is None and not released(run)
    assert client.stop_with_savepoint(False, target(run)).result(TIMEOUT_S) == savepoint_of(run)
    assert (run.status, run.attempts) == (JobStatus.FINISHED, 1)
    assert run.restarts.made == 0, "it is not counted as a failure"
    assert run.deleted_checkpoints is False
    assert not live_jobs.stopped_from_outside(), "the program does not exit with 143: the stop has failed"


def test_where_no_savepoint_can_be_written_nothing_is_stopped_or_begun(tmp_path: Path) -> None:
    run = Run(tmp_path / "job")
    client = begun(run)
    (tmp_path / "file").touch()
    (tmp_path / "savepoint-1").mkdir()
    (tmp_path / "savepoint-1" / "manifest.json").touch()
    for bad, why in (
        (tmp_path / "file", "not a directory|a file of that name|Not a directory"),
        (tmp_path / "file" / "below", "not a directory|a file of that name|Not a directory"),
        (tmp_path / "savepoint-1", "it is itself a savepoint"),
        ("nosuch://bucket/path", "nosuch"),
    ):
        for ask in (
            client.trigger_savepoint,
            client.cancel_with_savepoint,
            lambda path: client.stop_with_savepoint(True, path),
        ):
            with pytest.raises(SavepointError, match=f"cannot write a savepoint to .*({why})"):
                ask(str(bad)).result(TIMEOUT_S)
    wait_until(lambda: run.status is JobStatus.RUNNING, TIMEOUT_S, "the job to run")
    assert not run.result.done()
    client.cancel().result(TIMEOUT_S)
    assert run.attempts == 0


@pytest.mark.parametrize("begun", [False, True], ids=["before the attempt", "in the attempt"])
def test_a_stop_before_the_first_epoch_waits_for_it(begun: bool, tmp_path: Path, savepoints: Savepoints) -> None:
    run = Run(tmp_path, committed=None)
    if begun:
        future = stopped(run)
    else:
        future = RunClient(run).stop_with_savepoint(False, target(run))
        run.watched_directory.watch(future)
        started(run)
    wait_until(lambda: run.has_run, TIMEOUT_S, "the job to run")
    assert not run.over.wait(0.2)
    run.committed = 0
    run.epoch_committed(0)
    assert future.result(TIMEOUT_S) == savepoint_of(run)
    assert savepoints.taken == [(0, False)]


def test_the_directory_of_savepoints_is_made_and_nothing_else_is_left_in_it(tmp_path: Path) -> None:
    run = Run(tmp_path, committed=None)
    run.settings = replace(run.settings, checkpoints=replace(run.settings.checkpoints, timeout_ms=20))
    with pytest.raises(SavepointError, match="no epoch has been committed yet"):
        stopped(run).result(TIMEOUT_S)
    RunClient(run).cancel().result(TIMEOUT_S)
    assert list((tmp_path / "savepoints").iterdir()) == []


def test_a_job_that_fails_while_it_is_stopped_has_no_savepoint(tmp_path: Path, savepoints: Savepoints) -> None:
    run = Run(tmp_path, OperationError("the source is gone"))
    with pytest.raises(OperationError, match="the source is gone"):
        stopped(run).result(TIMEOUT_S)
    assert savepoints.taken == []
    assert_ended_first(run, JobStatus.FAILED)


def test_a_job_that_fails_while_it_is_stopped_is_restarted_as_without_the_stop(tmp_path: Path) -> None:
    run = Run(tmp_path, OperationError("the source is gone"), Restarts(FixedDelay(3, 0)))
    with pytest.raises(OperationError, match="the source is gone"):
        stopped(run).result(TIMEOUT_S)
    assert not run.has_ended
    wait_until(lambda: run.attempts == 1, TIMEOUT_S, "the restart")
    RunClient(run).cancel().result(TIMEOUT_S)
    assert (run.status, run.attempts, run.restarts.made) == (JobStatus.CANCELED, 1, 1)


def test_a_savepoint_that_waits_for_the_first_epoch_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    run = Run(tmp_path, committed=None)
    run.watched_directory.watch(CompletableFuture.completed(""))
    client = started(run)
    saved = client.trigger_savepoint(target(run))
    wait_until(lambda: run.savepoints.describe(), TIMEOUT_S, "the savepoint")
    run.settings = replace(run.settings, checkpoints=replace(run.settings.checkpoints, timeout_ms=20))
    stop = client.stop_with_savepoint(False, target(run))
    for future in (saved, stop):
        with pytest.raises(SavepointError, match="no epoch has been committed yet"):
            future.result(TIMEOUT_S)
    client.cancel().result(TIMEOUT_S)


class FailsAtOnce(Run):
    """Its first attempt fails without being asked to end."""

    def run_query(self, again: bool) -> None:
        if self.attempts == 0:
            self.queries = 0
            self.query_started()
            raise OperationError("the source is away")
        super().run_query(again)


def test_a_stop_that_comes_while_a_restart_is_awaited_is_refused_and_the_wait_goes_on(tmp_path: Path) -> None:
    run = FailsAtOnce(tmp_path, restarts=Restarts(FixedDelay(1, 3_600_000)))
    client = begun(run)
    wait_until(lambda: run.status is JobStatus.RESTARTING, TIMEOUT_S, "the failure")
    for ask in (
        lambda: client.stop_with_savepoint(False, target(run)),
        lambda: client.stop_from_outside(True, target(run)),
        lambda: client.cancel_with_savepoint(target(run)),
    ):
        with pytest.raises(OperationError, match="has failed and waits for its restart.*ask again when it runs"):
            ask().result(TIMEOUT_S)
    assert (run.status, run.has_run, (tmp_path / "savepoints").exists()) == (JobStatus.RESTARTING, False, False)
    client.cancel().result(TIMEOUT_S)
    assert (run.status, run.has_run) == (JobStatus.CANCELED, False)
    assert not live_jobs.stopped_from_outside(), "the program itself has asked for it"


@pytest.mark.usefixtures("savepoints")
def test_a_stop_after_the_restart_is_as_any_other(tmp_path: Path) -> None:
    run = FailsAtOnce(tmp_path, restarts=Restarts(FixedDelay(1, 0)))
    client = begun(run)
    wait_until(lambda: run.has_run, TIMEOUT_S, "the restart")
    assert client.stop_with_savepoint(False, target(run)).result(TIMEOUT_S) == savepoint_of(run)


@pytest.mark.parametrize(
    ("failure", "status", "deleted"),
    [
        (OperationError("the source is gone"), JobStatus.FAILED, False),
        # a signal comes behind it
        (None, JobStatus.CANCELED, True),
    ],
)
def test_a_job_that_is_cancelled_deletes_its_checkpoints_unless_it_fails_meanwhile(
    failure: OperationError | None, status: JobStatus, deleted: bool, tmp_path: Path
) -> None:
    run = Run(tmp_path, failure)
    client = begun(run)
    wait_until(lambda: run.has_run, TIMEOUT_S, "the job to run")
    cancelled = client.cancel()
    if failure is None:
        run.stop_from_outside("SIGTERM")
    cancelled.result(TIMEOUT_S)
    assert (run.status, run.deleted_checkpoints) == (status, deleted)


class Damaged(Run):
    """Its query's files are damaged; it goes back to a checkpoint until somebody interrupts that."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, restarts=Restarts(FixedDelay(3, 0)))
        self.goes_back, self.spark = threading.Event(), GroupsOfJobs()
        self.fall_back = self._go_until_interrupted

    def run_query(self, again: bool) -> None:
        self.queries, self.has_run = 0, True
        raise CorruptStateError("the query's log is damaged")

    def _go_until_interrupted(self, error: CorruptStateError) -> str:
        self.goes_back.set()
        wait_until(lambda: bool(self.spark.cancelled), TIMEOUT_S, "the cancellation")
        raise OperationError("Spark's job was cancelled")


def test_a_job_that_is_cancelled_while_it_goes_back_to_a_checkpoint_is_interrupted_there(tmp_path: Path) -> None:
    run = Damaged(tmp_path)
    client = begun(run)
    assert run.goes_back.wait(TIMEOUT_S)
    client.cancel().result(TIMEOUT_S)
    assert (run.status, run.attempts, run.restarts.made) == (JobStatus.CANCELED, 0, 0)
    assert run.result.exception() is None


def test_a_job_that_is_cancelled_while_its_stop_fails_is_cancelled(tmp_path: Path, savepoints: Savepoints) -> None:
    savepoints.then = lambda run: run.request_stop()
    savepoints.failures.append(OperationError("the disk is full"))
    run = Run(tmp_path)
    with pytest.raises(OperationError, match="the disk is full"):
        stopped(run).result(TIMEOUT_S)
    assert_ended_first(run, JobStatus.CANCELED)
    assert run.deleted_checkpoints is True


def test_one_stop_with_savepoint_at_a_time(tmp_path: Path, savepoints: Savepoints) -> None:
    go_on = threading.Event()
    savepoints.then = lambda run: go_on.wait(TIMEOUT_S)
    run = Run(tmp_path)
    first = stopped(run)
    wait_until(lambda: bool(savepoints.taken), TIMEOUT_S, "the savepoint to be begun")
    with pytest.raises(OperationError, match="is being stopped with a savepoint already"):
        RunClient(run).stop_with_savepoint(False, target(run)).result(TIMEOUT_S)
    go_on.set()
    assert first.result(TIMEOUT_S) == savepoint_of(run)


def test_a_savepoint_that_fails_is_told_by_its_future_and_a_job_that_has_ended_cannot_be_stopped(
    tmp_path: Path, savepoints: Savepoints
) -> None:
    savepoints.failures = [OperationError("the disk is full")]
    run = Run(tmp_path)
    client = begun(run)
    future = client.trigger_savepoint(target(run))
    with pytest.raises(OperationError, match="the disk is full"):
        future.result(TIMEOUT_S)
    assert not run.has_ended
    client.cancel().result(TIMEOUT_S)
    with pytest.raises(OperationError, match=r"the job has ended \(CANCELED\): it cannot be stopped"):
        client.stop_with_savepoint(False, f"{target(run)}/others").result(TIMEOUT_S)
    assert not Path(f"{target(run)}/others").exists()


@pytest.mark.usefixtures("savepoints")
def test_a_cancellation_with_savepoint_ends_as_canceled(tmp_path: Path) -> None:
    run = Run(tmp_path)
    future = started(run).cancel_with_savepoint(target(run))
    run.watched_directory.watch(future)
    assert future.result(TIMEOUT_S) == savepoint_of(run)
    assert_ended_first(run, JobStatus.CANCELED)
    assert run.deleted_checkpoints is True
