"""WindowedStream: each way to evaluate a window, through the whole runtime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from flinkish.common import Time, Types, WatermarkStrategy
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.datastream import (
    AggregateFunction,
    OutputTag,
    ProcessWindowFunction,
    TimeWindow,
    WindowedStream,
    WindowFunction,
)
from flinkish.datastream.window import CountTrigger, EventTimeTrigger, TumblingEventTimeWindows
from flinkish.errors import ProgramError
from tests.support.programs import job_of, new_environment, results_of

EVENTS = [("a", 1), ("b", 2), ("a", 3), ("a", 12), ("a", 5), ("a", 25)]


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Applied(WindowFunction[Any, Any, str, TimeWindow]):
    def apply(self, key: str, window: TimeWindow, inputs: Iterable[Any]) -> Iterator[Any]:
        yield key, window.end // 1000, sorted(str(value) for value in inputs)


class Processed(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[Any]:
        yield key, context.window().start // 1000, len(list(elements))


def windowed(parallelism: int = 1) -> WindowedStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
    pairs = new_environment(parallelism).from_collection(EVENTS, Types.TUPLE([Types.STRING(), Types.INT()]))
    timed = pairs.assign_timestamps_and_watermarks(strategy)
    return timed.key_by(lambda pair: pair[0]).window(TumblingEventTimeWindows.of(Time.seconds(10)))


@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_are_reduced_aggregated_applied_and_processed(parallelism: int) -> None:
    def sums(first: Any, second: Any) -> Any:
        return first[0], first[1] + second[1]

    # ("a", 5) comes after the watermark of ("a", 12): late
    assert sorted(results_of(windowed(parallelism).reduce(sums))) == [("a", 4), ("a", 12), ("a", 25), ("b", 2)]
    assert sorted(results_of(windowed(parallelism).aggregate(Count()))) == [1, 1, 1, 2]
    assert sorted(results_of(windowed(parallelism).process(Processed()))) == [
        ("a", 0, 2),
        ("a", 10, 1),
        ("a", 20, 1),
        ("b", 0, 1),
    ]
    assert ("a", 10, ["('a', 1)", "('a', 3)"]) in results_of(windowed(parallelism).apply(Applied()))
    assert ("a", 10, ["('a', 4)"]) in results_of(windowed(parallelism).reduce(sums, Applied()))
    assert ("a", 0, 1) in results_of(windowed(parallelism).aggregate(Count(), Processed()))


def test_late_records_go_to_their_side_output() -> None:
    late = OutputTag("late", Types.TUPLE([Types.STRING(), Types.INT()]))
    counted = windowed().side_output_late_data(late).aggregate(Count())
    assert results_of(counted.get_side_output(late)) == [("a", 5)]


def test_allowed_lateness_evaluates_a_window_again() -> None:
    results = results_of(windowed().allowed_lateness(60_000).process(Processed()))
    assert [result for result in results if result[:2] == ("a", 0)] == [("a", 0, 2), ("a", 0, 3)]
    with pytest.raises(ProgramError, match="lateness"):
        windowed().allowed_lateness(-1).aggregate(Count())


def test_another_trigger_decides_when() -> None:
    assert results_of(windowed().trigger(CountTrigger.of(2)).process(Processed())) == [("a", 0, 2)]


def test_the_operator_has_pyflinks_name_and_description() -> None:
    stream = windowed().trigger(EventTimeTrigger()).aggregate(Count(), Processed(), output_type=Types.INT())
    assert (stream.get_name(), stream.get_type()) == ("TumblingEventTimeWindows", Types.INT())
    assert '"Window(TumblingEventTimeWindows(10000, 0), EventTimeTrigger, Count, Processed)"' in (
        stream.get_execution_environment().get_execution_plan()
    )
    assert job_of(stream.get_execution_environment()).vertices[1].keyed


def test_reduce_keeps_the_inputs_type_and_others_do_not() -> None:
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    assert windowed().get_input_type() == pair
    assert windowed().reduce(lambda x, y: x).get_type() == pair
    assert windowed().reduce(lambda x, y: x, Applied()).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert windowed().aggregate(Count()).get_type() == Types.PICKLED_BYTE_ARRAY()


def test_what_is_none_of_these_is_refused() -> None:
    stream: Any = windowed()
    with pytest.raises(TypeError, match="expected a WindowAssigner"):
        stream._keyed_stream.window(TumblingEventTimeWindows)
    with pytest.raises(TypeError, match="expected a Trigger"):
        stream.trigger("now")
    with pytest.raises(TypeError, match="expected an OutputTag"):
        stream.side_output_late_data("late")
    with pytest.raises(TypeError, match="must be a ReduceFunction or a callable"):
        stream.reduce(3)
    with pytest.raises(TypeError, match="window_function should be a WindowFunction or ProcessWindowFunction"):
        stream.aggregate(Count(), lambda key: key)
    with pytest.raises(TypeError, match="expected an AggregateFunction"):
        stream.aggregate(sum)
    with pytest.raises(TypeError, match="should be a WindowFunction"):
        stream.apply(Processed())
    with pytest.raises(TypeError, match="should be a ProcessWindowFunction"):
        stream.process(Applied())
