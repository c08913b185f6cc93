"""The JobManager describes all jobs of a process: those at work, and the last ones that have ended."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from typing import Any

import pytest

from flinkish.common import Configuration
from flinkish.common.accumulators import Accumulator
from flinkish.common.configuration import redacted
from flinkish.common.job_status import JobStatus
from flinkish.datastream.functions import MapFunction, RuntimeContext
from flinkish.errors import (
    CheckpointError,
    ConnectionFailedError,
    FencedError,
    FinalOperationError,
    FlinkishError,
    InternalError,
    ProgramError,
    RetryableError,
    UserCodeError,
)
from flinkish.jobdir.layout import StoredRequest, TotalsDescription
from flinkish.jobmanager.client import JobManager, RunClient
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.jobmanager.job.settings import job_settings
from flinkish.jobmanager.job_record import describe_checkpoints, describe_exception, where_state_lies, who_must_act
from flinkish.jobmanager.requests import ACTIONS
from tests.support.programs import new_environment

TIMEOUT_S = 30


@pytest.fixture(autouse=True)
def manager(monkeypatch: pytest.MonkeyPatch) -> JobManager:
    """One that knows no jobs of other tests."""
    fresh = JobManager()
    monkeypatch.setattr(JobManager, "get", lambda: fresh)
    return fresh


def submit(name: str, function: Any = lambda v: v, **more: str) -> RunClient:
    shared = {"flinkish__progress": "never", "flinkish__minicluster__share_functions": "true"}
    env = new_environment(2, **shared, **more)
    env.from_collection([1, 2, 3]).key_by(lambda v: v).map(function).uid("mapper").print()
    client = env.execute_async(name)
    assert isinstance(client, RunClient)
    return client


def finished(name: str, function: Any = lambda v: v, **more: str) -> RunClient:
    client = submit(name, function, **more)
    client.get_job_execution_result().result(TIMEOUT_S)
    client.run.wait(TIMEOUT_S)
    return client


@pytest.mark.parametrize(
    ("settings", "directory", "parts"),
    [
        ({}, "/data/job", ["files below /data/job/keyed-state", "in the heap of the executors", "hashmap"]),
        ({"state.backend.type": "rocksdb"}, None, ["files below the temporary job directory", "in RocksDB", "rocksdb"]),
        ({"taskmanager.memory.managed.size": "1 gb"}, "/data/job", ["1,073,741,824 bytes each", "262,144 bytes per"]),
        ({"execution.target": "minicluster"}, None, ["the memory of the driver's process"]),
    ],
)
def test_a_description_says_what_holds_the_state(
    settings: dict[str, str], directory: str | None, parts: list[str]
) -> None:
    told = where_state_lies(job_settings(Configuration.from_dict(settings)), directory)
    assert all(part in told for part in parts), told


def test_a_job_that_has_ended_is_still_described(manager: JobManager) -> None:
    client = finished("short")
    job = manager.describe_job(client.get_job_id())
    assert (job.status, job.name, manager.jobs(), manager.job(job.id)) == ("FINISHED", "short", (), None)
    assert job.end_time_ms is not None
    assert {s.current.state for v in job.vertices for s in v.subtasks} == {"FINISHED"}
    assert job.metrics["records_in"] == 3
    assert [event.after for event in job.story] == ["INITIALIZING", "CREATED", "RUNNING", "FINISHED"]
    assert str(job).splitlines()[0] == f"job 'short' ({job.id}): FINISHED"
    assert manager.describe().jobs == (job,)
    assert json.loads(json.dumps(asdict(job)))["vertices"][1]["uid"] == "mapper"


def test_a_job_at_work_is_found_by_its_id_and_one_that_nobody_knows_is_an_error(manager: JobManager) -> None:
    with pytest.raises(FinalOperationError, match="this driver knows no job ffff"):
        manager.describe_job("ffff")
    gate = threading.Event()

    def wait(value: int) -> int:
        assert gate.wait(TIMEOUT_S)
        return value

    client = submit("waiting", wait)
    try:
        found = manager.job(client.get_job_id())
        assert found is not None
        assert found.run is client.run
        assert manager.jobs() == (found,)
        assert manager.describe_job(client.get_job_id().to_hex_string()).status in ("CREATED", "RUNNING")
    finally:
        gate.set()
    client.get_job_execution_result().result(TIMEOUT_S)


def test_the_failure_of_a_job_is_described_and_carries_its_story(manager: JobManager) -> None:
    def fail(value: int) -> int:
        raise ValueError("no")

    client = submit("failing", fail)
    with pytest.raises(UserCodeError) as raised:
        client.get_job_execution_result().result(TIMEOUT_S)
    assert raised.value.story == client.story()
    job = client.describe()
    assert (job.status, job.attempts[0].state) == (JobStatus.FAILED.name, "FAILED")
    assert [(e.error_class, e.retryable, e.restart_delay_ms, e.attempt) for e in job.exceptions] == [
        ("UserCodeError", True, None, 0)
    ]
    assert "What had happened" not in job.exceptions[0].message


def test_each_restart_is_an_attempt_of_its_own() -> None:
    left = [2]

    def fail_twice(value: int) -> int:
        if left[0]:
            left[0] -= 1
            raise ValueError("not yet")
        return value

    more = {"restart_strategy__type": "fixed-delay", "restart_strategy__fixed_delay__delay": "1 ms"}
    client = finished("restarting", fail_twice, restart_strategy__fixed_delay__attempts="5", **more)
    job = client.describe()
    assert [(a.number, a.state) for a in job.attempts] == [(0, "FAILED"), (1, "FAILED"), (2, "FINISHED")]
    assert [event.after for event in job.story][2:] == [
        *("RUNNING", "FAILING", "RESTARTING", "RUNNING", "FAILING", "RESTARTING", "RUNNING", "FINISHED")
    ]
    assert [exception.restart_delay_ms for exception in job.exceptions] == [1, 1]
    assert job.metrics["restarts"] == 2
    assert [[e.attempt for e in s.earlier] for s in job.vertices[1].subtasks] == [[0, 1], [0, 1]]
    requests = (StoredRequest(action="describe", attempts=asked, expires_ms=0) for asked in (False, True))
    answers = [ACTIONS["describe"](client, request, None).result() for request in requests]
    subtasks = [[one for vertex in answer["vertices"] for one in vertex["subtasks"]] for answer in answers]
    assert [[len(one["earlier"]) for one in each] for each in subtasks] == [[0] * 3, [2] * 3], "on request only"
    # epochs that were run again count once
    numbers = [one.epoch for one in job.epochs]
    assert numbers == sorted(set(numbers)) and len(numbers) == job.metrics["epochs"]
    assert all(one.run_ms + one.prepare_ms + one.commit_ms <= one.duration_ms + 2 for one in job.epochs)
    assert job.durations_ms.keys() == {"INITIALIZING", "CREATED", "RUNNING", "FAILING", "RESTARTING"}
    assert job.restart_strategy == "fixed-delay: 5 restarts, 0.001 s apart"


def test_the_failure_of_a_task_that_spark_runs_again_is_told_once_and_kept_in_story_and_description(
    capfd: pytest.CaptureFixture[str],
) -> None:
    client = finished("retried")
    failure = ConnectionFailedError("the database does not answer", where="JdbcSink 'orders'")
    failure.task = "sink 'orders'"
    for subtask in ("", ", subtask 1", ""):
        failure.where = f"JdbcSink 'orders'{subtask}"
        client.run.task_failed(failure)
    text = "Spark runs it again: ConnectionFailedError: the database does not answer [JdbcSink 'orders']"
    assert capfd.readouterr().err.count(f"retried: a task has failed; {text}\n") == 1
    job = client.describe()
    assert [(e.error_class, e.retried, e.restart_delay_ms) for e in job.exceptions] == [
        ("ConnectionFailedError", True, None)
    ] * 3
    assert job.metrics["task_failures"] == 3
    last = job.story[-1]
    assert (last.subject, last.after, last.cause) == ("task 'sink 'orders''", "SCHEDULED", text)


def test_a_failure_has_its_place_as_fields_and_those_of_other_tasks_in_the_same_epoch_beside_it() -> None:
    client = submit("failing", lambda value: value)
    client.get_job_execution_result().result(TIMEOUT_S)
    record = client.run.record
    assert record is not None

    def failure(task: str, epoch: int, executor: str = "3") -> ConnectionFailedError:
        error = ConnectionFailedError("the database does not answer")
        error.task, error.epoch = task, epoch
        error.place = f"executor {executor} on host-1, stage 7, partition 2, try 0, process 4711"
        return error

    for task, epoch in (("Map (1/2)", 8), ("Map (2/2)", 9), ("Map (1/2)", 9)):
        record.task_failed(failure(task, epoch))
    record.attempt_failed(failure("Map (1/2)", 9), None)
    last = client.describe().exceptions[-1]
    assert (last.host, last.executor, last.subtask) == ("host-1", "3", 0)
    assert [(one.task, one.epoch, one.subtask) for one in last.concurrent] == [("Map (2/2)", 9, 1)]


def test_of_ended_jobs_the_last_ones_are_kept(manager: JobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobManager, "MAX_ENDED", 2)
    for number in range(4):
        finished(f"job {number}")
    assert [job.name for job in manager.describe().jobs] == ["job 2", "job 3"]


def test_what_may_be_a_secret_is_hidden() -> None:
    shown = redacted({"fs.s3a.Secret.key": "x", "a.password": "y", "pipeline.name": "z", "b.token": "t"})
    assert shown == {"a.password": "******", "b.token": "******", "fs.s3a.Secret.key": "******", "pipeline.name": "z"}


@pytest.mark.parametrize(
    ("error", "who"),
    [
        (UserCodeError("x", user_traceback=""), "the author of the job"),
        (FencedError("x"), "the operator of the cluster"),
        (CheckpointError("x"), "nobody"),
        (InternalError("x"), "the makers of flinkish"),
    ],
)
def test_the_class_says_who_must_act(error: FlinkishError, who: str) -> None:
    assert who_must_act(error) == who


def test_where_there_is_something_to_do_nobody_is_not_who_must_act() -> None:
    advised = RetryableError("a Python worker was lost", hint="see what the functions call")
    assert who_must_act(advised) == "nobody unless it comes again"
    assert who_must_act(advised, goes_on=False) == "the operator of the cluster"
    shown = describe_exception(advised, 0, 0, None), describe_exception(advised, 0, 0, 1_000)
    assert [one.who for one in shown] == ["the operator of the cluster", "nobody unless it comes again"]


def test_checkpoints_are_counted_and_the_latest_of_each_kind_is_known() -> None:
    done = CheckpointDescription(1, 5, "COMPLETED", 0)
    failed = CheckpointDescription(2, 6, "FAILED", 10, failure_reason="too slow")
    savepoint = CheckpointDescription(3, 7, "COMPLETED", 20, is_savepoint=True)
    running = CheckpointDescription(4, 8, "PENDING", 30)
    totals = TotalsDescription(checkpoints={"COMPLETED": 200, "FAILED": 1}, savepoints={"COMPLETED": 3, "FAILED": 1})
    described = describe_checkpoints((done, failed, running), (savepoint,), totals)
    assert described.counts == {"COMPLETED": 203, "FAILED": 2, "PENDING": 1, "savepoints": 4}, "since the job began"
    assert (described.latest_completed, described.latest_savepoint) == (done, savepoint)
    assert described.latest_failed == failed
    assert described.history == (done, failed, savepoint, running), "as they were triggered"


class Quotient(Accumulator[int, float]):
    """Has no value as long as nothing is added."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, value: int) -> None:
        self.n += value

    def get_local_value(self) -> float:
        return 1 / self.n

    def reset_local(self) -> None:
        self.n = 0

    def merge(self, other: Accumulator[int, float]) -> None:
        assert isinstance(other, Quotient)
        self.n += other.n


class AddsNothing(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.add_accumulator("quotient", Quotient())

    def map(self, value: int) -> int:
        return value


def test_an_accumulator_that_has_no_value_fails_the_result_and_shows_why(manager: JobManager) -> None:
    client = submit("quotients", AddsNothing())
    with pytest.raises(ProgramError, match="the accumulator 'quotient' cannot be computed: ZeroDivisionError"):
        client.get_job_execution_result().result(TIMEOUT_S)
    client.run.wait(TIMEOUT_S)
    job = manager.describe_job(client.get_job_id())
    assert job.status == "FINISHED"
    assert "ZeroDivisionError" in str(job.accumulators["quotient"])
