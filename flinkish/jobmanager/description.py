"""What can be said of a job: frozen values that every view (REST, command line, pages, notebooks) renders.

Rule: ``describe()`` is the one source. A view adds nothing and computes nothing that another view would compute too.
Times are milliseconds since the epoch of 1970, durations milliseconds; None: not known, or not yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flinkish.jobmanager.lifecycle.story import Event


@dataclass(frozen=True)
class CheckpointDescription:
    """One barrier that became, or should have become, a checkpoint or a savepoint."""

    id: int
    #: the epoch at whose end the barrier stood
    epoch: int
    #: PENDING, COMPLETED, FAILED
    status: str
    trigger_time_ms: int
    #: from the trigger to completion or failure
    duration_ms: int | None = None
    is_savepoint: bool = False
    #: only what had changed was written
    incremental: bool = False
    #: where it can be restored from
    path: str | None = None
    #: rows written to the state table
    rows_written: int = 0
    #: operator uid -> bytes of its state, as the tasks hold it
    state_bytes: dict[str, int] = field(default_factory=dict)
    #: source uid -> position behind the last record of the epoch
    offsets: dict[str, str] = field(default_factory=dict)
    #: operator uid -> watermark
    watermarks: dict[str, int] = field(default_factory=dict)
    failure_reason: str | None = None


@dataclass(frozen=True)
class CheckpointsDescription:
    """The checkpoints and savepoints of a job. Counts are those since this driver took the job on."""

    #: by status (PENDING, COMPLETED, FAILED) and ``savepoints``
    counts: dict[str, int] = field(default_factory=dict)
    latest_completed: CheckpointDescription | None = None
    latest_savepoint: CheckpointDescription | None = None
    latest_failed: CheckpointDescription | None = None
    #: the newest last; as many as the job keeps in mind
    history: tuple[CheckpointDescription, ...] = ()


@dataclass(frozen=True)
class ExecutionDescription:
    """One attempt of one subtask. Where it runs is as of the last epoch in which it had something to do."""

    attempt: int
    state: str
    #: state -> when it was entered
    times_ms: dict[str, int]
    host: str | None = None
    #: Spark's id of the executor; ``driver`` with a local master
    executor: str | None = None
    stage: int | None = None
    partition: int | None = None
    #: how many times Spark had tried the task of that epoch before
    task_attempt: int | None = None
    #: Spark's id of the task
    task_id: int | None = None
    pid: int | None = None
    #: the splits that the executions of a source have read
    splits: tuple[str, ...] = ()
    records_in: int = 0
    records_out: int = 0
    watermark_ms: int | None = None
    #: as the state was written last
    state_bytes: int = 0
    #: files of state that were fetched to the executor's disk
    restored_files: int = 0
    restored_bytes: int = 0
    first_epoch: int | None = None
    last_epoch: int | None = None
    #: operator uid and metric -> value: counters since the functions were opened
    metrics: dict[str, float] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True)
class SubtaskDescription:
    """One of the parallel instances of a vertex."""

    subtask: int
    #: as Flink writes it: ``Map -> Sink (1/2)``
    name: str
    current: ExecutionDescription
    #: earlier attempts, the newest last; as many as the job keeps in mind
    earlier: tuple[ExecutionDescription, ...] = ()


@dataclass(frozen=True)
class OperatorDescription:
    """One operator of a vertex' chain."""

    uid: str
    name: str
    #: whether the program gave the uid
    uid_given: bool = False
    #: of an operator with ``on_error``: what it was given and what became of it, since the job began, exactly
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class VertexDescription:
    """Operators that run as one task per subtask. Sums are those of the current attempt."""

    id: int
    #: of the first operator
    uid: str
    name: str
    #: number of shuffles before it; 0: a source
    level: int
    parallelism: int
    max_parallelism: int
    keyed: bool
    operators: tuple[OperatorDescription, ...]
    #: the vertices that feed it
    inputs: tuple[int, ...]
    #: of all its subtasks, as Flink sums it up: FAILED if one has failed, RUNNING if one runs, ...
    state: str
    subtasks: tuple[SubtaskDescription, ...]
    records_in: int = 0
    records_out: int = 0
    watermark_ms: int | None = None
    state_bytes: int = 0


@dataclass(frozen=True)
class AttemptDescription:
    """The job from one start of its query to the end of it. Numbers go on when another driver takes over."""

    number: int
    start_time_ms: int
    end_time_ms: int | None = None
    #: RUNNING, FINISHED, CANCELED, FAILED
    state: str = "RUNNING"
    first_epoch: int | None = None
    last_epoch: int | None = None
    failure: str | None = None


@dataclass(frozen=True)
class ExceptionDescription:
    """A failure of the job, or one that it got over."""

    time_ms: int
    attempt: int
    #: name of the class in ``flinkish.errors``
    error_class: str
    #: who must act: the author of the job, the operator of the cluster, nobody, the makers of flinkish
    who: str
    retryable: bool
    message: str
    #: of the formula: what happened, where, what was expected, what to do
    what: str = ""
    where: str = ""
    expected: str = ""
    hint: str = ""
    task: str | None = None
    epoch: int | None = None
    #: executor, host, stage and partition of that task
    place: str | None = None
    #: of user code alone
    traceback: str | None = None
    #: the job was started again after so long; None: it has failed for good
    restart_delay_ms: int | None = None


@dataclass(frozen=True)
class DriverDescription:
    """Which driver a job is, or was, in the hands of."""

    host: str
    pid: int
    #: what tells this driver's claim of the job directory from all others
    token: str = ""


@dataclass(frozen=True)
class JobDescription:
    """All that can be said of a job."""

    id: str
    name: str
    status: str
    #: when it was submitted to this driver
    start_time_ms: int
    end_time_ms: int | None
    #: status -> when it was entered last
    times_ms: dict[str, int]
    #: Flink's plan JSON
    plan: dict[str, Any]
    vertices: tuple[VertexDescription, ...]
    #: the newest last
    attempts: tuple[AttemptDescription, ...]
    checkpoints: CheckpointsDescription
    #: epochs, records_in, records_out, restarts, last_epoch, watermark_ms, duration_ms
    metrics: dict[str, float]
    #: name -> value of what user functions have added up: numbers as they are, everything else as text
    accumulators: dict[str, float | str]
    #: the newest last; as many as the job keeps in mind
    exceptions: tuple[ExceptionDescription, ...]
    #: what may be a secret is hidden
    configuration: dict[str, str]
    #: transitions of the job's status, the oldest first
    story: tuple[Event, ...]
    #: None: a temporary one, or none at all
    directory: str | None
    driver: DriverDescription

    def __str__(self) -> str:
        events = "\n".join(map(str, self.story))
        return f"job '{self.name}' ({self.id}): {self.status}\n{events}"


@dataclass(frozen=True)
class JobManagerDescription:
    """All jobs of a driver: those at work, and the last ones that have ended."""

    driver: DriverDescription
    version: str
    jobs: tuple[JobDescription, ...]
