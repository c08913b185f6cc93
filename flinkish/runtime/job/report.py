"""The report of a task on an epoch, which travels to the driver with the rows, also under Spark Connect, and the header
of a subtask's stored state, which is read in every epoch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.buffer import OriginProgress
from flinkish.runtime.exchange.gate import split_of, vertex_of
from flinkish.runtime.job.log import LogLine
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads

#: Version of the encoded form of reports.
FORMAT_VERSION = 3


_PLACE = re.compile(r"executor (\S+) on (\S+), stage (-?\d+), partition (-?\d+), try (\d+), process (\d+)")


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

    @staticmethod
    def parsed(text: str) -> TaskPlace | None:
        """The place with this text, without the id of the try, which no text has (0); None: it is no such text.

        >>> str(TaskPlace.parsed("executor 3 on host-1, stage 7, partition 2, try 0, process 4711"))
        'executor 3 on host-1, stage 7, partition 2, try 0, process 4711'
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            return None
        executor, host, *numbers = found.groups()
        stage, partition, attempt, pid = map(int, numbers)
        return TaskPlace(host, executor, stage, partition, attempt, 0, pid)


#: What reports had not at first.
_LATER = frozenset({"bytes_in", "bytes_out", "process", "input_wait_ms", "output_wait_ms", "commit_ms", "standby"})


@dataclass(frozen=True)
class LifecycleCall:
    """A call of the lifecycle of an operator, in one subtask (``flinkish.trace.lifecycle``)."""

    time_ms: int
    #: name of the task, name and uid of the operator, and the method
    task: str
    operator: str
    uid: str
    call: str
    #: the running epoch; -1: none has begun
    epoch: int
    host: str
    pid: int


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
    #: additions to accumulators in this epoch, encoded (runtime/job/accumulators.py)
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
    #: splits of sources that hold the watermark back since nothing comes from them (`silent_origins`): origin ->
    #: the time in ms since it was active
    silent_splits: dict[str, int] = field(default_factory=dict)
    #: how long the task has worked on the epoch, in ms: from its first record to the barrier, without `open`
    work_ms: float = 0.0
    #: the parts of that time in which it has waited for input from Spark's JVM, and for the JVM to take output
    input_wait_ms: float = 0.0
    output_wait_ms: float = 0.0
    #: how long sinks have committed what the task has written; the tasks do not know it yet
    commit_ms: float = 0.0
    #: size of the buffers from other vertices, and of those for them
    bytes_in: int = 0
    bytes_out: int = 0
    #: lines that user functions have logged
    log: tuple[LogLine, ...] = ()
    #: the figures of the process that it ran in (`new_figures`); empty if that has given them within the last second
    process: dict[str, int] = field(default_factory=dict)
    #: states that the task has not reported before
    declared: tuple[DeclaredState, ...] = ()
    #: the standby tasks of the worker, as (vertex, subtask), each with the number of state files that are copied
    standby: dict[tuple[int, int], int] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """What is stored of a report, without what is empty and was not there at first: the default says it."""
        return {name: value for name, value in self.__dict__.items() if value or name not in _LATER}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"process": {}, "standby": {}, **state})

    @property
    def busy_ms(self) -> float:
        """How long the subtask was busy with the epoch: its task with records, and its sinks with their commit."""
        return max(self.work_ms - self.input_wait_ms - self.output_wait_ms, 0.0) + self.commit_ms

    def encode(self) -> bytes:
        """Encode the report for the way to the driver."""
        return dumps(self.__dict__, FORMAT_VERSION)

    @staticmethod
    def decode(data: bytes) -> TaskReport:
        """The inverse of `encode`."""
        return TaskReport(**loads(data, FORMAT_VERSION, "the report of a task"))


#: (vertex, subtask, encoded buffer); sinks, reports and the changelog have negative vertex numbers
Row = tuple[int, int, bytes]


#: Version of the stored form of header and body, and the oldest one that is read, whose headers do not say which inputs
#: are unaligned. It must be raised with every incompatible change.
STATE_FORMAT_VERSION, OLDEST_STATE_FORMAT = 4, 3


#: How long an origin must have been silent before it counts as one that holds the watermark back, in ms.
SILENT_MS = 30_000
#: The most silent origins that a task names.
_MOST_NAMED = 10


def silent_origins(origins: Mapping[str, OriginProgress], now_ms: int) -> dict[str, int]:
    """The origins that hold the watermark of a subtask back because nothing comes from them, each with the time in ms
    since it was active; those with the lowest watermarks first, and not more than a message can name.

    Such an origin is neither idle nor at its end, no other active one has a lower watermark, some have higher ones, and
    it has been silent for `SILENT_MS`.

    >>> silent_origins({"0/a": OriginProgress(0, 5, False, 0), "0/b": OriginProgress(0, 9, False, 40_000)}, 40_000)
    {'0/a': 40000}
    """
    active = [
        (progress.watermark_ms, name, now_ms - progress.last_active_ms)
        for name, progress in origins.items()
        if not progress.idle and progress.watermark_ms < MAX_WATERMARK_MS
    ]
    lowest_ms = min(active)[0] if active else MAX_WATERMARK_MS
    if all(watermark_ms == lowest_ms for watermark_ms, _, _ in active):
        return {}
    silent = sorted((name, ms) for watermark_ms, name, ms in active if watermark_ms == lowest_ms and ms >= SILENT_MS)
    return dict(silent[:_MOST_NAMED])


@dataclass(frozen=True)
class TaskHeader:
    """The small part of a subtask's stored state that is read in every epoch, while the body is decoded only when
    needed. ``token`` identifies one written version of the state, so that a worker can tell whether the decoded state
    in its memory is that version."""

    uid: str
    vertex: int
    subtask: int
    token: bytes = b""
    epoch: int = -1
    #: parallelism of the vertex in that epoch
    parallelism: int = 1
    watermark_ms: int = MIN_TIMESTAMP_MS
    idle: bool = False
    finished: bool = False
    origins: dict[str, OriginProgress] = field(default_factory=dict)
    #: the watermark of each input of ``connect``, and of each source that is united with other streams
    group_watermarks_ms: dict[tuple[Any, ...], int] = field(default_factory=dict)
    #: the origins and groups that are idle, or have been and have not caught up since (`InputGate.unaligned`)
    unaligned: tuple[Any, ...] = ()
    #: vertex -> (uid, parallelism) of the sources that send here; in the first subtask, since all hear the same of them
    sources: dict[int, tuple[str, int]] = field(default_factory=dict)
    #: processing time of the subtask's last epoch; it never goes back, even if the clock does
    processing_time_ms: int = 0
    #: operator uid -> what `OperatorChain.end` has saved: the value of `StreamOperator.save` and the output watermark
    saved: dict[str, Any] = field(default_factory=dict)

    def encode(self, classes: ProgramClasses = NO_CLASSES) -> bytes:
        """Encode the header for storage."""
        values = dict(self.__dict__)
        values["origins"] = {name: tuple(progress) for name, progress in self.origins.items()}
        return dumps(values, STATE_FORMAT_VERSION, classes)

    @staticmethod
    def decode(data: bytes, where: str = "", classes: ProgramClasses = NO_CLASSES) -> TaskHeader:
        """The inverse of `encode`."""
        version = OLDEST_STATE_FORMAT if data[1:2] == bytes([OLDEST_STATE_FORMAT]) else STATE_FORMAT_VERSION
        values = loads(data, version, "the header of a subtask's state", where, classes)
        values["origins"] = {name: OriginProgress(*parts) for name, parts in values["origins"].items()}
        return TaskHeader(**values)

    def event_times(self) -> dict[tuple[Any, Any], int]:
        """(namespace, key) -> watermark: the rows of a savepoint with which event time goes on, in a job that has any.
        (parallelism, subtask) stands for the subtask itself; ((uid, parallelism, idle?), split) for what a split of a
        source that goes on has told, or a subtask of one that reads its splits one after the other, over all edges."""
        found: dict[tuple[Any, Any], int] = {}
        if max((self.watermark_ms, *(one.watermark_ms for one in self.origins.values()))) > MIN_TIMESTAMP_MS:
            found[self.parallelism, self.subtask] = self.watermark_ms
        for origin, progress in self.origins.items() if found and self.sources else ():
            source, split = self.sources.get(vertex_of(origin)), split_of(origin)
            if source is not None and split is not None and progress.watermark_ms < MAX_WATERMARK_MS:
                key = (*source, progress.idle), split
                found[key] = min(progress.watermark_ms, found.get(key, MAX_WATERMARK_MS))
        return found

    def with_changes(self, **changes: Any) -> TaskHeader:
        """A copy with some fields replaced."""
        return replace(self, **changes)
