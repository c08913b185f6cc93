"""The input gate of a subtask: it decides the order in which the task consumes the buffers of an epoch.

The order is deterministic and aligned in time: the gate always consumes from the input with the lowest watermark, with
ties broken by (origin, part), and within an input by sequence. So a backfill of a year in one epoch interleaves its
inputs as the live stream did, and a replay gives the same results.

Buffers arrive in the order of `buffer.place`, which is nearly that in which they are consumed. So the
gate reads them as it proceeds and holds few of them: the first one of every input, because it must know which inputs
there are, and then those that begin at or before the watermark of the input that it consumes from.

An input is (origin, part). Watermarks are remembered per origin from epoch to epoch: an origin that is silent in this
epoch still holds the combined watermark back, unless it is idle. Origins that are expected but have never sent anything
hold it back too, from the subtask's first epoch on: their idleness is measured from then.

``?`` as the last part of an origin stands for all that has not been heard of a vertex whose origins are unknown before
they send. Once one of them is known it holds nothing back but the end, for which all awaited origins must have come:
``*3`` is that of subtask 3 of a source whose origins are splits. ``*`` stands for a whole source at its end of input.

An upstream vertex may have several edges to this one (a stream united with a filtered form of itself). Each edge has
its own origins (``0~2/1`` is that of edge 2), since buffers and watermarks of different edges are independent.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import InternalError
from flinkish.runtime.exchange.buffer import (
    ALONE,
    CACHED,
    COLUMN_BYTES,
    COLUMNS,
    LARGE,
    LARGE_BYTES,
    Buffer,
    BufferKind,
    Joined,
    JoinedBatches,
    OriginProgress,
    Place,
    Records,
    StatusStep,
    Step,
    WatermarkStep,
    decode_elements,
    place,
)
from flinkish.runtime.exchange.keys import KeyedBatch
from flinkish.runtime.exchange.partitioners import InputDescriptor
from flinkish.runtime.exchange.valve import Group, WatermarkValve, WatermarkValves

#: Stands for all splits of a source at its end of input; with the number of a subtask behind it, for those that it
#: reads.
WHOLE_SOURCE = "*"
#: Stands for all that has not been heard of a source.
UNKNOWN = "?"
_EDGE = "~"
#: (origin, part)
_Name = tuple[str, int]
#: A kind, records, their timestamps, and the event after them: a watermark, `_IDLE`, `_ACTIVE`, or None.
_Element = tuple[int, Any, list[int] | None, int | None]
_NOTHING: list[Any] = []
#: Events that are not watermarks; they are higher than any watermark.
_IDLE, _ACTIVE = MAX_WATERMARK_MS + 1, MAX_WATERMARK_MS + 2


def origin_name(vertex: int, unit: str | int) -> str:
    """The name of an origin, whose ``unit`` is a split of a source or a subtask of an upstream vertex."""
    return f"{vertex}/{unit}"


def whole_source(vertex: int) -> str:
    """The origin that stands for all splits of a source vertex, known and unknown."""
    return origin_name(vertex, WHOLE_SOURCE)


def end_of_subtask(vertex: int, subtask: int) -> str:
    """The origin by whose end a subtask of a source says that it has ended, where origins are splits."""
    return origin_name(vertex, f"{WHOLE_SOURCE}{subtask}")


def vertex_of(origin: str) -> int:
    """The vertex that an origin belongs to."""
    return int(origin.partition("/")[0].partition(_EDGE)[0])


def by_edge(origin: str, edge: int) -> str:
    """The name of an origin as seen through one of several edges between two vertices. The number of the first edge, 0,
    is left out; the end of a whole source applies to all edges and keeps its name."""
    if not edge or is_whole_source(origin):
        return origin
    vertex, _, unit = origin.partition("/")
    return f"{vertex}{_EDGE}{edge}/{unit}"


def is_whole_source(origin: str) -> bool:
    """Whether an origin stands for all splits of a source."""
    return _unit_of(origin) == WHOLE_SOURCE


def split_of(origin: str) -> str | None:
    """The split that an origin of a source is; None: it stands for others."""
    unit = _unit_of(origin)
    return None if unit == UNKNOWN or unit.startswith(WHOLE_SOURCE) else unit


def _unit_of(origin: str) -> str:
    """The split or the subtask that an origin names; a split's name may be a path."""
    return origin.partition("/")[2]


def _edge_of(origin: str) -> str:
    """The part of an origin's name that says the vertex and the edge."""
    return origin.partition("/")[0]


class SortedBuffers:
    """An iterator over buffers that arrive in the order of their places; it reads one buffer ahead.

    Raises:
        InternalError: a buffer arrives after one that its place precedes. Later buffers may have been processed by
            then, so only another run of the epoch, over sorted buffers, can give the right result.
    """

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._buffers = iter(buffers)
        self._place: Place = (-1, 0, "", 0, 0)
        #: the next buffer; None if there are no more
        self.ahead: Buffer | None = None
        self._read()

    def take(self, until: Place | None = None) -> Iterator[Buffer]:
        """The remaining buffers up to and including this place; all of them if ``until`` is None."""
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


#: Greater than the sequence number of any buffer.
_NO_MORE = 2**32


@dataclass(slots=True)
class _Input:
    name: _Name
    input_index: int
    watermark_ms: int
    #: the highest watermark that the sender has sent in this epoch
    sent_ms: int = MIN_TIMESTAMP_MS + 1
    buffers: deque[Buffer] = field(default_factory=deque)
    was_active: bool = False


class InputGate:
    """Consumes the inputs of one subtask in one epoch. An instance is used once: call `receive` with the buffers,
    iterate over `steps`, then read `progress`. ``subtask`` is the number of the subtask, which decides which origins
    can reach it; ``joined`` says which small batches are joined, and whether steps are joined to stretches;
    ``group_watermarks_ms`` and ``unaligned`` are what the properties of these names were at the end of the last
    epoch."""

    def __init__(
        self,
        descriptors: tuple[InputDescriptor, ...],
        known: dict[str, OriginProgress],
        watermark_ms: int,
        idle: bool,
        now_ms: int,
        subtask: int = 0,
        joined: Joined = CACHED,
        group_watermarks_ms: Mapping[Group, int] | None = None,
        unaligned: Collection[str | Group] = (),
    ) -> None:
        self._joined = joined
        self._descriptors = {_edge_of(by_edge(origin_name(d.vertex, 0), d.edge)): d for d in descriptors}
        self._known = known
        self._now_ms = now_ms
        self._subtask = subtask
        self._inputs: dict[_Name, _Input] = {}
        self._ends: list[Buffer] = []
        self._idle = idle
        self._unaligned = frozenset(unaligned)
        self._arrivals = SortedBuffers(())
        groups = _groups(self._descriptors)
        inputs = len({descriptor.valve_index for descriptor in descriptors})
        self.valve = (
            WatermarkValves(
                watermark_ms,
                lambda name: groups[_edge_of(name[0])],
                inputs > 1,
                group_watermarks_ms,
                self._unaligned,
            )
            if any(groups.values())
            else WatermarkValve(watermark_ms)
        )

    def receive(self, arrivals: SortedBuffers) -> None:
        """Set the buffers of this epoch. They are read while `steps` is iterated over."""
        self._arrivals = arrivals

    def _read(self, until: Place | None = None) -> None:
        """Read and hold the buffers up to this place; all of them if ``until`` is None."""
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
        """All steps that the task must take in this epoch, in order."""
        # only the first buffer of each input begins at the lowest timestamp
        self._read((BufferKind.DATA, MIN_TIMESTAMP_MS + 1, "", 0, 0))
        self._open_valve()
        yield from self._changes(self.valve.refresh())
        # an input that is idle at the begin of the epoch sends nothing but its status
        yield from self._consume([self._inputs[name] for name in sorted(self._inputs) if not self.valve.idle_of(name)])
        self._read()
        for end in sorted(self._ends, key=lambda buffer: buffer.header):
            self.valve.add((whole_source(vertex_of(end.header.origin)), 0))
            yield from self._end_of_source(vertex_of(end.header.origin))
        for descriptor in self._descriptors.values():
            last = ((by_edge(origin, descriptor.edge), 0) for origin in descriptor.awaited_origins)
            if descriptor.awaited_origins and all(
                name in self.valve and self.valve.watermark_of(name) == MAX_WATERMARK_MS for name in last
            ):
                yield from self._end_of_source(descriptor.vertex)

    def _comes_last(self, entry: _Input) -> bool:
        descriptor = self._descriptors.get(_edge_of(entry.name[0]))
        return descriptor is not None and descriptor.comes_last

    def _consume(self, inputs: list[_Input]) -> Iterator[Step]:
        """The steps of these inputs, in order of their watermarks; inputs with the same watermark are ordered by name.

        As long as all of them hold the combined watermark back, it follows from the order: it is the watermark of the
        next input. Only when an input becomes idle or ends does the valve learn the watermarks of all inputs, and from
        then on every new one: with hundreds of inputs hardly any of their watermarks raises the combined one.
        """
        valve, joining = self.valve, JoinedBatches(self._joined)
        last = [self._comes_last(entry) for entry in inputs]
        in_order = not any(last) and valve.follows_order([entry.name for entry in inputs])
        #: the lowest watermark of the inputs that send nothing, or nothing more, in this epoch
        ended_at_ms = valve.lowest_ms(except_for=self._inputs)
        elements = [self._elements(entry) for entry in inputs]
        #: watermark -> numbers of the inputs that have reached it
        waiting: dict[int, list[int]] = {}
        for number, entry in enumerate(inputs):
            waiting.setdefault(entry.watermark_ms + last[number], []).append(number)
        lowest_first = sorted(waiting)
        while lowest_first:
            watermark_ms = heapq.heappop(lowest_first)
            for number in sorted(waiting.pop(watermark_ms)):
                # consume this input until its watermark rises
                for kind, values, timestamps, event in elements[number]:
                    if values:
                        if kind == joining.kind and len(values) <= joining.room:
                            joining.room -= len(values)
                            joining.values.extend(values)
                            if timestamps is not None:
                                joining.timestamps.extend(timestamps)
                        else:
                            yield from joining.begin(kind, Records(inputs[number].input_index, values, timestamps))
                    if event is None:
                        continue
                    if in_order and event >= MAX_WATERMARK_MS:
                        in_order = False
                        inputs[number].watermark_ms = watermark_ms
                        valve.advance_all({one.name: one.watermark_ms for one in inputs})
                    if not in_order:
                        yield from joining.tell(self._take_in(inputs[number].name, event))
                    if event <= MAX_WATERMARK_MS:
                        same = waiting.get(event)
                        if same is None:
                            waiting[event] = [number]
                            heapq.heappush(lowest_first, event)
                        else:
                            same.append(number)
                        break
                else:
                    ended_at_ms = min(ended_at_ms, watermark_ms)
            if in_order and lowest_first and valve.raise_to(min(lowest_first[0], ended_at_ms)):
                yield from joining.tell([WatermarkStep(valve.combined_ms)])
        yield from joining.end()
        if in_order:
            valve.advance_all({one.name: one.watermark_ms for one in inputs})

    def _take_in(self, name: _Name, event: int) -> list[Step]:
        """Apply an event of an input to the valve; returns the resulting steps."""
        if event > MAX_WATERMARK_MS:
            return self._changes(self.valve.set_idle(name, event == _IDLE))
        return self._changes(self.valve.advance(name, event))

    def _open_valve(self) -> None:
        present = {origin for origin, _ in self._inputs}
        self._known, awaited = self._with_expected(present)
        for name, entry in self._inputs.items():
            before = self._known.get(name[0])
            descriptor = self._descriptors.get(_edge_of(name[0]))
            idle = before is not None and self._is_idle(descriptor, before) and self._is_silent(entry)
            self._add_to_valve(name, descriptor, entry.watermark_ms, idle)
        for origin, progress in self._known.items():
            if origin not in present:
                descriptor = self._descriptors.get(_edge_of(origin))
                idle = self._is_idle(descriptor, progress._replace(idle=progress.idle and origin not in awaited))
                waits = origin in awaited and not idle
                self._add_to_valve((origin, 0), descriptor, progress.watermark_ms, idle, awaited=waits)

    def _with_expected(self, present: set[str]) -> tuple[dict[str, OriginProgress], set[str]]:
        """The progress of the known origins and of those that are expected but have never sent anything; the idleness
        of the latter is measured from now on. And the origins that only the end waits for.

        Rule: ``?`` is there from the first epoch on, until all awaited origins have come. A subtask whose header is of
        a version that has dropped it earlier does not wait for them: some may have come before.
        """
        unknown = {origin for origin in self._known if _unit_of(origin) == UNKNOWN}
        before = set(map(_edge_of, self._known))
        heard = {_edge_of(origin) for origin in present.union(self._known).difference(unknown)}
        ended = {vertex_of(origin) for origin in self._known if is_whole_source(origin)}
        known = {origin: progress for origin, progress in self._known.items() if origin not in unknown}
        awaited = set()
        for edge, descriptor in self._descriptors.items():
            if descriptor.vertex in ended:
                continue
            expected = [by_edge(origin, descriptor.edge) for origin in descriptor.expected_origins(self._subtask)]
            others, last = f"{edge}/{UNKNOWN}", (by_edge(one, descriptor.edge) for one in descriptor.awaited_origins)
            if not expected and edge not in heard:
                expected = [others]
            elif (edge not in before or others in unknown) and not all(one in present or one in known for one in last):
                expected.append(others)
                awaited.add(others)
            for origin in expected:
                if origin not in present and origin not in known:
                    first = OriginProgress(descriptor.input_index, last_active_ms=self._now_ms)
                    known[origin] = self._known.get(origin, first)
        return known, awaited

    def _add_to_valve(
        self,
        name: _Name,
        descriptor: InputDescriptor | None,
        watermark_ms: int,
        idle: bool,
        awaited: bool = False,
    ) -> None:
        aligned, always = name[0] not in self._unaligned, descriptor is not None and descriptor.from_source
        self.valve.add(name, watermark_ms, idle, aligned=aligned, always_aligned=always, awaited=awaited)

    def _is_silent(self, entry: _Input) -> bool:
        """Whether nothing in the buffers of an input, including those not read yet, shows that it is active."""
        if all(map(_says_nothing, entry.buffers)) and not entry.buffers[-1].header.last:
            self._read()
        return all(map(_says_nothing, entry.buffers))

    def _is_idle(self, descriptor: InputDescriptor | None, progress: OriginProgress) -> bool:
        timeout = descriptor.idle_timeout_ms if descriptor else None
        if timeout is None or progress.watermark_ms == MAX_WATERMARK_MS:
            return progress.idle
        return progress.idle or self._now_ms - progress.last_active_ms >= timeout

    def _buffers(self, entry: _Input) -> Iterator[Buffer]:
        """The buffers of one input in order, read from the arrivals when needed."""
        while True:
            arriving = self._arrivals.take((BufferKind.DATA, entry.sent_ms, *entry.name, _NO_MORE))
            while not entry.buffers and (buffer := next(arriving, None)) is not None:
                self._hold(buffer)
            if not entry.buffers:
                return
            yield entry.buffers.popleft()

    def _elements(self, entry: _Input) -> Iterator[_Element]:
        """The elements of one input: batches of records, each with the event after it, if there is one. Events are
        rising watermarks and changes of the input's status; records of an idle input make it active. One buffer is
        decoded at a time."""
        watermark_ms, sent_ms, idle = entry.watermark_ms, entry.sent_ms, False
        for buffer in self._buffers(entry):
            values, timestamps, positions, events, keys = decode_elements(buffer.payload)
            # a batch holds only records of the same kind
            kind = 4 * entry.input_index + 2 * (keys is not None) + (timestamps is not None)
            most_bytes = self._joined.most_buffer_bytes
            if values.__class__ is not list:
                kind, most_bytes = COLUMNS - entry.input_index, COLUMN_BYTES
            elif keys is not None:
                values = KeyedBatch(values, keys)
            if len(buffer.payload) > most_bytes:
                kind = ALONE if len(buffer.payload) <= LARGE_BYTES * len(values) else LARGE
            if values:
                entry.was_active = True
            start = 0
            for position, event in zip(positions, events):
                if idle and position > start:
                    idle = False
                    yield kind, _NOTHING, None, _ACTIVE
                if event is True or event is False:
                    entry.was_active = entry.was_active or not event
                    if event is idle:
                        continue
                    idle = event
                    event = _IDLE if idle else _ACTIVE
                else:
                    if event > sent_ms:
                        sent_ms = event
                    if event <= watermark_ms:
                        continue
                    entry.watermark_ms = watermark_ms = event
                    entry.was_active = True
                    idle = False
                if position > start:
                    times = None if timestamps is None else timestamps[start:position]
                    yield kind, values[start:position], times, event
                    start = position
                else:
                    yield kind, _NOTHING, None, event
            entry.sent_ms = sent_ms
            if start < len(values):
                if idle:
                    idle = False
                    yield kind, _NOTHING, None, _ACTIVE
                if start:
                    yield kind, values[start:], None if timestamps is None else timestamps[start:], None
                else:
                    yield kind, values, timestamps, None

    def _end_of_source(self, vertex: int) -> Iterator[Step]:
        """All splits of a source have ended, whatever they have said."""
        rose = False
        for name in self.valve.names():
            if vertex_of(name[0]) == vertex:
                rose = self.valve.advance(name, MAX_WATERMARK_MS) or rose
        yield from self._changes(rose)

    def _changes(self, rose: bool) -> list[Step]:
        """The steps for a changed status or watermark, in Flink's order: an idle operator becomes active before its
        watermark rises, and its watermark rises before it becomes idle."""
        was_idle, self._idle = self._idle, self.valve.idle
        changes: list[Step] = []
        if was_idle and not self._idle:
            changes.append(StatusStep(False))
        if rose:
            changes.append(WatermarkStep(self.valve.combined_ms))
        if self._idle and not was_idle:
            changes.append(StatusStep(True))
        return changes

    @property
    def idle(self) -> bool:
        """Whether the subtask is idle at the end of the epoch."""
        return self._idle

    @property
    def group_watermarks_ms(self) -> dict[Group, int]:
        """The watermark of each group of inputs that are combined before the others, to be remembered in the task's
        header."""
        return self.valve.watermarks_ms

    @property
    def unaligned(self) -> tuple[str | Group, ...]:
        """The origins and groups that are idle, or have been and have not caught up since, to be remembered in the
        task's header. That cannot be concluded from their watermarks: one that is behind may also be one that has said
        nothing since the job was restored."""
        unaligned, names = set(self.valve.unaligned), self.valve.names()
        aligned = {origin for origin, part in names if (origin, part) not in unaligned}
        origins = {origin for origin, _ in unaligned.intersection(names)} - aligned
        return (*sorted(origins), *sorted(unaligned.difference(names), key=repr))

    def progress(self) -> dict[str, OriginProgress]:
        """The progress of each origin, to be remembered in the task's header: its watermark is the lowest one of its
        parts, and never less than before."""
        result = dict(self._known)
        for origin, progress in self._known.items():
            if (origin, 0) not in self._inputs and (origin, 0) in self.valve:
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
        before, (first, *others) = self._known.get(origin), entries
        lowest, idle, active = self.valve.watermark_of(first.name), self.valve.idle_of(first.name), first.was_active
        for entry in others:
            lowest = min(lowest, self.valve.watermark_of(entry.name))
            idle = idle and self.valve.idle_of(entry.name)
            active = active or entry.was_active
        if before is None:
            return OriginProgress(first.input_index, lowest, idle, self._now_ms)
        reached_ms = max(lowest, before.watermark_ms)
        return OriginProgress(first.input_index, reached_ms, idle, self._now_ms if active else before.last_active_ms)


def _groups(descriptors: dict[str, InputDescriptor]) -> dict[str, Group]:
    """The groups of the edges, of each of which the watermarks are combined before those of all edges: one for each
    input of ``connect``, and in it one for each source that is united with other streams."""
    groups: dict[str, Group] = {}
    for edge, descriptor in descriptors.items():
        united = [other for other in descriptors.values() if other.valve_index == descriptor.valve_index]
        of_input: Group = (descriptor.valve_index,) if len(united) < len(descriptors) else ()
        groups[edge] = (*of_input, edge) if descriptor.from_source and len(united) > 1 else of_input
    return groups


def _says_nothing(buffer: Buffer) -> bool:
    """Whether nothing in a buffer shows that its origin is active. Only buffers without records are decoded, which are
    small."""
    return not buffer.header.records and all(event is True for event in decode_elements(buffer.payload).events)
