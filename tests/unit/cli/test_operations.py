"""Commands that ask something of a job: what they ask for, what they print, and their exit codes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.common.job_status import JobStatus
from flinkish.errors import ConnectionFailedError, SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager import requests
from flinkish.jobmanager.job.operations import Kind, Request
from flinkish.jobmanager.requests import RequestDesk
from flinkish.rest.client import RestClient
from tests.support.job_files import names, put
from tests.support.processes import wait_until
from tests.support.rest_jobs import JOB, OTHER, FakeJobs, job
from tests.support.served_jobs import Served, Told

TIMEOUT_S = 20
UNKNOWN = "0" * 32

Command = Callable[..., Told]
Start = Callable[..., Served]
Make = Callable[..., JobDirectory]


class ByHand(FakeJobs):
    """Jobs whose operations end as soon as they begin, with this result."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def _begin(self, request: Request) -> Any:
        outcome = super()._begin(request)
        if isinstance(self.result, Exception):
            outcome.complete_exceptionally(self.result)
        elif request.kind is Kind.CANCEL:
            self.jobs[JOB] = replace(self.jobs[JOB], status="CANCELED")
            outcome.complete(None)
        else:
            outcome.complete(self.result)
        return outcome


SAVEPOINT = "/data/sp/savepoint-1"
#: The command line behind the job, what is asked for, its result, and what is printed.
CARRIED_OUT: list[tuple[list[str], Request, Any, str]] = [
    (["savepoint"], Request(Kind.SAVEPOINT, JOB), SAVEPOINT, SAVEPOINT),
    (["savepoint", "/data/sp"], Request(Kind.SAVEPOINT, JOB, "/data/sp"), SAVEPOINT, SAVEPOINT),
    (["stop"], Request(Kind.STOP, JOB), SAVEPOINT, SAVEPOINT),
    (["stop", "-d", "-p", "/data/sp"], Request(Kind.STOP, JOB, "/data/sp", drain=True), SAVEPOINT, SAVEPOINT),
    (["checkpoint"], Request(Kind.CHECKPOINT, JOB), 7, "7"),
    (["checkpoint", "--full"], Request(Kind.CHECKPOINT, JOB, full=True), 7, "7"),
    (["checkpoint", "-full"], Request(Kind.CHECKPOINT, JOB, full=True), 7, "7"),
    (["cancel"], Request(Kind.CANCEL, JOB), None, ""),
    (["cancel", "-s"], Request(Kind.SAVEPOINT, JOB, cancel_job=True), SAVEPOINT, SAVEPOINT),
    (["cancel", "-s", "/sp"], Request(Kind.SAVEPOINT, JOB, "/sp", cancel_job=True), SAVEPOINT, SAVEPOINT),
]
_IDS = [" ".join(row[0]) for row in CARRIED_OUT]


def words(line: list[str], named: str) -> list[str]:
    command, *rest = line
    return [command, named, *rest]


@pytest.mark.parametrize(("line", "request_", "result", "printed"), CARRIED_OUT, ids=_IDS)
def test_an_operation_is_carried_out_by_rest(
    line: list[str], request_: Request, result: Any, printed: str, driver: Start, flinkish: Command
) -> None:
    jobs = ByHand(result)
    driver(jobs)
    told = flinkish(*words(line, "clicks"))
    assert (told.code, told.out.strip(), told.err) == (0, printed, "")
    assert jobs.asked == [request_]


class FakeRun:
    """What the desk for requests in files needs of a job."""

    def __init__(self, jobs: FakeJobs) -> None:
        self.operations = jobs.operations
        self.run = self
        self.job_id = self

    def to_hex_string(self) -> str:
        return JOB


@pytest.fixture
def desk(directory: Make, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Answers the requests in the directory of a job; returns the directory's path."""
    monkeypatch.setattr(requests, "POLL_S", 0.02)
    opened: list[RequestDesk] = []

    def serve(jobs: FakeJobs) -> str:
        made = directory(JOB)
        opened.append(RequestDesk(FakeRun(jobs), made))  # type: ignore[arg-type]
        opened[-1].open()
        return made.path

    yield serve
    for one in opened:
        one.job_done(JobStatus.FINISHED)


@pytest.mark.parametrize(("line", "request_", "result", "printed"), CARRIED_OUT, ids=_IDS)
def test_an_operation_is_carried_out_by_files_where_no_rest_api_answers(
    line: list[str], request_: Request, result: Any, printed: str, desk: Any, flinkish: Command
) -> None:
    jobs = ByHand(result)
    told = flinkish(*words(line, desk(jobs)))
    assert (told.code, told.out.strip(), told.err) == (0, printed, "")
    assert jobs.asked == [request_]


def test_the_outcome_as_json_has_the_id_of_the_operation(driver: Start, flinkish: Command) -> None:
    driver(ByHand(SAVEPOINT))
    told = flinkish("savepoint", "clicks", "--json").json()
    assert len(told.pop("operation")) == 32
    assert told == {"kind": "savepoint", "job": JOB, "status": "COMPLETED", "location": SAVEPOINT}


@pytest.mark.parametrize("by", ["rest", "files"])
def test_what_fails_is_said_in_one_line_with_the_reason(by: str, driver: Start, desk: Any, flinkish: Command) -> None:
    jobs = ByHand(SavepointError("the disk is full"))
    named = "clicks"
    if by == "rest":
        driver(jobs)
    else:
        named = desk(jobs)
    told = flinkish("savepoint", named)
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert told.err.startswith("flinkish: the driver could not savepoint: the disk is full")


@pytest.mark.parametrize("by", ["rest", "files"])
@pytest.mark.parametrize("options", [["--detached"], ["--timeout", "0.3"]], ids=["detached", "no time left"])
def test_an_operation_that_goes_on_is_found_again_by_its_id(
    by: str, options: list[str], driver: Start, desk: Any, flinkish: Command
) -> None:
    jobs = FakeJobs()
    named = "clicks" if by == "rest" else desk(jobs)
    if by == "rest":
        driver(jobs)
    told = flinkish("savepoint", named, *options)
    assert told.code == 3
    operation = told.err.split("the operation ")[1].split()[0]
    assert told.out == (f"{operation}\n" if options == ["--detached"] else "")
    look = told.err.split("'")[1].split()[1:]
    assert look[:3] == ["savepoint", "status", operation]
    pending = flinkish(*look)
    assert (pending.code, pending.out) == (3, "")
    jobs.outcomes[0].complete(SAVEPOINT)
    done = wait_until(lambda: told if (told := flinkish(*look)).code == 0 else None, TIMEOUT_S, "the end")
    assert (done.out, done.err) == (f"{SAVEPOINT}\n", "")


@pytest.mark.parametrize("by", ["rest", "files"])
def test_who_does_not_wait_is_told_the_same_however_fast_it_was(
    by: str, driver: Start, desk: Any, flinkish: Command
) -> None:
    jobs = ByHand(SAVEPOINT)
    named = "clicks" if by == "rest" else desk(jobs)
    if by == "rest":
        driver(jobs)
    told = flinkish("savepoint", named, "--detached")
    assert (told.code, len(told.out.strip())) == (3, 32)


def test_an_operation_of_a_checkpoint_or_a_failure_is_found_again_too(driver: Start, flinkish: Command) -> None:
    jobs = FakeJobs()
    driver(jobs)
    checkpoint = flinkish("checkpoint", "clicks", "--detached").out.strip()
    stop = flinkish("stop", "clicks", "--detached", "--json").json()["operation"]
    jobs.outcomes[0].complete(3)
    jobs.outcomes[1].complete_exceptionally(SavepointError("the disk is full"))
    assert flinkish("savepoint", "status", checkpoint).out == "3\n"
    told = flinkish("savepoint", "status", stop, "clicks")
    assert (told.code, told.out) == (2, "") and "the disk is full" in told.err


@pytest.mark.parametrize("job_too", [False, True])
def test_an_operation_that_nobody_knows_is_refused(job_too: bool, driver: Start, flinkish: Command) -> None:
    driver()
    told = flinkish("savepoint", "status", UNKNOWN, *(["clicks"] if job_too else []))
    assert (told.code, told.out) == (2, "") and UNKNOWN in told.err
    assert "is no id of an operation" in flinkish("savepoint", "status", "../etc").err


def test_a_request_that_the_driver_never_took_is_withdrawn_and_refused(directory: Make, flinkish: Command) -> None:
    made = directory(JOB)
    told = flinkish("stop", made.path, "--timeout", "0.2")
    assert (told.code, told.out) == (2, "") and "has not answered within 0.2 s" in told.err
    assert names(made, "request-") == []


def test_a_job_that_has_ended_cannot_be_stopped(driver: Start, flinkish: Command) -> None:
    driver(FakeJobs(job(status="FINISHED")))
    told = flinkish("stop", "clicks")
    assert (told.code, told.out) == (2, "") and "has ended: it is FINISHED" in told.err


def test_a_stop_whose_driver_ends_before_it_was_asked_again_is_told_by_the_directory(
    driver: Start, directory: Make, flinkish: Command
) -> None:
    jobs = FakeJobs()
    served = driver(jobs)
    made = directory(JOB, served)
    jobs.jobs[JOB] = replace(job(), directory=made.path)

    def end() -> None:
        wait_until(lambda: bool(jobs.asked), TIMEOUT_S, "the stop")
        put(made, "ended.json", {"status": "FINISHED", "done": False, "savepoint": SAVEPOINT, "run": made.token})
        made.release()
        served.stop()

    thread = threading.Thread(target=end)
    thread.start()
    told = flinkish("stop", made.path)
    thread.join()
    assert (told.code, told.out) == (0, f"{SAVEPOINT}\n"), told.err


def test_a_driver_that_is_silent_for_a_moment_is_asked_again(
    driver: Start, flinkish: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = FakeJobs()
    driver(jobs)
    get, silent = RestClient.get, iter([True, False, True])

    def sometimes(client: RestClient, path: str, /, **query: str) -> Any:
        if "savepoints/" in path and next(silent, False):
            raise ConnectionFailedError("timed out")
        if "savepoints/" in path and not jobs.outcomes[0].done():
            jobs.outcomes[0].complete(SAVEPOINT)
        return get(client, path, **query)

    monkeypatch.setattr(RestClient, "get", sometimes)
    assert flinkish("savepoint", "clicks").out == f"{SAVEPOINT}\n"


def test_the_job_of_a_command_may_be_the_only_one_at_an_address(driver: Start, flinkish: Command) -> None:
    jobs = ByHand(SAVEPOINT)
    served = driver(jobs)
    assert flinkish("savepoint", "-m", served.url).out == f"{SAVEPOINT}\n"
    jobs.jobs[OTHER] = job(OTHER)
    jobs.jobs[JOB] = job(JOB)
    assert "several jobs are there" in flinkish("savepoint", "-m", served.url).err


# ---------------------------------------------------------------------- disposal


@pytest.mark.parametrize("line", [["savepoint", "dispose"], ["savepoint", "-d"]], ids=" ".join)
def test_a_savepoint_in_the_directory_of_a_job_at_work_is_disposed_of_by_its_driver(
    line: list[str], driver: Start, directory: Make, flinkish: Command
) -> None:
    jobs = ByHand(None)
    made = directory(JOB, driver(jobs))
    jobs.jobs[JOB] = replace(job(), directory=made.path)
    path = f"{made.path}/savepoints/savepoint-1"
    told = flinkish(*line, path)
    assert (told.code, told.out, told.err) == (0, f"Savepoint '{path}' disposed.\n", "")
    assert jobs.asked == [Request(Kind.DISPOSE, None, path)]


def test_a_savepoint_is_disposed_of_by_the_driver_at_an_address(driver: Start, flinkish: Command) -> None:
    jobs = ByHand(None)
    assert flinkish("savepoint", "dispose", "/sp", "-m", driver(jobs).url).out == "Savepoint '/sp' disposed.\n"
    assert jobs.asked == [Request(Kind.DISPOSE, None, "/sp")]


def test_a_savepoint_from_which_a_job_at_work_was_started_is_kept(
    driver: Start, flinkish: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disposed: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(
        "flinkish.jobmanager.savepoint.dispose_savepoint", lambda path, begun_from: disposed.append((path, begun_from))
    )
    first = str(tmp_path / "savepoint-1")
    driver(FakeJobs(replace(job(), configuration={"execution.state-recovery.path": first}), job(OTHER, "FINISHED")))
    assert flinkish("savepoint", "dispose", first, "--json").json() == {
        "kind": "dispose",
        "status": "COMPLETED",
        "path": first,
    }
    assert disposed == [(first, {first: "clicks"})]


def test_what_is_no_savepoint_is_not_disposed_of(flinkish: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = flinkish("savepoint", "dispose", str(tmp_path))
    assert (told.code, told.out) == (2, "") and "is not complete" in told.err
    assert (tmp_path / "file").exists()
    assert "-d beside a job" in flinkish("savepoint", "clicks", "-d", str(tmp_path)).err
