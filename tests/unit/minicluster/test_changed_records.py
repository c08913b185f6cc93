"""What operators give is not what they keep: a function behind them may change its records in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from flinkish.common import Time, Types
from flinkish.datastream.functions import CoGroupFunction, FlatJoinFunction, ProcessJoinFunction, ProcessWindowFunction
from flinkish.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from flinkish.testing import TestingSink
from tests.random_programs.program import random_program
from tests.random_programs.running import differences, expected, in_minicluster

from .programs import bounded, environment, job_of, list_source, run

ANY = Types.PICKLED_BYTE_ARRAY()


class Elements(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: Iterable[Any]) -> Iterator[Any]:
        yield from elements


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


@pytest.mark.parametrize("number", range(60))
def test_random_programs_give_what_a_model_gives_that_copies_at_every_hand_over(number: int) -> None:
    source = random_program(f"unit/{number}").source
    assert differences(source, in_minicluster(source), expected(source)) == [], source


@pytest.mark.slow
@pytest.mark.parametrize("number", range(200))
def test_more_random_programs_give_what_the_model_gives(number: int) -> None:
    source = random_program(f"slow/{number}").source
    assert differences(source, in_minicluster(source), expected(source)) == [], source
