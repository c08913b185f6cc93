"""Event time goes on behind a savepoint as without one: nothing is late that was not, and what was late stays late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from flinkish.common import Configuration, Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkOutput
from flinkish.datastream import OutputTag, StreamExecutionEnvironment
from flinkish.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.testing import (
    End,
    Pause,
    ProgramTestHarness,
    StreamRecord,
    TestingSink,
    TestingSource,
    Watermark,
)
from tests.random_programs.program import random_program
from tests.random_programs.running import differences, expected, in_minicluster

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())


class At(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Count(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterable[Any]:
        yield key, len(list(elements))


class Sum(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Iterable[Any]:
        yield context.window().start, sum(count for _, count in elements)


def records(*times: int) -> list[StreamRecord]:
    return [StreamRecord((key, time), time) for time in times for key in range(6)]


class InTurns(TestingSource):
    """Each subtask reads one split after the other, and has one watermark."""

    @property
    def side_by_side(self) -> bool:
        return False


class IdleBehindNine(WatermarkGenerator):
    """The watermark is the time of the last record; behind a record of key 9 the split is idle."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp)
        if event[0] == 9:
            output.mark_idle()


MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
IDLE = WatermarkStrategy.for_generator(IdleBehindNine)
#: the watermarks are marks of the source
MARKS = WatermarkStrategy.no_watermarks()


def results(
    splits: list[Any],
    restores: dict[int, int],
    strategy: WatermarkStrategy,
    source_of: Callable[..., TestingSource] = TestingSource.of_splits,
) -> tuple[Counter[int], int]:
    """Longer window -> number of records, which were counted in shorter windows before; and the number of late ones.

    Args:
        splits: the elements of each split.
        restores: the epoch before which another job goes on from a savepoint -> its parallelism.
        strategy: gives the watermarks.
        source_of: makes the source of the splits.
    """
    counts: Counter[int] = Counter()
    late = epochs = 0
    parallelism, savepoint = 2, None
    for until, next_parallelism in [*restores.items(), (None, 0)]:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration()).set_parallelism(parallelism)
        source = env.from_source(source_of(*splits), strategy, "s").uid("s")
        short = source.key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(Time.seconds(1)))
        counted = short.side_output_late_data(LATE).process(Count()).uid("counts")
        long = counted.key_by(lambda v: v[0] % 3).window(TumblingEventTimeWindows.of(Time.seconds(2)))
        sink, late_sink = TestingSink(), TestingSink()
        long.process(Sum()).uid("sums").sink_to(sink).uid("o")
        counted.get_side_output(LATE).sink_to(late_sink).uid("l")
        with ProgramTestHarness(env, restored=savepoint) as harness:
            harness.run(None if until is None else until - epochs)
            savepoint = harness.savepoint()
        for start, count in sink.values:
            counts[start] += count
        late += len(late_sink.values)
        epochs, parallelism = until or 0, next_parallelism
    return counts, late


#: The first split is silent in the epochs behind the first one.
SILENT = [
    [*records(500, 1200), Pause(), Pause(), *records(3000, 5000), Pause(2), End()],
    [*records(500, 1200), Pause(), *records(1150), Pause(), *records(3000, 5000), Pause(2), End()],
]
#: The first split has ended when the second one goes on.
ENDED = [
    [*records(500, 1200), End()],
    [*records(500), Pause(), *records(1150), Pause(), *records(3000), Pause(), End()],
]
#: What the first split has told decides that the records of the second one are late behind a restore, too.
LATE_ONES = [
    [*records(1000), Watermark(10_000), Pause(3), Watermark(30_000), End()],
    [*records(1000), Watermark(7_000), Pause(), Watermark(20_000), *records(8_500), Pause(2), End()],
]


#: Nothing is open at the savepoint, and nothing is read in the epoch behind it.
QUIET_EPOCH = [
    [*records(500), Watermark(5_000), Pause(2), *records(4_000), Pause(), *records(7_000), Pause(), End()],
    [*records(600), Watermark(6_000), Pause(2), Watermark(6_500), Pause(2), End()],
]
#: One split of a source whose subtasks read in turns is behind the other one, and silent.
TURNS = [
    [*records(1_200), Pause(), *records(3_000), Pause(2), *records(5_000), Pause(2), End()],
    [*records(500), Pause(3), *records(1_100, 5_000), Pause(2), End()],
]
#: The first split is idle when the savepoint is taken; what the second one has then is late without it.
IDLE_ONE = [
    [*records(500, 1_200), StreamRecord((9, 1_250), 1_250), Pause(4), *records(7_000), End()],
    [*records(500), Pause(), *records(3_100), Pause(), *records(1_600, 5_000), Pause(2), End()],
]


@pytest.mark.parametrize(
    ("splits", "strategy", "source_of", "late"),
    [
        pytest.param(SILENT, MONOTONOUS, TestingSource.of_splits, 0, id="a silent split"),
        pytest.param(ENDED, MONOTONOUS, TestingSource.of_splits, 0, id="an ended split"),
        pytest.param(LATE_ONES, MARKS, TestingSource.of_splits, 6, id="late records"),
        pytest.param(QUIET_EPOCH, MARKS, TestingSource.of_splits, 6, id="a quiet epoch"),
        pytest.param(TURNS, MONOTONOUS, InTurns.of_splits, 0, id="splits in turns"),
        pytest.param(IDLE_ONE, IDLE, TestingSource.of_splits, 6, id="an idle split"),
    ],
)
@pytest.mark.parametrize("restores", [{1: 2}, {1: 3}, {2: 2}, {1: 2, 2: 2, 3: 2}], ids=str)
def test_a_restore_makes_no_record_late_and_none_in_time(
    splits: list[Any],
    strategy: WatermarkStrategy,
    source_of: Callable[..., TestingSource],
    late: int,
    restores: dict[int, int],
) -> None:
    in_all = sum(isinstance(one, StreamRecord) for split in splits for one in split)
    found = results(splits, restores, strategy, source_of)
    assert found == results(splits, {}, strategy, source_of)
    assert found[1] == late and found[0].total() == in_all - late


class TimerPerRecord(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 1_000)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield "a timer"


def test_no_timer_fires_in_a_task_whose_input_had_ended_before_the_savepoint() -> None:
    savepoint, values = None, list[Any]()
    for _ in range(2):
        env, sink = StreamExecutionEnvironment.get_execution_environment(Configuration()), TestingSink()
        ended = env.from_source(TestingSource(*records(1), End()), WatermarkStrategy.no_watermarks(), "a").uid("a")
        ended.key_by(lambda v: v[0]).process(TimerPerRecord()).uid("timers").sink_to(sink).uid("o")
        going = env.from_source(TestingSource(Pause(2), End()), WatermarkStrategy.no_watermarks(), "b").uid("b")
        going.sink_to(TestingSink()).uid("p")
        with ProgramTestHarness(env, restored=savepoint) as harness:
            harness.run(1 if savepoint is None else None)
            harness.advance_processing_time(5_000)
            savepoint = harness.savepoint()
        values += sink.values
    assert values == [record.value for record in records(1)]


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=pytest.mark.nightly if number >= 10 else ()) for number in range(60)]
)
def test_random_programs_go_on_from_savepoints_as_without_them(number: int) -> None:
    source = random_program(f"restored/{number}", restores=True).source
    assert differences(source, in_minicluster(source), expected(source)) == [], source
