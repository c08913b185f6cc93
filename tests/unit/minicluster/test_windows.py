"""Window operators through the whole runtime: what must not matter does not matter."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Configuration
from flinkish.common.time import Time
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.datastream import (
    KeyedProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    WindowFunction,
)
from flinkish.datastream.window import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.support.profiles import examples

from .programs import bounded, environment, job_of, list_source, run


class Listed(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    """(key, start, end, the numbers in the window)."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[Any]:
        window = context.window()
        yield key, window.start, window.end, [number for _, number, _ in elements]


def sessions(records: list[Any], delay_ms: int, per_epoch: int, parallelism: int) -> list[Any]:
    env = environment(parallelism, 6)
    sink = TestingSink()
    source = env.from_source(list_source(records), bounded(delay_ms), "records")
    windows = source.key_by(lambda r: r[0]).window(EventTimeSessionWindows.with_gap(Time.milliseconds(3)))
    windows.process(Listed()).sink_to(sink)
    run(job_of(env, source_batch_size=7), per_epoch)
    return sorted(sink.values)


@settings(max_examples=examples(15))
@given(st.integers(0, 10**6), st.integers(0, 4), st.integers(1, 3))
def test_the_size_of_epochs_does_not_matter_to_sessions_not_even_to_those_that_touch(
    seed: int, delay_ms: int, grain_ms: int
) -> None:
    chance = random.Random(seed)
    # few different times, so that an element often comes right at the end of a session, and others at the same time
    times = [max(0, serial // 4 + chance.randrange(-delay_ms, 2)) * grain_ms for serial in range(60)]
    records = [(chance.choice("abc"), serial, time) for serial, time in enumerate(times)]
    whole = sessions(records, delay_ms, 1_000, 1)
    assert whole == sessions(records, delay_ms, 1, 1) == sessions(records, delay_ms, 5, 2)


def test_windows_of_processing_time_end_in_epochs_without_data() -> None:
    env = environment(1)
    # the second split has nothing for twenty epochs; an epoch takes a millisecond
    records = env.from_source(
        list_source([("a", 1), ("b", 2)], [("a", 3)], pauses=(0, 20)), WatermarkStrategy.no_watermarks(), "records"
    )
    keyed = records.key_by(lambda r: r[0])
    sinks = [TestingSink(), TestingSink()]
    sessions = keyed.window(ProcessingTimeSessionWindows.with_gap(Time.milliseconds(6)))
    sessions.apply(Values()).sink_to(sinks[0])
    sliding = keyed.window(SlidingProcessingTimeWindows.of(Time.milliseconds(8), Time.milliseconds(4)))
    sliding.apply(Values()).sink_to(sinks[1])
    clock = ManualClock(100)
    committed: list[tuple[int, int]] = []

    def on_epoch() -> None:
        clock.advance(1)
        committed.append((len(sinks[0].values), len(sinks[1].values)))

    run(job_of(env), 1, clock=clock, on_epoch=on_epoch)
    # a session that is open at the end of the input is dropped, as in Flink
    assert sorted(sinks[0].values) == [("a", [1]), ("b", [2])]
    assert sorted(sinks[1].values) == [("a", [1]), ("a", [1]), ("b", [2]), ("b", [2])]
    assert committed[0] == (0, 0) and committed[12] == (2, 4)


class Values(WindowFunction[Any, Any, Any, TimeWindow]):
    """(key, values)."""

    def apply(self, key: Any, window: TimeWindow, inputs: Iterable[Any]) -> Iterator[Any]:
        yield key, [value for _, value in inputs]


def test_only_windows_that_merge_cost_watermarks_before_records_right_ahead_of_them() -> None:
    def stamps(assigner: WindowAssigner[Any, Any]) -> list[bool]:
        env = environment()
        source = env.from_source(list_source([("a", 1, 0)]), bounded(), "records")
        source.map(lambda r: r).key_by(lambda r: r[0]).window(assigner).apply(Values()).sink_to(TestingSink())
        factories = [operator.factory for vertex in job_of(env).vertices for operator in vertex.operators]
        return [factory.before_next for factory in factories if isinstance(factory, TimestampsAndWatermarksFactory)]

    assert stamps(EventTimeSessionWindows(5)) == [True]
    assert stamps(SlidingEventTimeWindows(10, 5)) == stamps(ProcessingTimeSessionWindows(5)) == [False]


class Slow(KeyedProcessFunction):
    """Says the processing time of each record's timer."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 1)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield timestamp


def slept_over(value: int) -> int:
    time.sleep(0.01)
    return value


def summed(numbers: Any) -> Any:
    return numbers.window(TumblingProcessingTimeWindows.of(Time.milliseconds(100))).reduce(lambda a, b: a + b)


def timed(numbers: Any) -> Any:
    return numbers.process(Slow())


@pytest.mark.parametrize("program", [summed, timed])
def test_processing_time_goes_on_while_a_bounded_program_works_on_slow_records(program: Any) -> None:
    configuration = Configuration().set_string("execution.target", "minicluster")
    configuration.set_string("flinkish.epoch.target-duration", "50 ms").set_string("flinkish.progress", "never")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    numbers = env.from_collection(list(range(60))).map(slept_over).key_by(lambda number: 0)
    with program(numbers).execute_and_collect() as results:
        assert len(list(results)) > 1
