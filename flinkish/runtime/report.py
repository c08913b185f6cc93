"""What a task says of its share of an epoch. Travels with the rows to the driver, under Spark Connect too."""

from __future__ import annotations

from dataclasses import dataclass, field

from flinkish.runtime.state.declared_state import DeclaredState
from flinkish.runtime.stored_pickle import dumps, loads
from flinkish.runtime.task_log import LogLine

#: Version of the form in which reports travel.
FORMAT_VERSION = 3


@dataclass(frozen=True)
class TaskPlace:
    """Where a task ran, in Spark's terms."""

    host: str
    #: Spark's id of the executor
    executor: str
    stage: int
    partition: int
    #: how many times Spark had tried this task before
    attempt: int
    #: Spark's id of this try, never used twice in an application
    task: int
    #: of the Python worker
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
    #: every input has ended
    finished: bool = False
    state_bytes: int = 0
    late_dropped: int = 0
    #: source splits that were read in this epoch, and those of them that have ended
    splits: tuple[str, ...] = ()
    ended_splits: tuple[str, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    #: what was added up in this epoch (runtime/accumulated.py)
    accumulators: bytes = b""
    #: where it ran: host and process id
    worker: str = ""
    #: None without Spark
    place: TaskPlace | None = None
    processing_time_ms: int = 0
    #: rows of state restored from a savepoint
    restored_rows: int = 0
    #: files of state that were fetched to the executor's disk, and their size
    restored_files: int = 0
    restored_bytes: int = 0
    #: user code has asked that the next epoch be planned at once
    commit_requested: bool = False
    #: of an aligned source: the watermark that each of its streams has reached (runtime/sources/alignment.py)
    stream_watermarks: dict[str, int] = field(default_factory=dict)
    #: what user functions have logged
    log: tuple[LogLine, ...] = ()
    #: states that the task has not told of before
    declared: tuple[DeclaredState, ...] = ()

    def encode(self) -> bytes:
        """The form in which it travels."""
        return dumps(self.__dict__, FORMAT_VERSION)

    @staticmethod
    def decode(data: bytes) -> TaskReport:
        """The inverse of `encode`."""
        return TaskReport(**loads(data, FORMAT_VERSION, "the report of a task"))
