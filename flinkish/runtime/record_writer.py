"""The sending side of an edge: puts records into buckets per subtask and makes buffers of them.

Watermarks stand between the records of each bucket, so a receiver sees them in the order in which the sender did.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.runtime.buffer import (
    BufferHeader,
    BufferKind,
    encode,
    encode_elements,
)
from flinkish.runtime.deployment import EdgeDescriptor
from flinkish.runtime.input_gate import by_edge
from flinkish.runtime.partitioners import Bucket, Sender, Spread, reachable
from flinkish.runtime.pickling import dumps

#: Receives (target vertex, target subtask, encoded buffer).
Emit = Callable[[int, int, bytes], None]

#: About so many records are in a buffer, if the receiver has few subtasks. A receiver works on a buffer at a time: what
#: it passes over again and again, from one operator to the next, should fit into the cache of a core.
_RECORDS_IN_BUFFER = 1_250

#: How many records are looked at before the first buffer of an epoch, to find out how large they are.
_SAMPLE = 8


#: Watermarks that are noted before they are written into the buckets: what is noted takes memory, too.
_NOTED_WATERMARKS = 64


class _OriginState:
    """What a writer knows of one origin within the epoch."""

    __slots__ = ("active", "begins_ms", "idle", "part", "sequence", "spread", "watermark_ms")

    def __init__(self, part: int, spread: Spread) -> None:
        self.part = part
        self.spread = spread
        self.sequence = 0
        #: receiver -> ``begins_ms`` of its next buffer; none before its first one
        self.begins_ms: dict[int, int] = {}
        self.watermark_ms = MIN_TIMESTAMP_MS
        #: None: as in the epoch before, as far as this one knows
        self.idle: bool | None = None
        self.active = False


class RecordWriter:
    """Writes one edge. One writer per (subtask, edge); the origin changes with the split.

    ``from_source``: the origins are splits, which any subtask of the source may read. Every subtask then hears of all
    their watermarks, also where the records go to one subtask only: a receiver could not tell else whether a split that
    it has never heard of will come, nor that the source has ended.

    ``max_records`` and ``max_bytes`` bound what the buffers of all subtasks hold together, encoded. How many records
    fit is estimated anew in each epoch: an epoch that runs again is cut into the same buffers.
    """

    def __init__(
        self,
        edge: EdgeDescriptor,
        sender: Sender,
        emit: Emit,
        max_records: int,
        max_bytes: int,
        from_source: bool = False,
    ) -> None:
        self._edge = edge
        self._emit = emit
        self._max_records = min(max_records, _RECORDS_IN_BUFFER * edge.target_parallelism)
        self._max_bytes = max_bytes
        #: most records until the next buffers are sent; None: not estimated yet
        self._limit: int | None = None
        self._sender = sender
        self._spread = edge.partitioner.bind(sender)
        self._epoch = 0
        self._buckets = [Bucket() for _ in range(edge.target_parallelism)]
        self._reach = range(edge.target_parallelism) if from_source else reachable(edge.partitioner, sender)
        #: what the buckets in reach hold
        self._values = [self._buckets[index].values for index in self._reach]
        #: watermarks that are not written into the buckets yet, and how many records each bucket held at each of them
        self._watermarks_ms: list[int] = []
        self._held: list[list[int]] = []
        self._pending = 0
        self._timestamped: bool | None = None
        self._origins: dict[str, _OriginState] = {}
        self._origin = ""
        self._state = _OriginState(0, self._spread)
        self._records = 0

    def take_count(self) -> int:
        """Records written since the last call (a broadcast record counts once)."""
        count, self._records = self._records, 0
        return count

    def begin_epoch(self, epoch: int) -> None:
        """What comes next belongs to this epoch."""
        self._epoch = epoch

    def begin_origin(self, origin: str, part: int = 0) -> None:
        """What comes next belongs to this origin."""
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
        """The origin has records, whether or not any of them comes this way."""
        self._state.active = True

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Send a batch."""
        if (timestamps is not None) is not self._timestamped:
            timestamps = self._align_timestamps(values, timestamps)
        self._state.active = True
        self._records += len(values)
        limit = self._limit or self._first_limit(values)
        if len(values) <= limit:
            self._collect(values, timestamps, limit)
            return
        for begin in range(0, len(values), limit):
            end = begin + limit
            self._collect(values[begin:end], None if timestamps is None else timestamps[begin:end], limit)

    def _collect(self, values: list[Any], timestamps: list[int] | None, limit: int) -> None:
        self._state.spread(values, timestamps, self._buckets)
        self._pending += len(values)
        if self._pending >= limit:
            self._flush(at_barrier=False)

    def _first_limit(self, values: list[Any]) -> int:
        sample = values[:_SAMPLE]
        limit = self._limit_of(sum(len(dumps(value)) for value in sample), len(sample))
        if sample:
            self._limit = limit
        return limit

    def _limit_of(self, size: int, records: int) -> int:
        """How many records may wait, when so many have taken so many bytes."""
        return max(1, min(self._max_records, self._max_bytes * records // max(1, size)))

    def _align_timestamps(self, values: list[Any], timestamps: list[int] | None) -> list[int] | None:
        """All records of a buffer have timestamps, or none has."""
        if self._timestamped is None:
            self._timestamped = timestamps is not None
            return timestamps
        if timestamps is None:
            return [MIN_TIMESTAMP_MS] * len(values)
        self._flush(at_barrier=False)
        self._timestamped = True
        return timestamps

    def emit_watermark(self, watermark_ms: int) -> None:
        """Stamp a watermark into every bucket."""
        state = self._state
        if watermark_ms <= state.watermark_ms and not state.idle:
            return
        state.watermark_ms = max(watermark_ms, state.watermark_ms)
        state.idle = False
        self._note_watermark(state.watermark_ms)

    def _note_watermark(self, watermark_ms: int) -> None:
        """A watermark stands in every bucket behind what it holds now. That is noted here for all of them at once, and
        written into each when it is sent (`_stamp`): with hundreds of receivers most buckets get a record or none
        between two watermarks, and a watermark that the next one follows at once is not told at all."""
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
            # of those at one position the last one; events of before stand at lower positions, or are of another kind
            stamps, bucket = dict(zip(positions, self._watermarks_ms)), self._buckets[index]
            bucket.positions.extend(stamps)
            bucket.events.extend(stamps.values())
        self._held.clear()
        self._watermarks_ms.clear()

    def emit_status(self, idle: bool) -> None:
        """Say that this stream is idle, or active again."""
        if idle == self._state.idle:
            return
        self._state.idle = idle
        self._stamp()
        for index in self._reach:
            self._buckets[index].add_status(idle)

    def end_epoch(self) -> None:
        """The barrier: send what is left, and each subtask the final watermark of each origin."""
        current = self._origins.pop(self._origin, None)
        # the current origin first: what it has still to send and its last words go into one buffer
        last = [] if current is None else [(self._origin, current)]
        for origin, state in [*last, *self._origins.items()]:
            self._origin, self._state = origin, state
            told = self._edge.always_call or state.watermark_ms > MIN_TIMESTAMP_MS or state.idle is not None
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
        """Forget everything: the attempt failed."""
        for bucket in self._buckets:
            bucket.clear()
        self._held.clear()
        self._watermarks_ms.clear()
        self._pending = 0
        self._forget()

    def _forget(self) -> None:
        """The next epoch starts afresh: what it sends must not depend on what was sent before."""
        self._origins = {}
        self._origin = ""
        self._timestamped = None
        self._limit = None

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
        """Send a bucket as a buffer; returns the size of what it held."""
        edge, state = self._edge, self._state
        timestamps = bucket.timestamps if self._timestamped else None
        payload = encode_elements(bucket.values, timestamps, bucket.positions, bucket.events)
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
            # every watermark is stamped into all buckets, so the receiver knows the last one now
            state.begins_ms[index] = max(state.watermark_ms, MIN_TIMESTAMP_MS + 1)
        state.sequence += 1
        self._emit(edge.target, index, encode(header, payload))
        bucket.clear()
        return len(payload)
