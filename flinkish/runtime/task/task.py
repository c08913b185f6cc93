"""The common base of the tasks of sources and of those downstream of a shuffle: it holds the chain of a subtask and
collects the rows that the chain sends. Also the lifecycle of the tasks downstream of a shuffle and of standby tasks."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from flinkish.errors import EpochTimeoutError, IllegalTransitionError
from flinkish.runtime.exchange.buffer import BufferHeader, BufferKind, EpochInfo, encode
from flinkish.runtime.job.deployment import REPORT_VERTEX, JobDescriptor, VertexDescriptor, sink_vertex
from flinkish.runtime.job.log import TaskLog
from flinkish.runtime.job.operator import OperatorListener
from flinkish.runtime.job.report import LifecycleCall, Row, TaskHeader, TaskPlace, TaskReport
from flinkish.runtime.operators.source_and_sink import SinkEmit, SinkWriterOperator, encode_committables
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksOperator
from flinkish.runtime.process import new_figures
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.limits import ManagedMemory
from flinkish.runtime.task.chain import OperatorChain

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory


#: Number of epochs that a job can go back to: Spark keeps their state, and the files that it refers to are kept, too.
#: Older state may be deleted at any time.
RETAINED_EPOCHS = 10

#: Number of epochs between two searches for state files that are not needed any more.
CLEAN_UP_EPOCHS = 8

#: (vertex, subtask)
TaskId = tuple[int, int]


_Item = TypeVar("_Item")


@dataclass
class Waits:
    """How long a task has waited in an epoch, in seconds: for input that Spark's JVM has to bring, and for the JVM to
    take output. It is looked at the clock once per frame or batch, never per record."""

    input_s: float = 0.0
    output_s: float = 0.0

    def restart(self) -> None:
        """Forget what was waited before the work on the epoch has begun."""
        self.input_s = self.output_s = 0.0

    def for_input(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items; it is an input wait until each of them is there."""
        iterator, begun_s = iter(items), time.monotonic()
        for item in iterator:
            self.input_s += time.monotonic() - begun_s
            yield item
            begun_s = time.monotonic()
        self.input_s += time.monotonic() - begun_s

    def for_output(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items; it is an output wait until each of them is taken, and the next one is asked for."""
        for item in items:
            begun_s = time.monotonic()
            yield item
            self.output_s += time.monotonic() - begun_s


@dataclass(frozen=True)
class EpochStamp:
    """The number and the processing time of an epoch, the place where its task runs, and what it waits for there."""

    epoch: int
    time_ms: int
    place: TaskPlace | None = None
    waits: Waits = field(default_factory=Waits, compare=False)


@dataclass(frozen=True)
class TaskResult:
    """The state of a task at the barrier. ``body_written`` says whether the body differs from the stored one."""

    header: TaskHeader
    body: bytes | None
    body_written: bool


class Task:
    """The base class of tasks: it holds the chain of a subtask and collects the rows that the chain sends."""

    def __init__(
        self,
        job: JobDescriptor,
        vertex: VertexDescriptor,
        subtask: int,
        directory: StateDirectory | None = None,
        memory: ManagedMemory | None = None,
        listener: OperatorListener | None = None,
        trace: deque[LifecycleCall] | None = None,
    ) -> None:
        self.job = job
        self.vertex = vertex
        self.subtask = subtask
        self.name = vertex.task_name(subtask)
        self._rows: list[Row] = []
        #: number of records of the epoch that the task has begun to process
        self.records_in = 0
        #: the epoch was given up: the task fails with the batch in work
        self.given_up = False
        #: the lines that user functions log
        self.log = TaskLog()
        self._sink_sequence = 0
        self._committer = subtask
        self._origin = ""
        self._part = 0
        self._time_ms = 0
        #: when the work on the epoch has begun, in s of the monotonic clock
        self._begun_s = time.monotonic()
        #: size of the buffers that were taken and sent in all epochs, and how much of it was reported
        self.bytes_in = self.bytes_out = 0
        self._reported_bytes = 0, 0
        epoch = EpochInfo()
        self.keyed_state = (
            KeyedStateBackend(
                f"task '{self.name}', operator uid {vertex.head.uid}",
                epoch,
                job.classes,
                directory,
                job.settings.inline_state_bytes,
                memory,
                job.settings.changelog,
                vertex.head.uid,
                vertex.head.factory.guarded,
            )
            if vertex.keyed
            else None
        )
        self.chain = OperatorChain(
            vertex, subtask, job.attempt, job.settings, self._emit, self.keyed_state, epoch, listener, trace
        )
        for operator, descriptor in zip(self.chain.operators, vertex.operators):
            if isinstance(operator, SinkWriterOperator) and descriptor.sink is not None:
                operator.emit = self._sink_emit(descriptor.sink)

    def _check_wanted(self) -> None:
        if self.given_up:
            raise EpochTimeoutError(
                "the epoch is given up, because the job is being stopped", where=f"task '{self.name}'"
            )

    def _emit(self, vertex: int, subtask: int, data: bytes) -> None:
        self._rows.append((vertex, subtask, data))
        self.bytes_out += len(data)

    def _sink_emit(self, sink_id: int) -> SinkEmit:
        def emit(committables: list[Any], records: int) -> None:
            header = BufferHeader(
                BufferKind.COMMITTABLES,
                sink_vertex(sink_id),
                self._committer,
                0,
                self._origin,
                self._part,
                self._sink_sequence,
                records,
            )
            self._sink_sequence += 1
            data = encode(header, encode_committables(self._time_ms, committables, self.job.classes))
            self._rows.append((header.vertex, header.subtask, data))

        return emit

    def take_rows(self) -> list[Row]:
        """The rows to be sent, each of which is returned once."""
        rows, self._rows = self._rows, []
        return rows

    def _report(self, report: TaskReport) -> None:
        self._rows.append((REPORT_VERTEX, 0, report.encode()))

    def discard(self) -> None:
        """Drop all rows that were not sent, because the attempt has failed."""
        self._rows = []
        self._take_bytes()
        self.chain.discard()

    def close(self) -> None:
        """Close the functions at the normal end, and release all resources."""
        try:
            self.chain.close()
        finally:
            self.dispose()

    def dispose(self) -> None:
        """Release all resources."""
        if self.keyed_state is not None:
            self.keyed_state.dispose()
        self.chain.dispose()

    @property
    def commit_requested(self) -> bool:
        """Whether user code has asked in this epoch that the next one be planned at once."""
        return any(operator.context.epoch.commit_requested for operator in self.chain.operators)

    @property
    def watermark_ms(self) -> int:
        """The watermark that the task has reached."""
        return self.chain.head.context.epoch.watermark_ms

    def _event_time_ms(self) -> int | None:
        """The highest watermark that a strategy of the chain has made of records so far."""
        makers = [one for one in self.chain.operators if isinstance(one, TimestampsAndWatermarksOperator)]
        return max((ms for maker in makers for ms in maker.watermarks_of_splits().values()), default=None)

    def _figures(self, stamp: EpochStamp) -> dict[str, Any]:
        """The fields that the reports of all tasks have. Counts, accumulators and log lines are those since the last
        report."""
        return {
            "vertex": self.vertex.id,
            "subtask": self.subtask,
            "records_in": self.records_in,
            "records_out": self.chain.records_out(),
            "metrics": self.chain.metric_values(stamp.time_ms),
            "accumulators": self.chain.accumulators.take(self.job.classes),
            "worker": f"{socket.gethostname()}:{os.getpid()}",
            "place": stamp.place,
            "process": new_figures(),
            "processing_time_ms": stamp.time_ms,
            "commit_requested": self.commit_requested,
            "log": self.log.take(),
            "event_time_ms": self._event_time_ms(),
            "work_ms": round((time.monotonic() - self._begun_s) * 1000, 3),
            "input_wait_ms": round(stamp.waits.input_s * 1000, 3),
            "output_wait_ms": round(stamp.waits.output_s * 1000, 3),
            **self._take_bytes(),
        }

    def _take_bytes(self) -> dict[str, int]:
        """The sizes of the buffers that were taken and sent since the last report."""
        before, self._reported_bytes = self._reported_bytes, (self.bytes_in, self.bytes_out)
        return {"bytes_in": self.bytes_in - before[0], "bytes_out": self.bytes_out - before[1]}


def heartbeats(job: JobDescriptor) -> Iterator[Row]:
    """One HEARTBEAT buffer for each clocked subtask of the first level, which must run in each epoch even without data,
    because of processing-time timers or idle sources; these call the subtasks downstream of them."""
    for vertex in job.vertices:
        if vertex.level == 1 and vertex.clocked:
            for subtask in range(vertex.parallelism):
                header = BufferHeader(BufferKind.HEARTBEAT, vertex.id, subtask, 0, "", 0, 0, 0)
                yield vertex.id, subtask, encode(header, b"")


_LOG = logging.getLogger("flinkish.Task")

#: How long a task waits for a temporary failure to pass, such as storage that cannot be reached (ms).
TASK_TIMEOUT_MS = 60_000


class TaskState(Enum):
    """A state in the lifecycle of a task downstream of a shuffle, and of a standby task (Kafka Streams' Task.State).

        CREATED -> RESTORING -> RUNNING -> CLOSED

    A task is restored before it runs. It can be closed in any state, and CLOSED is final: a task that is revived, or
    that comes back from another worker, is another object.
    """

    #: nothing of the task's stored state was read
    CREATED = "CREATED"
    #: the files that its state refers to are fetched to the executor's disk
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    CLOSED = "CLOSED"


_S = TaskState

TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    _S.CREATED: frozenset({_S.RESTORING, _S.CLOSED}),
    _S.RESTORING: frozenset({_S.RUNNING, _S.CLOSED}),
    _S.RUNNING: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}


def next_state(before: TaskState, after: TaskState, task: str) -> TaskState:
    """Return ``after`` if it may follow ``before``.

    >>> next_state(TaskState.CREATED, TaskState.RESTORING, "Map (1/2)").name
    'RESTORING'

    Raises:
        IllegalTransitionError: ``after`` may not follow ``before``.
    """
    if after not in TRANSITIONS[before]:
        legal = sorted(state.name for state in TRANSITIONS[before])
        raise IllegalTransitionError(
            f"a task cannot go from {before.name} to {after.name}",
            where=f"task '{task}'",
            expected=" or ".join(legal) if legal else f"nothing after {before.name}, which is final",
            hint="please report this",
        )
    return after


class TaskLife:
    """The part of a task that keeps its place in the lifecycle, and its deadline while it waits for storage."""

    name: str
    task_state = TaskState.CREATED
    #: time at which the task fails if what it waits for has not succeeded (ms); None if it waits for nothing
    _deadline_ms: int | None = None

    def _to(self, state: TaskState) -> None:
        before, self.task_state = self.task_state, next_state(self.task_state, state, self.name)
        _LOG.debug("%s goes from %s to %s", self.name, before.name, state.name)

    def maybe_init_task_timeout_or_throw(self, now_ms: int, error: Exception) -> None:
        """Wait after a temporary failure, or raise its error if the task has waited for `TASK_TIMEOUT_MS`."""
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + TASK_TIMEOUT_MS
        elif now_ms >= self._deadline_ms:
            raise error
        _LOG.warning("%s waits, for %d ms more at most: %s", self.name, self._deadline_ms - now_ms, error)

    @property
    def is_waiting(self) -> bool:
        """Whether the task waits for a temporary failure to pass."""
        return self._deadline_ms is not None

    def clear_task_timeout(self) -> None:
        """Stop waiting, because the task has made progress."""
        self._deadline_ms = None
