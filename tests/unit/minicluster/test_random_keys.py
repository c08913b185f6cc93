"""Key selectors that give another key each time they are called: each record has the key by which it was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import pytest

from flinkish.common import Time, Types
from flinkish.datastream import (
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OnError,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from flinkish.datastream.functions import ProcessJoinFunction
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import CountTrigger, EventTimeSessionWindows, TumblingEventTimeWindows
from flinkish.errors import InvalidKeyError
from flinkish.runtime.exchange.keys import subtask_of_key
from flinkish.testing import TestingSink

from .programs import bounded, environment, job_of, list_source, run

PARALLELISM, MAX_PARALLELISM, KEYS = 3, 16, 5
#: (source, number, time)
Record = tuple[str, int, int]
RECORDS: list[Record] = [("a", number, number) for number in range(43)]
#: (source, number) -> the keys that the selector has given
CALLS: dict[tuple[str, int], list[int]] = {}


def salted(record: Record) -> int:
    """A key that depends on the number of calls so far."""
    keys = CALLS.setdefault(record[:2], [])
    keys.append(sum(map(len, CALLS.values())) * 7 % KEYS)
    return keys[-1]


def sent_by(record: Record) -> int:
    """The key that the sender has computed."""
    return CALLS[record[:2]][0]


class Salted(KeySelector):
    def get_key(self, value: Record) -> int:
        return salted(value)


class Count(KeyedProcessFunction):
    """(record, current key, subtask, the count of the key), at a timer, too."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self._count.update((self._count.value() or 0) + 1)
        yield value, ctx.get_current_key(), self._subtask, self._count.value()


class CountingMap(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: Record) -> Any:
        self._count.update((self._count.value() or 0) + 1)
        return value, self._count.value()


def counts(records: Iterable[Record]) -> Counter[tuple[int, int]]:
    """(key, count) for each record, if each key counts by itself."""
    totals = Counter(map(sent_by, records))
    return Counter((key, count) for key, total in totals.items() for count in range(1, total + 1))


def stream(env: StreamExecutionEnvironment, name: str = "a") -> DataStream:
    records = [(name, number, time) for _, number, time in RECORDS]
    return env.from_source(list_source(records[::2], records[1::2]), bounded(100), name)


def run_epochs(env: StreamExecutionEnvironment, results: DataStream) -> list[Any]:
    """Run the program over several epochs, in each by new workers."""
    CALLS.clear()
    sink = TestingSink()
    results.sink_to(sink)
    run(job_of(env), 6, restart_every=1)
    return sink.values


@pytest.mark.parametrize(
    "selector", [salted, lambda record: salted(record), Salted()], ids=["function", "lambda", "KeySelector"]
)
@pytest.mark.parametrize("key_type", [None, Types.LONG()])
@pytest.mark.parametrize("on_error", [False, True])
def test_state_and_the_current_key_are_of_the_key_that_the_sender_has_computed(
    selector: Any, key_type: Any, on_error: bool
) -> None:
    env = environment(PARALLELISM, MAX_PARALLELISM)
    counted = stream(env).key_by(selector, key_type).process(Count())
    if on_error:
        counted = counted.on_error(OnError.skip())
    results = run_epochs(env, counted)
    assert Counter((key, count) for _, key, _, count in results) == counts(RECORDS)
    assert all(key == sent_by(record) for record, key, _, _ in results)
    assert all(subtask == subtask_of_key(key, PARALLELISM, MAX_PARALLELISM) for _, key, subtask, _ in results)


@dataclass
class Event:
    record: Record

    @property
    def key(self) -> int:
        return salted(self.record)


@dataclass
class Fixed:
    """A record of a class whose fields may be read again, among others."""

    record: Record
    key: int = 2

    def __post_init__(self) -> None:
        CALLS.setdefault(self.record[:2], []).append(self.key)


class Missing(dict[str, Record]):
    def __missing__(self, name: str) -> int:
        return salted(self["record"])


@pytest.mark.parametrize(
    ("make", "selector"),
    [
        (Event, lambda event: event.key),
        (Event, attrgetter("key")),
        (lambda record: Event(record) if record[1] % 7 == 4 else Fixed(record), lambda event: event.key),
        (lambda record: Missing(record=record), lambda event: event["key"]),
        (lambda record: Missing(record=record), itemgetter("key")),
    ],
    ids=["property", "attrgetter", "some with a property", "__missing__", "itemgetter"],
)
@pytest.mark.parametrize("joined", [False, True])
def test_a_field_that_is_code_is_read_once(make: Any, selector: Any, joined: bool) -> None:
    env = environment(PARALLELISM, MAX_PARALLELISM)
    events = stream(env).map(make)
    keyed = events.key_by(selector, Types.LONG()) if joined else events.key_by(selector)
    counted = keyed.connect(keyed).process(BothCounted()) if joined else keyed.process(Count())
    results = run_epochs(env, counted)
    found = [(record_of(event), key, subtask, count) for event, key, subtask, count in results]
    assert all(subtask == subtask_of_key(key, PARALLELISM, MAX_PARALLELISM) for _, key, subtask, _ in found)
    totals = Counter(key for _, key, _, _ in found)
    counted_keys = Counter((key, count) for _, key, _, count in found)
    assert counted_keys == Counter((key, count) for key in totals for count in range(1, totals[key] + 1))
    if not joined:
        assert all(key == sent_by(record) for record, key, _, _ in found)


def record_of(event: Any) -> Record:
    return event["record"] if isinstance(event, dict) else event.record


class BothCounted(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element1(self, value: Record, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        self._count.update((self._count.value() or 0) + 1)
        yield value, ctx.get_current_key(), self._subtask, self._count.value()

    process_element2 = process_element1


@dataclass(frozen=True)
class Unsteady:
    """A key that another process gets as another one."""

    number: int

    def __reduce__(self) -> Any:
        return Unsteady, (self.number + 1,)


@pytest.mark.parametrize("on_error", [False, True])
def test_a_key_that_arrives_as_that_of_another_subtask_fails_the_job_and_is_named(on_error: bool) -> None:
    env = environment(PARALLELISM, MAX_PARALLELISM)
    counted = stream(env).key_by(lambda record: Unsteady(record[1])).process(Count()).name("count")
    if on_error:
        counted = counted.on_error(OnError.skip())
    with pytest.raises(InvalidKeyError, match=r"the key Unsteady\(number=\d+\) belongs to another subtask.*'count'"):
        run(job_of(env), 6)


class Refuse(KeyedProcessFunction):
    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        if value[1] % 10 == 3:
            raise ValueError("refused")
        yield value


def test_a_dead_letter_has_the_key_that_the_sender_has_computed() -> None:
    env, tag = environment(PARALLELISM, MAX_PARALLELISM), OutputTag("letters")
    handled = stream(env).key_by(salted).process(Refuse()).on_error(OnError.dead_letter(tag))
    letters = run_epochs(env, handled.get_side_output(tag))
    assert [letter.key for letter in letters] == [sent_by(letter.record) for letter in letters]
    assert len(letters) == 4


class Window(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Iterable[Record]) -> Iterable[Any]:
        yield from ((element, key) for element in elements)


@pytest.mark.parametrize(
    "of_keyed",
    [
        pytest.param(lambda keyed: keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10))), id="aligned"),
        pytest.param(lambda keyed: keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(2))), id="session"),
        pytest.param(
            lambda keyed: keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).trigger(CountTrigger.of(1)),
            id="general",
        ),
    ],
)
def test_windows_are_of_the_key_that_the_sender_has_computed(of_keyed: Callable[[Any], Any]) -> None:
    env = environment(PARALLELISM, MAX_PARALLELISM)
    results = run_epochs(env, of_keyed(stream(env).key_by(salted)).process(Window()))
    assert {record for record, _ in results} == set(RECORDS)
    assert all(key == sent_by(record) for record, key in results)


def mapped(records: DataStream) -> DataStream:
    return records.key_by(salted).map(CountingMap())


def summed(records: DataStream) -> DataStream:
    return records.map(lambda record: (record, 1)).key_by(lambda pair: salted(pair[0])).sum(1)


@pytest.mark.parametrize("operator", [mapped, summed])
def test_results_are_of_the_key_that_the_sender_has_computed(operator: Callable[[DataStream], DataStream]) -> None:
    env = environment(PARALLELISM, MAX_PARALLELISM)
    results = run_epochs(env, operator(stream(env)))
    assert Counter(count for _, count in results) == Counter(count for _, count in counts(RECORDS).elements())


class Pair(ProcessJoinFunction):
    def process_element(self, left: Record, right: Record, ctx: Any) -> Iterable[Any]:
        yield left, right


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Record, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.get_current_key()

    process_element2 = process_element1


def joined(env: StreamExecutionEnvironment) -> DataStream:
    left, right = stream(env, "a"), stream(env, "b")
    return (
        left.join(right)
        .where(salted)
        .equal_to(salted)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(1_000)))
        .apply(lambda first, second: (first, second))
    )


def joined_in_intervals(env: StreamExecutionEnvironment) -> DataStream:
    left, right = (stream(env, name).key_by(salted) for name in "ab")
    return left.interval_join(right).between(Time.milliseconds(-1_000), Time.milliseconds(1_000)).process(Pair())


@pytest.mark.parametrize("join", [joined, joined_in_intervals])
def test_joins_are_by_the_keys_that_the_sender_has_computed(
    join: Callable[[StreamExecutionEnvironment], DataStream],
) -> None:
    env = environment(PARALLELISM, MAX_PARALLELISM)
    results = run_epochs(env, join(env))
    pairs = [(("a", *left), ("b", *right)) for _, *left in RECORDS for _, *right in RECORDS]
    assert Counter(results) == Counter((one, other) for one, other in pairs if sent_by(one) == sent_by(other))


def test_both_inputs_of_connect_have_the_key_that_the_sender_has_computed() -> None:
    env = environment(PARALLELISM, MAX_PARALLELISM)
    streams = [stream(env, name).key_by(salted) for name in "ab"]
    results = run_epochs(env, streams[0].connect(streams[1]).process(Both()))
    assert len(results) == 2 * len(RECORDS)
    assert all(key == sent_by(record) for record, key in results)
