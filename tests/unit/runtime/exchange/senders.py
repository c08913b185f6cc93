"""Record writers and gates joined without a task in between."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.buffer import (
    CACHED,
    Buffer,
    BufferHeader,
    BufferKind,
    Joined,
    OriginProgress,
    Records,
    StatusStep,
    WatermarkStep,
    decode,
    encode_elements,
    place,
)
from flinkish.runtime.exchange.gate import InputGate, SortedBuffers
from flinkish.runtime.exchange.partitioners import EdgeDescriptor, InputDescriptor, Partitioner, Sender
from flinkish.runtime.exchange.valve import Group
from flinkish.runtime.exchange.writer import RecordWriter


class Wire:
    """What a writer has sent, by subtask."""

    def __init__(
        self,
        partitioner: Partitioner,
        subtasks: int = 2,
        max_records: int = 100,
        max_bytes: int = 1_000_000,
        *,
        subtask: int = 0,
        parallelism: int = 1,
        **edge: Any,
    ) -> None:
        sender = Sender(subtask, parallelism, subtasks, "the sender")
        described = EdgeDescriptor(7, 0, partitioner, subtasks, **edge)
        self.sent: dict[int, list[Buffer]] = {}
        self.writer = RecordWriter(described, sender, self._take, max_records, max_bytes)

    def _take(self, vertex: int, target: int, data: bytes) -> None:
        assert vertex == 7
        self.sent.setdefault(target, []).append(decode(data))

    def take(self, target: int) -> list[Buffer]:
        return self.sent.pop(target, [])


def buffer(
    origin: str,
    sequence: int,
    *elements: Any,
    part: int = 0,
    input_index: int = 0,
) -> Buffer:
    """A buffer of ``(value, timestamp)`` tuples, ints (watermarks) and booleans (idle?)."""
    values: list[Any] = []
    timestamps: list[int] = []
    positions: list[int] = []
    events: list[int | bool] = []
    for element in elements:
        if isinstance(element, tuple):
            values.append(element[0])
            timestamps.append(element[1])
        else:
            positions.append(len(values))
            events.append(element)
    header = BufferHeader(BufferKind.DATA, 7, 0, input_index, origin, part, sequence, len(values))
    return Buffer(header, encode_elements(values, timestamps, positions, events))


def gate(
    *inputs: InputDescriptor,
    known: dict[str, OriginProgress] | None = None,
    watermark_ms: int = MIN_TIMESTAMP_MS,
    idle: bool = False,
    now_ms: int = 0,
    buffers: Iterable[Buffer] = (),
    joined: Joined = CACHED,
    groups_ms: dict[Group, int] | None = None,
    unaligned: Collection[str | Group] = (),
) -> InputGate:
    made = InputGate(
        inputs or (InputDescriptor(0, 0),),
        known or {},
        watermark_ms,
        idle,
        now_ms,
        joined=joined,
        group_watermarks_ms=groups_ms,
        unaligned=unaligned,
    )
    made.receive(SortedBuffers(sorted(buffers, key=lambda one: place(one.header))))
    return made


def story(made: InputGate) -> list[Any]:
    """The steps: ``("wm", ms)``, ``("idle", flag)`` and values."""
    result: list[Any] = []
    for step in made.steps():
        if isinstance(step, Records):
            assert step.timestamps is None or len(step.timestamps) == len(step.values)
            result.extend(step.values)
        elif isinstance(step, WatermarkStep):
            result.append(("wm", step.watermark_ms))
        elif isinstance(step, StatusStep):
            result.append(("idle", step.idle))
    return result
