"""Buffers and steps. A buffer is many stream elements for one subtask, as one binary value (Flink's network buffer);
the steps that an input gate tells a task to take are made of its records and events, small batches joined.

The header of a buffer can be read without decoding the payload. The encoded form begins with the buffer's place in the
order in which its receiver consumes buffers (`place`), so sorting encoded buffers as bytes, as Spark does between two
levels, brings them into that order.

The payload is pickle protocol 5 of parallel lists: measured at 0.05 to 0.1 microseconds a record each way, against
several times that for one object per record. A batch of columns stands in it as Arrow's stream of it.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.errors import CorruptStateError
from flinkish.runtime.stored.pickling import to_worker

#: Version of the wire format. Buffers live for one epoch only, so there is no need to read older ones.
WIRE_VERSION = 4


class BufferKind(IntEnum):
    """The kind of content that a buffer holds. A receiver consumes the kinds in the order of their numbers."""

    #: the header and body of a subtask's state, as another query of the job has stored them
    TASK = 0
    #: rows of a savepoint for the receiving subtask, restored before any data is processed
    STATE = 1
    #: no content: calls the subtask in an epoch without data
    HEARTBEAT = 2
    DATA = 3
    #: committables for a sink
    COMMITTABLES = 4
    #: a reference to committables that lie in a file
    COMMITTABLES_IN_FILE = 5
    #: the report of a task on an epoch
    REPORT = 6


_KINDS = tuple(BufferKind)


class BufferHeader(NamedTuple):
    """The sender, the receiver and the position of a buffer. ``origin`` is a source split or ``vertex/subtask``;
    ``part`` tells apart several readers of one origin within an epoch; ``sequence`` counts the buffers of
    (origin, part).

    ``begins_ms`` is the highest watermark that (origin, part) has sent to the receiver in this epoch before this
    buffer. It is `MIN_TIMESTAMP_MS` in the first buffer of (origin, part), and in no other one. If ``last`` is True,
    (origin, part) sends the receiver nothing more in this epoch; False leaves that open."""

    kind: BufferKind
    vertex: int
    subtask: int
    input_index: int
    origin: str
    part: int
    sequence: int
    records: int
    begins_ms: int = MIN_TIMESTAMP_MS
    last: bool = False


def is_columns(values: Any) -> bool:
    """Whether the records of a batch are a batch of columns (`flinkish.core.column_batch.ColumnBatch`), which knows
    Arrow, and not a list."""
    return not isinstance(values, list) and hasattr(values, "kinds")


class ColumnSlices:
    """Batches of columns that follow each other, and become one when they are handed on."""

    __slots__ = ("_size", "_slices")

    def __init__(self, *slices: Any) -> None:
        self._slices = list(slices)
        self._size = sum(map(len, slices))

    def __len__(self) -> int:
        return self._size

    def extend(self, batch: Any) -> None:
        """Append the rows of a batch."""
        self._slices.append(batch)
        self._size += len(batch)

    def clear(self) -> None:
        """Forget all batches."""
        self._slices, self._size = [], 0

    def joined(self) -> Any:
        """The batch of all rows; an empty list if there are none."""
        return self._slices[0].joined(self._slices) if self._slices else []


class Elements(NamedTuple):
    """The decoded payload of a DATA buffer: records, and the events between them. An event is either a watermark in
    milliseconds or a bool that says whether the stream is idle from there on; it comes before the record at its
    position. ``keys``: the keys of the records, if they travel with them."""

    values: Any
    timestamps: list[int] | None
    positions: list[int]
    events: list[int | bool]
    keys: list[Any] | None = None


class Buffer(NamedTuple):
    """A decoded header with the payload, which is still encoded."""

    header: BufferHeader
    #: of records, a view of the encoded buffer
    payload: Any


#: The place of a buffer in the order in which its receiver consumes buffers: kind, begins_ms, origin, part, sequence.
Place = tuple[int, int, str, int, int]


def place(header: BufferHeader) -> Place:
    """The place of a buffer in the order in which its receiver consumes buffers, which is that of the encoded forms."""
    return (header.kind, header.begins_ms, header.origin, header.part, header.sequence)


# big-endian and unsigned, because these numbers are compared as bytes
_BEFORE_ORIGIN = struct.Struct(">BBQ")
_BEHIND_ORIGIN = struct.Struct(">IIIiiH?")
#: What a payload with columns begins with: 0, which no pickle does, and the length of the pickle that follows. Behind
#: it, at a multiple of so many bytes, is Arrow's stream.
_COLUMNS, ALIGNMENT = struct.Struct(">BI"), 16
#: The terminator of an origin's name, and a zero byte inside it, plain and escaped: names then sort as whole strings.
_END, _ZERO, _ESCAPED_ZERO = b"\0\0", b"\0", b"\0\xff"
_FIXED = _BEFORE_ORIGIN.size + len(_END) + _BEHIND_ORIGIN.size


def encode(header: BufferHeader, payload: bytes) -> bytes:
    """Encode a buffer as bytes. Records begin at a multiple of `ALIGNMENT`; what else there is may be stored."""
    origin = header.origin.encode().replace(_ZERO, _ESCAPED_ZERO)
    gap = _gap(header.kind, len(origin))
    return b"".join(
        (
            _BEFORE_ORIGIN.pack(WIRE_VERSION, header.kind, header.begins_ms - MIN_TIMESTAMP_MS),
            origin,
            _END,
            _BEHIND_ORIGIN.pack(
                header.part,
                header.sequence,
                header.records,
                header.vertex,
                header.subtask,
                header.input_index,
                header.last,
            ),
            bytes(gap),
            payload,
        )
    )


def decode(data: bytes) -> Buffer:
    """The inverse of :func:`encode`; the payload stays encoded."""
    if data[0] != WIRE_VERSION:
        raise CorruptStateError(
            f"a buffer has wire version {data[0]}",
            expected=f"version {WIRE_VERSION}",
            hint="run driver and executors with the same version of flinkish",
        )
    _, kind, begins = _BEFORE_ORIGIN.unpack_from(data)
    end = data.index(_END, _BEFORE_ORIGIN.size)
    name = data[_BEFORE_ORIGIN.size : end]
    origin = (name.replace(_ESCAPED_ZERO, _ZERO) if _ZERO in name else name).decode()
    start = end + len(_END)
    part, sequence, records, vertex, subtask, input_index, last = _BEHIND_ORIGIN.unpack_from(data, start)
    header = BufferHeader(
        _KINDS[kind], vertex, subtask, input_index, origin, part, sequence, records, begins + MIN_TIMESTAMP_MS, last
    )
    start += _BEHIND_ORIGIN.size
    if header.kind is BufferKind.DATA:
        return Buffer(header, memoryview(data)[start + -start % ALIGNMENT :])
    return Buffer(header, data[start:])


def _gap(kind: BufferKind, origin_bytes: int) -> int:
    """The number of bytes between the header of a buffer and its payload."""
    return -(_FIXED + origin_bytes) % ALIGNMENT if kind is BufferKind.DATA else 0


def size_of(buffer: Buffer) -> int:
    """The size of the encoded form of a buffer, with a byte for each character of its origin."""
    header, characters = buffer.header, len(buffer.header.origin)
    return _FIXED + characters + _gap(header.kind, characters) + len(buffer.payload)


def encode_elements(
    values: Any,
    timestamps: list[int] | None,
    positions: list[int],
    events: list[int | bool],
    keys: list[Any] | None = None,
) -> bytes:
    """Encode the payload of a DATA buffer (see `Elements`)."""
    elements = (values, timestamps, positions, events, keys)
    if not is_columns(values):
        return to_worker(elements)
    streams: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(elements, protocol=5, buffer_callback=streams.append)
    gap = bytes(-(_COLUMNS.size + len(rest)) % ALIGNMENT)
    return b"".join((_COLUMNS.pack(0, len(rest)), rest, gap, *streams))


def decode_elements(payload: bytes | memoryview) -> Elements:
    """The inverse of :func:`encode_elements`. A batch of columns lies in the memory of the payload."""
    if payload[0]:
        return Elements._make(pickle.loads(payload))
    view, begin = memoryview(payload), _COLUMNS.size
    end = begin + _COLUMNS.unpack_from(payload)[1]
    return Elements._make(pickle.loads(view[begin:end], buffers=[view[end + -end % ALIGNMENT :]]))


class Records(NamedTuple):
    """A step: process these records, which lie between two watermarks."""

    input_index: int
    #: a list, or a batch of columns
    values: Any
    timestamps: list[int] | None


class LargeRecords(Records):
    """Records of `LARGE_BYTES` or more on average, alone in their step."""

    __slots__ = ()


class WatermarkStep(NamedTuple):
    """A step: the combined watermark has risen."""

    watermark_ms: int


class StatusStep(NamedTuple):
    """A step: all inputs have become idle, or one has become active."""

    idle: bool


class Stretch(NamedTuple):
    """A step: take these steps, which are records and the watermarks between them, one after the other.

    Where event time is sparse there are a dozen records between two watermarks, and a step costs as much as some
    records. An operator that is given a stretch looks up its keys and its state once."""

    steps: list[Records | WatermarkStep]


Step = Records | WatermarkStep | StatusStep | Stretch


#: The kinds of records that are never joined with others to a batch, and of those that are no part of a stretch
#: either, because they are large; a kind that no records have; and that of columns of the first input, below which are
#: those of the other inputs.
ALONE, LARGE, _NONE, COLUMNS = -1, -2, -3, -4

#: The most rows of batches of columns that are joined, and the most encoded bytes of one that is joined with others:
#: a call of an operator on columns costs as much as thousands of rows.
COLUMN_ROWS, COLUMN_BYTES = 65_536, 2 * 1024 * 1024

#: Encoded bytes of a record from which on it is large.
LARGE_BYTES = 1_024


class Joined(NamedTuple):
    """The limits of joining: a joined batch has at most ``most_records`` records, and only records from buffers of at
    most ``most_buffer_bytes`` encoded bytes are joined, so that large records do not pile up. With ``stretches``,
    steps are joined to a stretch until it has so many records and watermarks."""

    most_records: int
    most_buffer_bytes: int
    stretches: bool = False


#: Limits for state in memory: a batch is processed again and again, so it should fit into the cache of a core, as a
#: buffer should.
CACHED = Joined(1_250, 16 * 1024)
#: Limits for state in files, which is looked up batch by batch: batches of this size take a third less time per key.
LOOKED_UP = Joined(5_000, 128 * 1024)


class JoinedBatches:
    """The batch that is being joined: up to `room` more records of `kind` may be appended to its lists.

    Small batches of records that follow each other with no other step in between are joined, even if they come from
    different senders. Results do not depend on it. With hundreds of senders there are only two or three records between
    two watermarks of one of them, and operators that process so few records at a time take several times as long.

    With stretches, the batch is the last step of a stretch. The batches and watermarks in it are those that would
    be handed over one by one without.
    """

    values: Any
    timestamps: list[int]

    def __init__(self, joined: Joined) -> None:
        self._most_records = joined.most_records
        self._stretches = joined.stretches
        #: the steps that are not handed over yet; without stretches there is only the batch
        self._steps: list[Records | WatermarkStep] = []
        #: the number of records and watermarks in the steps before the batch
        self._size = 0
        self.kind, self.room = _NONE, 0
        self.values, self.timestamps = [], []

    def begin(self, kind: int, records: Records) -> list[Step]:
        """Begin another batch with these records; returns the steps that are complete now."""
        if kind == LARGE:
            return [*self.end(), LargeRecords(*records)]
        if kind == ALONE and not self._stretches:
            return [*self.end(), records]
        self._close()
        complete = [] if self._stretches and self._size < self._most_records else self.end()
        self._steps.append(records)
        self.kind, self.room = kind, 0 if kind == ALONE else self._most_records - len(records.values)
        self.values, self.timestamps = records.values, records.timestamps or []
        if kind <= COLUMNS:
            self.room, self.values = COLUMN_ROWS - len(records.values), ColumnSlices(records.values)
        return complete

    def tell(self, steps: list[Step]) -> list[Step]:
        """Let other steps follow; returns the steps that are complete now. Without steps the batch stays open."""
        if not steps:
            return []
        watermarks = [step for step in steps if isinstance(step, WatermarkStep)] if self._stretches else []
        if len(watermarks) < len(steps):
            return [*self.end(), *steps]
        self._close()
        self._steps += watermarks
        self._size += len(watermarks)
        return [] if self._size < self._most_records else self.end()

    def end(self) -> list[Step]:
        """Complete the batch, and the stretch, and return what there is of it as one step."""
        self._close()
        steps, self._steps, self._size = self._steps, [], 0
        return [Stretch(steps)] if len(steps) > 1 else [*steps]

    def _close(self) -> None:
        """End the batch: the next records begin another one."""
        self._size += len(self.values)
        if self.kind <= COLUMNS:
            joined: Any = self._steps[-1]
            self._steps[-1] = joined._replace(values=self.values.joined())
        self.kind, self.room = _NONE, 0
        self.values, self.timestamps = [], []


class OriginProgress(NamedTuple):
    """The progress of one origin, as seen by the subtask that receives from it."""

    input_index: int
    watermark_ms: int = MIN_TIMESTAMP_MS
    idle: bool = False
    #: processing time of the last epoch in which the origin had records
    last_active_ms: int = 0


@dataclass
class EpochInfo:
    """What an operator can know about the running epoch. Each operator has one such object, which is updated at each
    epoch."""

    epoch: int = 0
    #: processing time of the whole epoch, in ms (docs/semantics.md)
    processing_time_ms: int = 0
    #: combined watermark of the operator's inputs
    watermark_ms: int = MIN_TIMESTAMP_MS
    end_of_input: bool = False
    #: the task continues from stored state, or the job was started from a savepoint
    restored: bool = False
    #: the epoch that the stored state is from; None if there is no stored state or it comes from a savepoint
    restored_epoch: int | None = None
    #: user code has asked that the next epoch be planned at once
    commit_requested: bool = False
