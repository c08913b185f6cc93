"""One subtask of a vertex, at work on its channels (Flink's StreamTask).

Within an epoch a channel takes this way: rows of a savepoint first, if any; due processing-time timers; then the steps
of its input gate, in which event-time timers fire as the watermark rises; processing-time timers that fell due in
between; at the end of all input ``finish``; then the barrier.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from flinkish.core.time_limits import MAX_WATERMARK_MS
from flinkish.errors import InternalError
from flinkish.runtime.buffer import Buffer, BufferHeader, BufferKind, encode
from flinkish.runtime.channel_header import ChannelHeader
from flinkish.runtime.deployment import (
    CHANGELOG_VERTEX,
    REPORT_VERTEX,
    Channel,
    ChannelKind,
    JobDescriptor,
    VertexDescriptor,
    sink_vertex,
)
from flinkish.runtime.input_gate import InputGate, Records, Step, WatermarkStep, origin_name
from flinkish.runtime.operator import EpochInfo
from flinkish.runtime.operator_chain import OperatorChain
from flinkish.runtime.operators.sink_writer import SinkWriterOperator, encode_committables
from flinkish.runtime.report import TaskPlace, TaskReport
from flinkish.runtime.state.changelog import Change, encode_changes, operator_changes, watermark_change
from flinkish.runtime.state.declarations import DeclarationsOfTask
from flinkish.runtime.state.heap_keyed_state_backend import NO_KEY_GROUP, HeapKeyedStateBackend
from flinkish.runtime.state.operator_state import decode_operator_states, encode_operator_states
from flinkish.runtime.state.restore import take_in_rows
from flinkish.runtime.state.restored_rows import decode_rows

#: (vertex, channel, encoded buffer); sinks and reports have numbers of their own below zero
Row = tuple[int, int, bytes]

WORKER = f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True)
class EpochStamp:
    """Number and processing time of an epoch. ``place``: where the task runs that works on it."""

    epoch: int
    time_ms: int
    place: TaskPlace | None = None


@dataclass(frozen=True)
class ChannelResult:
    """What a channel hands back at the barrier. ``body_written``: the body differs from the stored one."""

    header: ChannelHeader
    body: bytes | None
    body_written: bool


class Task:
    """Base of channel tasks and source tasks: a chain, and the rows that it sends."""

    def __init__(self, job: JobDescriptor, vertex: VertexDescriptor, subtask: int) -> None:
        self.job = job
        self.vertex = vertex
        self.subtask = subtask
        self.name = vertex.task_name(subtask)
        self._rows: list[Row] = []
        self._sink_sequence = 0
        self._sink_channel = subtask
        self._origin = ""
        self._part = 0
        self._time_ms = 0
        epoch = EpochInfo()
        self.keyed_state = (
            HeapKeyedStateBackend(f"task '{self.name}', operator uid {vertex.head.uid}", epoch, job.classes)
            if vertex.keyed
            else None
        )
        self.chain = OperatorChain(vertex, subtask, job.attempt, job.settings, self._emit, self.keyed_state, epoch)
        for operator, descriptor in zip(self.chain.operators, vertex.operators):
            if isinstance(operator, SinkWriterOperator) and descriptor.sink is not None:
                operator.emit = self._sink_emit(descriptor.sink)

    def _emit(self, vertex: int, channel: int, data: bytes) -> None:
        self._rows.append((vertex, channel, data))

    def _sink_emit(self, sink_id: int) -> Callable[[list[Any]], None]:
        def emit(committables: list[Any]) -> None:
            header = BufferHeader(
                BufferKind.COMMITTABLES,
                sink_vertex(sink_id),
                self._sink_channel,
                0,
                self._origin,
                self._part,
                self._sink_sequence,
                len(committables),
            )
            self._sink_sequence += 1
            data = encode(header, encode_committables(self._time_ms, committables, self.job.classes))
            self._rows.append((header.vertex, header.channel, data))

        return emit

    def take_rows(self) -> list[Row]:
        """What there is to send."""
        rows, self._rows = self._rows, []
        return rows

    def _report(self, report: TaskReport) -> None:
        self._rows.append((REPORT_VERTEX, 0, report.encode()))

    def discard(self) -> None:
        """The attempt failed: nothing of it may be sent."""
        self._rows = []
        self.chain.discard()

    def close(self) -> None:
        """Normal end."""
        try:
            self.chain.close()
        finally:
            self.chain.dispose()

    def dispose(self) -> None:
        """Release everything."""
        self.chain.dispose()

    def _metrics(self) -> dict[str, float]:
        result: dict[str, float] = {}
        for descriptor in self.vertex.operators:
            for name, value in self.chain.metrics[descriptor.uid].snapshot().items():
                result[f"{descriptor.uid}.{name}"] = value
        return result


@dataclass
class _Share:
    """A channel's share of the running epoch."""

    channel: Channel
    header: ChannelHeader
    load_body: Callable[[], bytes | None]
    stamp: EpochStamp
    gate: InputGate
    steps: Iterator[Step] | None = None
    restored: list[Any] = field(default_factory=list)
    records: int = 0


class ChannelTask(Task):
    """A subtask of a vertex behind a shuffle."""

    def __init__(self, job: JobDescriptor, vertex: VertexDescriptor, subtask: int) -> None:
        super().__init__(job, vertex, subtask)
        self._unfinished = {channel.number for channel in vertex.channels() if channel.subtask == subtask}
        self._opened = False
        self._share: _Share | None = None
        self._subtask_state_token: bytes | None = None
        #: of the running epoch and channel, for the changelog
        self._changes: list[Change] = []
        if self.keyed_state is not None:
            self.keyed_state.recording, self.keyed_state.uid = job.settings.changelog, vertex.head.uid
        self._declarations = DeclarationsOfTask(vertex.head.uid, vertex.key_type, self.keyed_state, self.chain.states)

    @property
    def share(self) -> _Share:
        """What the task is working on."""
        assert self._share is not None, "no channel has been assigned"
        return self._share

    def assign(
        self, channel: Channel, header: ChannelHeader, load_body: Callable[[], bytes | None], stamp: EpochStamp
    ) -> None:
        """The next channel. Nothing is decoded yet. Its time stands still where the clock went back."""
        stamp = replace(stamp, time_ms=max(stamp.time_ms, header.processing_time_ms))
        gate = InputGate(
            self.vertex.inputs, header.origins, header.watermark_ms, header.idle, stamp.time_ms, self.subtask
        )
        self._share = _Share(channel, header, load_body, stamp, gate)

    def add_records(self, buffers: Iterable[Buffer]) -> None:
        """Data to the gate; the rows of a savepoint are kept for `restore`."""
        share = self.share
        for buffer in buffers:
            if buffer.header.kind is BufferKind.STATE:
                share.restored.extend(decode_rows(buffer.payload, self.job.classes))
            elif buffer.header.kind is not BufferKind.HEARTBEAT:
                share.gate.add(buffer)

    def restore(self) -> None:
        """Make the channel's state current, and open the chain the first time."""
        share = self.share
        header, channel = share.header, share.channel
        if channel.kind is ChannelKind.KEY_GROUP and self.keyed_state is not None:
            self.keyed_state.activate(channel.number, share.load_body)
            self.keyed_state.set_timer_hint(header.next_event_timer_ms, header.next_processing_timer_ms)
        elif self.keyed_state is not None:
            self._leave_key_groups(self.keyed_state)
        if channel.kind is ChannelKind.SUBTASK and self._subtask_state_token != header.token:
            stored = decode_operator_states(share.load_body(), self.job.classes)
            for uid, state in self.chain.states.items():
                state.restore(stored.get(uid, {}))
        if share.restored:
            keyed = self.keyed_state if channel.kind is ChannelKind.KEY_GROUP else None
            uid, number = self.vertex.head.uid, channel.number
            take_in_rows(share.restored, self.chain.states, uid, keyed, number, self.job.classes)
        if not self._opened:
            self._opened = True
            self.chain.open()
        self._origin, self._part, self._sink_sequence = origin_name(self.vertex.id, channel.number), 0, 0
        self._time_ms = share.stamp.time_ms
        self.chain.begin(share.stamp.epoch, channel.number, share.stamp.time_ms, header.watermark_ms, header.saved)
        self.chain.begin_origin(self._origin)

    @staticmethod
    def _leave_key_groups(keyed_state: HeapKeyedStateBackend) -> None:
        """On the subtask channel there is no keyed state, and no timer of the key group that was served last."""
        keyed_state.activate(NO_KEY_GROUP, lambda: None)
        keyed_state.set_timer_hint(None, None)

    def punctuate_processing_time(self) -> None:
        """Fire the processing-time timers that are due at the epoch's time."""
        for operator in self.chain.operators:
            operator.advance_processing_time(self.share.stamp.time_ms)

    def process(self, max_num_records: int) -> bool:
        """Consume input in time order, firing event-time timers as the watermark rises, until about that many records
        were read; False when there is no more in this epoch."""
        share, head = self.share, self.chain.head
        if share.steps is None:
            share.steps = share.gate.steps()
        budget = max_num_records
        for step in share.steps:
            if isinstance(step, Records):
                share.records += len(step.values)
                budget -= len(step.values)
                head.process_batch(step.values, step.timestamps, step.input_index)
                if budget <= 0:
                    return True
            elif isinstance(step, WatermarkStep):
                self.chain.process_watermark(step.watermark_ms)
            else:
                head.process_status(step.idle)
        return False

    def prepare_commit(self) -> ChannelResult:
        """The barrier: all input of the epoch is consumed; snapshot."""
        share = self.share
        finished = share.gate.valve.combined_ms == MAX_WATERMARK_MS
        if finished:
            self.chain.finish()
        saved = self.chain.end()
        event_timer, processing_timer, body, written = self._snapshot(share)
        after = share.header.with_changes(
            token=os.urandom(8),
            epoch=share.stamp.epoch,
            watermark_ms=share.gate.valve.combined_ms,
            idle=share.gate.idle,
            finished=finished,
            origins=share.gate.progress(),
            next_event_timer_ms=event_timer,
            next_processing_timer_ms=processing_timer,
            processing_time_ms=share.stamp.time_ms,
            saved=saved,
        )
        result = ChannelResult(after, body, written)
        self._report(self._report_of(share, result))
        if self.job.settings.changelog:
            self._log_changes(share, result)
        return result

    def _log_changes(self, share: _Share, result: ChannelResult) -> None:
        """Tell what the epoch has changed in the channel."""
        changes, self._changes = self._changes, []
        if result.header.watermark_ms != share.header.watermark_ms:
            number = share.channel.number
            changes.append(watermark_change(self.vertex.head.uid, number, result.header.watermark_ms))
        if changes:
            data = encode_changes(share.stamp.epoch, changes, self.job.classes)
            self._rows.append((CHANGELOG_VERTEX, self.subtask, data))

    def _snapshot(self, share: _Share) -> tuple[int | None, int | None, bytes | None, bool]:
        if share.channel.kind is ChannelKind.KEY_GROUP and self.keyed_state is not None:
            self._check_operator_state()
            event_timer, processing_timer = self.keyed_state.next_timer_ms()
            written = self.keyed_state.changed() or bool(share.restored)
            body = self.keyed_state.snapshot() if written else None
            self._changes = self.keyed_state.take_changes()
            return event_timer, processing_timer, body, written
        if share.restored or any(state.changed for state in self.chain.states.values()):
            if self.job.settings.changelog:
                for uid, state in self.chain.states.items():
                    self._changes.extend(operator_changes(uid, share.channel.number, state))
            return None, None, encode_operator_states(self.chain.states, self.job.classes), True
        return None, None, None, False

    def _check_operator_state(self) -> None:
        """The subtask channel has been written already: what changes now would be lost with this worker."""
        for uid, state in self.chain.states.items():
            if state.changed:
                raise InternalError(
                    "operator state was changed while a key group was processed",
                    where=f"task '{self.name}' (uid {uid})",
                    expected="changes on the subtask channel only",
                    hint="please report this",
                )

    def post_commit(self, result: ChannelResult) -> None:
        """The result was handed to the state store."""
        channel = self.share.channel
        if channel.kind is ChannelKind.SUBTASK:
            self._subtask_state_token = result.header.token
        self._share = None
        if result.header.finished:
            self._unfinished.discard(channel.number)
            if not self._unfinished:
                self.close()

    def _report_of(self, share: _Share, result: ChannelResult) -> TaskReport:
        return TaskReport(
            vertex=self.vertex.id,
            channel=share.channel.number,
            subtask=self.subtask,
            records_in=share.records,
            records_out=self.chain.records_out(),
            watermark_ms=result.header.watermark_ms,
            finished=result.header.finished,
            state_bytes=len(result.body) if result.body else 0,
            metrics=self._metrics(),
            worker=WORKER,
            place=share.stamp.place,
            processing_time_ms=share.stamp.time_ms,
            restored_rows=len(share.restored),
            declared=self._declarations.new(),
        )
