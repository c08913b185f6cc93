"""Descriptions of jobs for tests of the views: of jobs that run in the minicluster, and one of extremes."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flinkish.common import Types, WatermarkStrategy
from flinkish.common.accumulators import Histogram, LongCounter
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction, MapFunction, RuntimeContext
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.errors import FinalOperationError, FlinkishError
from flinkish.jobmanager.client import RunClient
from flinkish.jobmanager.job.description import (
    AttemptDescription,
    CheckpointDescription,
    CheckpointsDescription,
    DriverDescription,
    EdgeDescription,
    EpochDescription,
    ExceptionDescription,
    ExecutionDescription,
    JobDescription,
    JobManagerDescription,
    OperatorDescription,
    RatesDescription,
    RestoreDescription,
    SubtaskDescription,
    VertexDescription,
)
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.jobmanager.job.operations import Operations
from flinkish.jobmanager.job.settings import CheckpointSettings
from flinkish.jobmanager.job.task_managers import (
    LOST,
    REGISTERED,
    RELEASED,
    GarbageCollector,
    MemoryFigures,
    ReachableTaskManager,
    TaskManagerDescription,
    WorkerDescription,
)
from flinkish.jobmanager.operator_ids import operator_id
from flinkish.rest.route import Asked
from flinkish.rest.views import ROUTES
from flinkish.runtime.job.report import LifecycleCall
from flinkish.runtime.task.stack_samples import StackSamples
from tests.support.processes import wait_until
from tests.support.programs import new_environment

TIMEOUT_S = 30
RECORDS = 60
NOW_MS = 1_800_000_000_000


class AnsweringTaskManager:
    """A task manager that answers, or raises what it is told to."""

    def __init__(self, raises: Exception | None = None) -> None:
        self._raises = raises

    def _check(self) -> None:
        if self._raises is not None:
            raise self._raises

    def threads(self) -> list[tuple[str, str]]:
        self._check()
        return [("main", '"main" RUNNABLE')]

    def files(self) -> list[tuple[str, int, int]]:
        self._check()
        return [("stderr", 12, 34)]

    def tail(self, name: str) -> str:
        self._check()
        return f"the end of {name}"


@dataclass(frozen=True)
class FixedJobs:
    """Jobs that do not change."""

    jobs: tuple[JobDescription, ...]
    driver: DriverDescription = field(default_factory=lambda: DriverDescription("driver-host", 4711))
    samples: StackSamples | None = None

    def describe(self) -> JobManagerDescription:
        return JobManagerDescription(self.driver, "0.1.0", self.jobs)

    def stack_samples(self, job_id: str) -> StackSamples | None:
        return self.samples

    def describe_job(self, job_id: str) -> JobDescription:
        for job in self.jobs:
            if job.id == job_id:
                return job
        raise FinalOperationError(f"this driver knows no job {job_id}")

    def reach(self, task_manager: str) -> ReachableTaskManager:
        return AnsweringTaskManager()

    @property
    def operations(self) -> Operations:
        raise AssertionError("a view asks for no operation")


def ask(
    jobs: tuple[JobDescription, ...],
    path: str,
    now_ms: int = NOW_MS,
    samples: StackSamples | None = None,
    /,
    **query: str,
) -> Any:
    """What the view at this path answers."""
    for route in ROUTES:
        parameters = route.match(path)
        if parameters is not None:
            return route.answer(Asked(FixedJobs(jobs, samples=samples), now_ms, parameters, query))
    raise AssertionError(f"no view has the path {path}")


# ---------------------------------------------------------------------- jobs of the minicluster


class Gate:
    """Holds the job up at a number until the test lets it go on, or lets it fail there once."""

    def __init__(self, at: int | None = None, fails_at: int | None = None) -> None:
        self.at = at
        self.fails_at = fails_at
        self.reached = threading.Event()
        self.go = threading.Event()

    def pass_by(self, number: int) -> None:
        if number == self.at:
            self.reached.set()
            assert self.go.wait(TIMEOUT_S)
        if number == self.fails_at:
            self.fails_at = None
            raise OSError(f"the server is away at {number}")


#: Functions are copied for each subtask: what they share is here.
_gate = Gate()


class Doubled(MapFunction):
    """Doubles numbers and counts them in metrics."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group().add_group("numbers")
        self._seen, self._last = group.counter("seen"), 0
        group.gauge("last", lambda: self._last)

    def map(self, value: Any) -> Any:
        self._seen.inc()
        self._last = value[1]
        return value[0], value[1] * 2


class Totals(KeyedProcessFunction):
    """The number of records in accumulators, and the last one per key in state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))
        self._seen, self._lengths = LongCounter(), Histogram()
        runtime_context.add_accumulator("seen", self._seen)
        runtime_context.add_accumulator("lengths", self._lengths)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        _gate.pass_by(value[1] // 2)
        self._last.update(value[1])
        self._seen.add(1)
        self._lengths.add(len(value[0]))
        yield f"{value[0]} {value[1]}"


def _started(gate: Gate, **settings: Any) -> RunClient:
    global _gate
    _gate = gate
    more = {key: str(value) for key, value in settings.items()}
    env = new_environment(
        2,
        pipeline__max_parallelism="16",
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__delay="0 s",
        pipeline__global_job_parameters="mode:test,shop:4",
        **more,
    )
    source = DataGeneratorSource(lambda index: (f"k{index % 5}", index), RECORDS, records_per_epoch=10)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("src")
    doubled = events.map(Doubled(), Types.PICKLED_BYTE_ARRAY()).uid("doubled").name("Double <it>")
    doubled.set_description("twice <it>")
    totals = doubled.key_by(lambda one: one[0]).process(Totals(), Types.STRING()).uid("count").name("Totals")
    totals.print().uid("out").name("Out")
    client = env.execute_async("clicks & more")
    assert isinstance(client, RunClient)
    return client


def finished_job(**settings: Any) -> JobDescription:
    """A job that has come to its end."""
    client = _started(Gate(), **settings)
    client.get_job_execution_result().result(TIMEOUT_S)
    return client.describe()


def running_job(**settings: Any) -> JobDescription:
    """A job in the midst of its third epoch, or of the one behind it."""
    gate = Gate(at=35)
    client = _started(gate, **settings)
    try:
        assert gate.reached.wait(TIMEOUT_S)
        return client.describe()
    finally:
        gate.go.set()
        client.get_job_execution_result().result(TIMEOUT_S)


def restarted_job(**settings: Any) -> JobDescription:
    """A job that has failed in its third epoch, was restarted, and runs its fifth."""
    gate = Gate(at=45, fails_at=25)
    client = _started(gate, **settings)
    try:
        assert gate.reached.wait(TIMEOUT_S)
        return client.describe()
    finally:
        gate.go.set()
        client.get_job_execution_result().result(TIMEOUT_S)


def failed_job(**settings: Any) -> JobDescription:
    """A job that has failed for good."""
    client = _started(Gate(fails_at=25), **{"restart_strategy__fixed_delay__attempts": 0, **settings})
    try:
        client.get_job_execution_result().result(TIMEOUT_S)
    except FlinkishError:
        wait_until(lambda: client.describe().status == "FAILED", TIMEOUT_S, "the end of the job")
    return client.describe()


def savepoint_of_job(folder: Path) -> str:
    """The path of a savepoint with which a job was stopped."""
    gate = Gate(at=35)
    client = _started(gate)
    try:
        assert gate.reached.wait(TIMEOUT_S)
        stop = client.stop_with_savepoint(False, str(folder))
    finally:
        gate.go.set()
    return str(stop.result(TIMEOUT_S))


def checkpointed_job(folder: Path) -> JobDescription:
    """A finished job with checkpoints."""
    return finished_job(
        flinkish__job__dir=folder / "job",
        execution__checkpointing__interval="1 ms",
        execution__checkpointing__num_retained=2,
    )


# ---------------------------------------------------------------------- extremes


def _execution(attempt: int, **more: Any) -> ExecutionDescription:
    times = {"CREATED": 1, "SCHEDULED": 2, "DEPLOYING": 3, "INITIALIZING": 4, "RUNNING": 5}
    return ExecutionDescription(attempt=attempt, **{"state": "RUNNING", "times_ms": times, "told_ms": NOW_MS, **more})


def extreme_job() -> JobDescription:
    """A job with what occurs seldom: names with any characters, figures that are no numbers, tasks that never ran."""
    name = 'clicks <b>"&\\ \n\u2028 ü 😀'
    busy = _execution(
        7,
        durations_ms={"CREATED": 1, "RUNNING": 2**40},
        host="host/1",
        executor="3",
        first_epoch=0,
        last_epoch=2**40,
        records_in=2**62,
        records_out=2**62,
        state_bytes=2**40,
        bytes_in=2**61,
        bytes_out=2**61,
        busy_ms=1e15,
        rates=RatesDescription(1e9, 1e9, 1e12, 1e12, 1000.0),
        watermark_ms=-1,
        metrics={
            "a.b.c": math.inf,
            "a.b.nan": math.nan,
            "a.x": 10**400,
            "a.x_y": 1,
            "a.x.y": 2,
            "a.numRecordsIn": 99,
            "stranger.x": 1,
        },
        accumulators={"text": "x" * 200, "seen": 3, "none": math.nan},
    )
    never = ExecutionDescription(8, "CREATED", {"CREATED": 1})
    failed = _execution(6, state="FAILED", times_ms={"CREATED": 1, "DEPLOYING": 2, "FAILED": 3}, failure="lost")
    source = VertexDescription(
        id=0,
        uid="a",
        name=f"Source: {name}",
        level=0,
        parallelism=2,
        max_parallelism=32768,
        keyed=False,
        operators=(
            OperatorDescription("a", name, operator_id("a")),
            OperatorDescription("a.b", "", operator_id("a.b")),
        ),
        inputs=(),
        state="RUNNING",
        subtasks=(
            SubtaskDescription(0, f"{name} (1/2)", busy, (failed,)),
            SubtaskDescription(1, f"{name} (2/2)", never),
        ),
        job_vertex_id=operator_id("a"),
    )
    behind = replace(
        source,
        id=1,
        uid="z",
        name="z",
        level=1,
        operators=(OperatorDescription("z", "z", operator_id("z")),),
        inputs=(0,),
        subtasks=(),
        job_vertex_id=operator_id("z"),
        edges=(EdgeDescription(0, "HASH"), EdgeDescription(0, "BROADCAST", "late")),
    )
    failure = ExceptionDescription(
        5, 6, "UserCodeError", "the author of the job", False, f"it <failed>\n{name}", task=None, traceback="  line\n"
    )
    elsewhere = replace(
        failure, task="z (1/1)", host="h", executor="1", place="executor 1", subtask=0, retried=True, retryable=True
    )
    pending = CheckpointDescription(3, 30, "PENDING", NOW_MS + 5)
    checkpoints = CheckpointsDescription(
        {"PENDING": 1, "FAILED": 1, "COMPLETED": 2, "savepoints": 1},
        latest_completed=CheckpointDescription(
            1, 10, "COMPLETED", 1_000, 50, path=None, state_bytes={"z": 2**40, "?": 1}
        ),
        latest_savepoint=CheckpointDescription(1, 10, "COMPLETED", 1_000, None, is_savepoint=True, path="/s"),
        latest_failed=CheckpointDescription(2, 20, "FAILED", 2_000, None, failure_reason=None),
        restored=RestoreDescription(0, 0, "/savepoints/one", is_savepoint=True),
    )
    latest = (checkpoints.latest_completed, checkpoints.latest_savepoint, checkpoints.latest_failed)
    history = (*(one for one in latest if one is not None), pending)
    return JobDescription(
        id="ab" * 16,
        name=name,
        status="FAILING",
        start_time_ms=NOW_MS + 10,
        end_time_ms=None,
        times_ms={"INITIALIZING": NOW_MS + 10, "FAILING": NOW_MS + 20},
        plan={},
        vertices=(source, behind),
        attempts=(AttemptDescription(7, 5),),
        checkpoints=replace(checkpoints, history=history),
        metrics={"restarts": 3},
        accumulators={"seen": 10**300, "text": "x", "half": 0.5, "none": math.inf},
        exceptions=(elsewhere, replace(failure, concurrent=(elsewhere,))),
        configuration={"password": "******", "pipeline.global-job-parameters": "******", "parallelism.default": "x"},
        state="",
        story=(),
        directory=None,
        driver=DriverDescription("driver-host", 1),
        epochs=(EpochDescription(1, 2, 3, 1, 1, 1, 0, 0, 0),),
        checkpoint_settings=CheckpointSettings(),
        restart_strategy="none",
        accumulator_types={"seen": "LongCounter"},
        lifecycle=(LifecycleCall(NOW_MS, f"{name} (1/1)", name, name, "open", -1, "\x1b[31mhost", 4711),),
    )


def managed_job() -> JobDescription:
    """A job on two executors, of which one holds eight subtasks, and with two that have gone."""
    memory = MemoryFigures(
        heap_used=300 << 20, heap_peak=700 << 20, heap_max=1 << 30, jvm_rss=900 << 20, physical=16 << 30
    )
    here = TaskManagerDescription(
        id="node-1-0",
        executor="0",
        host="node-1",
        address="node-1:7337",
        registered_ms=NOW_MS - 600_000,
        heartbeat_ms=NOW_MS,
        cores=2,
        slots=2,
        running_tasks=1,
        memory=memory,
        garbage_collectors=(GarbageCollector("young", 21, 1_430),),
        workers=(WorkerDescription(4711, NOW_MS, 180 << 20, ("vertex-0 (1/8)",)), WorkerDescription(4712, NOW_MS)),
        holds=8,
    )
    idle = replace(here, id="node-2-2", executor="2", host="node-2", running_tasks=0, holds=0, workers=())
    unknown: dict[str, Any] = {
        "memory": MemoryFigures(),
        "garbage_collectors": (),
        "workers": (),
        "cores": None,
        "slots": None,
    }
    reason = "Command exited with code 137: it was killed by SIGKILL"
    lost = replace(idle, id="node-2-1", executor="1", status=LOST, ended_ms=NOW_MS - 60_000, reason=reason, **unknown)
    released = replace(lost, id="node-3-3", executor="3", status=RELEASED, reason="Executor killed by driver")
    event = Event(NOW_MS - 60_000, "task manager 'node-2-1'", REGISTERED, LOST, f"{reason}; it held 2 subtasks", 7)
    job = wide_job(8, vertices=1)
    (vertex,) = job.vertices
    subtasks = tuple(replace(one, current=replace(one.current, executor="0")) for one in vertex.subtasks)
    vertices = (replace(vertex, subtasks=subtasks),)
    return replace(job, vertices=vertices, story=(event,), task_managers=(here, idle, lost, released))


def beginning_job() -> JobDescription:
    """A job of which nothing is there yet but its name."""
    return replace(
        extreme_job(),
        id="cd" * 16,
        name="begins",
        status="INITIALIZING",
        times_ms={"INITIALIZING": NOW_MS},
        vertices=(),
        attempts=(),
        checkpoints=CheckpointsDescription(),
        metrics={},
        accumulators={},
        exceptions=(),
        configuration={},
        epochs=(),
    )


def untold_job() -> JobDescription:
    """A job that runs, and whose tasks have told nothing yet."""
    job = extreme_job()
    source = job.vertices[0]
    vertices = (replace(source, subtasks=source.subtasks[1:], parallelism=1),)
    return replace(job, id="ef" * 16, name="untold", status="RUNNING", vertices=vertices)


def wide_job(subtasks: int, vertices: int = 4) -> JobDescription:
    """A job with so many subtasks in all, on 100 executors, each with some metrics of functions."""
    job, parallelism = extreme_job(), subtasks // vertices
    of_vertices = []
    for number in range(vertices):
        uid = f"vertex-{number}"
        operators = tuple(OperatorDescription(f"{uid}-{n}", f"op {n}", operator_id(f"{uid}-{n}")) for n in range(3))
        durations = {"CREATED": 1, "SCHEDULED": 20, "DEPLOYING": 300, "INITIALIZING": 40, "RUNNING": 600_000}
        of_subtasks = tuple(
            SubtaskDescription(
                subtask,
                f"{uid} ({subtask + 1}/{parallelism})",
                _execution(
                    1,
                    durations_ms=durations,
                    host=f"host-{subtask % 100}",
                    executor=str(subtask % 100),
                    first_epoch=0,
                    records_in=subtask * 1_000,
                    records_out=subtask,
                    bytes_in=subtask * 100,
                    busy_ms=float(subtask),
                    watermark_ms=NOW_MS - subtask,
                    rates=RatesDescription(5.0, 5.0, 5.0, 5.0, 5.0),
                    metrics={f"{uid}-{n}.{name}": 1.0 for n in range(3) for name in ("hits", "misses")},
                    accumulators={"seen": subtask},
                ),
            )
            for subtask in range(parallelism)
        )
        of_vertices.append(
            replace(
                job.vertices[0],
                id=number,
                uid=uid,
                name=uid,
                level=number,
                parallelism=parallelism,
                operators=operators,
                subtasks=of_subtasks,
                job_vertex_id=operators[0].operator_id,
                edges=(EdgeDescription(number - 1, "HASH"),) if number else (),
            )
        )
    return replace(job, status="RUNNING", vertices=tuple(of_vertices))
