"""The report of a task on an epoch. It travels to the driver with the rows, also under Spark Connect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.runtime.stored.pickles import dumps, loads
from flinkish.runtime.task_log import LogLine

#: Version of the encoded form of reports.
FORMAT_VERSION = 3


@dataclass(frozen=True)
class TaskPlace:
    """The place where a task ran, in Spark's terms."""

    host: str
    #: Spark's id of the executor
    executor: str
    stage: int
    partition: int
    #: number of times that Spark had tried this task before
    attempt: int
    #: Spark's id of this try, which is unique within an application
    task: int
    #: process id of the Python worker
    pid: int

    def __str__(self) -> str:
        return (
            f"executor {self.executor} on {self.host}, stage {self.stage}, partition {self.partition}, "
            f"try {self.attempt}, process {self.pid}"
        )


@dataclass(frozen=True)
class TaskReport:
    """The figures of one task in one epoch."""

    vertex: int
    subtask: int
    records_in: int = 0
    records_out: int = 0
    watermark_ms: int | None = None
    #: whether every input of the task has ended
    finished: bool = False
    state_bytes: int = 0
    late_dropped: int = 0
    #: source splits that were read in this epoch, and those of them that have ended
    splits: tuple[str, ...] = ()
    ended_splits: tuple[str, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    #: additions to accumulators in this epoch, encoded (runtime/accumulated.py)
    accumulators: bytes = b""
    #: host and process id of the process that it ran in
    worker: str = ""
    #: where it ran; None without Spark
    place: TaskPlace | None = None
    processing_time_ms: int = 0
    #: number of rows of state that were restored from a savepoint
    restored_rows: int = 0
    #: number of state files that were fetched to the executor's disk, and their size in bytes
    restored_files: int = 0
    restored_bytes: int = 0
    #: user code has asked that the next epoch be planned at once
    commit_requested: bool = False
    #: in an aligned source: the watermark that each of its streams has reached (runtime/sources/alignment.py)
    stream_watermarks: dict[str, int] = field(default_factory=dict)
    #: what the task knows of the splits that it has read: split -> its watermark and the states of
    #: its generators (JSON); None: the split has ended
    split_states: dict[str, Any] = field(default_factory=dict)
    #: in a task behind a shuffle: when its first processing-time timer is due, at the earliest; None: it has none
    timer_ms: int | None = None
    #: in the first subtask of a source: about how many records are there that the epoch has left, or how many splits if
    #: these are read one after the other
    backlog: int = 0
    backlog_splits: int = 0
    #: in a task of a source: the time of the newest record of the split that is furthest behind of those read in this
    #: epoch; None: the source does not say it
    newest_ms: int | None = None
    #: the highest watermark that a strategy in the task's chain has made of records; None: there is none
    event_time_ms: int | None = None
    #: in a task that has had no watermark yet: the event-time timers that wait for one, as far as they are in memory
    waiting_timers: int = 0
    #: splits of sources that hold the watermark back since nothing comes from them (runtime/task_header.py): origin ->
    #: the time in ms since it was active
    silent_splits: dict[str, int] = field(default_factory=dict)
    #: how long the task has worked on the epoch, in ms: from its first record to the barrier, without `open`
    work_ms: float = 0.0
    #: lines that user functions have logged
    log: tuple[LogLine, ...] = ()
    #: states that the task has not reported before
    declared: tuple[DeclaredState, ...] = ()

    def encode(self) -> bytes:
        """Encode the report for the way to the driver."""
        return dumps(self.__dict__, FORMAT_VERSION)

    @staticmethod
    def decode(data: bytes) -> TaskReport:
        """The inverse of `encode`."""
        return TaskReport(**loads(data, FORMAT_VERSION, "the report of a task"))


#: (vertex, subtask, encoded buffer); sinks, reports and the changelog have negative vertex numbers
Row = tuple[int, int, bytes]
