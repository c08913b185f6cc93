"""Descriptions of a job: frozen values that every view (REST, command line, pages, notebooks) renders; and the
observer, which the parts of the driver that watch a job implement.

Rule: ``describe()`` is the one source. A view adds nothing and computes nothing that another view would compute too.
Times are milliseconds since the Unix epoch (1970), durations are milliseconds; None stands for a value that is not
known, or not known yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from flinkish.common.job_status import JobStatus
from flinkish.common.memory import MemoryConfiguration
from flinkish.errors import FlinkishError
from flinkish.jobdir.layout import TotalsDescription
from flinkish.jobmanager.job.lifecycle import Event
from flinkish.jobmanager.job.settings import CheckpointSettings
from flinkish.jobmanager.job.task_managers import TaskManagerDescription, TaskManagerEvent, task_manager_id
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.report import LifecycleCall, TaskReport
from flinkish.runtime.task.progress import EpochProgress, SlowCall


@dataclass(frozen=True)
class CheckpointDescription:
    """One checkpoint or savepoint: pending, completed or failed."""

    #: one counter of checkpoints and savepoints, number after number over all drivers of the job
    id: int
    #: the epoch at whose end the barrier was
    epoch: int
    #: PENDING, COMPLETED, FAILED
    status: str
    trigger_time_ms: int
    #: time from the trigger to completion or failure
    duration_ms: int | None = None
    is_savepoint: bool = False
    #: whether only the changed state was written
    incremental: bool = False
    #: directory from which it can be restored
    path: str | None = None
    #: rows written to the state table
    rows_written: int = 0
    #: bytes of the files that were written to the state table
    bytes_written: int = 0
    #: uid of a vertex' head operator -> size of its state in bytes, as the tasks hold it
    state_bytes: dict[str, int] = field(default_factory=dict)
    #: the same for each of its subtasks, of the last ten checkpoints and savepoints alone. How many bytes and rows were
    #: written for each subtask is not known: rows are written by key
    subtask_state_bytes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: operator uid -> rows of its state; empty if they were not counted, as in a checkpoint that Spark has written
    state_rows: dict[str, int] = field(default_factory=dict)
    #: source uid -> position behind the last record of the epoch; of a source with thousands of splits it names some,
    #: with their numbers (``ended_count``, ``splits_count``)
    offsets: dict[str, str] = field(default_factory=dict)
    #: operator uid -> watermark
    watermarks: dict[str, int] = field(default_factory=dict)
    failure_reason: str | None = None


@dataclass(frozen=True)
class RestoreDescription:
    """The savepoint or checkpoint with whose state a job has begun, or to which it has gone back."""

    #: its number; 0: it is not known
    id: int
    time_ms: int
    path: str
    is_savepoint: bool


@dataclass(frozen=True)
class CheckpointsDescription:
    """The checkpoints and savepoints of a job. Those of this driver are in ``history``, as far as it keeps them."""

    #: status (PENDING, COMPLETED, FAILED) or ``savepoints`` -> their number since the job began
    counts: dict[str, int] = field(default_factory=dict)
    latest_completed: CheckpointDescription | None = None
    latest_savepoint: CheckpointDescription | None = None
    latest_failed: CheckpointDescription | None = None
    #: the newest last; the number that is kept is bounded
    history: tuple[CheckpointDescription, ...] = ()
    #: None: the job has begun without state
    restored: RestoreDescription | None = None


@dataclass(frozen=True)
class RatesDescription:
    """What an execution has done per second of the last minute of which that is known, or since it has begun if that is
    shorter."""

    records_in: float = 0.0
    records_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    #: milliseconds per second in which it has worked, in which it was held back while it had more to do, and in which
    #: it had nothing to do; 1000 together while it runs
    busy_ms: float = 0.0
    backpressured_ms: float = 0.0
    idle_ms: float = 0.0


NO_RATES = RatesDescription()


@dataclass(frozen=True, kw_only=True)
class TaskFigures:
    """What an execution has done in its epochs so far, from the reports of its tasks."""

    records_in: int = 0
    records_out: int = 0
    #: size of the buffers that came from other vertices, and of those sent to them
    bytes_in: int = 0
    bytes_out: int = 0
    #: time of work on its epochs, and time in which it was held back while it had more to do
    #: (``jobmanager/back_pressure.py``)
    busy_ms: float = 0.0
    backpressured_ms: float = 0.0
    watermark_ms: int | None = None
    #: size of the state when it was last written; None: this execution has not written any yet
    state_bytes: int | None = None
    #: state files that were fetched to the executor's disk, and their size
    restored_files: int = 0
    restored_bytes: int = 0
    first_epoch: int | None = None
    last_epoch: int | None = None
    #: operator uid and metric name -> value at the end of ``last_epoch``; counters count since the functions were
    #: opened, and the rate of a meter, ``<name>.rate``, is per second of its time span
    metrics: dict[str, float] = field(default_factory=dict)

    def plus(self, report: TaskReport, epoch: int, backpressured_ms: float = 0.0) -> TaskFigures:
        """The figures with those of one more epoch."""
        return TaskFigures(
            records_in=self.records_in + report.records_in,
            records_out=self.records_out + report.records_out,
            bytes_in=self.bytes_in + report.bytes_in,
            bytes_out=self.bytes_out + report.bytes_out,
            busy_ms=round(self.busy_ms + report.busy_ms, 3),
            backpressured_ms=round(self.backpressured_ms + backpressured_ms, 3),
            watermark_ms=self.watermark_ms if report.watermark_ms is None else report.watermark_ms,
            # 0: the state has not changed
            state_bytes=report.state_bytes or self.state_bytes,
            restored_files=self.restored_files + report.restored_files,
            restored_bytes=self.restored_bytes + report.restored_bytes,
            first_epoch=epoch if self.first_epoch is None else self.first_epoch,
            last_epoch=epoch,
            metrics=report.metrics,
        )


@dataclass(frozen=True)
class ExecutionDescription(TaskFigures):
    """One attempt of one subtask. Its location is that of the last epoch in which the subtask had something to do."""

    attempt: int
    state: str
    #: state -> time at which it was entered
    times_ms: dict[str, int]
    #: state -> time that was spent in it so far
    durations_ms: dict[str, int] = field(default_factory=dict)
    host: str | None = None
    #: Spark's id of the executor; ``driver`` with a local master
    executor: str | None = None
    stage: int | None = None
    partition: int | None = None
    #: number of times that Spark had tried the task of that epoch before
    task_attempt: int | None = None
    #: Spark's id of the task
    task_id: int | None = None
    pid: int | None = None
    #: the splits that the execution has read last, if it is one of a source; the number that is kept is bounded
    splits: tuple[str, ...] = ()
    #: up to when it is known what the execution has done: by the report of its last epoch, by what its task has said in
    #: the one that runs, or because none runs; None: nothing was told yet, so that its figures say nothing
    told_ms: int | None = None
    #: how long it had nothing to do until then
    idle_ms: float = 0.0
    #: None: nothing is known of the last minute
    rates: RatesDescription | None = None
    #: the epoch that runs, if the execution has something to do in it, and its records, bytes and time of work in it so
    #: far; they are not among the others before the epoch is committed
    running_epoch: int | None = None
    running_records_in: int = 0
    running_records_out: int = 0
    running_bytes_in: int = 0
    running_bytes_out: int = 0
    running_busy_ms: float = 0.0
    #: the call of a function that has not returned for ``flinkish.task.slow-call-warning``
    slow_call: SlowCall | None = None
    #: accumulator name -> what the execution has added to it: numbers as they are, everything else as text
    accumulators: dict[str, float | str] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True)
class StandbyDescription:
    """An executor with a standby task, which copies the state files of a subtask in case that it moves there."""

    host: str
    executor: str
    #: number of files that are copied
    files: int


@dataclass(frozen=True)
class SubtaskDescription:
    """One of the parallel instances of a vertex."""

    subtask: int
    #: the name in Flink's form: ``Map -> Sink (1/2)``
    name: str
    current: ExecutionDescription
    #: earlier attempts, the newest last; the number that is kept is bounded
    earlier: tuple[ExecutionDescription, ...] = ()
    #: where standby tasks of the subtask are, as workers have reported in the running attempt; a subtask whose state is
    #: stored with the task has no files, and Spark's state store needs no standby task
    standby: tuple[StandbyDescription, ...] = ()


@dataclass(frozen=True)
class OperatorDescription:
    """One operator of a vertex's chain."""

    uid: str
    name: str
    #: Flink's OperatorID, which follows from the uid
    operator_id: str = ""
    #: whether the program has set the uid
    uid_given: bool = False
    #: what it does, in the words of its query or of ``set_description``
    description: str = ""
    #: name -> exact count since the job began, over all failures: late records that were dropped, and for an operator
    #: with ``on_error`` its records and what became of them
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EdgeDescription:
    """How records come to a vertex from another one."""

    #: id of the other vertex
    source: int
    #: FORWARD, HASH, REBALANCE, BROADCAST, ...
    ship_strategy: str
    #: the side output that is sent along the edge; None: the main output
    tag: str | None = None


@dataclass(frozen=True)
class VertexDescription:
    """A vertex of the job graph: a chain of operators that runs as one task per subtask. Sums are those of the current
    attempt."""

    id: int
    #: uid of the first operator of the chain
    uid: str
    name: str
    #: number of shuffles before the vertex; 0: a source
    level: int
    parallelism: int
    max_parallelism: int
    keyed: bool
    operators: tuple[OperatorDescription, ...]
    #: ids of the vertices that feed this one
    inputs: tuple[int, ...]
    #: the state of all subtasks together, aggregated as in Flink: FAILED if one has failed, RUNNING if one runs, ...
    state: str
    subtasks: tuple[SubtaskDescription, ...]
    #: Flink's JobVertexID, which is the OperatorID of the first operator
    job_vertex_id: str = ""
    #: one for each edge that leads here; there may be several from one vertex
    edges: tuple[EdgeDescription, ...] = ()
    records_in: int = 0
    records_out: int = 0
    watermark_ms: int | None = None
    state_bytes: int | None = None
    #: in a source: what there was and was not read when the last epoch was planned: about how many records, or how many
    #: splits (files, pages) of a source that reads them one after the other; and the age of the newest record that was
    #: read, of the split that is furthest behind; None: it is not known, as in the first epoch of the attempt
    backlog: int | None = None
    backlog_splits: int = 0
    backlog_age_ms: int | None = None
    #: records of the epoch that runs, which are not among those above before it is committed
    running_records_in: int = 0
    running_records_out: int = 0


@dataclass(frozen=True)
class RunningEpochDescription:
    """The epoch that runs, as its tasks have described it last. It may still fail and run again."""

    epoch: int
    #: time since its first task has begun
    duration_ms: int
    #: records that have entered the job so far, and those written to sinks, which have not committed them
    records_in: int
    records_out: int
    watermark_ms: int | None


@dataclass(frozen=True)
class EpochDescription:
    """An epoch that the sinks have committed, with the time that each of its phases has taken."""

    epoch: int
    #: when it was committed
    time_ms: int
    duration_ms: int
    #: until all tasks have ended; until the epoch was prepared; until the sinks have committed it
    run_ms: int
    prepare_ms: int
    commit_ms: int
    records_in: int
    records_out: int
    #: size of the buffers between its tasks
    bytes: int
    watermark_ms: int | None = None
    #: from the commit of the epoch before until its tasks have begun: waiting for data or the interval, and planning;
    #: None: there was none before it in this run of the query, or an earlier one has prepared it
    plan_ms: int | None = None


@dataclass(frozen=True)
class AttemptDescription:
    """One attempt of the job: from a start of its query to the end of that query. The numbering of attempts continues
    when another driver takes the job over."""

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
    """A failure of the job, or a failure from which the job was restarted."""

    time_ms: int
    attempt: int
    #: name of the exception's class in ``flinkish.errors``
    error_class: str
    #: who must act: the author of the job, the operator of the cluster, nobody, the makers of flinkish
    who: str
    retryable: bool
    message: str
    #: the parts of the message: what happened, where, what was expected, what to do
    what: str = ""
    where: str = ""
    expected: str = ""
    hint: str = ""
    task: str | None = None
    epoch: int | None = None
    #: executor, host, stage and partition of that task, in words
    place: str | None = None
    #: the parts of the place; None: they are not known
    host: str | None = None
    executor: str | None = None
    subtask: int | None = None
    #: traceback through the user code alone
    traceback: str | None = None
    #: delay after which the job was restarted; None: it has failed for good, or was not restarted (``retried``)
    restart_delay_ms: int | None = None
    #: whether only a task has failed, which Spark has run again
    retried: bool = False
    #: failures of other tasks in the same epoch, which Spark had run again by then
    concurrent: tuple[ExceptionDescription, ...] = ()


@dataclass(frozen=True)
class SlotsDescription:
    """The task slots of a job; None: it is not known, as before the job runs."""

    #: those in which the widest level of the job runs at once
    required: int | None = None
    #: those of the task managers that are there
    present: int | None = None
    #: the slots of a task manager; the least if they differ
    per_task_manager: int | None = None
    #: how many times the widest level fills the slots
    waves: int | None = None
    #: what follows, in words: that it waits, or runs in waves; "": nothing of the kind
    note: str = ""


@dataclass(frozen=True)
class DriverDescription:
    """The driver process that runs, or ran, a job."""

    host: str
    pid: int
    #: the fencing token: distinguishes this driver's claim of the job directory from all others
    token: str = ""
    #: where its REST API is reached; None: it has none
    rest: str | None = None


@dataclass(frozen=True)
class JobDescription:
    """All that is known of a job at one moment. ``str()`` gives its name, id, status and story."""

    id: str
    name: str
    status: str
    #: time at which the job was submitted to this driver
    start_time_ms: int
    end_time_ms: int | None
    #: status -> time at which it was entered last
    times_ms: dict[str, int]
    #: Flink's plan JSON
    plan: dict[str, Any]
    vertices: tuple[VertexDescription, ...]
    #: the newest last
    attempts: tuple[AttemptDescription, ...]
    checkpoints: CheckpointsDescription
    #: of this driver: epochs, records_in, records_out, restarts, task_failures (after which Spark ran a task again),
    #: last_epoch, watermark_ms, duration_ms
    metrics: dict[str, float]
    #: accumulator name -> value: numbers as they are, everything else as text
    accumulators: dict[str, float | str]
    #: the newest last; the number that is kept is bounded
    exceptions: tuple[ExceptionDescription, ...]
    #: values that may be secrets are hidden
    configuration: dict[str, str]
    #: what holds the state of the job's tasks, in words
    state: str
    #: transitions of the job's status, the oldest first
    story: tuple[Event, ...]
    #: the job directory; None: the job has a temporary one, or none at all
    directory: str | None
    driver: DriverDescription
    #: what is wrong with the job now although it runs, such as windows that wait for a watermark that will never come
    warnings: tuple[str, ...] = ()
    #: None: no epoch runs, or the one that does has begun less than a second ago (ten seconds on object stores)
    running_epoch: RunningEpochDescription | None = None
    #: the last epochs, the newest last; the number that is kept is bounded
    epochs: tuple[EpochDescription, ...] = ()
    #: status -> time that was spent in it so far
    durations_ms: dict[str, int] = field(default_factory=dict)
    checkpoint_settings: CheckpointSettings = CheckpointSettings()
    #: when the job is restarted after a failure, in words
    restart_strategy: str = ""
    #: accumulator name -> name of its class
    accumulator_types: dict[str, str] = field(default_factory=dict)
    totals: TotalsDescription = TotalsDescription()
    #: what the job does before its first epoch or after its last one, in words ("restoring /savepoints/1, 3 of 12
    #: parts"); "": nothing of the kind
    doing: str = ""
    slots: SlotsDescription = SlotsDescription()
    #: what a task manager has of each area of memory; None: nobody can be asked, or the job runs in the minicluster
    memory: MemoryConfiguration | None = None
    #: those that are there, then the last ones that have gone; empty: none is known, as before the first attempt
    task_managers: tuple[TaskManagerDescription, ...] = ()
    #: with ``flinkish.trace.lifecycle``: the last calls of the lifecycle of operators, the newest last
    lifecycle: tuple[LifecycleCall, ...] = ()

    @cached_property
    def task_manager_ids(self) -> dict[str, str]:
        """Spark's id of an executor -> the id of the task manager."""
        return {one.executor: one.id for one in self.task_managers}

    def task_manager_id(self, host: str, executor: str) -> str:
        """The id of the task manager that this executor is."""
        return task_manager_id(host, executor, self.driver.host, self.driver.pid)

    def without_earlier(self) -> JobDescription:
        """The same without the earlier attempts of subtasks."""

        def current(vertex: VertexDescription) -> VertexDescription:
            return replace(vertex, subtasks=tuple(replace(one, earlier=()) for one in vertex.subtasks))

        return replace(self, vertices=tuple(map(current, self.vertices)))

    def __str__(self) -> str:
        events = "\n".join(map(str, self.story))
        return f"job '{self.name}' ({self.id}): {self.status}\n{events}"


@dataclass(frozen=True)
class JobManagerDescription:
    """All jobs of a driver: the running ones first, then the most recently ended ones."""

    driver: DriverDescription
    version: str
    jobs: tuple[JobDescription, ...]


class JobObserver:
    """Is notified of what happens to a running job: its attempt notifies the run, and the run its observers. Methods do
    nothing unless they are overridden. What one raises is logged: the job and the other observers go on."""

    def status_changed(self, event: Event) -> None:
        """The job's status has changed."""

    def query_started(self) -> None:
        """Spark has accepted a query of the running attempt."""

    def epoch_begun(self) -> None:
        """An epoch is about to run, of which nobody has told anything yet."""

    def attempt_started(self, attempt: int) -> None:
        """The job has begun to run, for the first time or again."""

    def epoch_done(self, report: EpochReport) -> None:
        """The sinks have committed an epoch, Spark has not yet. Called by the thread that runs epochs; under Spark
        Connect like `epoch_committed`, when Spark has committed it as well."""

    def epoch_running(self, progress: EpochProgress) -> None:
        """An epoch has run for some time. Called now and then by a thread of its own, also after the end of the epoch
        or of the attempt."""

    def epoch_committed(self, epoch: int) -> None:
        """The metadata of all epochs up to this one are committed, on Spark by Spark. Called by the attempt's own
        thread, or by one that has called `QueryAttempt.committed_epoch`."""

    def lifecycle_traced(self, calls: Sequence[LifecycleCall]) -> None:
        """These are the last calls of the lifecycle of the operators in the running attempt."""

    def checkpoint_ended(self, description: CheckpointDescription) -> None:
        """A checkpoint or savepoint has completed or failed."""

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """An attempt has failed; the job is restarted after the delay, or, with None, has failed as well."""

    def task_manager_changed(self, event: TaskManagerEvent) -> None:
        """A task manager has come or gone."""

    def task_failed(self, failure: FlinkishError) -> None:
        """A task has failed, and Spark runs it again: the attempt goes on."""

    def job_done(self, status: JobStatus) -> None:
        """The job has ended, with this status; its directory is still this driver's."""
