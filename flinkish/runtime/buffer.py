"""A buffer: many stream elements for one subtask, as one binary value (Flink's network buffer).

The header can be read without decoding the payload. The encoded form begins with the buffer's place in the order in
which its receiver consumes buffers (`place`), so sorting encoded buffers as bytes, as Spark does between two levels,
brings them into that order.

The payload is pickle protocol 5 of parallel lists: measured at 0.05 to 0.1 microseconds a record each way, against
several times that for one object per record.
"""

from __future__ import annotations

import pickle
import struct
from enum import IntEnum
from typing import Any, NamedTuple

from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.errors import CorruptStateError
from flinkish.runtime.pickling import to_worker

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


class Elements(NamedTuple):
    """The decoded payload of a DATA buffer: records, and the events between them. An event is either a watermark in
    milliseconds or a bool that says whether the stream is idle from there on; it comes before the record at its
    position. ``keys``: the keys of the records, if they travel with them."""

    values: list[Any]
    timestamps: list[int] | None
    positions: list[int]
    events: list[int | bool]
    keys: list[Any] | None = None


class Buffer(NamedTuple):
    """A decoded header with the payload, which is still encoded."""

    header: BufferHeader
    payload: bytes


#: The place of a buffer in the order in which its receiver consumes buffers: kind, begins_ms, origin, part, sequence.
Place = tuple[int, int, str, int, int]


def place(header: BufferHeader) -> Place:
    """The place of a buffer in the order in which its receiver consumes buffers, which is that of the encoded forms."""
    return (header.kind, header.begins_ms, header.origin, header.part, header.sequence)


# big-endian and unsigned, because these numbers are compared as bytes
_BEFORE_ORIGIN = struct.Struct(">BBQ")
_BEHIND_ORIGIN = struct.Struct(">IIIiiH?")
#: The terminator of an origin's name, and a zero byte inside it, plain and escaped: names then sort as whole strings.
_END, _ZERO, _ESCAPED_ZERO = b"\0\0", b"\0", b"\0\xff"


def encode(header: BufferHeader, payload: bytes) -> bytes:
    """Encode a buffer as bytes."""
    return b"".join(
        (
            _BEFORE_ORIGIN.pack(WIRE_VERSION, header.kind, header.begins_ms - MIN_TIMESTAMP_MS),
            header.origin.encode().replace(_ZERO, _ESCAPED_ZERO),
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
    return Buffer(header, data[start + _BEHIND_ORIGIN.size :])


def encode_elements(
    values: list[Any],
    timestamps: list[int] | None,
    positions: list[int],
    events: list[int | bool],
    keys: list[Any] | None = None,
) -> bytes:
    """Encode the payload of a DATA buffer (see `Elements`)."""
    return to_worker((values, timestamps, positions, events, keys))


def decode_elements(payload: bytes) -> Elements:
    """The inverse of :func:`encode_elements`."""
    return Elements._make(pickle.loads(payload))
