"""The task of a vertex downstream of a shuffle (Flink's StreamTask).

In an epoch a task goes through these steps: it restores the rows of a savepoint, if there are any; it fires the
processing-time timers that are due; it takes the steps of its input gate, in which event-time timers fire as the
watermark rises; it fires the processing-time timers that became due in between; it calls ``finish`` if all input has
ended; and it handles the barrier.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.arrow import spark_type
from flinkish.core.state import StateDescriptor
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, TimeDomain
from flinkish.errors import IncompatibleJobError, failures_of_user_code, message_of
from flinkish.runtime.exchange.buffer import (
    CACHED,
    LOOKED_UP,
    Buffer,
    BufferKind,
    LargeRecords,
    Records,
    Step,
    Stretch,
    WatermarkStep,
    place,
    size_of,
)
from flinkish.runtime.exchange.gate import InputGate, SortedBuffers, origin_name, vertex_of
from flinkish.runtime.job.deployment import CHANGELOG_VERTEX, JobDescriptor, VertexDescriptor
from flinkish.runtime.job.log import enter
from flinkish.runtime.job.operator import ERROR_BUDGET, OperatorListener
from flinkish.runtime.job.report import LifecycleCall, TaskHeader, TaskReport, silent_origins
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.changelog import Change, encode_changes, operator_changes, watermark_change
from flinkish.runtime.state.column_changes import ColumnChanges
from flinkish.runtime.state.files.references import delete_unneeded
from flinkish.runtime.state.handles import NO_KEY
from flinkish.runtime.state.limits import ManagedMemory
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.saved.columns import TaskBody
from flinkish.runtime.state.saved.operator_states import StoredOperatorStates
from flinkish.runtime.state.saved.restore import SavepointRows, decode_columns
from flinkish.runtime.state.state_rows import LIST_STATE_KIND, OPERATOR_STATE_KIND, UNION_STATE_KIND, DeclaredState
from flinkish.runtime.task.chain import own_keys
from flinkish.runtime.task.task import (
    CLEAN_UP_EPOCHS,
    RETAINED_EPOCHS,
    EpochStamp,
    Task,
    TaskId,
    TaskLife,
    TaskResult,
    TaskState,
)

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory
    from flinkish.runtime.state.files.references import FileReference


def declared_state(
    uid: str, name: str, kind: str, descriptor: StateDescriptor | None, key_type: TypeInformation | None
) -> DeclaredState:
    """The `DeclaredState` of a state; ``descriptor``: None if user code has not asked for the state."""
    key = None if key_type is None else spark_type(key_type)
    if descriptor is None:
        return DeclaredState(uid, name, kind, key_type=key)
    map_key, value = descriptor.entry_types()
    return DeclaredState(uid, name, kind, spark_type(value), None if map_key is None else spark_type(map_key), key)


class DeclarationsOfTask:
    """Reports each declared state of a task once: name, kind and types of the states that its operators have asked for.
    Most states are declared when the task opens, some only while it processes its first record."""

    def __init__(
        self,
        head_uid: str,
        key_type: TypeInformation | None,
        keyed: KeyedStateBackend | None,
        states: dict[str, OperatorState],
    ) -> None:
        self._head_uid = head_uid
        self._key_type = key_type
        self._keyed = keyed
        self._states = states
        self._told: set[tuple[str, str]] = set()

    def new(self) -> tuple[DeclaredState, ...]:
        """The states that were declared since the last call."""
        return tuple(self._new_keyed() + self._new_operator_states())

    def _new_keyed(self) -> list[DeclaredState]:
        if self._keyed is None:
            return []
        found = []
        for name, (kind, descriptor) in self._keyed.declared.items():
            if self._is_new(self._head_uid, name):
                found.append(declared_state(self._head_uid, name, kind, descriptor, self._key_type))
        return found

    def _new_operator_states(self) -> list[DeclaredState]:
        found = [
            DeclaredState(uid, name, OPERATOR_STATE_KIND)
            for uid, state in self._states.items()
            for name in state.names()
            if self._is_new(uid, name)
        ]
        for uid, state in self._states.items():
            for name, (kind, descriptor) in state.known().items():
                if self._is_new(uid, name):
                    state_of_list = kind in (LIST_STATE_KIND, UNION_STATE_KIND)
                    declared = declared_state(uid, name, kind, descriptor, Types.LONG())
                    found.append(replace(declared, map_key_type="BIGINT") if state_of_list else declared)
        return found

    def _is_new(self, uid: str, name: str) -> bool:
        if (uid, name) in self._told:
            return False
        self._told.add((uid, name))
        return True


_LOG = logging.getLogger("flinkish.Task")


@dataclass
class _Share:
    """The epoch that a task is working on, with its input."""

    header: TaskHeader
    load_body: Callable[[], bytes | None]
    stamp: EpochStamp
    gate: InputGate
    steps: Iterator[Step] | None = None
    #: buffers with rows of a savepoint
    restored: list[Buffer] = field(default_factory=list)


class StatefulTask(Task, TaskLife):
    """The task of one subtask of a vertex downstream of a shuffle: it keeps state from epoch to epoch and processes the
    input of each. ``task_state`` is its state in the lifecycle (`TaskState`)."""

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
        super().__init__(job, vertex, subtask, directory, memory, listener, trace)
        self.directory = directory
        self.operator_states = StoredOperatorStates(
            self.chain.states, directory, job.settings.inline_state_bytes, f"task '{self.name}'", job.classes
        )
        #: files that the state refers to and that are not known to be on the executor's disk; the last one comes first
        self._to_restore: list[FileReference] = []
        #: number of files and of bytes that had been fetched when the last epoch was reported
        self._fetched_before = (0, 0) if directory is None else (directory.fetched_files, directory.fetched_bytes)
        self._opened = False
        self._share: _Share | None = None
        #: the version of the stored state that this task holds in memory; None if it holds none yet
        self.token: bytes | None = None
        #: the last epoch that was assigned
        self.epoch = -1
        #: the state changes of the running epoch, for the changelog
        self._changes: list[Change | ColumnChanges] = []
        upstream = (job.vertex(one.vertex) for one in vertex.inputs if subtask == 0)
        #: the sources about which the rows of this subtask tell for all
        self._sources = {one.id: (one.head.uid, one.parallelism) for one in upstream if one.source is not None}
        self._declarations = DeclarationsOfTask(vertex.head.uid, vertex.key_type, self.keyed_state, self.chain.states)

    @property
    def share(self) -> _Share:
        """The epoch that the task is working on."""
        assert self._share is not None, "no epoch has been assigned"
        return self._share

    def assign(self, header: TaskHeader, load_body: Callable[[], bytes | None], stamp: EpochStamp) -> None:
        """Assign the next epoch; the stored state is not decoded yet. If the clock has gone back, the task keeps the
        processing time of its last epoch."""
        stamp = replace(stamp, time_ms=max(stamp.time_ms, header.processing_time_ms))
        joined = CACHED if self.keyed_state is None or self.keyed_state.in_memory else LOOKED_UP
        gate = InputGate(
            self.vertex.inputs,
            header.origins,
            header.watermark_ms,
            header.idle,
            stamp.time_ms,
            self.subtask,
            joined._replace(stretches=self.chain.process_stretch is not None),
            header.group_watermarks_ms,
            header.unaligned,
        )
        self._share, self.records_in, self.epoch = _Share(header, load_body, stamp, gate), 0, stamp.epoch

    def add_records(self, buffers: Iterable[Buffer]) -> None:
        """Set the buffers of the epoch: an iterator over sorted buffers, which is read only as far as they are
        processed, or a collection in any order. The rows of a savepoint come first and are kept for `begin`."""
        share = self.share
        if not isinstance(buffers, Iterator):
            buffers = sorted(buffers, key=lambda buffer: place(buffer.header))
        arrivals = SortedBuffers(self._counted(buffers))
        for buffer in arrivals.take((BufferKind.DATA, MIN_TIMESTAMP_MS, "", 0, -1)):
            if buffer.header.kind is BufferKind.STATE:
                share.restored.append(buffer)
        share.gate.receive(arrivals)

    def _counted(self, buffers: Iterable[Buffer]) -> Iterator[Buffer]:
        for buffer in buffers:
            self.bytes_in += size_of(buffer)
            yield buffer

    # ------------------------------------------------------------------------------------------------ life

    @property
    def task_id(self) -> TaskId:
        """The vertex and the subtask index of the task."""
        return self.vertex.id, self.subtask

    @property
    def needs_restoration(self) -> bool:
        """Whether the task has an epoch and its stored state is not restored yet."""
        return self._share is not None and self.task_state is not TaskState.RUNNING

    def restore(self) -> None:
        """Load the stored state; where copies are kept, fetch the files that it refers to to the executor's disk, and
        check them. Goes on where it was if it has failed before."""
        if self.task_state is TaskState.CREATED:
            self._to(TaskState.RESTORING)
            self._load(TaskBody.decode(self.share.load_body()), self.share.header)
            if self.directory is not None and self.directory.keeps_copies:
                self._to_restore = [file for owner in self._file_owners() for file in owner.files()]
                if self.directory.copies():
                    self.directory.release_stale(self.directory.names())
        while self._to_restore:
            assert self.directory is not None
            # fetches the file if there is no copy, or if the copy is damaged
            self.directory.open(self._to_restore[-1])
            self._to_restore.pop()
        self._check_claimed()
        self.operator_states.take_in()
        self._to(TaskState.RUNNING)
        if self.directory is not None and self.directory.keeps_copies:
            _LOG.info("%s is restored: %d files fetched, %d bytes", self.name, *self._fetched())

    def _check_claimed(self) -> None:
        """Check that the operators of all stored state that belongs to no key are in the chain, or that their state was
        given up. The driver compares the programs, too, but what is stored is certain.

        Raises:
            IncompatibleJobError: they are not; nothing has changed then.
        """
        settings, unclaimed = self.job.settings, self.operator_states.unclaimed
        for uid, (value, _) in self.share.header.saved.items():
            if uid not in self.chain.states and isinstance(value, tuple) and value[0] == ERROR_BUDGET:
                unclaimed.setdefault(uid, []).append(ERROR_BUDGET)
        texts = [f"'{uid}' ({', '.join(sorted(set(names)))})" for uid, names in sorted(unclaimed.items())]
        if not unclaimed or unclaimed.keys() <= set(settings.given_up):
            return
        if settings.ignore_unclaimed_state:
            _LOG.warning("%s gives up the state of operators that it does not have: %s", self.name, ", ".join(texts))
            return
        raise IncompatibleJobError(
            f"the task holds state of operators that the program does not have in it: {', '.join(texts)}",
            where=f"job '{self.job.name}', task '{self.name}'",
            expected="the same stateful operators in the same tasks as before",
            hint="give each operator the uid and the place that it had; or allow the state to be given up "
            "(-n / --allowNonRestoredState, execution.state-recovery.ignore-unclaimed-state: true)",
        )

    def close_clean(self) -> None:
        """Close the task at its normal end, with its functions."""
        self._to(TaskState.CLOSED)
        if self._opened:
            self.close()
        else:
            self.dispose()

    def close_dirty(self) -> None:
        """Close the task and discard what it holds in memory; only the stored state is valid."""
        if self.task_state is not TaskState.CLOSED:
            self._to(TaskState.CLOSED)
        self.discard()
        try:
            self.dispose()
        except failures_of_user_code() as error:
            # another error came first, or nobody waits for the task any more
            _LOG.warning("%s could not be closed: %s: %s", self.name, type(error).__name__, message_of(error))

    def take_over(self, other: StatefulTask) -> None:
        """Take over the epoch of a task that was closed before it has consumed anything, to revive it."""
        self._share, self.epoch = other._share, other.epoch

    # ------------------------------------------------------------------------------------------------ an epoch

    def begin(self) -> None:
        """Begin the epoch: restore the rows of a savepoint, and open the chain the first time."""
        enter(self.log)
        share = self.share
        header = share.header
        if self.keyed_state is not None:
            self.keyed_state.current_key = NO_KEY
        if share.restored:
            self._take_in(share.restored)
        if not self._opened:
            self._opened = True
            self.chain.open(header.epoch if header.epoch >= 0 else None, self.job.restored)
        self._begun_s = time.monotonic()
        share.stamp.waits.restart()
        self._origin, self._part, self._sink_sequence = origin_name(self.vertex.id, self.subtask), 0, 0
        self._time_ms = share.stamp.time_ms
        self.chain.begin(share.stamp.epoch, share.stamp.time_ms, header.watermark_ms, header.saved)
        self.chain.begin_origin(self._origin)

    def _take_in(self, buffers: list[Buffer]) -> None:
        """Restore the state in these rows of a savepoint."""
        own = own_keys(self.vertex, self.subtask)
        rows = SavepointRows(self.chain.states, self.vertex.head.uid, self.keyed_state, self.subtask, own)
        for buffer in buffers:
            rows.take_in(*decode_columns(buffer.payload, self.job.classes))
        rows.end()

    def _load(self, body: TaskBody, header: TaskHeader) -> None:
        self.operator_states.restore(body.operators)
        if self.keyed_state is not None:
            # errors name the epoch
            self.keyed_state.epoch.epoch = self.share.stamp.epoch
            self.keyed_state.restore(body.keyed)
        if self.directory is not None:
            # of those that another worker process has replaced, each takes memory as long as it is open
            self.directory.close_others({name for owner in self._file_owners() for name in owner.file_names()})

    def _file_owners(self) -> list[KeyedStateBackend | StoredOperatorStates]:
        """The parts of the state that refer to files of the subtask."""
        return [self.operator_states] if self.keyed_state is None else [self.operator_states, self.keyed_state]

    def _delete_unneeded(self, header: TaskHeader) -> None:
        if self.directory is not None:
            delete_unneeded(self.directory, self._file_owners(), header.epoch, RETAINED_EPOCHS)

    def punctuate(self) -> None:
        """Fire the processing-time timers that are due at the epoch's time. Once all input has ended, none fires any
        more, as in Flink, which quiesces them before ``finish``."""
        enter(self.log)
        if self.share.gate.valve.combined_ms != MAX_WATERMARK_MS:
            self._fire_processing_timers()

    def _fire_processing_timers(self) -> None:
        if self.share.header.epoch < 0 and self.vertex.id in self.job.restored_ended:
            # it had ended before, and only its end is told again
            return
        for operator in self.chain.operators:
            operator.advance_processing_time(self.share.stamp.time_ms)

    def process(self, max_num_records: int) -> bool:
        """Consume input in time order, firing event-time timers as the watermark rises, until about ``max_num_records``
        records were read. Returns False if there is no more input in this epoch."""
        enter(self.log)
        share = self.share
        if share.steps is None:
            share.steps = share.gate.steps()
        budget = max_num_records
        for step in share.steps:
            self._check_wanted()
            if isinstance(step, Records):
                self.records_in += len(step.values)
                budget -= len(step.values)
                self.chain.process_batch(step.values, step.timestamps, step.input_index)
                if isinstance(step, LargeRecords) and self.keyed_state is not None:
                    # a few of them may need much memory
                    self.keyed_state.make_room()
                if budget <= 0:
                    return True
            elif isinstance(step, Stretch):
                assert self.chain.process_stretch is not None
                records = sum([len(one.values) for one in step.steps if isinstance(one, Records)])
                self.records_in += records
                budget -= records
                self.chain.process_stretch(step.steps)
                if budget <= 0:
                    return True
            elif isinstance(step, WatermarkStep):
                if step.watermark_ms == MAX_WATERMARK_MS:
                    self._fire_processing_timers()
                self.chain.process_watermark(step.watermark_ms)
            else:
                self.chain.head.process_status(step.idle)
        return False

    def prepare_commit(self, standby: Mapping[TaskId, int]) -> TaskResult:
        """Handle the barrier, after all input of the epoch was consumed: snapshot the state and report the epoch, with
        the standby tasks of the worker."""
        enter(self.log)
        share = self.share
        finished = share.gate.valve.combined_ms == MAX_WATERMARK_MS
        if finished:
            self.chain.finish()
        saved = self.chain.end()
        body, written = self._snapshot(share)
        after = share.header.with_changes(
            token=os.urandom(8),
            epoch=share.stamp.epoch,
            parallelism=self.vertex.parallelism,
            watermark_ms=share.gate.valve.combined_ms,
            idle=share.gate.idle,
            finished=finished,
            origins=share.gate.progress(),
            group_watermarks_ms=share.gate.group_watermarks_ms,
            unaligned=share.gate.unaligned,
            sources=self._sources,
            processing_time_ms=share.stamp.time_ms,
            saved=saved,
        )
        result = TaskResult(after, body, written)
        self._report(self._report_of(share, result, standby))
        enter(None)
        if self.job.settings.changelog:
            self._log_changes(share, result)
        return result

    def _log_changes(self, share: _Share, result: TaskResult) -> None:
        """Send the changelog of the subtask: what the epoch has changed in its state."""
        changes, self._changes = self._changes, []
        # what a restored task began with is in no table of this job yet
        before, after = share.header.event_times() if share.header.epoch >= 0 else {}, result.header.event_times()
        changes += (
            watermark_change(self.vertex.head.uid, *key, after.get(key))
            for key in {**before, **after}
            if before.get(key) != after.get(key)
        )
        if changes:
            data = encode_changes(share.stamp.epoch, changes, self.job.classes)
            self._rows.append((CHANGELOG_VERTEX, self.subtask, data))

    def _snapshot(self, share: _Share) -> tuple[bytes | None, bool]:
        keyed, operators = self.keyed_state, self.chain.states
        if share.stamp.epoch % CLEAN_UP_EPOCHS == 0:
            self._delete_unneeded(share.header)
        written = bool(share.restored) or self.operator_states.changed
        written = written or keyed is not None and keyed.changed()
        if not written:
            return None, False
        if self.job.settings.changelog:
            for uid, state in operators.items():
                self._changes.extend(operator_changes(uid, self.subtask, self.vertex.parallelism, state))
        body = TaskBody(None if keyed is None else keyed.snapshot(), self.operator_states.snapshot(share.stamp.epoch))
        if keyed is not None:
            self._changes.extend(keyed.take_changes())
        return body.encode(), True

    def post_commit(self, result: TaskResult) -> None:
        """Finish the epoch, after the result was handed to the state store. A task whose input has ended is closed."""
        self.token = result.header.token
        self._share = None
        if result.header.finished:
            self.close_clean()

    def _state_bytes(self, result: TaskResult) -> int:
        """The size of the stored state in bytes; 0 if the epoch has not changed it."""
        if not result.body:
            return 0
        return len(result.body) + sum(owner.bytes_in_files for owner in self._file_owners())

    def _take_fetched(self) -> tuple[int, int]:
        """The number of files and of bytes that were fetched since the last report; they count as reported now."""
        files, size_bytes = self._fetched()
        self._fetched_before = self._fetched_before[0] + files, self._fetched_before[1] + size_bytes
        return files, size_bytes

    def _fetched(self) -> tuple[int, int]:
        if self.directory is None:
            return 0, 0
        files, size_bytes = self._fetched_before
        return self.directory.fetched_files - files, self.directory.fetched_bytes - size_bytes

    def _report_of(self, share: _Share, result: TaskResult, standby: Mapping[TaskId, int]) -> TaskReport:
        files, size_bytes = self._take_fetched()
        return TaskReport(
            **self._figures(share.stamp),
            watermark_ms=result.header.watermark_ms,
            finished=result.header.finished,
            state_bytes=self._state_bytes(result),
            restored_rows=sum(buffer.header.records for buffer in share.restored),
            restored_files=files,
            restored_bytes=size_bytes,
            declared=self._declarations.new(),
            silent_splits=self._silent_splits(result.header),
            timer_ms=self._first_processing_timer(),
            waiting_timers=self._waiting_timers(result.header),
            standby=dict(standby),
        )

    def _first_processing_timer(self) -> int | None:
        """A timestamp that no processing-time timer is before; None if there are none."""
        queues = [] if self.keyed_state is None else self.keyed_state.timer_queues()
        found = [queue.first(TimeDomain.PROCESSING_TIME) for queue in queues]
        return min((one for one in found if one is not None), default=None)

    def _waiting_timers(self, after: TaskHeader) -> int:
        """The number of event-time timers, as far as they are in memory, while there is no watermark yet."""
        if self.keyed_state is None or after.watermark_ms > MIN_TIMESTAMP_MS:
            return 0
        return sum(queue.event_timers for queue in self.keyed_state.timer_queues())

    def _silent_splits(self, after: TaskHeader) -> dict[str, int]:
        """The splits of sources that hold the watermark back, unless idleness is detected for them anyway."""
        waited_for = {one.vertex for one in self.vertex.inputs if one.from_source and one.idle_timeout_ms is None}
        silent = silent_origins(after.origins, after.processing_time_ms) if waited_for else {}
        return {origin: silent_ms for origin, silent_ms in silent.items() if vertex_of(origin) in waited_for}
