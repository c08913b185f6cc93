"""Window joins, co-groups and interval joins, through the whole runtime."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from flinkish.common import Time, Types, WatermarkStrategy
from flinkish.common.time import Duration
from flinkish.datastream import DataStream, OutputTag, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.functions import CoGroupFunction, FlatJoinFunction, JoinFunction, ProcessJoinFunction
from flinkish.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from flinkish.errors import ProgramError
from tests.support.functions import TimeOf
from tests.support.programs import chains_of, new_environment, results_of

TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))


def stream(env: StreamExecutionEnvironment, records: list[Any], out_of_order_ms: int = 100) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(out_of_order_ms))
    strategy = strategy.with_timestamp_assigner(TimeOf(lambda record: record[-1]))
    return env.from_collection(records).assign_timestamps_and_watermarks(strategy)


def two(parallelism: int = 1, **settings: str) -> tuple[DataStream, DataStream]:
    """Orders (key, number, time) and payments (number, key, time)."""
    env = new_environment(parallelism, **settings)
    chance = random.Random(7)
    orders = [(chance.choice("abc"), number, chance.randrange(60)) for number in range(40)]
    payments = [(number, chance.choice("bcd"), chance.randrange(60)) for number in range(40)]
    return stream(env, orders), stream(env, payments)


def expected_pairs(parallelism: int = 1) -> tuple[list[Any], list[Any]]:
    chance = random.Random(7)
    orders = [(chance.choice("abc"), number, chance.randrange(60)) for number in range(40)]
    payments = [(number, chance.choice("bcd"), chance.randrange(60)) for number in range(40)]
    return orders, payments


class Join(JoinFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = runtime_context.get_index_of_this_subtask() >= 0

    def join(self, first: Any, second: Any) -> Any:
        assert self.opened
        return first, second


class FlatJoin(FlatJoinFunction):
    def join(self, first: Any, second: Any) -> Iterator[Any] | None:
        return iter([(first, second)] * 2) if first[1] % 2 else None


class Group(CoGroupFunction):
    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        yield [number for _, number, _ in first], [number for number, _, _ in second]


@pytest.mark.parametrize("settings", [{}, {"flinkish__epoch__max_records_per_source": "7"}])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_window_join_gives_the_pairs_of_a_key_and_a_window(parallelism: int, settings: dict[str, str]) -> None:
    def joined() -> Any:
        orders, payments = two(parallelism, **settings)
        return orders.join(payments).where(lambda o: o[0], Types.STRING()).equal_to(lambda p: p[1]).window(TEN)

    orders, payments = expected_pairs()
    pairs = sorted((o, p) for o in orders for p in payments if o[0] == p[1] and o[2] // 10 == p[2] // 10)
    assert len(pairs) > 20
    assert sorted(results_of(joined().apply(Join()))) == pairs
    assert sorted(results_of(joined().apply(lambda o, p: (o, p)))) == pairs
    assert sorted(results_of(joined().apply(FlatJoin()))) == sorted(2 * [pair for pair in pairs if pair[0][1] % 2])


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_co_group_also_gives_keys_that_one_stream_has_alone(parallelism: int) -> None:
    first, second = two(parallelism)
    grouped = first.co_group(second).where(lambda o: o[0]).equal_to(lambda p: p[1]).window(TEN).apply(Group())
    orders, payments = expected_pairs()
    expected = []
    for key in "abcd":
        for start in range(0, 60, 10):
            of_first = [o[1] for o in orders if o[0] == key and o[2] // 10 * 10 == start]
            of_second = [p[0] for p in payments if p[1] == key and p[2] // 10 * 10 == start]
            if of_first or of_second:
                expected.append((of_first, of_second))
    assert sorted(results_of(grouped)) == sorted(expected)


def test_a_join_takes_any_windows_trigger_evictor_and_lateness() -> None:
    env = new_environment()
    first = stream(env, [("a", 1, 0), ("a", 2, 30), ("b", 3, 60), ("a", 4, 9)], 0)
    second = stream(env, [("a", 5, 4), ("a", 6, 60)], 0)
    sessions = EventTimeSessionWindows.with_gap(Time.milliseconds(5))
    joined = first.join(second).where(lambda o: o[0]).equal_to(lambda o: o[0])
    assert results_of(joined.window(sessions).apply(lambda one, other: (one[1], other[1]))) == [(1, 5)]
    last = joined.window(GlobalWindows.create()).trigger(CountTrigger.of(1)).evictor(CountEvictor.of(2))
    pairs = results_of(last.apply(lambda one, other: (one[1], other[1])))
    assert (1, 5) in pairs or (2, 5) in pairs or (4, 5) in pairs
    late = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
    tumbling = joined.window(TEN).allowed_lateness(5).side_output_late_data(late)
    assert results_of(tumbling.apply(lambda one, other: 0).get_side_output(late)) == [(0, ("a", 4, 9))]


def test_a_stream_joined_with_itself() -> None:
    numbers = stream(new_environment(2), [("a", 1, 0), ("a", 2, 1), ("b", 3, 2)])
    joined = numbers.join(numbers).where(lambda n: n[0]).equal_to(lambda n: n[0]).window(TEN)
    pairs = results_of(joined.apply(lambda one, other: (one[1], other[1])))
    assert sorted(pairs) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)]


class Together(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        yield left, right, ctx.get_timestamp()


@pytest.mark.parametrize("settings", [{}, {"flinkish__epoch__max_records_per_source": "7"}])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_interval_join_gives_the_pairs_within_the_bounds(parallelism: int, settings: dict[str, str]) -> None:
    def joined() -> Any:
        orders, payments = two(parallelism, **settings)
        left, right = orders.key_by(lambda o: o[0]), payments.key_by(lambda p: p[1])
        return left.interval_join(right).in_event_time().between(Time.milliseconds(-2), Time.milliseconds(5))

    def expected(lower_ms: int, upper_ms: int) -> list[Any]:
        orders, payments = expected_pairs()
        met = [(o, p) for o in orders for p in payments if o[0] == p[1] and lower_ms <= p[2] - o[2] <= upper_ms]
        return sorted((o, p, max(o[2], p[2])) for o, p in met)

    assert sorted(results_of(joined().process(Together()))) == expected(-2, 5)
    exclusive = joined().lower_bound_exclusive().upper_bound_exclusive()
    assert sorted(results_of(exclusive.process(Together()))) == expected(-1, 4)


def test_late_records_of_an_interval_join_go_to_the_output_of_their_stream() -> None:
    env = new_environment()
    left = stream(env, [("a", 1, 50), ("a", 2, 10)], 0).key_by(lambda o: o[0])
    right = stream(env, [("a", 3, 60), ("a", 4, 20)], 0).key_by(lambda o: o[0])
    tags = [OutputTag(name, Types.PICKLED_BYTE_ARRAY()) for name in ("left", "right")]
    joined = left.interval_join(right).between(Time.milliseconds(0), Time.milliseconds(10))
    joined = joined.side_output_left_late_data(tags[0]).side_output_right_late_data(tags[1])
    pairs = joined.process(Together())
    assert results_of(pairs.get_side_output(tags[0])) == [("a", 2, 10)]
    assert results_of(pairs.get_side_output(tags[1])) == [("a", 4, 20)]
    assert results_of(pairs) == [(("a", 1, 50), ("a", 3, 60), 60)]


def test_both_streams_are_tagged_where_they_come_from_and_meet_in_one_operator() -> None:
    orders, payments = two(2)
    keyed = orders.key_by(lambda o: o[0])
    joined = keyed.join(payments.key_by(lambda p: p[1])).where(lambda o: o[0]).equal_to(lambda p: p[1]).window(TEN)
    joined.apply(Join()).print()
    chains = chains_of(orders.get_execution_environment())
    assert [chain for chain in chains if "TumblingEventTimeWindows" in chain] == [chains[-1]]
    assert sum("Map" in chain for chain in chains) == 2


def test_what_is_no_stream_function_or_interval_is_refused() -> None:
    orders, payments = two()
    wrong: Any = 5
    with pytest.raises(TypeError, match="expected a DataStream"):
        orders.join(wrong)
    keyed = orders.join(payments).where(lambda o: o[0]).equal_to(lambda p: p[1])
    with pytest.raises(TypeError, match="expected a WindowAssigner"):
        keyed.window(wrong)
    with pytest.raises(TypeError, match="expected a JoinFunction or a FlatJoinFunction"):
        keyed.window(TEN).apply(wrong)
    grouped = orders.co_group(payments).where(lambda o: o[0]).equal_to(lambda p: p[1]).window(TEN)
    with pytest.raises(TypeError, match="expected a CoGroupFunction"):
        grouped.apply(wrong)
    with pytest.raises(Exception, match="the join function returned None.*use a FlatJoinFunction to drop pairs"):
        results_of(keyed.window(TEN).apply(lambda one, other: None))
    with pytest.raises(ProgramError, match="different environments"):
        orders.join(two()[1]).where(lambda o: o[0]).equal_to(lambda p: p[1])
    left: Any = orders.key_by(lambda o: o[0])
    with pytest.raises(TypeError, match="expected a KeyedStream"):
        left.interval_join(payments)
    interval = left.interval_join(payments.key_by(lambda p: p[1]))
    with pytest.raises(ProgramError, match="only supported in event time"):
        interval.in_processing_time()
    with pytest.raises(ProgramError, match="expected lower bound <= upper bound"):
        interval.between(Time.milliseconds(1), Time.milliseconds(1)).lower_bound_exclusive().process(Together())
    with pytest.raises(TypeError, match="expected a ProcessJoinFunction"):
        interval.between(Time.milliseconds(1), Time.milliseconds(1)).process(wrong)
    with pytest.raises(TypeError, match="expected an OutputTag"):
        interval.between(Time.milliseconds(1), Time.milliseconds(1)).side_output_left_late_data(wrong)
