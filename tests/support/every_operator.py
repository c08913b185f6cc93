"""One program in which every operator of ``runtime/operators`` appears, and the golden result of it in plain Python.

The result depends on nothing but the records: not on the size of epochs, on restarts, or on how many cores there are.
In ``execution.runtime-mode: BATCH`` rolling reduces are other operators: `golden` has both results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flinkish.common import Row, Time, Types, WatermarkStrategy
from flinkish.common.time import Duration
from flinkish.common.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkOutput
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.core.co_functions import ProcessJoinFunction
from flinkish.core.sink import Sink
from flinkish.core.window.evictor import CountEvictor
from flinkish.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OnError,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from flinkish.datastream.window import (
    EventTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

#: (key, amount, event time in ms)
EVENT = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
KEY, AMOUNT, TS = range(3)
RECORDS, RULES, PARALLELISM = 240, 5, 2
LARGE = OutputTag("large", EVENT)
ODD = OutputTag("odd")
RULES_STATE = MapStateDescriptor("rules", Types.STRING(), Types.INT())
#: behind all records: timers for it fire when the input ends
END_MS = 10**12
WINDOW_MS, SLIDE_MS, GAP_MS, NEAR_MS, LAST = 1_000, 500, 120, 100, 3

Result = dict[str, list[Any]]


def first(index: int) -> tuple[str, int, int]:
    """A record of the first source: times go back by up to 90 ms."""
    return f"k{index * 7 % 5}", index * 13 % 17, index * 50 + 90 - index % 4 * 30


def second(index: int) -> tuple[str, int, int]:
    """A record of the second source, which has half as many."""
    return f"k{index * 3 % 5}", index * 5 % 11, index * 100 + 90 - index % 3 * 30


def rule(index: int) -> tuple[str, int, int]:
    """A rule: the greatest amount of a key that is allowed."""
    return f"k{index}", 3 * index, index


class _Time(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[TS])


def key(event: Any) -> Any:
    return event[KEY]


def amounts(one: Any, other: Any) -> Any:
    return one[KEY], one[AMOUNT] + other[AMOUNT], max(one[TS], other[TS])


class Behind(WatermarkGenerator):
    """Watermarks 200 ms behind each record, in a generator of the program's own."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp - 200)


def even(event: Any) -> Any:
    """Raises for records whose amount is odd."""
    if event[AMOUNT] % 2:
        raise ValueError(f"{event[AMOUNT]} is odd")
    return event[KEY], event[AMOUNT]


def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns with the amounts doubled."""
    columns = batch.columns
    columns[AMOUNT] = pc.cast(pc.multiply(columns[AMOUNT], 2), columns[AMOUNT].type)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class ToSide(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value[AMOUNT] > 10:
            yield LARGE, value
        else:
            yield value


class PerSecond(KeyedProcessFunction):
    """(key, end of the second, number of records) when the second is over."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.LONG(), Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        end = value[TS] // 1_000 * 1_000 + 1_000
        self._counts.put(end, (self._counts.get(end) or 0) + 1)
        ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, self._counts.get(timestamp)
        self._counts.remove(timestamp)


class Number(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [(value[KEY], value[AMOUNT] + 100)]


class EvenNumber(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [even(value)]


class CoNumber(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return "first", value[AMOUNT]

    def map2(self, value: Any) -> Any:
        return "second", value[AMOUNT]


class CoRepeat(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        return ["first"] * (value[AMOUNT] % 3)

    def flat_map2(self, value: Any) -> Any:
        return ["second"] * (value[AMOUNT] % 2)


class CoName(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield 1, value[KEY]

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield 2, value[KEY]


class Sums(KeyedCoProcessFunction):
    """(key, sum of the first stream, sum of the second) when the input ends."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sums = [
            runtime_context.get_state(ValueStateDescriptor(name, Types.LONG())) for name in ("first", "second")
        ]

    def _add(self, number: int, value: Any, ctx: Any) -> None:
        self._sums[number].update((self._sums[number].value() or 0) + value[AMOUNT])
        ctx.timer_service().register_event_time_timer(END_MS)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(0, value, ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(1, value, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), *(each.value() for each in self._sums)


class Rules(BroadcastProcessFunction[Any, Any, Any]):
    """Records as they are; each subtask tells of each rule."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        yield "record", value[AMOUNT]

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Iterator[Any]:
        rules = ctx.get_broadcast_state(RULES_STATE)
        rules.put(value[KEY], value[AMOUNT])
        yield "rules so far", len(list(rules.keys()))


class TooMuch(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """(key, amount) of the records that the key's rule does not allow, when the input ends and all rules are known."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._amounts = runtime_context.get_list_state(ListStateDescriptor("amounts", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        self._amounts.add(value[AMOUNT])
        ctx.timer_service().register_event_time_timer(END_MS)

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES_STATE).put(value[KEY], value[AMOUNT])

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterator[Any]:
        most = ctx.get_broadcast_state(RULES_STATE).get(ctx.get_current_key())
        yield from ((ctx.get_current_key(), amount) for amount in self._amounts.get() if amount > most)


class Near(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        yield left[KEY], left[AMOUNT], right[AMOUNT]


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return gap(element)


def gap(event: Any) -> int:
    return GAP_MS + 10 * int(event[AMOUNT])


class Amounts(ProcessWindowFunction[Any, Any, Any, Any]):
    """(key, start of the window, the amounts in it)."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, context.window().start, [element[AMOUNT] for element in elements]


class EvenWindows(Amounts):
    """The same; raises for windows whose amounts have an odd sum."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield from super().process(key, context, elements)
        even((key, sum(element[AMOUNT] for element in elements)))


def build(env: StreamExecutionEnvironment, sink: Callable[[str], Sink], mended: Callable[[Any], Any] = tuple) -> None:
    """The program. ``sink``: the sink of a name. ``mended``: what the first source's records go through; the same
    record comes out, unless it raises."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(200)).with_timestamp_assigner(_Time())

    def source(function: Callable[[int], Any], count: int, name: str, declared: Any = EVENT) -> DataStream:
        return env.from_source(DataGeneratorSource(function, count), strategy, name, declared).uid(name)

    left = source(first, RECORDS, "left").map(mended, EVENT).uid("mended")
    right, rules = source(second, RECORDS // 2, "right"), source(rule, RULES, "rules", None)
    by_left, by_right = left.key_by(key, Types.STRING()), right.key_by(key, Types.STRING())
    tumbling = TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))
    sliding = SlidingEventTimeWindows.of(Time.milliseconds(WINDOW_MS), Time.milliseconds(SLIDE_MS))
    processed = left.process(ToSide(), EVENT)
    guarded = left.map(even).on_error(OnError.dead_letter(ODD, max_failures=RECORDS, max_rate=0.5))
    skipping = OnError.skip(max_failures=RECORDS, max_rate=0.5)
    own_times = left.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_generator(Behind).with_timestamp_assigner(_Time())
    )
    plain = left.map(lambda event: event[AMOUNT] * 2).filter(lambda n: n % 3).flat_map(lambda n: [n] * (n % 4))
    results = {
        "plain": plain,
        "small": processed,
        "large": processed.get_side_output(LARGE),
        "rolling": by_left.reduce(amounts).map(lambda event: tuple(event[:TS])),
        "sums": left.map(lambda event: event[:TS]).key_by(lambda pair: pair[KEY]).sum(1),
        "per second": by_left.process(PerSecond()),
        "guarded": guarded,
        "odd": guarded.get_side_output(ODD).map(lambda letter: (letter.error_type, letter.record)),
        "guarded async": AsyncDataStream.ordered_wait(left, EvenNumber(), Time.seconds(60)).on_error(skipping),
        "guarded windows": by_left.window(tumbling).process(EvenWindows()).on_error(skipping),
        "batches": left.map_batches(twice, EVENT),
        "own watermarks": own_times.key_by(key, Types.STRING()).window(tumbling).reduce(amounts),
        "async": AsyncDataStream.unordered_wait(left, Number(), Time.seconds(60)),
        "co map": left.connect(right).map(CoNumber()),
        "co flat map": left.connect(right).flat_map(CoRepeat()),
        "co process": left.connect(right).process(CoName()),
        "keyed co process": by_left.connect(by_right).process(Sums()),
        "broadcast": left.connect(rules.broadcast(RULES_STATE)).process(Rules()),
        "keyed broadcast": by_left.connect(rules.broadcast(RULES_STATE)).process(TooMuch()),
        "interval join": by_left.interval_join(by_right)
        .between(Time.milliseconds(-NEAR_MS), Time.milliseconds(NEAR_MS))
        .process(Near()),
        "join": left.join(right).where(key).equal_to(key).window(tumbling).apply(lambda a, b: (a[AMOUNT], b[AMOUNT])),
        "co group": left.co_group(right)
        .where(key)
        .equal_to(key)
        .window(tumbling)
        .apply(lambda a, b: [(len(list(a)), len(list(b)))]),
        "tumbling": by_left.window(tumbling).reduce(amounts),
        "sliding": by_left.window(sliding).evictor(CountEvictor.of(LAST)).process(Amounts()),
        "sessions": by_left.window(EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS))).reduce(amounts),
        "evicted sessions": by_left.window(EventTimeSessionWindows.with_dynamic_gap(Gap()))
        .evictor(CountEvictor.of(LAST))
        .process(Amounts()),
    }
    for name, stream in results.items():
        stream.uid(name)
        stream.sink_to(sink(name)).uid(f"sink of {name}")


def golden(batch: bool = False) -> Result:
    """What the sinks get in the end, each in the order of `repr`. In BATCH mode rolling reduces give their last value,
    and windows the same as ever."""
    a: list[Any] = [first(index) for index in range(RECORDS)]
    b: list[Any] = [second(index) for index in range(RECORDS // 2)]
    rules = {key: limit for key, limit, _ in map(rule, range(RULES))}
    keys = sorted({event[KEY] for event in a})
    of_key = {name: [event for event in a if event[KEY] == name] for name in keys}
    rolling = [
        (name, sum(event[AMOUNT] for event in of_key[name][: count + 1]))
        for name in keys
        for count in range(len(of_key[name]))
        if not batch or count + 1 == len(of_key[name])
    ]
    doubled = [event[AMOUNT] * 2 for event in a]
    tumbling = [
        (name, sum(event[AMOUNT] for event in events), max(event[TS] for event in events))
        for (name, _), events in _grouped(a, lambda event: event[TS] // WINDOW_MS)
    ]
    found: Result = {
        "plain": [n for n in doubled if n % 3 for _ in range(n % 4)],
        "small": [event for event in a if event[AMOUNT] <= 10],
        "large": [event for event in a if event[AMOUNT] > 10],
        "rolling": rolling,
        "sums": rolling,
        "per second": [
            (name, end, len(events)) for (name, end), events in _grouped(a, lambda e: e[TS] // 1_000 * 1_000 + 1_000)
        ],
        "guarded": [event[:TS] for event in a if event[AMOUNT] % 2 == 0],
        "odd": [("ValueError", event) for event in a if event[AMOUNT] % 2],
        "guarded async": [event[:TS] for event in a if event[AMOUNT] % 2 == 0],
        "guarded windows": [
            (name, number * WINDOW_MS, amounts_of)
            for (name, number), events in _grouped(a, lambda event: event[TS] // WINDOW_MS)
            if sum(amounts_of := [event[AMOUNT] for event in events]) % 2 == 0
        ],
        "batches": [(name, 2 * amount, ts) for name, amount, ts in a],
        "async": [(name, amount + 100) for name, amount, _ in a],
        "co map": [("first", event[AMOUNT]) for event in a] + [("second", event[AMOUNT]) for event in b],
        "co flat map": ["first"] * sum(event[AMOUNT] % 3 for event in a)
        + ["second"] * sum(event[AMOUNT] % 2 for event in b),
        "co process": [(1, event[KEY]) for event in a] + [(2, event[KEY]) for event in b],
        "keyed co process": [
            (name, *(sum(e[AMOUNT] for e in each if e[KEY] == name) for each in (a, b))) for name in keys
        ],
        "broadcast": [("record", event[AMOUNT]) for event in a]
        + [("rules so far", count + 1) for count in range(RULES)] * PARALLELISM,
        "keyed broadcast": [event[:TS] for event in a if event[AMOUNT] > rules[event[KEY]]],
        "interval join": [
            (x[KEY], x[AMOUNT], y[AMOUNT]) for x in a for y in b if x[KEY] == y[KEY] and abs(y[TS] - x[TS]) <= NEAR_MS
        ],
        "join": [
            (x[AMOUNT], y[AMOUNT])
            for x in a
            for y in b
            if x[KEY] == y[KEY] and x[TS] // WINDOW_MS == y[TS] // WINDOW_MS
        ],
        "co group": _co_groups(a, b),
        "tumbling": tumbling,
        "own watermarks": tumbling,
        "sliding": _sliding(a),
        "sessions": [
            (name, sum(event[AMOUNT] for event in events), max(event[TS] for event in events))
            for name, _, events in _sessions(of_key, lambda event: GAP_MS)
        ],
        "evicted sessions": [
            (name, start, [event[AMOUNT] for event in events][-LAST:]) for name, start, events in _sessions(of_key, gap)
        ],
    }
    return in_order(found)


def in_order(found: Result) -> Result:
    """The same in an order that does not depend on subtasks; Rows as tuples."""
    return {
        name: sorted((tuple(value) if isinstance(value, Row) else value for value in values), key=repr)
        for name, values in found.items()
    }


def _grouped(events: list[Any], group: Callable[[Any], int]) -> Iterable[tuple[tuple[str, int], list[Any]]]:
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for event in events:
        found[event[KEY], group(event)].append(event)
    return found.items()


def _co_groups(a: list[Any], b: list[Any]) -> list[Any]:
    counts: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for number, events in enumerate((a, b)):
        for event in events:
            counts[event[KEY], event[TS] // WINDOW_MS][number] += 1
    return [tuple(each) for each in counts.values()]


def _sliding(a: list[Any]) -> list[Any]:
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for name, amount, ts in a:
        last_start = ts // SLIDE_MS * SLIDE_MS
        for start in range(last_start, last_start - WINDOW_MS, -SLIDE_MS):
            windows[name, start].append(amount)
    return [(name, start, found[-LAST:]) for (name, start), found in windows.items()]


def _sessions(of_key: dict[str, list[Any]], gap_of: Callable[[Any], int]) -> Iterator[tuple[str, int, list[Any]]]:
    """(key, start, events) of each session; events in the order in which they came."""
    for name, events in of_key.items():
        sessions: list[list[Any]] = []
        end = -1
        for event in sorted(events, key=lambda event: event[TS]):
            if event[TS] > end:
                sessions.append([])
            sessions[-1].append(event)
            end = max(end, event[TS] + gap_of(event))
        for session in sessions:
            yield name, session[0][TS], [event for event in events if event in session]
