"""The order in which a task consumes the buffers of one subtask and epoch.

Deterministic and aligned in time: always from the input with the lowest watermark, ties by (origin, part), within an
input by sequence. So a backfill of a year in one epoch interleaves its inputs as the live stream did, and a replay
gives the same results.

Buffers arrive in the order of `flinkish.runtime.buffer.place`, which is nearly that in which they are consumed, so the
gate reads them as it goes and holds few: the first one of every input, since it must know which inputs there are, and
then those that begin at or before the watermark of the input that it works on.

An input is (origin, part). Watermarks are remembered per origin from epoch to epoch: an origin that is silent in this
epoch still holds the combined watermark back, unless it is idle. Origins that are expected but have never sent anything
hold it back too, from the subtask's first epoch on: their idleness is measured from then. ``?`` as the last part of an
origin stands for a vertex whose origins are not known before they send, ``*`` for the whole source: its end of input.

An upstream vertex may have several edges to this one (a stream united with a filtered form of itself): each has origins
of its own (``0~2/1``: by edge 2), since its buffers and watermarks take their own way.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import InternalError
from flinkish.runtime.buffer import Buffer, BufferKind, Place, decode_elements, place
from flinkish.runtime.deployment import InputDescriptor
from flinkish.runtime.task_header import OriginProgress
from flinkish.runtime.watermark_valve import WatermarkValve

#: Stands for all splits of a source at its end of input.
WHOLE_SOURCE = "*"
_UNKNOWN = "?"
_EDGE = "~"
#: (origin, part)
_Name = tuple[str, int]


def origin_name(vertex: int, unit: str | int) -> str:
    """The name of an origin: a split of a source, or a subtask of an upstream vertex."""
    return f"{vertex}/{unit}"


def whole_source(vertex: int) -> str:
    """The origin that stands for all splits of a source vertex, known and unknown."""
    return origin_name(vertex, WHOLE_SOURCE)


def vertex_of(origin: str) -> int:
    """The vertex that an origin belongs to."""
    return int(origin.partition("/")[0].partition(_EDGE)[0])


def by_edge(origin: str, edge: int) -> str:
    """The name of an origin on the edge of that number between two vertices. The first edge, 0, is not named; the end
    of a whole source goes for all edges."""
    if not edge or is_whole_source(origin):
        return origin
    vertex, _, unit = origin.partition("/")
    return f"{vertex}{_EDGE}{edge}/{unit}"


def is_whole_source(origin: str) -> bool:
    """Whether an origin stands for all splits of a source."""
    return origin.endswith(f"/{WHOLE_SOURCE}")


def _edge_of(origin: str) -> str:
    """Vertex and edge."""
    return origin.partition("/")[0]


class Records(NamedTuple):
    """A step: records between two watermarks."""

    input_index: int
    values: list[Any]
    timestamps: list[int] | None
    #: may become part of a larger batch: what the buffer held is small
    joinable: bool = False


class WatermarkStep(NamedTuple):
    """A step: the combined watermark rose."""

    watermark_ms: int


class StatusStep(NamedTuple):
    """A step: all inputs became idle, or one became active."""

    idle: bool


Step = Records | WatermarkStep | StatusStep


class SortedBuffers:
    """Buffers that arrive in the order of their places, read one ahead.

    Raises:
        InternalError: one comes too late for its place. What came before it may have been worked on, so nothing but
            another run of the epoch, over buffers that are sorted, can put it right.
    """

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._buffers = iter(buffers)
        self._place: Place = (-1, 0, "", 0, 0)
        #: the buffer that comes next; None: there are no more
        self.ahead: Buffer | None = None
        self._read()

    def take(self, until: Place | None = None) -> Iterator[Buffer]:
        """All that are left, or those up to a place."""
        while self.ahead is not None and (until is None or self._place <= until):
            buffer = self.ahead
            self._read()
            yield buffer

    def _read(self) -> None:
        self.ahead = next(self._buffers, None)
        if self.ahead is None:
            return
        before, self._place = self._place, place(self.ahead.header)
        if self._place < before:
            raise InternalError(
                f"buffers do not arrive in their order: {_described(self._place)} comes after {_described(before)}",
                expected="rows that Spark has sorted by address and buffer",
                hint="please report this. Spark tries the task again if spark.task.maxFailures (with a local master "
                "the second number in local[2,4]) allows it, and a task that is tried again sorts for itself",
            )


def _described(place: Place) -> str:
    _, _, origin, part, sequence = place
    return f"buffer {sequence} of origin '{origin}', part {part},"


#: Most records in a batch that is joined of smaller ones: what fits into the cache of a core, as in a buffer.
_JOINED_RECORDS = 1_250

#: Only what comes from buffers of at most so many encoded bytes is joined, so that large records do not pile up.
_JOINED_BYTES = 16 * 1024

#: Behind every number of a part or a buffer.
_NO_MORE = 2**32


@dataclass(slots=True)
class _Input:
    name: _Name
    input_index: int
    watermark_ms: int
    #: what the sender has told in this epoch
    sent_ms: int = MIN_TIMESTAMP_MS + 1
    buffers: deque[Buffer] = field(default_factory=deque)
    steps: Iterator[Any] | None = None
    was_active: bool = False


class InputGate:
    """The inputs of one subtask in one epoch. Use once: give it the buffers, iterate over `steps`, then ask for
    `progress`. ``subtask``: its number; it decides which origins can reach it."""

    def __init__(
        self,
        descriptors: tuple[InputDescriptor, ...],
        known: dict[str, OriginProgress],
        watermark_ms: int,
        idle: bool,
        now_ms: int,
        subtask: int = 0,
    ) -> None:
        self._descriptors = {_edge_of(by_edge(origin_name(d.vertex, 0), d.edge)): d for d in descriptors}
        self._known = known
        self._now_ms = now_ms
        self._subtask = subtask
        self._inputs: dict[_Name, _Input] = {}
        self._ends: list[Buffer] = []
        self._idle = idle
        self._arrivals = SortedBuffers(())
        self.valve = WatermarkValve(watermark_ms)

    def receive(self, arrivals: SortedBuffers) -> None:
        """Where the data of this epoch arrive. They are read while `steps` are taken."""
        self._arrivals = arrivals

    def _read(self, until: Place | None = None) -> None:
        """Hold what arrives up to a place; without one, all."""
        for buffer in self._arrivals.take(until):
            self._hold(buffer)

    def _hold(self, buffer: Buffer) -> None:
        header = buffer.header
        if is_whole_source(header.origin):
            self._ends.append(buffer)
            return
        name = (header.origin, header.part)
        entry = self._inputs.get(name)
        if entry is None:
            before = self._known.get(header.origin)
            watermark = before.watermark_ms if before else MIN_TIMESTAMP_MS
            entry = self._inputs[name] = _Input(name, header.input_index, watermark)
        entry.buffers.append(buffer)

    def steps(self) -> Iterator[Step]:
        """Everything that the task must do, in order."""
        return _joined(self._steps())

    def _steps(self) -> Iterator[Step]:
        # the first buffers of all inputs, and no others, begin at the lowest time
        self._read((BufferKind.DATA, MIN_TIMESTAMP_MS + 1, "", 0, 0))
        self._open_valve()
        yield from self._changes(self.valve.refresh())
        heap, valve = [], self.valve
        for entry in self._inputs.values():
            entry.steps = self._elements(entry)
            heap.append((entry.watermark_ms + self._comes_last(entry), entry.name))
        heapq.heapify(heap)
        while heap:
            name = heap[0][1]
            entry = self._inputs[name]
            assert entry.steps is not None
            # one input until its watermark rises
            for element in entry.steps:
                if isinstance(element, Records):
                    entry.was_active = True
                    if valve.idle_of(name):
                        yield from self._changes(valve.set_idle(name, False))
                    yield element
                    continue
                watermark_ms, idle = element
                if idle is not None:
                    entry.was_active = entry.was_active or not idle
                    yield from self._changes(valve.set_idle(name, idle))
                elif watermark_ms > entry.watermark_ms:
                    entry.watermark_ms = watermark_ms
                    entry.was_active = True
                    rose = valve.advance(name, watermark_ms)
                    if rose or valve.idle is not self._idle:
                        yield from self._changes(rose)
                    heapq.heapreplace(heap, (watermark_ms, name))
                    break
            else:
                heapq.heappop(heap)
        self._read()
        for end in sorted(self._ends, key=lambda buffer: buffer.header):
            yield from self._end_of_source(end)

    def _comes_last(self, entry: _Input) -> bool:
        descriptor = self._descriptors.get(_edge_of(entry.name[0]))
        return descriptor is not None and descriptor.comes_last

    def _open_valve(self) -> None:
        present = {origin for origin, _ in self._inputs}
        self._known = self._with_expected(present)
        for name, entry in self._inputs.items():
            before = self._known.get(name[0])
            idle = before is not None and self._is_idle(name[0], before) and self._is_silent(entry)
            self._add_to_valve(name, entry.watermark_ms, idle, new=before is None)
        for origin, progress in self._known.items():
            if origin not in present:
                self._add_to_valve((origin, 0), progress.watermark_ms, self._is_idle(origin, progress))

    def _with_expected(self, present: set[str]) -> dict[str, OriginProgress]:
        """What is known, and what should have been heard of by now: the idleness of that is measured from now on."""
        seen = {_edge_of(origin) for origin in present}
        seen |= {_edge_of(origin) for origin in self._known if not origin.endswith(f"/{_UNKNOWN}")}
        ended = {vertex_of(origin) for origin in self._known if is_whole_source(origin)}
        known = {
            origin: progress
            for origin, progress in self._known.items()
            if not (origin.endswith(f"/{_UNKNOWN}") and _edge_of(origin) in seen)
        }
        for edge, descriptor in self._descriptors.items():
            if descriptor.vertex in ended:
                continue
            expected = [by_edge(origin, descriptor.edge) for origin in descriptor.expected_origins(self._subtask)]
            if not expected and edge not in seen:
                expected = [f"{edge}/{_UNKNOWN}"]
            for origin in expected:
                if origin not in present and origin not in known:
                    known[origin] = OriginProgress(descriptor.input_index, last_active_ms=self._now_ms)
        return known

    def _add_to_valve(self, name: _Name, watermark_ms: int, idle: bool, new: bool = False) -> None:
        descriptor = self._descriptors.get(_edge_of(name[0]))
        aligned = new or watermark_ms >= self.valve.combined_ms
        always_aligned = descriptor is not None and descriptor.from_source
        self.valve.add(name, watermark_ms, idle, aligned=aligned, always_aligned=always_aligned)

    def _is_silent(self, entry: _Input) -> bool:
        """Whether nothing in the buffers of an input says that it is active, those included that have not arrived."""
        if all(map(_says_nothing, entry.buffers)) and not entry.buffers[-1].header.last:
            self._read()
        return all(map(_says_nothing, entry.buffers))

    def _is_idle(self, origin: str, progress: OriginProgress) -> bool:
        descriptor = self._descriptors.get(_edge_of(origin))
        timeout = descriptor.idle_timeout_ms if descriptor else None
        if timeout is None or progress.watermark_ms == MAX_WATERMARK_MS:
            return progress.idle
        return progress.idle or self._now_ms - progress.last_active_ms >= timeout

    def _buffers(self, entry: _Input) -> Iterator[Buffer]:
        """The buffers of one input, one after the other."""
        while True:
            arriving = self._arrivals.take((BufferKind.DATA, entry.sent_ms, *entry.name, _NO_MORE))
            while not entry.buffers and (buffer := next(arriving, None)) is not None:
                self._hold(buffer)
            if not entry.buffers:
                return
            yield entry.buffers.popleft()

    def _elements(self, entry: _Input) -> Iterator[Any]:
        """Single elements of one input: Records, (watermark, None) or (None, idle). Decodes one buffer at a time."""
        index = entry.input_index
        for buffer in self._buffers(entry):
            values, timestamps, events = decode_elements(buffer.payload)
            if events:
                entry.sent_ms = max(entry.sent_ms, *(event[1] for event in events))
            joinable = len(buffer.payload) <= _JOINED_BYTES
            start = 0
            for position, watermark_ms, idle in events:
                if position > start:
                    times = None if timestamps is None else timestamps[start:position]
                    yield Records(index, values[start:position], times, joinable)
                    start = position
                yield (watermark_ms, idle)
            if not start and values:
                yield Records(index, values, timestamps, joinable)
            elif start < len(values):
                yield Records(index, values[start:], None if timestamps is None else timestamps[start:], joinable)

    def _end_of_source(self, end: Buffer) -> Iterator[Step]:
        vertex = vertex_of(end.header.origin)
        self.valve.add((origin_name(vertex, WHOLE_SOURCE), 0))
        rose = False
        for name in self.valve.names():
            if vertex_of(name[0]) == vertex:
                rose = self.valve.advance(name, MAX_WATERMARK_MS) or rose
        yield from self._changes(rose)

    def _changes(self, rose: bool) -> Iterator[Step]:
        """Flink's order: who was idle is active before its watermark rises, and flushes before it becomes idle."""
        idle = self.valve.idle
        if self._idle and not idle:
            yield StatusStep(False)
        if rose:
            yield WatermarkStep(self.valve.combined_ms)
        if idle and not self._idle:
            yield StatusStep(True)
        self._idle = idle

    @property
    def idle(self) -> bool:
        """Whether the subtask ended the epoch idle."""
        return self._idle

    def progress(self) -> dict[str, OriginProgress]:
        """What to remember of each origin: the lowest watermark over its parts, never less than before."""
        result = dict(self._known)
        for origin, progress in self._known.items():
            if (origin, 0) in self.valve and (origin, 0) not in self._inputs:
                result[origin] = OriginProgress(
                    progress.input_index,
                    max(progress.watermark_ms, self.valve.watermark_of((origin, 0))),
                    self.valve.idle_of((origin, 0)),
                    progress.last_active_ms,
                )
        by_origin: dict[str, list[_Input]] = {}
        for (origin, _), entry in self._inputs.items():
            by_origin.setdefault(origin, []).append(entry)
        for origin, entries in by_origin.items():
            result[origin] = self._fold(origin, entries)
        for end in self._ends:
            result[end.header.origin] = OriginProgress(end.header.input_index, MAX_WATERMARK_MS)
        return result

    def _fold(self, origin: str, entries: list[_Input]) -> OriginProgress:
        before = self._known.get(origin)
        lowest = min(self.valve.watermark_of(entry.name) for entry in entries)
        active = any(entry.was_active for entry in entries)
        return OriginProgress(
            entries[0].input_index,
            max(lowest, before.watermark_ms if before else MIN_TIMESTAMP_MS),
            all(self.valve.idle_of(entry.name) for entry in entries),
            self._now_ms if active or before is None else before.last_active_ms,
        )


def _joined(steps: Iterator[Step]) -> Iterator[Step]:
    """The same steps with fewer of them: small batches of records that follow each other, with no rise of the combined
    watermark in between, are one batch, whichever inputs they come from. With hundreds of inputs there are two or three
    records between two watermarks of one of them: operators that are given so few at a time take several times as long.
    """
    batch: Records | None = None
    for step in steps:
        if isinstance(step, Records) and step.joinable:
            if batch is None:
                batch = step
            elif (
                len(batch.values) + len(step.values) <= _JOINED_RECORDS
                and batch.input_index == step.input_index
                and (batch.timestamps is None) is (step.timestamps is None)
            ):
                batch.values.extend(step.values)
                if batch.timestamps is not None and step.timestamps is not None:
                    batch.timestamps.extend(step.timestamps)
            else:
                yield batch
                batch = step
            continue
        if batch is not None:
            yield batch
            batch = None
        yield step
    if batch is not None:
        yield batch


def _says_nothing(buffer: Buffer) -> bool:
    """Whether nothing in a buffer says that its origin is active. Buffers without records are small."""
    return not buffer.header.records and all(idle for _, _, idle in decode_elements(buffer.payload).events)
