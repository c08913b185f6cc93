"""What operators give is not what they keep: a function behind them may change its records in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flinkish.common import Row, Time, Types, WatermarkStrategy
from flinkish.datastream import AsyncDataStream, OutputTag
from flinkish.datastream.functions import (
    AsyncFunction,
    CoGroupFunction,
    FlatJoinFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessJoinFunction,
)
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from flinkish.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from flinkish.errors import UserCodeError
from flinkish.minicluster import MiniCluster
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.random_programs.program import random_program
from tests.random_programs.running import differences, expected, in_minicluster
from tests.support.functions import Elements, ListOf

from .programs import bounded, environment, job_of, list_source, run

ANY = Types.PICKLED_BYTE_ARRAY()


class Both(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        yield left
        yield right


class Either(FlatJoinFunction):
    def join(self, first: Any, second: Any) -> Iterator[Any]:
        yield first
        yield second


class Records(CoGroupFunction):
    def co_group(self, first: list[Any], second: list[Any]) -> list[Any]:
        return [*first, *second]


def of_both(streams: Any) -> Any:
    """The sliding windows over two streams by key."""
    by_key = streams.where(lambda r: r[0]).equal_to(lambda r: r[0])
    return by_key.window(SlidingEventTimeWindows.of(Time.milliseconds(4), Time.milliseconds(2)))


def raised(record: Any) -> Any:
    record[1] += 100
    return record


ms = Time.milliseconds
STREAMS: dict[str, Callable[[Any], Any]] = {
    "sliding": lambda k: k.window(SlidingEventTimeWindows.of(ms(4), ms(2))).process(Elements()),
    "early": lambda k: (
        k.window(SlidingEventTimeWindows.of(ms(4), ms(2)))
        .trigger(ContinuousEventTimeTrigger.of(ms(1)))
        .process(Elements())
    ),
    "sessions": lambda k: (
        k.window(EventTimeSessionWindows.with_gap(ms(3))).trigger(CountTrigger.of(1)).process(Elements())
    ),
    "evicted": lambda k: (
        k.window(GlobalWindows.create()).trigger(CountTrigger.of(1)).evictor(CountEvictor.of(3)).process(Elements())
    ),
    "interval join": lambda k: k.interval_join(k).between(ms(-2), ms(2)).process(Both()),
    "tumbling, late": lambda k: k.window(TumblingEventTimeWindows.of(ms(4))).allowed_lateness(9).process(Elements()),
    "window join": lambda k: of_both(k.join(k)).apply(Either()),
    "co_group": lambda k: of_both(k.co_group(k)).apply(Records()),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("chaining", [False, True])
def test_a_map_that_changes_its_records_changes_nothing_that_is_kept(name: str, chaining: bool) -> None:
    env, sink = environment(1), TestingSink()
    records = [[key, 0, time] for time in (0, 1, 2, 3, 4, 5, 2, 6, 7, 8, 6) for key in "ab"]
    keyed = env.from_source(list_source(records), bounded(), "records").key_by(lambda r: r[0])
    STREAMS[name](keyed).map(raised).sink_to(sink)
    run(job_of(env, chaining))
    assert {number for _, number, _ in sink.values} == {100}


class KeepsAll(MapFunction):
    def __init__(self) -> None:
        self.all: list[Any] = []

    def map(self, value: Any) -> Any:
        self.all.append(value)
        return self.all


class ChangesTheOneBefore(MapFunction):
    before: list[Any] = []

    def map(self, value: Any) -> Any:
        self.before.append("changed")
        self.before = value
        return value


def one_dict_again_and_again(value: Any) -> Iterator[Any]:
    record: dict[str, Any] = {"parts": []}
    for number in range(value):
        record["parts"].append(number)
        yield record


SIDE = OutputTag("side")


class OneRowAgainAndAgain(ProcessFunction):
    row = Row(0)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.row[0] = value
        yield SIDE, self.row
        self.row[0] = "changed"


class ReadsChangesAndEmits(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("all", ANY))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        x = self.state.value() or {"n": []}
        x["n"].append(value)
        self.state.update(x)
        yield x


class KeepsInLists(KeyedProcessFunction):
    """Changes what it has put into state and what it has read of it, which changes the state, but not what was
    emitted."""

    def open(self, runtime_context: Any) -> None:
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", ANY))
        self.entries = runtime_context.get_map_state(MapStateDescriptor("entries", Types.INT(), ANY))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        record = {"n": [value]}
        self.values.add(record)
        self.entries.put(value, record)
        record["n"].append("changed")
        self.values.get()[-1]["n"].append("changed")
        self.entries.get(value)["n"].append("changed")
        for _, entry in self.entries.items():
            entry["n"].append("changed")
        yield self.values.get(), self.entries.values()


class KeepsItsAnswer(AsyncFunction[Any, Any]):
    def __init__(self) -> None:
        self.answer: list[Any] = []

    async def async_invoke(self, value: Any) -> list[Any]:
        self.answer.append(value)
        return [self.answer]


def renumbered(value: Any) -> Iterator[Any]:
    record = {}
    for number in range(value):
        record["key"] = number
        yield record


def extended(a: Any, b: Any) -> Any:
    a[1].extend(b[1])
    return a


def merged(a: Any, b: Any) -> Any:
    a["in"].update(b["in"])
    return a


def changed(record: Any) -> Any:
    record[0].append("changed")
    return record


def one_key(stream: Any) -> Any:
    return stream.key_by(lambda _: 0)


def two_consumers(stream: Any) -> Any:
    nested = stream.map(lambda n: ([n], n))
    nested.map(changed).map(lambda r: r[1]).filter(lambda _: False)
    return nested.map(changed).filter(lambda _: False).union(nested)


#: what is done to the stream 1, 2, 3, and what comes out of it
CHANGES: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "map that keeps and returns a list": (lambda s: s.map(KeepsAll()), [[1], [1, 2], [1, 2, 3]]),
    "generator that yields one dict": (
        lambda s: s.filter(lambda n: n == 3).flat_map(one_dict_again_and_again),
        [{"parts": [0]}, {"parts": [0, 1]}, {"parts": [0, 1, 2]}],
    ),
    "one Row into a side output": (
        lambda s: s.process(OneRowAgainAndAgain()).get_side_output(SIDE),
        [Row(1), Row(2), Row(3)],
    ),
    "state that is read, changed, updated and emitted": (
        lambda s: one_key(s).process(ReadsChangesAndEmits()),
        [{"n": [1]}, {"n": [1, 2]}, {"n": [1, 2, 3]}],
    ),
    "list and map state": (
        lambda s: one_key(s).process(KeepsInLists()),
        [
            (
                [{"n": [m, *["changed"] * 4]} for m in range(1, n + 1)],
                [{"n": [m, *["changed"] * (4 + n - m)]} for m in range(1, n + 1)],
            )
            for n in (1, 2, 3)
        ],
    ),
    "reduce that extends its first argument": (
        lambda s: one_key(s.map(lambda n: ("k", [n]))).reduce(extended),
        [("k", [1]), ("k", [1, 2]), ("k", [1, 2, 3])],
    ),
    "reduce that merges nested dicts": (
        lambda s: one_key(s.map(lambda n: {"in": {n: n}})).reduce(merged),
        [{"in": {1: 1}}, {"in": {1: 1, 2: 2}}, {"in": {1: 1, 2: 2, 3: 3}}],
    ),
    "accumulator that is the result": (
        lambda s: one_key(s).window(GlobalWindows.create()).trigger(CountTrigger.of(1)).aggregate(ListOf()),
        [[1], [1, 2], [1, 2, 3]],
    ),
    "asynchronous function that keeps its answer": (
        lambda s: AsyncDataStream.ordered_wait(s, KeepsItsAnswer(), Time.seconds(9), 1),
        [[1], [1, 2], [1, 2, 3]],
    ),
    "one dict that is renumbered, by key": (
        lambda s: one_key(s.flat_map(renumbered).key_by(lambda r: r["key"]).map(lambda r: r["key"])).sum(),
        [0, 0, 1, 1, 2, 4],
    ),
    "flat_map that returns one object twice": (
        lambda s: s.map(lambda n: [n]).flat_map(lambda r: [r, r]).map(ChangesTheOneBefore()),
        [[1], [1], [2], [2], [3], [3]],
    ),
    "two consumers": (two_consumers, [([1], 1), ([2], 2), ([3], 3)]),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("chaining", [False, True])
def test_what_is_emitted_is_what_the_next_operator_gets(name: str, chaining: bool) -> None:
    program, expected_values = CHANGES[name]
    env, sink = environment(1), TestingSink()
    program(env.from_source(list_source([1, 2, 3]), WatermarkStrategy.no_watermarks(), "numbers")).sink_to(sink)
    run(job_of(env, chaining))
    assert sorted(sink.values, key=repr) == sorted(expected_values, key=repr)


def test_records_of_a_collection_that_are_changed_are_the_same_when_the_epoch_is_run_again() -> None:
    failures = [ValueError("once")]

    def changed_once(record: Any) -> Any:
        record["n"] += 1
        if record["n"] == 3 and failures:
            raise failures.pop()
        return record

    env, sink = environment(1), TestingSink()
    env.from_collection([{"n": 1}, {"n": 2}]).map(changed_once).sink_to(sink)
    cluster = MiniCluster(job_of(env, share_functions=True), ManualClock())
    with pytest.raises(UserCodeError):
        cluster.run()
    cluster.run()
    assert sink.values == [{"n": 2}, {"n": 3}]


def assert_as_modelled(seed: str) -> None:
    """The program of this seed puts out what the model does; otherwise the seed and the program are told."""
    source = random_program(seed).source
    assert differences(source, in_minicluster(source), expected(source)) == [], f"random_program({seed!r})\n{source}"


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=pytest.mark.nightly if number >= 20 else ()) for number in range(60)]
)
def test_random_programs_give_what_a_model_gives_that_copies_at_every_hand_over(number: int) -> None:
    assert_as_modelled(f"unit/{number}")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(200))
def test_more_random_programs_give_what_the_model_gives(number: int) -> None:
    assert_as_modelled(f"slow/{number}")
