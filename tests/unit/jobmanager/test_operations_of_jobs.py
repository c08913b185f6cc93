"""What is asked of the jobs of a driver, by whomever: acknowledged at once, and found again by its id."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.manifest import Savepoint
from flinkish.common.job_id import JobID
from flinkish.common.job_status import JobStatus
from flinkish.errors import CheckpointError, ConfigurationError, FinalOperationError, OperationError, SavepointError
from flinkish.jobdir.fencing import Liveness
from flinkish.jobmanager.client import JobManager, RunClient
from flinkish.jobmanager.job.operations import Kind, Operation, Operations, Request
from flinkish.jobmanager.job_run import JobRun
from flinkish.jobmanager.requests import ask
from flinkish.rest.route import Asked, Jobs
from flinkish.runtime.phases import Phase, hooked
from tests.support.job_files import get, put
from tests.support.processes import wait_until
from tests.unit.jobmanager.test_minicluster_jobs import Gate, at_gate, environment, goes_on_until, kept, written

TIMEOUT_S = 30
ID = "ab" * 16


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """The jobs of a driver that knows none of other tests. The gate is open again after each test."""
    fresh = JobManager()
    monkeypatch.setattr(JobManager, "get", lambda: fresh)
    Gate.close_at(None)
    return fresh


class Held:
    """Holds each savepoint up at a phase until it is released."""

    def __init__(self, phase: Phase = Phase.SAVEPOINT_WRITTEN) -> None:
        self._phase = phase
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, phase: Phase, details: dict[str, Any]) -> None:
        if phase is self._phase:
            self.reached.set()
            assert self.go.wait(TIMEOUT_S)


def ended(operations: Operations, operation: Operation) -> Operation:
    """The operation once it is completed."""

    def found() -> Operation:
        found = operations.get(operation.id)
        assert found is not None
        return found

    wait_until(lambda: found().completed, TIMEOUT_S, "the end of the operation")
    return found()


def _completed(jobs: Jobs, operation: Operation) -> bool:
    found = jobs.operations.get(operation.id)
    return found is not None and found.completed


def of(client: RunClient, kind: Kind, **more: Any) -> Request:
    return Request(kind, client.get_job_id().to_hex_string(), **more)


def let_go(client: RunClient) -> None:
    Gate.go.set()
    client.get_job_execution_result().result(TIMEOUT_S)
    client.run.wait(TIMEOUT_S)


def test_a_savepoint_returns_its_future_at_once(tmp_path: Path) -> None:
    client = at_gate(environment(tmp_path), 25)
    held = Held()
    with hooked(held):
        future = client.trigger_savepoint(str(tmp_path / "savepoints"))
        assert not future.done()
        goes_on_until(held.reached.is_set)
        assert not future.done() and not future.cancel(), "it has begun"
        held.go.set()
        assert Savepoint.open(future.result(TIMEOUT_S)).manifest.job_name == "totals"
    let_go(client)


def test_an_operation_is_begun_once_and_found_by_its_id(jobs: Jobs, tmp_path: Path) -> None:
    client = at_gate(environment(tmp_path), 25)
    asked = Asked(jobs, now_ms=0)
    request = of(client, Kind.SAVEPOINT, directory=str(tmp_path / "savepoints"))
    first = asked.jobs.operations.trigger(request, ID)
    again = asked.jobs.operations.trigger(request, ID)
    assert (first.completed, again) == (False, first)
    with pytest.raises(ConfigurationError, match=f"the operation {ID} is another one: savepoint"):
        asked.jobs.operations.trigger(of(client, Kind.CANCEL), ID)
    goes_on_until(lambda: _completed(jobs, first))
    done = ended(asked.jobs.operations, first)
    assert done.failure is None and done.location is not None
    assert [str(path) for path in (tmp_path / "savepoints").iterdir()] == [done.location]
    let_go(client)


@pytest.mark.parametrize(
    ("request_", "status", "with_savepoint"),
    [
        (Request(Kind.CANCEL), JobStatus.CANCELED, False),
        (Request(Kind.STOP), JobStatus.FINISHED, True),
        (Request(Kind.SAVEPOINT, cancel_job=True), JobStatus.CANCELED, True),
    ],
    ids=["cancel", "stop", "savepoint and cancel"],
)
def test_a_job_is_ended_by_an_operation(
    request_: Request, status: JobStatus, with_savepoint: bool, jobs: Jobs, tmp_path: Path
) -> None:
    client = at_gate(kept(tmp_path), 25)
    more = {"cancel_job": request_.cancel_job}
    operation = jobs.operations.trigger(of(client, request_.kind, **more))
    assert jobs.operations.in_progress() == (operation,)
    Gate.go.set()
    done = ended(jobs.operations, operation)
    assert (done.failure, done.location is not None) == (None, with_savepoint)
    client.run.wait(TIMEOUT_S)
    assert jobs.describe_job(client.get_job_id().to_hex_string()).status == status.name
    end = client.run.directory.end()
    assert end is not None and (end.from_outside, end.savepoint) == (True, done.location)


def test_an_operation_on_a_job_that_is_not_there_or_has_ended_fails_and_says_so(jobs: Jobs, tmp_path: Path) -> None:
    unknown = jobs.operations.trigger(Request(Kind.CANCEL, "ff" * 16))
    assert isinstance(unknown.failure, FinalOperationError) and "knows no job ffff" in str(unknown.failure)
    client = at_gate(environment(tmp_path), 25)
    let_go(client)
    late = jobs.operations.trigger(of(client, Kind.STOP))
    assert isinstance(late.failure, FinalOperationError)
    assert r"the job has ended (FINISHED): there is nothing to stop [job 'totals']" in str(late.failure)


def test_an_operation_that_cannot_be_carried_out_fails_and_the_job_goes_on(jobs: Jobs, tmp_path: Path) -> None:
    client = at_gate(environment(tmp_path), 25)
    drain = jobs.operations.trigger(of(client, Kind.STOP, drain=True, directory=str(tmp_path)))
    assert isinstance(drain.failure, OperationError) and "the minicluster cannot drain a job" in str(drain.failure)
    nowhere = ended(jobs.operations, jobs.operations.trigger(of(client, Kind.SAVEPOINT)))
    assert isinstance(nowhere.failure, SavepointError)
    assert "it is not known where to write the savepoint" in str(nowhere.failure)
    let_go(client)


def test_what_was_asked_by_a_file_is_an_operation_like_any_other(jobs: Jobs, tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 25)
    directory = client.run.directory
    held = Held()
    with hooked(held):
        answers: list[Any] = []
        asker = threading.Thread(target=lambda: answers.append(ask(directory.path, "savepoint", TIMEOUT_S)))
        asker.start()
        wait_until(lambda: jobs.operations.in_progress() != (), TIMEOUT_S, "the request")
        (operation,) = jobs.operations.in_progress()
        assert operation.request == of(client, Kind.SAVEPOINT)
        goes_on_until(held.reached.is_set)
        held.go.set()
        asker.join(TIMEOUT_S)
    assert answers == [ended(jobs.operations, operation).location]
    let_go(client)


PROGRAM = """
import threading
from collections.abc import Callable
from pathlib import Path
from flinkish.runtime.phases import Phase, set_hook
from tests.unit.jobmanager import test_minicluster_jobs as program

reached = threading.Event()

def hold(phase, details):
    if phase is Phase.SAVEPOINT_WRITTEN:
        reached.set()
        threading.Event().wait({held_s})

set_hook(hold)
client = program.at_gate(program.kept(Path({folder!r})), 25)
future = client.trigger_savepoint()
# it waits for the end of the epoch: the job must not be faster
history = lambda: client.describe().checkpoints.history
program.wait_until(lambda: any(one.is_savepoint for one in history()), {timeout_s}, "the savepoint")
program.goes_on_until(reached.is_set)
print("written", future.done(), flush=True)
"""


def test_a_savepoint_does_not_hold_the_process(tmp_path: Path) -> None:
    code = PROGRAM.format(folder=str(tmp_path), held_s=10 * TIMEOUT_S, timeout_s=TIMEOUT_S)
    root = str(Path(__file__).parents[3])
    environ = {**os.environ, "PYTHONPATH": root}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environ, timeout=TIMEOUT_S, check=False, capture_output=True
    )
    assert (ended.returncode, ended.stdout) == (0, b"written False\n"), ended.stderr.decode()


# ---------------------------------------------------------------------------------------------------- savepoints


def statuses(client: RunClient) -> list[tuple[int, str]]:
    return [(one.id, one.status) for one in client.describe().checkpoints.history if one.is_savepoint]


def test_a_savepoint_before_the_first_epoch_waits_for_it(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 5)
    future = client.trigger_savepoint()
    wait_until(lambda: statuses(client) == [(1, "PENDING")], TIMEOUT_S, "the savepoint")
    assert not future.done()
    goes_on_until(future.done)
    manifest = Savepoint.open(future.result(TIMEOUT_S)).manifest
    assert manifest.epoch is not None and manifest.epoch >= 0
    let_go(client)
    assert statuses(client) == [(1, "COMPLETED")]


def test_a_savepoint_before_the_first_epoch_is_waited_for_as_long_as_a_checkpoint_may_take(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path, execution__checkpointing__timeout="100 ms"), 5)
    with pytest.raises(SavepointError, match="no epoch has been committed yet, after 0.1 s"):
        client.trigger_savepoint().result(TIMEOUT_S)
    let_go(client)


def test_savepoints_that_wait_for_another_one_are_listed_as_pending_and_taken_in_their_order(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 25)
    held = Held()
    with hooked(held):
        first = client.trigger_savepoint()
        wait_until(lambda: len(statuses(client)) == 1, TIMEOUT_S, "the first savepoint")
        second = client.trigger_savepoint()
        wait_until(lambda: len(statuses(client)) == 2, TIMEOUT_S, "the second savepoint")
        goes_on_until(held.reached.is_set)
        assert statuses(client) == [(1, "PENDING"), (2, "PENDING")]
        held.go.set()
        goes_on_until(second.done, (45, 55))
        paths = [future.result(TIMEOUT_S) for future in (first, second)]
    let_go(client)
    history = client.describe().checkpoints.history
    assert [one.path for one in history if one.is_savepoint] == paths
    assert [one.status for one in history if one.is_savepoint] == ["COMPLETED"] * 2


def is_aborted(client: RunClient) -> bool:
    """Whether the savepoint that is being written is not to go on."""
    try:
        client.run.savepoint_turns.check()
    except SavepointError:
        return True
    return False


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("cancel", "the job is being cancelled"),
        ("signal", "the job is being suspended"),
        ("fail", "the job has failed: UserCodeError: OSError in user code: the server is away"),
    ],
)
def test_what_is_in_flight_at_the_end_of_a_job_ends_with_it(how: str, reason: str, tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path, restart_strategy__type="none"), 25)
    held = Held()
    with hooked(held):
        Gate.failures = [25] if how == "fail" else []
        futures = [client.trigger_savepoint() for _ in range(2)]
        wait_until(lambda: len(statuses(client)) == 2, TIMEOUT_S, "the savepoints")
        Gate.go.set()
        if how == "cancel":
            client.run.request_stop()
        elif how == "signal":
            client.run.stop_from_outside("SIGTERM")
        # until then the first one, if it has its turn, might come to its end before the job does
        wait_until(lambda: is_aborted(client) or all(one.done() for one in futures), TIMEOUT_S, "the job's end")
        held.go.set()
        client.run.wait(TIMEOUT_S)
    for future in futures:
        with pytest.raises(SavepointError, match=f"the savepoint was aborted: {reason}"):
            future.result(0)
    assert [status for _, status in statuses(client)] == ["FAILED", "FAILED"]
    assert list((tmp_path / "job" / "savepoints").iterdir()) == []
    with pytest.raises(FinalOperationError, match="the job has ended"):
        client.trigger_savepoint().result(TIMEOUT_S)


def test_nothing_is_written_after_the_directory_is_given_back(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 25)
    held = Held()
    owned: list[bool] = []

    def hold(phase: Phase, details: dict[str, Any]) -> None:
        held(phase, details)
        if phase is Phase.SAVEPOINT_WRITTEN:
            owned.append(client.run.directory.owner_liveness() is not Liveness.GONE)

    with hooked(hold):
        future = client.trigger_savepoint()
        wait_until(lambda: statuses(client) != [], TIMEOUT_S, "the savepoint")
        goes_on_until(held.reached.is_set)
        cancelled = client.cancel()
        threading.Timer(0.3, held.go.set).start()
        cancelled.result(TIMEOUT_S)
    assert future.done() and owned == [True]
    assert client.run.directory.owner_liveness() is Liveness.GONE
    assert list((tmp_path / "job" / "savepoints").iterdir()) == []


def test_a_cancellation_prevails_over_a_stop_that_writes_its_savepoint(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 25)
    held = Held()
    with hooked(held):
        stop = client.stop_with_savepoint(False)
        goes_on_until(held.reached.is_set)
        cancelled = client.cancel()
        held.go.set()
        cancelled.result(TIMEOUT_S)
    with pytest.raises(SavepointError, match="the savepoint was aborted: the job is being cancelled"):
        stop.result(TIMEOUT_S)
    assert client.run.status is JobStatus.CANCELED
    assert list((tmp_path / "job" / "savepoints").iterdir()) == []


def test_a_savepoint_does_not_wait_for_an_epoch_that_hangs_longer_than_it_may_take(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path, execution__checkpointing__timeout="200 ms"), 25)
    with pytest.raises(SavepointError, match="took longer than 0.2 s"):
        client.trigger_savepoint().result(TIMEOUT_S)
    assert not Gate.go.is_set(), "the epoch hangs on"
    let_go(client)


def test_what_cannot_be_asked_of_a_job_that_does_not_run_fails_as_a_future() -> None:
    client = RunClient(JobRun(JobID(), "replayed"))
    for future in (client.trigger_savepoint(), client.trigger_checkpoint(), client.stop_with_savepoint(False)):
        with pytest.raises(OperationError, match="the job does not run: another epoch is replayed"):
            future.result(TIMEOUT_S)


def test_a_savepoint_that_takes_too_long_is_aborted_and_the_job_goes_on(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path, execution__checkpointing__timeout="200 ms"), 25)
    held = Held()
    with hooked(held):
        future = client.trigger_savepoint()
        wait_until(lambda: statuses(client) != [], TIMEOUT_S, "the savepoint")
        goes_on_until(held.reached.is_set)
        wait_until(lambda: not held.go.wait(0.5), TIMEOUT_S, "the timeout")
        held.go.set()
        with pytest.raises(SavepointError, match=r"took longer than 0.2 s \(execution.checkpointing.timeout\)"):
            future.result(TIMEOUT_S)
    let_go(client)
    assert client.run.status is JobStatus.FINISHED


def saved_ones(client: RunClient) -> list[bool]:
    return [one.is_savepoint for one in client.describe().checkpoints.history]


def test_checkpoints_and_savepoints_have_one_counter_over_all_drivers(tmp_path: Path) -> None:
    often = {"execution__checkpointing__interval": "1 ms", "flinkish__job__restart": "true"}
    numbers: list[int] = []
    for gate in (25, 45):
        client = at_gate(kept(tmp_path, **often), gate)
        saved = client.trigger_savepoint()
        wait_until(lambda client=client: True in saved_ones(client), TIMEOUT_S, "the savepoint")
        stop = client.stop_with_savepoint(False)
        Gate.go.set()
        saved.result(TIMEOUT_S)
        stop.result(TIMEOUT_S)
        history = client.describe().checkpoints.history
        assert saved_ones(client).count(True) == 2
        numbers += sorted(one.id for one in history)
    assert numbers == list(range(1, len(numbers) + 1))


# ---------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("interval", ["0 s", "1 h"], ids=["without an interval", "with an interval"])
@pytest.mark.parametrize("full", [False, True])
def test_a_checkpoint_by_hand_is_one_to_start_from(full: bool, interval: str, jobs: Jobs, tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path, execution__checkpointing__interval=interval), 25)
    operation = jobs.operations.trigger(of(client, Kind.CHECKPOINT, full=full))
    assert not operation.completed
    goes_on_until(lambda: _completed(jobs, operation))
    done = ended(jobs.operations, operation)
    assert (done.failure, done.checkpoint_id, done.location) == (None, 1, None)
    described = client.describe().checkpoints.latest_completed
    assert described is not None and described.id == 1 and described.path is not None
    assert Gate.reached.wait(TIMEOUT_S)
    Gate.at = None
    epoch = Savepoint.open(described.path).manifest.epoch
    assert epoch is not None
    environment(tmp_path / "other", execution__state_recovery__path=described.path).execute("from the checkpoint")
    assert sum(written(tmp_path / "other").values()) == 60 - 10 * (epoch + 1)
    let_go(client)
    assert not list((tmp_path / "job" / "checkpoints").glob("chk-*")), "a job that has finished needs none"


def test_a_checkpoint_by_hand_that_fails_says_why_and_does_not_fail_the_job(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    client = at_gate(kept(tmp_path, execution__checkpointing__dir=tmp_path / "file"), 25)
    operation = jobs.operations.trigger(of(client, Kind.CHECKPOINT))
    let_go(client)
    done = ended(jobs.operations, operation)
    assert isinstance(done.failure, OperationError) and str(tmp_path / "file") in str(done.failure)
    assert client.run.status is JobStatus.FINISHED


def test_a_checkpoint_by_hand_of_a_job_that_ends_fails(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 5)
    future = client.trigger_checkpoint()
    client.run.request_stop()
    Gate.go.set()
    with pytest.raises((FinalOperationError, CheckpointError), match="has ended"):
        future.result(TIMEOUT_S)
    client.run.wait(TIMEOUT_S)


def test_a_stop_over_a_stop_is_refused_with_the_id_of_the_first(jobs: Jobs, tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 25)
    first = jobs.operations.trigger(of(client, Kind.STOP))
    for more in (of(client, Kind.STOP), of(client, Kind.SAVEPOINT, cancel_job=True)):
        second = jobs.operations.trigger(more)
        assert second.failure is not None
        assert f"is being stopped with a savepoint already, by the operation {first.id}" in str(second.failure)
    Gate.go.set()
    assert ended(jobs.operations, first).location is not None


# ---------------------------------------------------------------------------------------------------- disposal


def saved(folder: Path) -> tuple[RunClient, Path]:
    """A job at work, and a savepoint of it in its directory."""
    client = at_gate(kept(folder), 25)
    future = client.trigger_savepoint()
    goes_on_until(future.done)
    return client, Path(future.result(TIMEOUT_S))


def disposed(jobs: Jobs, path: Path | str) -> Operation:
    return ended(jobs.operations, jobs.operations.trigger(Request(Kind.DISPOSE, directory=str(path))))


def test_a_savepoint_is_disposed_of_and_nothing_else(jobs: Jobs, tmp_path: Path) -> None:
    client, path = saved(tmp_path)
    (path / "notes.txt").write_text("of a person")
    done = disposed(jobs, path)
    assert (done.failure, done.location) == (None, None)
    assert [file.name for file in path.iterdir()] == ["notes.txt"]
    again = disposed(jobs, path)
    assert isinstance(again.failure, SavepointError) and "is not complete" in str(again.failure)
    let_go(client)


def test_what_is_no_savepoint_is_not_disposed_of(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "data" / "state").mkdir(parents=True)
    (tmp_path / "data" / "manifest.json").write_text("{}")
    for path, said in (
        (tmp_path / "data", "is damaged"),
        (tmp_path, "is not complete"),
        (tmp_path / "x", "there is no"),
    ):
        done = disposed(jobs, path)
        assert isinstance(done.failure, SavepointError) and said in str(done.failure)
    assert (tmp_path / "data" / "manifest.json").exists() and (tmp_path / "data" / "state").exists()


def test_a_savepoint_that_another_driver_holds_is_not_disposed_of(jobs: Jobs, tmp_path: Path) -> None:
    client, path = saved(tmp_path)
    let_go(client)
    owner = get(client.run.directory, "owner.json")
    put(client.run.directory, "owner.json", {**owner, "released": False, "host": "elsewhere", "token": "other"})
    done = disposed(jobs, path)
    assert done.failure is not None and "it belongs to a job that a driver runs" in str(done.failure)
    assert (path / "manifest.json").exists()


def test_a_savepoint_from_which_a_job_at_work_was_started_is_not_disposed_of(jobs: Jobs, tmp_path: Path) -> None:
    client, path = saved(tmp_path)
    let_go(client)
    Gate.close_at(45)
    client = at_gate(environment(tmp_path / "other", execution__state_recovery__path=path), 45)
    done = disposed(jobs, path)
    assert done.failure is not None and "the job 'totals' was started from this savepoint" in str(done.failure)
    let_go(client)
    assert disposed(jobs, path).failure is None and not path.exists()


def test_a_checkpoint_of_a_job_at_work_is_not_disposed_of(jobs: Jobs, tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 25)
    number = client.trigger_checkpoint()
    goes_on_until(number.done)
    assert Gate.reached.wait(TIMEOUT_S), "it is at work"
    path = tmp_path / "job" / "checkpoints" / f"chk-{number.result(TIMEOUT_S)}"
    assert "it belongs to a job that a driver runs" in str(disposed(jobs, path).failure)
    assert (path / "manifest.json").exists()
    let_go(client)


def test_a_savepoint_and_a_checkpoint_say_how_large_they_are(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 25)
    futures = [client.trigger_savepoint(), client.trigger_checkpoint()]
    goes_on_until(lambda: all(future.done() for future in futures))
    let_go(client)
    saved, taken = sorted(client.describe().checkpoints.history, key=lambda one: not one.is_savepoint)
    for one in (saved, taken):
        assert (one.status, one.rows_written) == ("COMPLETED", 10)
        assert one.bytes_written > 0 and one.state_bytes["totals"] > 0
    assert saved.offsets.keys() == taken.offsets.keys() == {"events"}


@pytest.mark.parametrize("during", ["a hung epoch", "a savepoint", "a stop", "the wait for a restart"])
def test_a_job_answers_and_is_cancelled_whatever_it_does(during: str, tmp_path: Path) -> None:
    more = {"restart_strategy__type": "fixed-delay", "restart_strategy__fixed_delay__delay": "1 h"}
    client = at_gate(kept(tmp_path, **more), 25)
    held, asked = Held(), []
    with hooked(held):
        if during in ("a savepoint", "a stop"):
            asked.append(client.trigger_savepoint() if during == "a savepoint" else client.stop_with_savepoint(False))
            goes_on_until(held.reached.is_set)
        elif during == "the wait for a restart":
            Gate.failures = [25]
            Gate.go.set()
            wait_until(lambda: client.run.status is JobStatus.RESTARTING, TIMEOUT_S, "the failure")
            with pytest.raises(OperationError, match="has failed and waits for its restart"):
                client.stop_with_savepoint(False).result(TIMEOUT_S)
        told = ask(str(tmp_path / "job"), "describe", TIMEOUT_S)
        assert told["status"] == ("RESTARTING" if during == "the wait for a restart" else "RUNNING")
        canceller = threading.Thread(target=lambda: ask(str(tmp_path / "job"), "cancel", TIMEOUT_S))
        canceller.start()
        wait_until(lambda: client.run.status is not JobStatus[told["status"]], TIMEOUT_S, "the cancellation")
        held.go.set()
        Gate.go.set()
        canceller.join(TIMEOUT_S)
    client.run.wait(TIMEOUT_S)
    assert client.run.status is JobStatus.CANCELED
    assert all(isinstance(future.exception(), SavepointError) for future in asked)
