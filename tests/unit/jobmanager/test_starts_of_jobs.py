"""A job is there from the first line of its submission on: it says what it does, answers, and obeys while it waits for
its directory and restores a savepoint."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.manifest import CheckpointDirectory, Manifest
from flinkish.common.configuration import Configuration
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.common.options.checkpointing import EXTERNALIZED_CHECKPOINT_RETENTION
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import FencedError, FinalOperationError, FlinkishError, OperationError, SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.fencing import Liveness
from flinkish.jobmanager import signals as live_jobs
from flinkish.jobmanager.client import JobManager, RunClient
from flinkish.jobmanager.job.operations import Kind, Request
from flinkish.jobmanager.job.settings import checkpoints_path, driver_settings
from flinkish.jobmanager.job_start import JobStart
from flinkish.jobmanager.requests import ask
from flinkish.runtime.job.deployment import JobSettings
from flinkish.runtime.phases import Phase, hooked
from tests.support.job_files import get, put
from tests.support.processes import start_driver, wait_until
from tests.unit.jobmanager.test_minicluster_jobs import Gate, kept, stopped_half_way, written

TIMEOUT_S = 30


@pytest.fixture(autouse=True)
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobManager]:
    """One that knows no jobs of other tests."""
    fresh = JobManager()
    monkeypatch.setattr(JobManager, "get", lambda: fresh)
    live_jobs.forget_stops()
    Gate.close_at(None)
    yield fresh
    live_jobs.forget_stops()


class Start:
    """A program that is submitted by a thread of its own, as a notebook may do; and how that has ended."""

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env
        self.client: RunClient | None = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._submit, daemon=True)
        self._thread.start()

    def _submit(self) -> None:
        try:
            client = self._env.execute_async("totals")
            assert isinstance(client, RunClient)
            self.client = client
        except BaseException as error:
            self.failure = error

    def ended(self) -> RunClient:
        self._thread.join(TIMEOUT_S)
        assert self.client is not None, self.failure
        return self.client

    def failed(self) -> BaseException:
        self._thread.join(TIMEOUT_S)
        assert self.failure is not None
        return self.failure


@contextmanager
def held_in_restore(
    folder: Path, phase: Phase = Phase.RESTORE_PREPARED
) -> Iterator[tuple[Start, str, Callable[[], None]]]:
    """Within the block a job restores a savepoint; given are its start, the savepoint, and what lets it go on."""
    savepoint = stopped_half_way(folder)
    reached, go = threading.Event(), threading.Event()

    def hold(passed: Phase, details: dict[str, Any]) -> None:
        if passed is phase:
            reached.set()
            assert go.wait(TIMEOUT_S)

    with hooked(hold):
        start = Start(kept(folder, execution__state_recovery__path=savepoint))
        assert reached.wait(TIMEOUT_S)
        try:
            yield start, savepoint, go.set
        finally:
            go.set()


def only(manager: JobManager) -> RunClient:
    (client,) = manager.jobs()
    return client


def test_a_job_that_restores_is_described_and_answers(manager: JobManager, tmp_path: Path) -> None:
    with held_in_restore(tmp_path) as (start, savepoint, go_on):
        job = only(manager).describe()
        doing = f"restoring {savepoint}, 1 of 1 parts"
        assert (job.status, job.doing, job.vertices) == ("INITIALIZING", doing, ())
        told = ask(str(tmp_path / "job"), "describe", TIMEOUT_S)
        assert (told["status"], told["doing"], told["id"]) == ("INITIALIZING", job.doing, job.id)
        assert told["driver"]["token"] == job.driver.token != ""
        go_on()
        client = start.ended()
    client.get_job_execution_result().result(TIMEOUT_S)
    job = client.describe()
    assert (job.id, job.status, job.doing) == (told["id"], "FINISHED", "")
    assert [event.after for event in job.story] == ["INITIALIZING", "CREATED", "RUNNING", "FINISHED"]


@pytest.mark.parametrize("phase", [Phase.RESTORE_PREPARED, Phase.RESTORE_APPLIED], ids=lambda phase: phase.name)
@pytest.mark.parametrize("by", ["request", "operation", "client"])
def test_a_cancellation_ends_a_restore(by: str, phase: Phase, manager: JobManager, tmp_path: Path) -> None:
    with held_in_restore(tmp_path, phase) as (start, _, go_on):
        restoring = only(manager)
        answers: list[Any] = []
        if by == "request":
            asker = threading.Thread(target=lambda: answers.append(ask(str(tmp_path / "job"), "cancel", TIMEOUT_S)))
            asker.start()
        elif by == "operation":
            manager.operations.trigger(Request(Kind.CANCEL, restoring.get_job_id().to_hex_string()))
        else:
            restoring.cancel()
        wait_until(lambda: restoring.run.status is JobStatus.CANCELLING, TIMEOUT_S, "the cancellation")
        go_on()
        client = start.ended()
        if by == "request":
            asker.join(TIMEOUT_S)
            assert answers == [None]
    assert client is restoring and client.run.status is JobStatus.CANCELED
    assert client.get_job_execution_result().result(TIMEOUT_S).get_job_id() == client.get_job_id()
    assert manager.jobs() == () and manager.describe().jobs[-1].status == "CANCELED"
    assert live_jobs.stopped_from_outside() == (by != "client"), "the exit code"
    assert live_jobs.running() == []
    directory = JobDirectory(str(tmp_path / "job"))
    end = directory.end()
    assert end is not None and (end.described(), end.from_outside) == ("cancelled", by != "client")
    assert directory.owner_liveness() is Liveness.GONE
    assert sum(written(tmp_path).values()) == 30, "nothing has run"


def test_a_job_whose_restore_was_ended_by_a_signal_restores_again(manager: JobManager, tmp_path: Path) -> None:
    with held_in_restore(tmp_path) as (start, savepoint, go_on):
        only(manager).run.stop_from_outside("SIGTERM")
        go_on()
        client = start.ended()
    assert client.run.status is JobStatus.SUSPENDED
    assert JobDirectory(str(tmp_path / "job")).end() is None
    kept(tmp_path, execution__state_recovery__path=savepoint).execute("totals")
    assert sum(written(tmp_path).values()) == 60


def test_a_stop_that_comes_during_a_restore_waits_for_the_job(manager: JobManager, tmp_path: Path) -> None:
    with held_in_restore(tmp_path) as (start, _, go_on):
        request = Request(Kind.STOP, only(manager).get_job_id().to_hex_string())
        operation = manager.operations.trigger(request)
        assert not operation.completed
        go_on()
        client = start.ended()
    client.run.wait(TIMEOUT_S)
    done = manager.operations.get(operation.id)
    assert done is not None and done.failure is None and done.location is not None
    assert 30 < sum(written(tmp_path).values()) <= 60


def test_what_waits_for_a_job_that_is_cancelled_during_its_restore_fails(manager: JobManager, tmp_path: Path) -> None:
    with held_in_restore(tmp_path) as (start, _, go_on):
        future = only(manager).stop_with_savepoint(False)
        only(manager).cancel()
        go_on()
        start.ended()
    with pytest.raises(FinalOperationError, match=r"the job has ended \(\w+\) before it ran"):
        future.result(TIMEOUT_S)


def test_a_job_whose_start_fails_has_failed(manager: JobManager, tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="there is no savepoint at /nonexistent"):
        kept(tmp_path, execution__state_recovery__path="/nonexistent").execute("totals")
    (job,) = manager.describe().jobs
    assert (job.status, [event.after for event in job.story]) == ("FAILED", ["INITIALIZING", "FAILED"])
    assert [one.error_class for one in job.exceptions] == ["SavepointError"]
    assert live_jobs.running() == [] and JobDirectory(str(tmp_path / "job")).owner_liveness() is Liveness.GONE


def test_who_cancels_a_job_that_fails_in_its_restore_meanwhile_is_answered(manager: JobManager, tmp_path: Path) -> None:
    with held_in_restore(tmp_path) as (start, _, go_on):
        stop = manager.operations.trigger(Request(Kind.STOP, only(manager).get_job_id().to_hex_string()))
        (tmp_path / "job" / "restored.json").mkdir()
        go_on()
        assert isinstance(start.failed(), FlinkishError)
    wait_until(lambda: _completed(manager, stop.id), TIMEOUT_S, "the answer")
    done = manager.operations.get(stop.id)
    assert done is not None and "the job has ended (FAILED) before it ran" in str(done.failure)


def _completed(manager: JobManager, operation: str) -> bool:
    found = manager.operations.get(operation)
    return found is not None and found.completed


def silent_owner(folder: Path) -> JobDirectory:
    """A directory that a driver on another machine owns, of which nothing is heard."""
    directory = JobDirectory(str(folder / "job"))
    directory.claim("totals")
    owner = get(directory, "owner.json")
    put(directory, "owner.json", {**owner, "host": "elsewhere", "machine": "another", "pid": 1})
    return directory


def test_a_start_that_waits_for_the_owner_of_the_directory_says_so_and_can_be_cancelled(
    manager: JobManager, tmp_path: Path
) -> None:
    directory = silent_owner(tmp_path)
    start = Start(kept(tmp_path))
    wait_until(lambda: manager.jobs() and only(manager).describe().doing, TIMEOUT_S, "the start")
    waiting = "waits for the owner of the directory"
    wait_until(lambda: only(manager).describe().doing == waiting, TIMEOUT_S, "the wait")
    only(manager).cancel().result(TIMEOUT_S)
    assert start.ended().run.status is JobStatus.CANCELED
    assert directory.end() is None, "it is another driver's"


def test_the_parts_that_are_restored_are_counted() -> None:
    start = JobStart(JobID(), "totals", {}, JobSettings(), driver_settings(Configuration()))
    try:
        start.step("restoring /savepoints/1")
        start.read(3, 12)
        assert start.doing_now() == "restoring /savepoints/1, 3 of 12 parts"
        assert start.unfinished() == "its start (restoring /savepoints/1, 3 of 12 parts)"
        start.request_stop()
        with pytest.raises(OperationError, match="the start was broken off"):
            start.read(4, 12)
    finally:
        start.end()


RESTORES = """
import sys, time
from pathlib import Path
from flinkish.runtime.phases import Phase, set_hook
from tests.unit.jobmanager import test_minicluster_jobs as program

folder = Path({folder!r})

def hold(phase, details):
    if phase is Phase.RESTORE_PREPARED:
        print("restoring", flush=True)
        while not (folder / "go").exists():
            time.sleep(0.01)

set_hook(hold)
from flinkish.launch.driver import run_main
def main():
    try:
        program.kept(folder, execution__state_recovery__path={savepoint!r}).{execute}("totals")
        print("the program goes on")
    finally:
        print("cleaned up")
run_main(main)
"""


@pytest.mark.parametrize(
    ("number", "execute"), [(signal.SIGTERM, "execute"), (signal.SIGINT, "execute"), (signal.SIGTERM, "execute_async")]
)
def test_a_process_that_gets_a_signal_while_it_restores_ends_as_one_that_runs(
    number: signal.Signals, execute: str, tmp_path: Path
) -> None:
    savepoint = stopped_half_way(tmp_path)
    script = tmp_path / "restores.py"
    script.write_text(RESTORES.format(folder=str(tmp_path), savepoint=savepoint, execute=execute))
    with start_driver(script, log_file=tmp_path / "log") as process:
        process.wait_for_line("^restoring", TIMEOUT_S)
        os.kill(process.pid, number)
        process.wait_for_line(f"flinkish: {number.name}: job 'totals' ends", TIMEOUT_S)
        (tmp_path / "go").touch()
        output = process.end_with(143, TIMEOUT_S)
    assert "cleaned up" in output and "the program goes on" not in output and "Traceback" not in output
    kept(tmp_path, execution__state_recovery__path=savepoint).execute("totals")
    assert sum(written(tmp_path).values()) == 60


STARTS_SPARK = """
import os, threading, time
from pathlib import Path
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager.client import JobManager

folder = Path({folder!r})
os.environ["JAVA_HOME"] = str(folder)

def cancel():
    while not (folder / "started").exists():
        time.sleep(0.05)
    (client,) = JobManager.get().jobs()
    print(client.describe().doing, flush=True)
    if {cancels}:
        client.cancel()

threading.Thread(target=cancel, daemon=True).start()
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).print()
client = env.execute_async("totals")
print("ended as", client.get_job_status().result().name, flush=True)
"""


@pytest.mark.parametrize("by", ["a signal", "a cancellation"])
def test_a_start_is_broken_off_while_spark_starts(by: str, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    # one that gets no further, and ends with the process that has started it
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexec cat\n")
    java.chmod(0o755)
    script = tmp_path / "starts.py"
    script.write_text(STARTS_SPARK.format(folder=str(tmp_path), cancels=by != "a signal"))
    with start_driver(script, log_file=tmp_path / "log") as process:
        process.wait_for_line("^starting Spark", TIMEOUT_S)
        asked_s = time.monotonic()
        if by == "a signal":
            os.kill(process.pid, signal.SIGTERM)
        output = process.end_with(143 if by == "a signal" else 0, TIMEOUT_S)
    assert time.monotonic() - asked_s < 5, "a second, and the end of a process on a busy machine"
    assert "Traceback" not in output and ("ended as CANCELED" in output) == (by != "a signal")


@pytest.mark.parametrize(
    ("end", "options", "left"),
    [
        (JobStatus.CANCELED, {}, []),
        (JobStatus.CANCELED, {"execution.checkpointing.dir": "{folder}/elsewhere"}, []),
        (JobStatus.CANCELED, {EXTERNALIZED_CHECKPOINT_RETENTION.key: "RETAIN_ON_CANCELLATION"}, [1]),
        (JobStatus.SUSPENDED, {}, [1]),
        (None, {}, [1]),
    ],
    ids=["cancelled", "in a directory of their own", "retained", "suspended", "failed"],
)
def test_a_job_that_is_cancelled_in_its_start_leaves_no_checkpoints(
    end: JobStatus | None, options: dict[str, str], left: list[int], tmp_path: Path
) -> None:
    configuration = Configuration.from_dict({name: value.format(folder=tmp_path) for name, value in options.items()})
    settings, job_id = driver_settings(configuration), JobID()
    directory = JobDirectory(str(tmp_path / "job"))
    directory.claim("totals")
    checkpoints = CheckpointDirectory(checkpoints_path(settings, directory.path, job_id.to_hex_string()))
    checkpoints.write(checkpoints.next_id(), Manifest(job_id.to_hex_string(), "totals", 9, 0))
    start = JobStart(job_id, "totals", {}, JobSettings(), settings)
    start.owns(directory, temporary=False)
    if end is None:
        start.fail(OperationError("the server is away"))
    else:
        start.request_stop(end)
        start.end()
    assert start.status is (end or JobStatus.FAILED)
    assert checkpoints.completed() == left


def _asked(end: JobStatus) -> Callable[[JobStart], None]:
    return lambda start: start.request_stop(end)


def _ended(end: JobStatus) -> Callable[[JobStart], None]:
    def end_it(start: JobStart) -> None:
        start.request_stop(end)
        start.end()

    return end_it


@pytest.mark.parametrize(
    ("before", "over", "told"),
    [
        (lambda start: None, False, None),
        (_asked(JobStatus.SUSPENDED), False, None),
        (_asked(JobStatus.CANCELED), True, "cancelled"),
        (_ended(JobStatus.CANCELED), True, "cancelled"),
        (_ended(JobStatus.SUSPENDED), True, None),
        (lambda start: start.fail(OperationError("the server is away")), True, None),
    ],
    ids=["starting", "being suspended", "being cancelled", "cancelled", "suspended", "failed"],
)
def test_only_a_start_that_is_being_cancelled_is_remembered_so_when_the_process_ends(
    before: Callable[[JobStart], None], over: bool, told: str | None, tmp_path: Path
) -> None:
    directory = JobDirectory(str(tmp_path / "job"))
    directory.claim("totals")
    start = JobStart(JobID(), "totals", {}, JobSettings(), driver_settings(Configuration()))
    try:
        start.owns(directory, temporary=False)
        before(start)
        assert start.abandon() == over
    finally:
        live_jobs.ended(start, start.status)
    end = directory.end()
    assert (None if end is None else end.described()) == told


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (OperationError("the server is away"), JobStatus.FAILED, ["OperationError"]),
        (FencedError("another driver owns the job"), JobStatus.SUSPENDED, ["FencedError"]),
        (KeyboardInterrupt(), JobStatus.SUSPENDED, []),
    ],
    ids=["failed", "fenced", "interrupted"],
)
def test_how_a_start_ends_that_goes_no_further(error: BaseException, status: JobStatus, told: list[str]) -> None:
    start = JobStart(JobID(), "totals", {}, JobSettings(), driver_settings(Configuration()))
    start.fail(error)
    assert start.record is not None
    described = start.record.describe()
    assert [event.after for event in described.story] == ["INITIALIZING", status.name]
    assert [one.error_class for one in described.exceptions] == told
    assert start.unfinished() is None and start not in live_jobs.running()
    with pytest.raises(FinalOperationError, match=rf"the job has ended \({status.name}\) before it ran"):
        start.run_of_job()
