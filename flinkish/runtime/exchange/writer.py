"""The sending side of an edge: puts records into one bucket per subtask and makes buffers of the buckets.

Each bucket keeps the watermarks between its records, so a receiver sees them in the order in which the sender did.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.buffer import (
    COLUMN_ROWS,
    BufferHeader,
    BufferKind,
    encode,
    encode_elements,
    is_columns,
)
from flinkish.runtime.exchange.gate import by_edge
from flinkish.runtime.exchange.partitioners import Bucket, EdgeDescriptor, KeyGroupSpread, Sender, Spread, reachable
from flinkish.runtime.stored.pickling import to_worker

#: A callable that is given (target vertex, target subtask, encoded buffer).
Emit = Callable[[int, int, bytes], None]

#: Approximate number of records in a buffer, if the receiver has few subtasks. A receiver processes a buffer at a time
#: and traverses it once per operator, so a buffer should fit into the cache of a core.
_RECORDS_IN_BUFFER = 1_250

#: Number of records that are pickled before the first buffer of an epoch, to estimate the size of records.
_SAMPLE = 8


#: Number of watermarks that are noted before they are written into the buckets; noted watermarks take memory, too.
_NOTED_WATERMARKS = 64


class _OriginState:
    """The state of a writer for one origin within the epoch."""

    __slots__ = ("active", "begins_ms", "idle", "part", "sequence", "spread", "watermark_ms")

    def __init__(self, part: int, spread: Spread) -> None:
        self.part = part
        self.spread = spread
        self.sequence = 0
        #: receiver -> ``begins_ms`` of its next buffer; a receiver is missing before its first buffer
        self.begins_ms: dict[int, int] = {}
        self.watermark_ms = MIN_TIMESTAMP_MS
        #: the status sent in this epoch; None if none was sent, so that the status of the epoch before still holds
        self.idle: bool | None = None
        self.active = False


class RecordWriter:
    """Sends the records, watermarks and statuses of one subtask along one edge; the origin changes with the split.

    ``from_source`` says that the origins are splits, which any subtask of the source may read. All subtasks of the
    receiver then get the watermarks of all splits, even if the records go to one subtask only: otherwise a receiver
    could not tell whether a split that it has never heard of will come, nor that the source has ended. With
    ``in_event_time`` they hear of each active split, also before its first watermark: it holds theirs back.

    ``max_records`` and ``max_bytes`` bound the contents of the buffers of all subtasks together, in encoded form. The
    number of records that fit is estimated anew in each epoch, so an epoch that runs again is cut into the same
    buffers.
    """

    def __init__(
        self,
        edge: EdgeDescriptor,
        sender: Sender,
        emit: Emit,
        max_records: int,
        max_bytes: int,
        from_source: bool = False,
        in_event_time: bool = False,
    ) -> None:
        self._edge = edge
        self._emit = emit
        self._max_records = min(max_records, _RECORDS_IN_BUFFER * edge.target_parallelism)
        self._max_bytes = max_bytes
        #: number of records after which buffers are sent; None if not estimated yet
        self._limit: int | None = None
        self._sender = sender
        self._spread = edge.partitioner.bind(sender)
        self._in_event_time = in_event_time
        #: whether the records are batches of columns
        self._columns = False
        self._by_key = self._spread if isinstance(self._spread, KeyGroupSpread) else None
        self._epoch = 0
        self._buckets = [Bucket() for _ in range(edge.target_parallelism)]
        self._reach = range(edge.target_parallelism) if from_source else reachable(edge.partitioner, sender)
        #: the lists of records of the buckets in reach
        self._values = [self._buckets[index].values for index in self._reach]
        #: watermarks that are not in the buckets yet, and the number of records that each bucket held at each of them
        self._watermarks_ms: list[int] = []
        self._held: list[list[int]] = []
        self._pending = 0
        self._timestamped: bool | None = None
        self._origins: dict[str, _OriginState] = {}
        self._origin = ""
        self._state = _OriginState(0, self._spread)
        #: number of records written so far; a broadcast record counts once
        self.records = self._taken = 0

    def take_count(self) -> int:
        """The number of records written since the last call."""
        count, self._taken = self.records - self._taken, self.records
        return count

    def begin_epoch(self, epoch: int) -> None:
        """Attribute all that is written from now on to this epoch."""
        self._epoch = epoch

    def begin_origin(self, origin: str, part: int = 0) -> None:
        """Attribute all that is written from now on to this origin; buffers of another origin are sent before."""
        origin = by_edge(origin, self._edge.edge)
        if origin == self._origin and origin in self._origins:
            return
        self._flush(at_barrier=False)
        self._origin = origin
        state = self._origins.get(origin)
        if state is None:
            state = self._origins[origin] = _OriginState(part, self._spread_of(origin, part))
        self._state = state

    def _spread_of(self, origin: str, part: int) -> Spread:
        if not self._edge.partitioner.stateful:
            return self._spread
        unit = origin.rpartition("/")[2]
        number = int(unit) if unit.isdecimal() else zlib.crc32(origin.encode())
        return self._edge.partitioner.bind(replace(self._sender, turn=self._epoch + number + part))

    def mark_active(self) -> None:
        """Mark the origin as active: it has records, even if none of them is sent along this edge."""
        self._state.active = True

    def collect(self, values: Any, timestamps: list[int] | None) -> None:
        """Put a batch into the buckets, and send these as buffers whenever they are full."""
        if is_columns(values) and not self._columns:
            self._take_columns()
        if (timestamps is not None) is not self._timestamped:
            timestamps = self._align_timestamps(values, timestamps)
        if self._by_key is not None and self._by_key.must_send_keys(values):
            # of the records of a buffer all have keys, or none has
            self._flush(at_barrier=False)
            self._by_key.sends_keys = True
        self._state.active = True
        self.records += len(values)
        limit = self._limit or self._first_limit(values)
        if len(values) <= limit:
            self._collect(values, timestamps, limit)
            return
        for begin in range(0, len(values), limit):
            end = begin + limit
            self._collect(values[begin:end], None if timestamps is None else timestamps[begin:end], limit)

    def _take_columns(self) -> None:
        """Send batches of columns from now on: operators on columns emit nothing else."""
        self._columns = True
        self._max_records = COLUMN_ROWS // 2 * self._edge.target_parallelism
        for bucket in self._buckets:
            bucket.take_columns()
        self._values = [self._buckets[index].values for index in self._reach]

    def _collect(self, values: Any, timestamps: list[int] | None, limit: int) -> None:
        self._state.spread(values, timestamps, self._buckets)
        self._pending += len(values)
        if self._pending >= limit:
            self._flush(at_barrier=False)

    def _first_limit(self, values: Any) -> int:
        if self._columns:
            limit = self._limit = self._limit_of(values.nbytes, len(values))
            return limit
        sample = values[:_SAMPLE]
        limit = self._limit_of(sum(len(to_worker(value)) for value in sample), len(sample))
        if sample:
            self._limit = limit
        return limit

    def _limit_of(self, size: int, records: int) -> int:
        """The number of records that the buckets may hold, given that ``records`` of them took ``size`` bytes."""
        return max(1, min(self._max_records, self._max_bytes * records // max(1, size)))

    def _align_timestamps(self, values: Any, timestamps: list[int] | None) -> list[int] | None:
        """Make sure that all records of a buffer have timestamps, or none of them has."""
        if self._timestamped is None:
            self._timestamped = timestamps is not None
            return timestamps
        if timestamps is None:
            return [MIN_TIMESTAMP_MS] * len(values)
        self._flush(at_barrier=False)
        self._timestamped = True
        return timestamps

    def emit_watermark(self, watermark_ms: int) -> None:
        """Write a watermark into every bucket in reach, unless it does not advance the stream."""
        state = self._state
        if watermark_ms <= state.watermark_ms and not state.idle:
            return
        state.watermark_ms = max(watermark_ms, state.watermark_ms)
        state.idle = False
        self._note_watermark(state.watermark_ms)

    def _note_watermark(self, watermark_ms: int) -> None:
        """Note that a watermark follows the present content of every bucket. `_stamp` writes the noted watermarks into
        the buckets before these are sent: with hundreds of receivers most buckets get one record or none between two
        watermarks, and a watermark with no record before the next one need not be sent at all."""
        held = list(map(len, self._values))
        if self._held and held == self._held[-1]:
            self._watermarks_ms[-1] = watermark_ms
        else:
            if len(self._held) == _NOTED_WATERMARKS:
                self._stamp()
            self._held.append(held)
            self._watermarks_ms.append(watermark_ms)

    def _stamp(self) -> None:
        """Write the noted watermarks into the buckets."""
        if not self._held:
            return
        for index, positions in zip(self._reach, zip(*self._held)):
            # only the last one at each position; earlier events are at lower positions, or are of another kind
            stamps, bucket = dict(zip(positions, self._watermarks_ms)), self._buckets[index]
            bucket.positions.extend(stamps)
            bucket.events.extend(stamps.values())
        self._held.clear()
        self._watermarks_ms.clear()

    def emit_status(self, idle: bool) -> None:
        """Write into every bucket in reach that this stream is idle, or active again."""
        if idle == self._state.idle:
            return
        self._state.idle = idle
        self._stamp()
        for index in self._reach:
            self._buckets[index].add_status(idle)

    def end_epoch(self) -> None:
        """Handle the barrier: send all buckets, and to each subtask in reach the final watermark of each origin."""
        current = self._origins.pop(self._origin, None)
        # the current origin comes first, so that its remaining records and final events share one buffer
        last = [] if current is None else [(self._origin, current)]
        for origin, state in [*last, *self._origins.items()]:
            self._origin, self._state = origin, state
            told = self._edge.always_call or state.watermark_ms > MIN_TIMESTAMP_MS or state.idle is not None
            told = told or state.active and self._in_event_time
            if told:
                self._final_events(state)
            self._flush(at_barrier=told, last=True)
        self._forget()

    def _final_events(self, state: _OriginState) -> None:
        if state.watermark_ms > MIN_TIMESTAMP_MS:
            self._note_watermark(state.watermark_ms)
        self._stamp()
        if state.active or state.idle is not None:
            for index in self._reach:
                self._buckets[index].add_status(bool(state.idle))

    def discard(self) -> None:
        """Drop everything that was not sent, because the attempt has failed."""
        for bucket in self._buckets:
            bucket.clear()
        self._held.clear()
        self._watermarks_ms.clear()
        self._pending = 0
        self._forget()

    def _forget(self) -> None:
        """Reset the state of the epoch: what the next epoch sends must not depend on what was sent before."""
        self._origins = {}
        self._origin = ""
        self._timestamped = None
        self._limit = None
        if self._by_key is not None:
            self._by_key.sends_keys = False

    def _flush(self, at_barrier: bool, last: bool = False) -> None:
        self._stamp()
        size = records = 0
        for index in self._reach:
            bucket = self._buckets[index]
            if at_barrier or bucket.values or bucket.events:
                records += len(bucket.values)
                size += self._send(index, bucket, last)
        if records:
            self._limit = self._limit_of(size, records)
        self._pending = 0

    def _send(self, index: int, bucket: Bucket, last: bool) -> int:
        """Send the content of a bucket as a buffer; returns the size of the payload."""
        edge, state = self._edge, self._state
        timestamps = bucket.timestamps if self._timestamped else None
        values = bucket.values.joined() if self._columns else bucket.values
        payload = encode_elements(values, timestamps, bucket.positions, bucket.events, bucket.keys or None)
        header = BufferHeader(
            BufferKind.DATA,
            edge.target,
            index,
            edge.input_index,
            self._origin,
            state.part,
            state.sequence,
            len(bucket.values),
            state.begins_ms.get(index, MIN_TIMESTAMP_MS),
            last,
        )
        if not last:
            # every watermark is written into all buckets in reach, so the receiver knows the last one now
            state.begins_ms[index] = max(state.watermark_ms, MIN_TIMESTAMP_MS + 1)
        state.sequence += 1
        self._emit(edge.target, index, encode(header, payload))
        bucket.clear()
        return len(payload)
