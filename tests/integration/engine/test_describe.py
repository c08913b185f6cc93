"""What can be said of a job on Spark while it runs and afterwards: tasks, executors, failures, story, history."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import WatermarkStrategy
from flinkish.common.job_status import JobStatus
from flinkish.common.typeinfo import Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import MapFunction, RuntimeContext
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import IncompatibleJobError, OperationError, UserCodeError
from flinkish.jobmanager.client import JobManager, RunClient
from flinkish.jobmanager.job.description import JobDescription
from flinkish.runtime.phases import Phase, hooked
from flinkish.runtime.task.progress import SlowCall
from flinkish.testing import StreamRecord, TestingSource
from tests.integration.engine.collecting import Collected, Time, by_field, collecting, environment

TIMEOUT_S = 120

HISTORY = {"flinkish__history__enabled": "true", "flinkish__history__interval": "1 h"}


def eventually(condition: Callable[[], Any]) -> Any:
    """The first value that is true."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def counting(
    collected: Collected, name: str, records: int | None, job_dir: Path | None = None, **more: Any
) -> RunClient:
    """Start counts of seven keys; without ``records`` until somebody stops it."""
    env = environment(job_dir, **more)
    source = DataGeneratorSource(lambda i: (i % 7, i * 1000), records, records_per_epoch=20, splits=2)
    numbers = env.from_source(source, by_field(1), "numbers").uid("numbers")
    counts = numbers.map(lambda e: (e[0], 1)).key_by(lambda e: e[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    counts.uid("counts").sink_to(collected.sink(name)).uid(name)
    client = env.execute_async(name)
    assert isinstance(client, RunClient)
    return client


def epochs(client: RunClient) -> float:
    return client.describe().metrics["epochs"]


def rows(spark: SparkSession, job_dir: Path, table: str, columns: str, order: str = "time_ms, number") -> list[Any]:
    query = f"SELECT {columns} FROM delta.`{job_dir / 'history' / table}` ORDER BY {order}"
    return [tuple(row) for row in spark.sql(query).collect()]


def test_a_running_job_is_described_with_the_tasks_that_spark_runs_for_it(spark: SparkSession) -> None:
    with collecting() as collected:
        client = counting(collected, "described", None)
        eventually(lambda: epochs(client) >= 3)
        job = client.describe()
        assert JobManager.get().describe_job(client.get_job_id()).id == job.id
        client.cancel().result(TIMEOUT_S)
    assert (job.name, job.status, job.directory) == ("described", "RUNNING", None)
    assert [(v.uid, v.state, v.parallelism, v.inputs) for v in job.vertices] == [
        ("numbers", "RUNNING", 2, ()),
        ("counts", "RUNNING", 2, (0,)),
    ]
    source, counts = job.vertices
    assert source.records_in == job.metrics["records_in"] >= 60
    assert counts.records_in == counts.records_out == job.metrics["records_out"]
    assert counts.state_bytes > 0
    check_places(spark, job)
    pacts = [node["pact"] for node in job.plan["nodes"]]
    assert (pacts[0], pacts[-1], set(pacts[1:-1])) == ("Data Source", "Data Sink", {"Operator"})
    assert job.configuration["parallelism.default"] == "2"


def test_windows_that_can_never_fire_are_warned_of_and_described(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with collecting() as collected:
        env = environment()
        source = TestingSource(*(StreamRecord(("a", n), 1_000 * n) for n in range(100)))
        clicks = env.from_source(source, WatermarkStrategy.no_watermarks(), "clicks").uid("clicks")
        windows = clicks.key_by(lambda click: click[0]).window(TumblingEventTimeWindows.of(Time.seconds(5)))
        windows.reduce(lambda a, b: b).name("last").uid("last").sink_to(collected.sink("never"))
        client = env.execute_async("never")
        assert isinstance(client, RunClient)
        eventually(lambda: epochs(client))
        assert client.describe().warnings == ()
        client.cancel().result(TIMEOUT_S)
        eventually(lambda: client.describe().warnings)
    (warning,) = client.describe().warnings
    assert warning.startswith("at least 20 windows or event-time timers of 'last' (uid last) wait and can never fire")
    assert "behind 'Source: clicks' (uid clicks)" in warning
    assert [record.levelname for record in caplog.records if warning in record.getMessage()] == ["WARNING"]
    (source_of_job, _) = client.describe().vertices
    assert (source_of_job.backlog, source_of_job.watermark_ms) == (0, None)


def check_places(spark: SparkSession, job: JobDescription) -> None:
    """With a local master the driver is the executor; the stages are those that Spark knows."""
    stages = set()
    for vertex in job.vertices:
        for subtask in vertex.subtasks:
            execution = subtask.current
            assert (execution.executor, execution.host, execution.attempt) == ("driver", job.driver.host, 0)
            assert execution.pid not in (None, job.driver.pid)
            assert list(execution.times_ms) == ["CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING"]
            assert execution.stage is not None
            stages.add(execution.stage)
    assert len(stages) == len(job.vertices)
    known = spark.sparkContext.statusTracker()
    assert all(known.getStageInfo(stage) is not None for stage in stages)


def test_a_long_epoch_is_described_while_it_runs_and_a_call_that_does_not_return_is_named(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job_dir, release = tmp_path / "job", tmp_path / "release"

    class Waiting(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

        def map(self, value: int) -> int:
            deadline = time.monotonic() + TIMEOUT_S
            while value == 151 and not release.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            return value

    with collecting() as collected:
        env = environment(job_dir, flinkish__task__slow_call_warning="1 s")
        source = DataGeneratorSource(lambda n: n, 200, splits=2)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        numbers.key_by(lambda n: n % 2).map(Waiting()).name("wait").uid("wait").sink_to(collected.sink("slow"))
        client = env.execute_async("slow")
        assert isinstance(client, RunClient)

        def slow_calls() -> list[SlowCall]:
            found = [subtask.current.slow_call for v in client.describe().vertices for subtask in v.subtasks]
            return [call for call in found if call is not None]

        (call,), job = eventually(slow_calls), client.describe()
        files = [path for path in job_dir.rglob("*") if path.parent.name == "progress"]
        release.touch()
        client.get_job_execution_result().result(TIMEOUT_S)
    assert (call.operator, call.uid, call.record, call.details) == ("wait", "wait", "151", ", key 1")
    assert "time.sleep(0.05)" in call.stack
    assert [v.state for v in job.vertices] == ["RUNNING", "RUNNING"]
    assert job.running_epoch is not None
    assert (job.running_epoch.epoch, job.running_epoch.records_in, job.metrics["records_in"]) == (0, 200, 0)
    assert job.running_epoch.duration_ms >= 1_000
    # the subtask of the even numbers runs before the one that waits, behind it, or beside it
    assert job.vertices[1].running_records_in in range(75, 176)
    assert job.vertices[1].records_in == 0
    (warning, *_) = [record.getMessage() for record in caplog.records if record.name == "flinkish.Task"]
    assert warning.startswith("a call of operator 'wait' (uid wait), key 1, record 151 has not returned for 1.")
    assert "executor driver on" in warning
    assert "time.sleep(0.05)" in warning
    assert files
    assert list(job_dir.rglob("progress")) == []
    assert client.describe().running_epoch is None
    assert client.describe().metrics["records_in"] == 200


def test_two_jobs_in_one_driver_cancel_one_and_the_other_goes_on(spark: SparkSession) -> None:
    with collecting() as collected:
        first, second = counting(collected, "first", None), counting(collected, "second", None)
        eventually(lambda: epochs(first) >= 2 and epochs(second) >= 2)
        assert [c.describe().name for c in JobManager.get().jobs()] == ["first", "second"]
        first.cancel().result(TIMEOUT_S)
        seen = epochs(second)
        eventually(lambda: epochs(second) >= seen + 3)
        # by their ids: another test of this process may have run a job of such a name
        statuses = {job.id: job.status for job in JobManager.get().describe().jobs}
        assert [statuses[client.describe().id] for client in (first, second)] == ["CANCELED", "RUNNING"]
        assert JobManager.get().job(first.get_job_id()) is None
        second.cancel().result(TIMEOUT_S)
        assert first.describe().vertices[0].subtasks[0].current.state == "CANCELED"


@pytest.mark.nightly
def test_the_history_of_a_job_is_read_with_sql_when_it_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    with collecting() as collected:
        client = counting(collected, "kept", 100, tmp_path, **HISTORY)
        client.get_job_execution_result().result(TIMEOUT_S)
        told = [(event.before or None, event.after) for event in client.describe().story]
        assert rows(spark, tmp_path, "exceptions", "class", "time_ms") == []
        again = counting(collected, "kept", 100, tmp_path, **HISTORY)
        again.get_job_execution_result().result(TIMEOUT_S)
        with pytest.raises(IncompatibleJobError):
            counting(collected, "another", 100, tmp_path, **HISTORY)
    steps = ["INITIALIZING", "CREATED", "RUNNING", "FINISHED"]
    assert told == list(zip([None, *steps], steps))
    drivers = dict.fromkeys(rows(spark, tmp_path, "jobs", "job_id, job_name, driver"))
    assert [(job, name) for job, name, _ in drivers] == [(client.get_job_id().to_hex_string(), "kept")] * 3
    history = rows(spark, tmp_path, "jobs", "attempt, number, status")
    assert history[:4] == [(0, number, status) for number, status in enumerate(steps)]
    assert [status for _, _, status in history[4:8]] == ["INITIALIZING", "CREATED", "RECONCILING", "FINISHED"]
    assert history[8:] == [(2, 0, "INITIALIZING"), (2, 1, "FAILED")]
    assert rows(spark, tmp_path, "exceptions", "class, attempt", "time_ms") == [("IncompatibleJobError", 2)]
    ends = rows(
        spark,
        tmp_path,
        "executions",
        "attempt, uid, subtask, state, executor, pid, records_in",
        "attempt, uid, subtask",
    )[:4]
    assert [end[1:5] for end in ends] == [
        (uid, subtask, "FINISHED", "driver") for uid in ("counts", "numbers") for subtask in (0, 1)
    ]
    assert all(end[5] > 0 for end in ends[:2])
    assert sum(end[6] for end in ends[:2]) == sum(end[6] for end in ends[2:]) == 100


@pytest.mark.nightly
def test_savepoints_stand_among_the_checkpoints_whatever_became_of_them(spark: SparkSession, tmp_path: Path) -> None:
    more = {**HISTORY, "execution__checkpointing__interval": "1 h"}

    def disk_full(phase: Phase, details: dict[str, Any]) -> None:
        if phase is Phase.SAVEPOINT_WRITTEN:
            raise OperationError("the disk is full")

    with collecting() as collected:
        client = counting(collected, "saved", None, tmp_path / "job", **more)
        eventually(lambda: epochs(client) >= 2)
        first = client.trigger_savepoint(str(tmp_path)).result(TIMEOUT_S)
        with hooked(disk_full), pytest.raises(OperationError, match="the disk is full"):
            client.trigger_savepoint(str(tmp_path)).result(TIMEOUT_S)
        drained = client.stop_with_savepoint(True, str(tmp_path)).result(TIMEOUT_S)
        described = client.describe().checkpoints
    saved = [taken for taken in described.history if taken.is_savepoint]
    # each of the running job is a copy of a checkpoint
    assert described.counts == {"COMPLETED": 4, "FAILED": 1, "savepoints": 3}
    assert described.latest_savepoint == saved[-1]
    manifests = [json.loads((Path(path) / "manifest.json").read_text()) for path in (first, drained)]
    done = [taken for taken in saved if taken.status == "COMPLETED"]
    assert [(taken.path, taken.epoch) for taken in done] == [
        (path, manifest["epoch"]) for path, manifest in zip((first, drained), manifests)
    ]
    assert done[0].rows_written == spark.read.format("delta").load(f"{first}/state").count() > 0
    assert all(taken.offsets.keys() == {"numbers"} and taken.duration_ms for taken in done)
    columns = "id, status, is_savepoint, epoch, path, duration_ms, rows_written"
    assert rows(spark, tmp_path / "job", "checkpoints", columns, "id") == [
        (one.id, one.status, one.is_savepoint, one.epoch, one.path, one.duration_ms, one.rows_written)
        for one in described.history
    ]


@pytest.mark.nightly
def test_a_failed_job_tells_what_failed_where_and_its_story(spark: SparkSession, tmp_path: Path) -> None:
    def refuse(value: Any) -> Any:
        if value == 3:
            raise ValueError("three is not allowed")
        return value

    env = environment(tmp_path, **HISTORY)
    with collecting() as collected:
        numbers = env.from_collection([1, 2, 3, 4]).key_by(lambda v: v % 2).map(refuse).uid("refuser")
        numbers.sink_to(collected.sink("refused"))
        client = env.execute_async("refusing")
        assert isinstance(client, RunClient)
        with pytest.raises(UserCodeError, match="three is not allowed") as raised:
            client.get_job_execution_result().result(TIMEOUT_S)
    assert "job 'refusing': FAILING -> FAILED" in raised.value.story
    assert client.story() == raised.value.story
    job = client.describe()
    assert (job.status, [attempt.state for attempt in job.attempts]) == ("FAILED", ["FAILED"])
    (error,) = job.exceptions
    assert (error.error_class, error.who, error.epoch) == ("UserCodeError", "the author of the job", 0)
    assert error.place is not None
    assert error.place.startswith(f"executor driver on {job.driver.host}, stage ")
    assert error.traceback is not None
    assert error.traceback.endswith("ValueError: three is not allowed\n")
    failed = [s for v in job.vertices for s in v.subtasks if s.current.state == "FAILED"]
    assert [subtask.name for subtask in failed] == [error.task]
    assert {s.current.state for v in job.vertices for s in v.subtasks} == {"FAILED", "CANCELED"}
    columns = "class, who, task, epoch, restart_delay_ms, attempt"
    assert rows(spark, tmp_path, "exceptions", columns, "time_ms") == [
        ("UserCodeError", "the author of the job", error.task, 0, None, 0)
    ]
    assert rows(spark, tmp_path, "executions", "task", "time_ms, uid")[0] is not None
    assert JobManager.get().describe_job(job.id).status == JobStatus.FAILED.name
