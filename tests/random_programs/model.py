"""A model of the DataStream API in plain Python that takes one record at a time and shares no code with flinkish.

Its one rule: whatever is handed over is copied, at every depth, at the moment at which it is handed over - from a
function to each consumer, from user code to state and back. So nobody sees what others do with an object later.

An operator is a `Node`. A record goes through all operators behind a node before the node's function continues. Time is
what the sources' marks say; the model has one subtask per operator.

What micro-batches make different, and Flink leaves open: processing time stands still within an epoch, and timers in
processing time fire before the epoch's records; the end of an input takes the place of a watermark of the same epoch
after which the operator got no record (`Node.receive_watermark`).
"""

from __future__ import annotations

import asyncio
import copy
import functools
import itertools
import operator
import types
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.random_programs.records import CLASSES
from tests.support.window_model import MIN_WATERMARK, AlignedModel, Element, Fired, SessionModel, Watermark

MAX_WATERMARK = 2**63 - 1


class At(NamedTuple):
    """A record of a source, with its timestamp."""

    timestamp: int
    value: Any


class Mark(NamedTuple):
    """The watermark of a source rises."""

    timestamp: int


class Pause(NamedTuple):
    """The epoch ends here."""


class Idle(NamedTuple):
    """The source is idle until its next record."""


class Page(NamedTuple):
    """A page of a PagedSource."""

    values: list[Any]
    next: Any


class Row:
    """A row with named fields."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value


@dataclass(frozen=True)
class OutputTag:
    tag_id: str
    type_info: Any = None


class _Anything:
    """Stands for declared types: they do not change the records of these programs."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self


class Time:
    milliseconds = staticmethod(int)
    seconds = staticmethod(lambda seconds: 1_000 * seconds)


# --- the graph --------------------------------------------------------------------------------------------------------


class Node:
    """An operator. Subclasses say what becomes of a record (`process`) and of a watermark (`rise`)."""

    def __init__(self, job: Job, *inputs: Tap) -> None:
        self.job = job
        self.consumers: dict[str | None, list[tuple[Node, int]]] = defaultdict(list)
        self.watermarks = [MIN_WATERMARK] * max(1, len(inputs))
        self.watermark = MIN_WATERMARK
        self.idle = [False] * len(self.watermarks)
        self._waiting: tuple[int, int] | None = None
        job.nodes.append(self)
        for index, (node, tag) in enumerate(inputs):
            node.consumers[tag].append((self, index))

    def emit(self, value: Any, timestamp: int) -> None:
        """Hand a result to all consumers of the output that it belongs to."""
        tag = None
        if type(value) is tuple and len(value) == 2 and isinstance(value[0], OutputTag):
            tag, value = value[0].tag_id, value[1]
        copies = [(node, index, copy.deepcopy(value)) for node, index in self.consumers[tag]]
        for node, index, own in copies:
            node.take_waiting()
            node.process(own, timestamp, index)

    def emit_all(self, results: Iterable[Any] | None, timestamp: int) -> None:
        for result in () if results is None else results:
            self.emit(result, timestamp)

    def receive_watermark(self, watermark: int, index: int) -> None:
        """A watermark waits for the next record, or for the end of the epoch. Instead of it the end of the same input
        counts, if that comes first."""
        if watermark != MAX_WATERMARK or self._waiting is not None and self._waiting[1] != index:
            self.take_waiting()
        self._waiting = (watermark, index)

    def take_waiting(self) -> None:
        """The watermark that waits takes effect."""
        if self._waiting is not None:
            (watermark, index), self._waiting = self._waiting, None
            self._take_watermark(watermark, index)

    def _take_watermark(self, watermark: int, index: int) -> None:
        self.watermarks[index] = max(self.watermarks[index], watermark)
        self._rise_to_lowest()

    def receive_status(self, idle: bool, index: int) -> None:
        """An input is idle from here on, or is no longer. Idle inputs hold back nobody; one that comes back behind the
        others does, as from then on."""
        if idle == self.idle[index]:
            return
        self.take_waiting()
        before = all(self.idle)
        self.idle[index] = idle
        self._rise_to_lowest()
        if all(self.idle) != before:
            for consumers in list(self.consumers.values()):
                for node, at in consumers:
                    node.receive_status(not before, at)

    def _rise_to_lowest(self) -> None:
        active = [mark for mark, idle in zip(self.watermarks, self.idle, strict=True) if not idle]
        lowest = min(active, default=self.watermark)
        if lowest > self.watermark:
            self.watermark = lowest
            self.rise(lowest)
            for consumers in list(self.consumers.values()):
                for node, at in consumers:
                    node.receive_watermark(lowest, at)

    def process(self, value: Any, timestamp: int, index: int) -> None:
        self.emit(value, timestamp)

    def rise(self, watermark: int) -> None:
        """The watermark of the operator has risen."""

    def new_time(self, time_ms: int) -> None:
        """An epoch begins, with this processing time."""

    def end_epoch(self) -> None:
        """The epoch ends: the watermark that waits takes effect; nodes in front of this one have done this before."""
        self.take_waiting()

    def restart(self) -> None:
        """The job goes on from its state with new instances of all functions."""


Tap = tuple[Node, str | None]


class Job:
    """A program as the model runs it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.sources: list[tuple[Node, list[list[Any]]]] = []
        self.sinks: dict[str, list[Any]] = {}
        self.time_ms = 0

    def source(self, epochs: list[list[Any]]) -> Stream:
        node = Node(self)
        self.sources.append((node, epochs))
        return Stream(self, (node, None))

    def sink(self, name: str, stream: Stream, changes: bool = False) -> None:
        found = self.sinks[name] = []

        class Sink(Node):
            def process(self, value: Any, timestamp: int, index: int) -> None:
                found.append(value)

        Sink(self, stream.tap)

    def run(self, times_ms: Callable[[int], int], restarts: Container[int]) -> None:
        """Run all epochs. ``times_ms``: the processing time of each epoch. ``restarts``: the epochs before which the
        job restarts."""
        for number in range(max(len(epochs) for _, epochs in self.sources)):
            self.time_ms = times_ms(number)
            if number in restarts:
                for node in self.nodes:
                    node.restart()
            for node in self.nodes:
                node.new_time(self.time_ms)
            for node, epochs in self.sources:
                for element in epochs[number] if number < len(epochs) else ():
                    if isinstance(element, Mark):
                        node.receive_watermark(element.timestamp, 0)
                    elif isinstance(element, Idle):
                        node.receive_status(True, 0)
                    else:
                        node.receive_status(False, 0)
                        node.take_waiting()
                        node.emit(element.value, element.timestamp)
                if number == len(epochs) - 1:
                    node.receive_status(False, 0)
                    node.receive_watermark(MAX_WATERMARK, 0)
            for node in self.nodes:
                node.end_epoch()


class Sources:
    """The sources that a program can have."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def marks(self, name: str, elements: list[Any], declared: Any) -> Stream:
        epochs: list[list[Any]] = [[]]
        for element in elements:
            if isinstance(element, Pause):
                epochs.append([])
            else:
                epochs[-1].append(element)
        if elements and isinstance(elements[-1], Pause):
            # the source knows that it ends there
            epochs.pop()
        return self._job.source(epochs)

    def splits(self, name: str, splits: list[list[Any]], declared: Any) -> Stream:
        """A source with several splits, each with its own watermark."""
        first, *others = (self.marks(name, elements, declared) for elements in splits)
        return first.union(*others)

    def bare(self, name: str, elements: list[Any], declared: Any) -> Stream:
        """Records without times."""
        return self.marks(
            name, [one if isinstance(one, Pause) else At(MIN_WATERMARK, one) for one in elements], declared
        )

    def idle(self, name: str, elements: list[Any], declared: Any) -> Stream:
        """Each record is followed by a watermark, which is its time, and perhaps by a mark: the source is idle."""
        with_marks: list[Any] = []
        for element in elements:
            with_marks += [element, Mark(element.timestamp)] if isinstance(element, At) else [element]
        return self.marks(name, with_marks, declared)

    def generated(self, name: str, function: Any, count: int, per_epoch: int, time: Any, declared: Any) -> Stream:
        """A DataGeneratorSource. ``time``: the timestamp of a record."""
        return self._calls(function, [range(at, min(at + per_epoch, count)) for at in range(0, count, per_epoch)], time)

    def paged(self, name: str, source: Any, time: Any, declared: Any) -> Stream:
        pages, cursor = [], None
        while not pages or cursor is not None:
            page = source.fetch(cursor)
            pages.append(page.values)
            cursor = page.next
        return self._calls(source.record, [[value for page in pages for value in page]], time)

    def lines(self, name: str, schema: Any, lines: list[str], time: Any, declared: Any) -> Stream:
        """A file, whose lines a DeserializationSchema reads."""
        return self._calls(schema.deserialize, [[line.encode() for line in lines]], time)

    def _calls(self, function: Any, epochs: list[Any], time: Any) -> Stream:
        marked: list[list[Any]] = []
        for epoch in epochs:
            made = [copy.deepcopy(function(x)) for x in epoch]
            marked.append([At(time(one), one) for one in made])
            marked[-1] += [Mark(max(map(time, made)) - 1)] if made else []
        return self._job.source(marked)


# --- state and contexts -----------------------------------------------------------------------------------------------


class Ttl(NamedTuple):
    """A time-to-live. ``on_read``: reading renews it, too."""

    time_ms: int
    on_read: bool


class StateTtlConfig:
    """Builds a `Ttl`."""

    def __init__(self, time_ms: int) -> None:
        self._time_ms, self._on_read = time_ms, False

    new_builder = classmethod(lambda cls, time_ms: cls(time_ms))

    def update_ttl_on_read_and_write(self) -> StateTtlConfig:
        self._on_read = True
        return self

    def build(self) -> Ttl:
        return Ttl(self._time_ms, self._on_read)


@dataclass
class Descriptor:
    """A descriptor of state: name, then what its kind needs."""

    name: str
    of: Any = None
    ttl: Ttl | None = None

    def enable_time_to_live(self, ttl: Ttl) -> None:
        self.ttl = ttl


@dataclass
class Stamped:
    """A stored value, or an element of a stored list or map, and when it was written or read last."""

    value: Any
    time_ms: int


class _Handle:
    """Access to a state of the current key (or of nothing, for operator state). What is stored is what user code has
    until the call for the key ends (``touched`` has it then), and never for operator state."""

    def __init__(self, store: Store, descriptor: Descriptor) -> None:
        self._entries, self._key, self._of = store.tables[descriptor.name], store.scope, descriptor.of
        self._ttl, self._now, self._touched = descriptor.ttl, store.now, store.touched

    def clear(self) -> None:
        self._entries.pop(self._key(), None)

    def _new(self, value: Any) -> Stamped:
        stamped = Stamped(value, self._now())
        stamped.value = self._shared(stamped)
        return stamped

    def _shared(self, stamped: Stamped) -> Any:
        if self._touched is None:
            return copy.deepcopy(stamped.value)
        self._touched.append(stamped)
        return stamped.value

    def _lives(self, stamped: Stamped) -> bool:
        return self._ttl is None or self._now() < stamped.time_ms + self._ttl.time_ms

    def _read(self, stamped: Stamped) -> Any:
        if self._ttl is not None and self._ttl.on_read:
            stamped.time_ms = self._now()
        return self._shared(stamped)


class ValueHandle(_Handle):
    def value(self) -> Any:
        stored = self._entries.get(self._key())
        return self._read(stored) if stored is not None and self._lives(stored) else None

    def update(self, value: Any) -> None:
        self._entries[self._key()] = self._new(value)


class ListHandle(_Handle):
    def _living(self) -> list[Stamped]:
        return [stamped for stamped in self._entries.get(self._key(), ()) if self._lives(stamped)]

    def get(self) -> list[Any]:
        return [self._read(stamped) for stamped in self._living()]

    __iter__ = lambda self: iter(self.get())  # noqa: E731

    def add(self, value: Any) -> None:
        self._entries[self._key()] = [*self._living(), self._new(value)]

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        self._entries[self._key()] = [self._new(value) for value in values]


class MapHandle(_Handle):
    def _living(self) -> dict[Any, Stamped]:
        return {key: stamped for key, stamped in self._entries.get(self._key(), {}).items() if self._lives(stamped)}

    def get(self, key: Any) -> Any:
        stamped = self._living().get(key)
        return None if stamped is None else self._read(stamped)

    def put(self, key: Any, value: Any) -> None:
        self._entries[self._key()] = {**self._living(), key: self._new(value)}

    def put_all(self, values: dict[Any, Any]) -> None:
        for key, value in values.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._entries[self._key()] = {one: value for one, value in self._living().items() if one != key}

    def contains(self, key: Any) -> bool:
        return key in self._living()

    def is_empty(self) -> bool:
        return not self._living()

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(key, self._read(stamped)) for key, stamped in self._living().items()]

    def keys(self) -> Iterable[Any]:
        return list(self._living())

    def values(self) -> Iterable[Any]:
        return [value for _, value in self.items()]


class ReducingHandle(ValueHandle):
    def get(self) -> Any:
        return self.value()

    def add(self, value: Any) -> None:
        old = self.value()
        self.update(value if old is None else _method(self._of, "reduce")(old, copy.deepcopy(value)))


class AggregatingHandle(ValueHandle):
    def get(self) -> Any:
        accumulator = self.value()
        return None if accumulator is None else self._of.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self.value()
        if accumulator is None:
            accumulator = self._of.create_accumulator()
        self.update(self._of.add(copy.deepcopy(value), accumulator))


class Store:
    """The states of an operator. ``scope``: what states belong to, such as the current key. ``now``: the processing
    time. ``touched``: what the running call has read or written, of keyed state."""

    def __init__(self, scope: Callable[[], Any], now: Callable[[], int], touched: list[Stamped] | None = None) -> None:
        self.scope, self.now, self.touched = scope, now, touched
        self.tables: dict[str, dict[Any, Any]] = defaultdict(dict)

    def end_call(self) -> None:
        """User code and state are separate from now on."""
        for stamped in self.touched or ():
            stamped.value = copy.deepcopy(stamped.value)
        self.touched.clear()

    def scoped(self, prefix: str, scope: Callable[[], Any]) -> Store:
        store = Store(scope, self.now, self.touched)
        store.tables = _Prefixed(self.tables, prefix)
        return store

    def _handle(self, cls: type, descriptor: Descriptor) -> Any:
        return cls(self, descriptor)

    def get_state(self, descriptor: Descriptor) -> ValueHandle:
        return self._handle(ValueHandle, descriptor)

    def get_list_state(self, descriptor: Descriptor) -> ListHandle:
        return self._handle(ListHandle, descriptor)

    get_union_list_state = get_list_state

    def get_map_state(self, descriptor: Descriptor) -> MapHandle:
        return self._handle(MapHandle, descriptor)

    get_broadcast_state = get_map_state

    def get_reducing_state(self, descriptor: Descriptor) -> ReducingHandle:
        return self._handle(ReducingHandle, descriptor)

    def get_aggregating_state(self, descriptor: Descriptor) -> AggregatingHandle:
        return self._handle(AggregatingHandle, descriptor)


class _Prefixed(dict[str, Any]):
    """The tables of another store, under names with a prefix."""

    def __init__(self, tables: dict[str, Any], prefix: str) -> None:
        self._tables, self._prefix = tables, prefix

    def __getitem__(self, name: str) -> Any:
        return self._tables[self._prefix + name]


def _method(function: Any, name: str) -> Callable[..., Any]:
    return getattr(function, name, function)


def _own(function: Any) -> Any:
    """The copy of a function that one operator has, with its own defaults and variables of its closure."""
    if not isinstance(function, types.FunctionType):
        return copy.deepcopy(function)
    cells = tuple(types.CellType(copy.deepcopy(cell.cell_contents)) for cell in function.__closure__ or ())
    defaults = copy.deepcopy(function.__defaults__)
    return types.FunctionType(function.__code__, function.__globals__, function.__name__, defaults, cells)


class FunctionNode(Node):
    """An operator with a user function; it is also the context that the function gets, and its timer service.

    Args:
        keys: the key selector of each input; None: the operator has no keys.
    """

    def __init__(self, job: Job, function: Any, inputs: list[Tap], keys: list[Any] | None = None) -> None:
        super().__init__(job, *inputs)
        self.keys = keys
        self._key: Any = None
        self.timestamp_ms = 0
        self.state = Store(lambda: self.key, lambda: job.time_ms, [])
        self.operator_state = Store(lambda: None, lambda: job.time_ms)
        #: the same state, as the call of a broadcast element has it
        self.written = Store(lambda: None, lambda: job.time_ms, [])
        self.written.tables = self.operator_state.tables
        self._input = 0
        self.timers: dict[bool, dict[tuple[int, Any], None]] = {True: {}, False: {}}
        self.program = function
        self._opened = False
        self.restart()

    @property
    def key(self) -> Any:
        return self._key

    @key.setter
    def key(self, key: Any) -> None:
        self.state.end_call()
        self._key = key

    def restart(self) -> None:
        self.state.end_call()
        self.function = _own(self.program)
        if hasattr(self.function, "initialize_state"):
            self.function.initialize_state(self)
        if hasattr(self.function, "open"):
            self.function.open(self.state)

    def end_epoch(self) -> None:
        super().end_epoch()
        if hasattr(self.function, "snapshot_state"):
            self.function.snapshot_state(self)

    def process(self, value: Any, timestamp: int, index: int) -> None:
        if self.keys is not None:
            self.key = self.keys[index](value)
        self.timestamp_ms, self._input = timestamp, index
        self.call(value, timestamp, index)
        self._input = 0
        self.written.end_call()

    def call(self, value: Any, timestamp: int, index: int) -> None:
        raise NotImplementedError

    # --- what the function sees ---------------------------------------------------------------------------------

    def get_operator_state_store(self) -> Store:
        return self.operator_state

    def get_broadcast_state(self, descriptor: Descriptor) -> MapHandle:
        return (self.written if self._input else self.operator_state).get_map_state(descriptor)

    def get_current_key(self) -> Any:
        return self.key

    def timestamp(self) -> int:
        return self.timestamp_ms

    def timer_service(self) -> FunctionNode:
        return self

    def current_watermark(self) -> int:
        return self.watermark

    def current_processing_time(self) -> int:
        return self.job.time_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        self.timers[True].setdefault((timestamp, self.key))

    def delete_event_time_timer(self, timestamp: int) -> None:
        self.timers[True].pop((timestamp, self.key), None)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self.timers[False].setdefault((timestamp, self.key))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self.timers[False].pop((timestamp, self.key), None)

    def rise(self, watermark: int) -> None:
        self._fire(True, watermark)

    def new_time(self, time_ms: int) -> None:
        # an operator whose input has ended drops its timers in processing time, as Flink's do
        if self.watermark < MAX_WATERMARK:
            self._fire(False, time_ms)

    def _fire(self, event_time: bool, until: int) -> None:
        while True:
            due = [timer for timer in self.timers[event_time] if timer[0] <= until]
            if not due:
                return
            timestamp, self.key = min(due, key=lambda timer: timer[0])
            del self.timers[event_time][timestamp, self.key]
            self.timestamp_ms = timestamp
            self.emit_all(self.function.on_timer(timestamp, self), timestamp)


class Call(FunctionNode):
    """Calls one method for each record, or one for each input. ``many``: it gives any number of results."""

    def __init__(self, *args: Any, methods: list[str], many: bool, context: bool = False) -> None:
        self._methods, self._many, self._context = methods, many, context
        super().__init__(*args)

    def call(self, value: Any, timestamp: int, index: int) -> None:
        method = _method(self.function, self._methods[index])
        result = method(value, self) if self._context else method(value)
        if self._many:
            self.emit_all(result, timestamp)
        else:
            self.emit(result, timestamp)


class Filter(FunctionNode):
    def call(self, value: Any, timestamp: int, index: int) -> None:
        if _method(self.function, "filter")(value):
            self.emit(value, timestamp)


class Reduce(FunctionNode):
    def call(self, value: Any, timestamp: int, index: int) -> None:
        state = self.state.get_reducing_state(Descriptor("reduce", self.function))
        state.add(value)
        self.emit(state.get(), timestamp)


class Wait(FunctionNode):
    """An asynchronous call, which has ended before the next record comes."""

    def __init__(self, *args: Any, strategy: Any) -> None:
        self._strategy = strategy
        super().__init__(*args)

    def call(self, value: Any, timestamp: int, index: int) -> None:
        attempts, fails = self._strategy or (0, None)
        for attempt in range(attempts + 1):
            try:
                results = asyncio.run(self.function.async_invoke(value))
            except Exception as error:
                if attempt == attempts or not fails(error):
                    raise
            else:
                self.emit_all(results, timestamp)
                return


class IntervalJoin(FunctionNode):
    def __init__(self, *args: Any, lower: int, upper: int) -> None:
        self._lower, self._upper = lower, upper
        self._records: dict[Any, tuple[list[At], list[At]]] = defaultdict(lambda: ([], []))
        super().__init__(*args)

    def call(self, value: Any, timestamp: int, index: int) -> None:
        if timestamp < self.watermark:
            return
        sides = self._records[self.key]
        sides[index].append(At(timestamp, value))
        # Flink leaves the order open; in RocksDB it is that of time
        for other in sorted(sides[1 - index], key=lambda at: at.timestamp):
            left, right = (At(timestamp, value), other) if index == 0 else (other, At(timestamp, value))
            if left.timestamp + self._lower <= right.timestamp <= left.timestamp + self._upper:
                own = copy.deepcopy(left.value), copy.deepcopy(right.value)
                self.emit_all(self.function.process_element(*own, self), max(left.timestamp, right.timestamp))

    def rise(self, watermark: int) -> None:
        """Records that no later one can join are dropped, as Flink does: also those that one with the time of the
        watermark could join."""
        for sides in self._records.values():
            for side, reach in zip(sides, (self._upper, -self._lower), strict=True):
                side[:] = [at for at in side if at.timestamp + max(reach, 0) > watermark]


# --- windows ----------------------------------------------------------------------------------------------------------


class Assigner(NamedTuple):
    """Windows: ``kind`` is tumbling, sliding, session or count."""

    kind: str
    size: int
    slide: int


class TumblingEventTimeWindows:
    of = staticmethod(lambda size: Assigner("tumbling", size, size))


class SlidingEventTimeWindows:
    of = staticmethod(lambda size, slide: Assigner("sliding", size, slide))


class EventTimeSessionWindows:
    with_gap = staticmethod(lambda gap: Assigner("session", gap, 0))


class GlobalWindows:
    create = staticmethod(lambda: Assigner("global", MAX_WATERMARK + 1, MAX_WATERMARK + 1))


class Trigger(NamedTuple):
    """``kind``: event, count or continuous (each ``size`` ms); ``purges``: the window is emptied when it has fired."""

    kind: str = "event"
    size: int = 0
    purges: bool = False


class EventTimeTrigger:
    create = staticmethod(Trigger)


class CountTrigger:
    of = staticmethod(lambda size: Trigger("count", size))


class ContinuousEventTimeTrigger:
    of = staticmethod(lambda size: Trigger("continuous", size))


class PurgingTrigger:
    of = staticmethod(lambda trigger: trigger._replace(purges=True))


class Evictor(NamedTuple):
    """Keeps the last ``size`` elements, or those of the last ``size`` ms. ``after``: when the function has seen all."""

    kind: str
    size: int
    after: bool

    def kept(self, elements: list[Element]) -> list[Element]:
        if self.kind == "count":
            return elements[-self.size :]
        newest = max((element.timestamp for element in elements), default=0)
        return [element for element in elements if element.timestamp > newest - self.size]


class CountEvictor:
    of = staticmethod(lambda size, after=False: Evictor("count", size, after))


class TimeEvictor:
    of = staticmethod(lambda size, after=False: Evictor("time", size, after))


@dataclass
class Open:
    """A window of a key with what its trigger knows."""

    key: Any
    start: int
    last: int
    elements: list[Element] = field(default_factory=list)
    count: int = 0
    next_ms: int | None = None
    timers: set[int] = field(default_factory=set)


class TriggeredModel:
    """Windows that do not merge, with any trigger and evictor. It gives what the models of windows give."""

    def __init__(self, assigner: Assigner, lateness: int, trigger: Trigger, evictor: Evictor | None) -> None:
        self._size, self._slide = assigner.size, assigner.slide
        self._lateness, self._trigger, self._evictor = lateness, trigger, evictor
        self._watermark = MIN_WATERMARK
        self._open: dict[tuple[int, Any], Open] = {}
        self.fired: list[Fired] = []
        self.late: list[Element] = []

    def run(self, events: list[Element | Watermark]) -> None:
        for event in events:
            if isinstance(event, Watermark):
                self._rise(event.timestamp)
            else:
                self._add(event)

    def _add(self, element: Element) -> None:
        latest = element.timestamp // self._slide * self._slide
        starts = itertools.takewhile(
            lambda start: start > element.timestamp - self._size, itertools.count(latest, -self._slide)
        )
        taken = False
        for start in starts:
            last = start + self._size - 1
            if last + self._lateness <= self._watermark:
                continue
            taken = True
            window = self._open.setdefault((start, element.key), Open(element.key, start, last))
            window.elements.append(element)
            if self._fires_with(window, element):
                self._fire(window)
            window.timers.add(last + self._lateness)
        if not taken and element.timestamp + self._lateness <= self._watermark:
            self.late.append(element)

    def _fires_with(self, window: Open, element: Element) -> bool:
        kind, size, _ = self._trigger
        if kind == "count":
            window.count += 1
            fires = window.count >= size
            window.count %= size
            return fires
        if window.last <= self._watermark:
            return True
        window.timers.add(window.last)
        if kind == "continuous" and window.next_ms is None:
            self._next(window, element.timestamp - element.timestamp % size)
        return False

    def _next(self, window: Open, after_ms: int) -> None:
        window.next_ms = min(after_ms + self._trigger.size, window.last)
        window.timers.add(window.next_ms)

    def _rise(self, watermark: int) -> None:
        self._watermark = watermark
        while True:
            due = [(timer, window) for window in self._open.values() for timer in window.timers if timer <= watermark]
            if not due:
                return
            timer, window = min(due, key=lambda one: one[0])
            window.timers.remove(timer)
            if self._fires_at(window, timer):
                self._fire(window)
            if timer == window.last + self._lateness:
                del self._open[window.start, window.key]

    def _fires_at(self, window: Open, timer: int) -> bool:
        if self._trigger.kind == "count" or timer == window.last:
            return self._trigger.kind != "count"
        if self._trigger.kind == "event" or timer != window.next_ms:
            return False
        self._next(window, timer)
        return True

    def _fire(self, window: Open) -> None:
        if not window.elements:
            return
        seen = window.elements
        if self._evictor is not None:
            window.elements = self._evictor.kept(window.elements)
            seen = seen if self._evictor.after else window.elements
        values = tuple(element.value for element in seen)
        self.fired.append(Fired(window.key, window.start, window.start + self._size, values))
        if self._trigger.purges:
            window.elements = []


class Window(NamedTuple):
    start: int
    end: int

    def max_timestamp(self) -> int:
        return self.end - 1


class WindowNode(FunctionNode):
    """Windows of one or two inputs. The elements of a window are kept as they came; whatever evaluates the window gets
    copies of them.

    Args:
        evaluate: (node, key, window, elements) -> results.
    """

    def __init__(
        self, job: Job, function: Any, inputs: list[Tap], keys: list[Any], windowed: Windowed, evaluate: Any
    ) -> None:
        self._evaluate, self._windowed = evaluate, windowed
        assigner = windowed.assigner
        lateness = windowed.lateness
        self._counted: dict[Any, list[Any]] = defaultdict(list)
        self._fired = 0
        self._windows: Any = None
        if windowed.with_trigger is not None or windowed.with_evictor is not None:
            trigger = windowed.with_trigger or Trigger()
            self._windows = TriggeredModel(assigner, lateness, trigger, windowed.with_evictor)
        elif assigner.kind == "session":
            self._windows = SessionModel(lambda value: assigner.size, lateness)
        elif assigner.kind != "count":
            self._windows = AlignedModel(assigner.size, assigner.slide, lateness=lateness)
        self._current = Window(0, 0)
        super().__init__(job, function, inputs, keys)

    def call(self, value: Any, timestamp: int, index: int) -> None:
        element = (index, value)
        if self._windows is None:
            self._count(element)
        else:
            self._windows.run([Element(self.key, element, timestamp)])
            self._results()

    def rise(self, watermark: int) -> None:
        if self._windows is not None:
            self._windows.run([Watermark(watermark)])
            self._results()

    def _count(self, element: Any) -> None:
        """Each window of a given number of elements fires once, when it is full."""
        size, slide = self._windowed.assigner.size, self._windowed.assigner.slide
        elements = self._counted[self.key]
        elements.append(element)
        step = slide or size
        if len(elements) >= size and (len(elements) - size) % step == 0:
            self._fired += 1
            self._fire_window(self.key, Window(self._fired, self._fired), elements[-size:])

    def _results(self) -> None:
        late, self._windows.late = self._windows.late, []
        for element in late:
            if self._windowed.late_tag is not None:
                self.emit((self._windowed.late_tag, element.value[1]), element.timestamp)
        fired, self._windows.fired = self._windows.fired, []
        for key, start, end, elements in fired:
            self._fire_window(key, Window(start, end), list(elements))

    def _fire_window(self, key: Any, window: Window, elements: list[Any]) -> None:
        self.key, self._current = key, window
        own = [copy.deepcopy(element) for element in elements]
        timestamp = window.max_timestamp() if self._windows is not None else MAX_WATERMARK
        self.emit_all(self._evaluate(self, key, window, own), timestamp)

    # --- the context of the function ----------------------------------------------------------------------------

    def window(self) -> Window:
        return self._current

    def global_state(self) -> Store:
        return self.state.scoped("global ", lambda: self.key)

    def window_state(self) -> Store:
        return self.state.scoped("window ", lambda: (self.key, self._current))


class Windowed:
    """A stream in windows. ``all``: without keys."""

    def __init__(self, stream: Stream, assigner: Assigner, keys: list[Any]) -> None:
        self.stream, self.assigner, self.keys = stream, assigner, keys
        self.lateness = 0
        self.late_tag: OutputTag | None = None
        self.with_trigger: Trigger | None = None
        self.with_evictor: Evictor | None = None

    def trigger(self, trigger: Trigger) -> Windowed:
        self.with_trigger = trigger
        return self

    def evictor(self, evictor: Evictor) -> Windowed:
        self.with_evictor = evictor
        return self

    def allowed_lateness(self, time_ms: int) -> Windowed:
        self.lateness = time_ms
        return self

    def side_output_late_data(self, tag: OutputTag) -> Windowed:
        self.late_tag = tag
        return self

    def reduce(self, function: Any, window_function: Any = None, output_type: Any = None) -> Stream:
        def evaluate(node: Any, key: Any, window: Any, elements: list[Any]) -> Any:
            state = Store(lambda: None, lambda: 0).get_reducing_state(Descriptor("", function))
            for _, element in elements:
                state.add(element)
            return self._result(node, key, window, state.get())

        return self._add(window_function or function, evaluate)

    def aggregate(
        self, function: Any, window_function: Any = None, accumulator_type: Any = None, output_type: Any = None
    ) -> Stream:
        def evaluate(node: Any, key: Any, window: Any, elements: list[Any]) -> Any:
            state = Store(lambda: None, lambda: 0).get_aggregating_state(Descriptor("", function))
            for _, element in elements:
                state.add(element)
            return self._result(node, key, window, state.get())

        return self._add(window_function or function, evaluate)

    def process(self, function: Any, output_type: Any = None) -> Stream:
        return self._add(function, lambda node, *args: self._called(node, *args))

    apply = process

    def _result(self, node: WindowNode, key: Any, window: Window, value: Any) -> Any:
        is_window_function = hasattr(node.function, "process") or hasattr(node.function, "apply")
        return self._called(node, key, window, [(0, value)]) if is_window_function else [value]

    def _called(self, node: WindowNode, key: Any, window: Window, elements: list[Any]) -> Any:
        values = [value for _, value in elements]
        keys = [] if self.keys == [None] else [key]
        if hasattr(node.function, "apply"):
            return node.function.apply(*keys, window, values)
        return node.function.process(*keys, node, values)

    def _add(self, function: Any, evaluate: Any) -> Stream:
        keys = [(lambda value: None) if key is None else key for key in self.keys]
        return self.stream.add(WindowNode(self.stream.job, function, [self.stream.tap], keys, self, evaluate))


# --- streams ----------------------------------------------------------------------------------------------------------


class Stream:
    """A stream of records."""

    def __init__(self, job: Job, tap: Tap, key: Any = None) -> None:
        self.job, self.tap, self._key = job, tap, key

    def add(self, node: Node) -> Stream:
        return Stream(self.job, (node, None))

    @property
    def _keys(self) -> list[Any] | None:
        return None if self._key is None else [self._key]

    def _call(self, function: Any, method: str, many: bool, context: bool = False) -> Stream:
        node = Call(self.job, function, [self.tap], self._keys, methods=[method], many=many, context=context)
        return self.add(node)

    def map(self, function: Any, output_type: Any = None) -> Stream:
        return self._call(function, "map", many=False)

    def flat_map(self, function: Any, output_type: Any = None) -> Stream:
        return self._call(function, "flat_map", many=True)

    def filter(self, function: Any) -> Stream:
        return self.add(Filter(self.job, function, [self.tap], self._keys))

    def process(self, function: Any, output_type: Any = None) -> Stream:
        return self._call(function, "process_element", many=True, context=True)

    def get_side_output(self, tag: OutputTag) -> Stream:
        return Stream(self.job, (self.tap[0], tag.tag_id))

    def key_by(self, key: Any, key_type: Any = None) -> Stream:
        return Stream(self.job, self.tap, key)

    def reduce(self, function: Any) -> Stream:
        return self.add(Reduce(self.job, function, [self.tap], self._keys))

    def sum(self, field: Any) -> Stream:
        return self.reduce(Aggregation(field, lambda old, new: old + new))

    def min(self, field: Any) -> Stream:
        return self.reduce(Aggregation(field, min))

    def max(self, field: Any) -> Stream:
        return self.reduce(Aggregation(field, max))

    def min_by(self, field: Any) -> Stream:
        return self.reduce(By(field, lambda old, new: new < old))

    def max_by(self, field: Any) -> Stream:
        return self.reduce(By(field, lambda old, new: new > old))

    def window(self, assigner: Assigner) -> Windowed:
        return Windowed(self, assigner, [self._key])

    def window_all(self, assigner: Assigner) -> Windowed:
        return Windowed(self, assigner, [None])

    def count_window(self, size: int, slide: int = 0) -> Windowed:
        return Windowed(self, Assigner("count", size, slide), [self._key])

    def count_window_all(self, size: int, slide: int = 0) -> Windowed:
        return Windowed(self, Assigner("count", size, slide), [None])

    def union(self, *others: Stream) -> Stream:
        return self.add(Node(self.job, self.tap, *(other.tap for other in others)))

    def connect(self, other: Any) -> Connected:
        return Connected(self, other)

    def broadcast(self, *descriptors: Any) -> Stream:
        return self

    def interval_join(self, other: Stream) -> Any:
        return Joined(self, other)

    def join(self, other: Stream) -> Any:
        return WindowJoined(self, other, co_group=False)

    def co_group(self, other: Stream) -> Any:
        return WindowJoined(self, other, co_group=True)

    def _same(self) -> Stream:
        return self

    rebalance = rescale = shuffle = forward = global_ = start_new_chain = disable_chaining = _same

    def name(self, name: str) -> Stream:
        return self

    uid = name


class Connected:
    def __init__(self, first: Stream, second: Stream) -> None:
        self._first, self._second = first, second

    def _add(self, function: Any, method: str, many: bool, context: bool = False) -> Stream:
        first, second = self._first, self._second
        keys = None if first._key is None else [first._key, second._key]
        second_method = f"{method}2"
        if hasattr(function, "process_broadcast_element"):
            keys = None if first._key is None else [first._key, lambda value: None]
            method, second_method = "process_element", "process_broadcast_element"
        else:
            method = f"{method}1"
        methods = [method, second_method]
        inputs = [first.tap, second.tap]
        return first.add(Call(first.job, function, inputs, keys, methods=methods, many=many, context=context))

    def map(self, function: Any, output_type: Any = None) -> Stream:
        return self._add(function, "map", many=False)

    def flat_map(self, function: Any, output_type: Any = None) -> Stream:
        return self._add(function, "flat_map", many=True)

    def process(self, function: Any, output_type: Any = None) -> Stream:
        return self._add(function, "process_element", many=True, context=True)


class Joined:
    """An interval join; its last call is `process`."""

    def __init__(self, left: Stream, right: Stream) -> None:
        self._left, self._right = left, right

    def between(self, lower: int, upper: int) -> Joined:
        self._lower, self._upper = lower, upper
        return self

    def process(self, function: Any, output_type: Any = None) -> Stream:
        left, right = self._left, self._right
        keys, bounds = [left._key, right._key], {"lower": self._lower, "upper": self._upper}
        return left.add(IntervalJoin(left.job, function, [left.tap, right.tap], keys, **bounds))


class WindowJoined:
    """A join or a co-group in windows; its last call is `apply`."""

    def __init__(self, first: Stream, second: Stream, co_group: bool) -> None:
        self._first, self._second, self._co_group = first, second, co_group

    def where(self, key: Any) -> WindowJoined:
        self._where = key
        return self

    def equal_to(self, key: Any) -> WindowJoined:
        self._equal_to = key
        return self

    def window(self, assigner: Assigner) -> WindowJoined:
        self._assigner = assigner
        return self

    def apply(self, function: Any, output_type: Any = None) -> Stream:
        first, second = self._first, self._second
        keys = [self._where, self._equal_to]
        windowed = Windowed(first, self._assigner, keys)
        node = WindowNode(first.job, function, [first.tap, second.tap], keys, windowed, self._evaluate)
        return first.add(node)

    def _evaluate(self, node: WindowNode, key: Any, window: Window, elements: list[Any]) -> Any:
        sides = [[value for side, value in elements if side == index] for index in (0, 1)]
        function = node.function
        if self._co_group:
            yield from _method(function, "co_group")(*sides) or ()
            return
        for pair in itertools.product(*sides):
            result = _method(function, "join")(*copy.deepcopy(pair))
            if isinstance(function, FlatJoinFunction):
                yield from result or ()
            else:
                yield result


@dataclass(frozen=True)
class Aggregation:
    """The first record, with a field that is computed from both records."""

    field: Any
    compute: Callable[[Any, Any], Any]

    def reduce(self, old: Any, new: Any) -> Any:
        value = self.compute(_read(old, self.field), _read(new, self.field))
        if isinstance(old, (list, dict)):
            old[self.field] = value
            return old
        if isinstance(old, tuple):
            at = old._fields.index(self.field) if isinstance(self.field, str) else self.field
            values = [*old[:at], value, *old[at + 1 :]]
            return type(old)(*values) if hasattr(old, "_fields") else tuple(values)
        names = list(vars(old))
        vars(old)[self.field if isinstance(self.field, str) else names[self.field]] = value
        return old


@dataclass(frozen=True)
class By:
    """The one of both records whose field is better."""

    field: Any
    better: Callable[[Any, Any], bool]

    def reduce(self, old: Any, new: Any) -> Any:
        return new if self.better(_read(old, self.field), _read(new, self.field)) else old


def _read(record: Any, at: Any) -> Any:
    if isinstance(at, int) and isinstance(record, (list, tuple)):
        return record[at]
    return getattr(record, at) if isinstance(at, str) else list(vars(record).values())[at]


def _wait(stream: Stream, function: Any, timeout: int, *args: Any, output_type: Any = None) -> Stream:
    strategy = next((arg for arg in args if isinstance(arg, tuple)), None)
    return stream.add(Wait(stream.job, function, [stream.tap], stream._keys, strategy=strategy))


class AsyncDataStream:
    ordered_wait = unordered_wait = ordered_wait_with_retry = unordered_wait_with_retry = staticmethod(_wait)


class AsyncRetryStrategy:
    @staticmethod
    def fixed_delay(attempts: int, delay_ms: int, result_predicate: Any, exception_predicate: Any) -> Any:
        return attempts, exception_predicate


class FlatJoinFunction:
    pass


#: What programs derive their functions from: nothing of theirs matters here.
FUNCTIONS = (
    "MapFunction FlatMapFunction FilterFunction ProcessFunction KeyedProcessFunction ReduceFunction AggregateFunction "
    "WindowFunction ProcessWindowFunction AllWindowFunction ProcessAllWindowFunction CoMapFunction CoFlatMapFunction "
    "CoProcessFunction KeyedCoProcessFunction BroadcastProcessFunction KeyedBroadcastProcessFunction AsyncFunction "
    "JoinFunction CoGroupFunction ProcessJoinFunction CheckpointedFunction PagedSource DeserializationSchema"
).split()


def names() -> dict[str, Any]:
    """The names that a program finds, when the model runs it."""
    states = ("Value", "List", "Map", "Reducing", "Aggregating")
    return {
        **CLASSES,
        **{name: type(name, (), {}) for name in FUNCTIONS},
        **{f"{state}StateDescriptor": _descriptor(state) for state in states},
        **{
            cls.__name__: cls
            for cls in (At, Mark, Pause, Row, OutputTag, Time, AsyncDataStream, AsyncRetryStrategy, FlatJoinFunction)
        },
        **{cls.__name__: cls for cls in (TumblingEventTimeWindows, SlidingEventTimeWindows, EventTimeSessionWindows)},
        **{cls.__name__: cls for cls in (GlobalWindows, EventTimeTrigger, CountTrigger, ContinuousEventTimeTrigger)},
        **{cls.__name__: cls for cls in (PurgingTrigger, CountEvictor, TimeEvictor, StateTtlConfig, Idle, Page)},
        "Types": _Anything(),
        "functools": functools,
        "operator": operator,
    }


def _descriptor(state: str) -> Callable[..., Descriptor]:
    functional = state in ("Reducing", "Aggregating")
    return lambda name, *rest: Descriptor(name, rest[0] if functional else None)


def results_of(source: str, times_ms: Callable[[int], int], restarts: Container[int] = ()) -> dict[str, list[Any]]:
    """Run a program; returns what each sink gets, in order. ``times_ms``, ``restarts``: see `Job.run`."""
    namespace = names()
    exec(compile(source, "<program>", "exec"), namespace)
    job = Job()
    namespace["build"](Sources(job), job.sink)
    job.run(times_ms, restarts)
    return job.sinks
