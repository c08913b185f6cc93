"""One subtask of a vertex, at work on its channels (Flink's StreamTask).

Within an epoch a channel takes this way: rows of a savepoint first, if any; due processing-time timers; then the steps
of its input gate, in which event-time timers fire as the watermark rises; processing-time timers that fell due in
between; at the end of all input ``finish``; then the barrier.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from flinkish.core.time_limits import MAX_WATERMARK_MS
from flinkish.runtime.buffer import Buffer, BufferHeader, BufferKind, encode
from flinkish.runtime.channel_header import ChannelHeader
from flinkish.runtime.deployment import REPORT_VERTEX, Channel, ChannelKind, JobDescriptor, VertexDescriptor
from flinkish.runtime.input_gate import InputGate, Records, StatusStep, WatermarkStep, origin_name
from flinkish.runtime.operator_chain import OperatorChain
from flinkish.runtime.operators.sink_writer import SinkWriterOperator, encode_committables
from flinkish.runtime.report import TaskReport
from flinkish.runtime.state.heap_keyed_state_backend import HeapKeyedStateBackend
from flinkish.runtime.state.operator_state import decode_operator_states, encode_operator_states
from flinkish.runtime.state.restore import take_in_rows

#: (vertex, channel, encoded buffer); sinks and reports have numbers of their own below zero
Row = tuple[int, int, bytes]

WORKER = f"{socket.gethostname()}:{os.getpid()}"


def sink_vertex(sink_id: int) -> int:
    """The vertex number under which rows for a sink travel."""
    return -2 - sink_id


@dataclass(frozen=True)
class EpochStamp:
    """Number and processing time of an epoch."""

    epoch: int
    time_ms: int


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
        self.keyed_state = HeapKeyedStateBackend(where=f"task '{self.name}'") if vertex.keyed else None
        self.chain = OperatorChain(vertex, subtask, job.attempt, job.settings, self._emit, self.keyed_state)
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
            data = encode(header, encode_committables(committables))
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

    def dispose(self) -> None:
        """Release everything."""
        self.chain.dispose()

    def _metrics(self) -> dict[str, float]:
        result: dict[str, float] = {}
        for descriptor in self.vertex.operators:
            for name, value in self.chain.metrics[descriptor.uid].snapshot().items():
                result[f"{descriptor.uid}.{name}"] = value
        return result


class ChannelTask(Task):
    """A subtask of a vertex behind a shuffle."""

    def __init__(self, job: JobDescriptor, vertex: VertexDescriptor, subtask: int) -> None:
        super().__init__(job, vertex, subtask)
        self._unfinished = {channel.number for channel in vertex.channels() if channel.subtask == subtask}
        self._opened = False

    def open(self) -> None:
        """Open the chain, once."""
        if not self._opened:
            self._opened = True
            self.chain.open()

    def run_channel(
        self,
        channel: Channel,
        header: ChannelHeader,
        load_body: Callable[[], bytes | None],
        buffers: Iterable[Buffer],
        stamp: EpochStamp,
    ) -> ChannelResult:
        """A channel's share of one epoch."""
        gate = InputGate(self.vertex.inputs, header.origins, header.watermark_ms, header.idle, stamp.time_ms)
        restored = self._sort(buffers, gate)
        self._activate(channel, header, load_body)
        if restored:
            take_in_rows(restored, self.chain, self.keyed_state if channel.kind is ChannelKind.KEY_GROUP else None)
        self.open()
        self._origin, self._part, self._sink_sequence = origin_name(self.vertex.id, channel.number), 0, 0
        self.chain.begin(stamp.epoch, channel.number, stamp.time_ms, header.watermark_ms, header.saved)
        self.chain.begin_origin(self._origin)
        records = 0 if header.finished else self._consume(gate, stamp)
        finished = gate.valve.combined_ms == MAX_WATERMARK_MS
        if finished and not header.finished:
            self.chain.finish()
        result = self._barrier(channel, header, gate, stamp, finished, bool(restored))
        self._report(self._report_of(channel, result, records, len(restored), stamp))
        if finished:
            self._finish(channel)
        return result

    @staticmethod
    def _sort(buffers: Iterable[Buffer], gate: InputGate) -> list[Any]:
        """Data to the gate; the rows of a savepoint are returned."""
        restored: list[Any] = []
        for buffer in buffers:
            if buffer.header.kind is BufferKind.STATE:
                restored.extend(pickle.loads(buffer.payload))
            else:
                gate.add(buffer)
        return restored

    def _activate(self, channel: Channel, header: ChannelHeader, load_body: Callable[[], bytes | None]) -> None:
        if channel.kind is ChannelKind.KEY_GROUP and self.keyed_state is not None:
            self.keyed_state.activate(channel.number, load_body)
            self.keyed_state.set_timer_hint(header.next_event_timer_ms, header.next_processing_timer_ms)
        elif self._holds_token != header.token:
            stored = decode_operator_states(load_body())
            for uid, state in self.chain.states.items():
                state.restore(stored.get(uid, {}))

    _holds_token: bytes | None = None

    def _consume(self, gate: InputGate, stamp: EpochStamp) -> int:
        head = self.chain.head
        self._fire_processing_timers(stamp)
        records = 0
        for step in gate.steps():
            if isinstance(step, Records):
                records += len(step.values)
                head.process_batch(step.values, step.timestamps, step.input_index)
            elif isinstance(step, WatermarkStep):
                self.chain.process_watermark(step.watermark_ms)
            elif isinstance(step, StatusStep):
                head.process_status(step.idle)
        self._fire_processing_timers(stamp)
        return records

    def _fire_processing_timers(self, stamp: EpochStamp) -> None:
        for operator in self.chain.operators:
            operator.advance_processing_time(stamp.time_ms)

    def _barrier(
        self,
        channel: Channel,
        header: ChannelHeader,
        gate: InputGate,
        stamp: EpochStamp,
        finished: bool,
        restored: bool,
    ) -> ChannelResult:
        saved = self.chain.end()
        event_timer, processing_timer, body, written = None, None, None, False
        if channel.kind is ChannelKind.KEY_GROUP and self.keyed_state is not None:
            event_timer, processing_timer = self.keyed_state.next_timer_ms()
            written = self.keyed_state.changed() or restored
            body = self.keyed_state.snapshot() if written else None
        elif any(state.changed for state in self.chain.states.values()) or restored:
            written, body = True, encode_operator_states(self.chain.states)
        token = os.urandom(8)
        self._holds_token = token
        after = header.with_changes(
            token=token,
            epoch=stamp.epoch,
            watermark_ms=gate.valve.combined_ms,
            idle=gate.idle,
            finished=finished,
            origins=gate.progress(),
            next_event_timer_ms=event_timer,
            next_processing_timer_ms=processing_timer,
            saved=saved,
        )
        return ChannelResult(after, body, written)

    def _report_of(
        self, channel: Channel, result: ChannelResult, records: int, restored: int, stamp: EpochStamp
    ) -> TaskReport:
        return TaskReport(
            vertex=self.vertex.id,
            channel=channel.number,
            subtask=self.subtask,
            records_in=records,
            records_out=self.chain.records_out(),
            watermark_ms=result.header.watermark_ms,
            finished=result.header.finished,
            state_bytes=len(result.body) if result.body else 0,
            metrics=self._metrics(),
            worker=WORKER,
            processing_time_ms=stamp.time_ms,
            restored_rows=restored,
        )

    def _finish(self, channel: Channel) -> None:
        """When the last channel of the subtask has ended, so has the task."""
        self._unfinished.discard(channel.number)
        if not self._unfinished:
            self.chain.close()
            self.chain.dispose()
