"""WindowedStream and AllWindowedStream: each way to evaluate a window, through the whole runtime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from flinkish.common import Time, Types, WatermarkStrategy
from flinkish.datastream import (
    OutputTag,
    ProcessWindowFunction,
    TimeWindow,
    WindowedStream,
    WindowFunction,
)
from flinkish.datastream.data_stream import AllWindowedStream, DataStream
from flinkish.datastream.functions import AllWindowFunction, ProcessAllWindowFunction
from flinkish.datastream.state import ValueStateDescriptor
from flinkish.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from flinkish.errors import ProgramError
from tests.support.functions import CountOf, TimeOf
from tests.support.programs import job_of, new_environment, results_of

EVENTS = [("a", 1), ("b", 2), ("a", 3), ("a", 12), ("a", 5), ("a", 25)]


class Applied(WindowFunction[Any, Any, str, TimeWindow]):
    def apply(self, key: str, window: TimeWindow, inputs: Iterable[Any]) -> Iterator[Any]:
        yield key, window.end // 1000, sorted(str(value) for value in inputs)


class Processed(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[Any]:
        yield key, context.window().start // 1000, len(list(elements))


def timed(parallelism: int = 1) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(lambda r: r[1] * 1000))
    pairs = new_environment(parallelism).from_collection(EVENTS, Types.TUPLE([Types.STRING(), Types.INT()]))
    return pairs.assign_timestamps_and_watermarks(strategy)


def windowed(parallelism: int = 1) -> WindowedStream:
    by_key = timed(parallelism).key_by(lambda pair: pair[0])
    return by_key.window(TumblingEventTimeWindows.of(Time.seconds(10)))


@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_are_reduced_aggregated_applied_and_processed(parallelism: int) -> None:
    def sums(first: Any, second: Any) -> Any:
        return first[0], first[1] + second[1]

    # ("a", 5) comes after the watermark of ("a", 12): late
    assert sorted(results_of(windowed(parallelism).reduce(sums))) == [("a", 4), ("a", 12), ("a", 25), ("b", 2)]
    assert sorted(results_of(windowed(parallelism).aggregate(CountOf()))) == [1, 1, 1, 2]
    assert sorted(results_of(windowed(parallelism).process(Processed()))) == [
        ("a", 0, 2),
        ("a", 10, 1),
        ("a", 20, 1),
        ("b", 0, 1),
    ]
    assert ("a", 10, ["('a', 1)", "('a', 3)"]) in results_of(windowed(parallelism).apply(Applied()))
    assert ("a", 10, ["('a', 4)"]) in results_of(windowed(parallelism).reduce(sums, Applied()))
    assert ("a", 0, 1) in results_of(windowed(parallelism).aggregate(CountOf(), Processed()))


def test_late_records_go_to_their_side_output() -> None:
    late = OutputTag("late", Types.TUPLE([Types.STRING(), Types.INT()]))
    counted = windowed().side_output_late_data(late).aggregate(CountOf())
    assert results_of(counted.get_side_output(late)) == [("a", 5)]


def test_allowed_lateness_evaluates_a_window_again() -> None:
    results = results_of(windowed().allowed_lateness(60_000).process(Processed()))
    assert [result for result in results if result[:2] == ("a", 0)] == [("a", 0, 2), ("a", 0, 3)]
    with pytest.raises(ProgramError, match="lateness"):
        windowed().allowed_lateness(-1).aggregate(CountOf())


def test_another_trigger_decides_when() -> None:
    assert results_of(windowed().trigger(CountTrigger.of(2)).process(Processed())) == [("a", 0, 2)]


def test_the_operator_has_pyflinks_name_and_description() -> None:
    stream = windowed().trigger(EventTimeTrigger()).aggregate(CountOf(), Processed(), output_type=Types.INT())
    assert (stream.get_name(), stream.get_type()) == ("TumblingEventTimeWindows", Types.INT())
    assert '"Window(TumblingEventTimeWindows(10000, 0), EventTimeTrigger, CountOf, Processed)"' in (
        stream.get_execution_environment().get_execution_plan()
    )
    assert job_of(stream.get_execution_environment()).vertices[1].keyed


def test_reduce_keeps_the_inputs_type_and_others_do_not() -> None:
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    assert windowed().get_input_type() == pair
    assert windowed().reduce(lambda x, y: x).get_type() == pair
    assert windowed().reduce(lambda x, y: x, Applied()).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert windowed().aggregate(CountOf()).get_type() == Types.PICKLED_BYTE_ARRAY()


def test_what_is_none_of_these_is_refused() -> None:
    stream: Any = windowed()
    by_key: Any = timed().key_by(lambda pair: pair[0])
    with pytest.raises(TypeError, match="expected a WindowAssigner"):
        by_key.window(TumblingEventTimeWindows)
    with pytest.raises(TypeError, match="expected a Trigger"):
        stream.trigger("now")
    with pytest.raises(TypeError, match="expected an OutputTag"):
        stream.side_output_late_data("late")
    with pytest.raises(TypeError, match="must be a ReduceFunction or a callable"):
        stream.reduce(3)
    with pytest.raises(TypeError, match="window_function should be a WindowFunction or ProcessWindowFunction"):
        stream.aggregate(CountOf(), lambda key: key)
    with pytest.raises(TypeError, match="expected an AggregateFunction"):
        stream.aggregate(sum)
    with pytest.raises(TypeError, match="should be a WindowFunction"):
        stream.apply(Processed())
    with pytest.raises(TypeError, match="should be a ProcessWindowFunction"):
        stream.process(Applied())
    with pytest.raises(TypeError, match="expected an Evictor"):
        stream.evictor(len)
    sessions: Any = by_key.window(EventTimeSessionWindows.with_gap(Time.seconds(1)))
    with pytest.raises(ProgramError, match="trigger that does not support merging"):
        sessions.trigger(NeverTrigger())
    everything: Any = timed().window_all(GlobalWindows.create())
    with pytest.raises(TypeError, match="window_function should be a AllWindowFunction or ProcessAllWindowFunction"):
        everything.reduce(max, Applied())
    with pytest.raises(TypeError, match="should be a ProcessAllWindowFunction"):
        everything.process(Processed())


def test_one_field_of_a_window_is_added_up_or_its_extreme_is_found() -> None:
    assert sorted(results_of(windowed().sum(1))) == [("a", 4), ("a", 12), ("a", 25), ("b", 2)]
    assert ("a", 1) in results_of(windowed().min(1)) and ("a", 3) in results_of(windowed().max(1))
    assert ("a", 1) in results_of(windowed().min_by(1)) and ("a", 3) in results_of(windowed().max_by(1))
    same = timed().key_by(lambda pair: 0).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    assert ("a", 1) in results_of(same.min_by(0)) and ("a", 3) in results_of(
        timed().key_by(lambda pair: 0).window(TumblingEventTimeWindows.of(Time.seconds(10))).min_by(0, first=False)
    )
    assert windowed().max(1).get_type() == windowed().get_input_type()
    with pytest.raises(TypeError, match="field position must be of int or str type"):
        windowed().sum(1.5)  # type: ignore[arg-type]


def test_windows_slide_merge_and_count() -> None:
    sliding = timed().key_by(lambda pair: pair[0]).window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)))
    # ("a", 5) is late for the window until 10 and not for the one until 15
    assert sorted(results_of(sliding.sum(1))) == [
        ("a", 4), ("a", 4), ("a", 12), ("a", 17), ("a", 25), ("a", 25), ("b", 2), ("b", 2)
    ]  # fmt: skip
    sessions = timed().key_by(lambda pair: pair[0]).window(EventTimeSessionWindows.with_gap(Time.seconds(9)))
    assert sorted(results_of(sessions.apply(Applied()))) == [
        ("a", 21, ["('a', 1)", "('a', 12)", "('a', 3)", "('a', 5)"]),
        ("a", 34, ["('a', 25)"]),
        ("b", 11, ["('b', 2)"]),
    ]
    counted = timed().key_by(lambda pair: pair[0]).count_window(2)
    assert results_of(counted.sum(1)) == [("a", 4), ("a", 17)]
    counted = timed().key_by(lambda pair: pair[0]).count_window(3, 1)
    assert results_of(counted.reduce(lambda a, b: (a[0], a[1] + b[1]))) == [("a", 16), ("a", 20), ("a", 42)]
    java = timed().key_by(lambda pair: pair[0]).window(GlobalWindows.create())
    java = java.trigger(CountTrigger.of(1)).evictor(CountEvictor.of(2))
    assert results_of(java.sum(1)) == [("a", 1), ("b", 2), ("a", 4), ("a", 15), ("a", 17), ("a", 30)]


class AllApplied(AllWindowFunction[Any, Any, TimeWindow]):
    def apply(self, window: TimeWindow, inputs: Iterable[Any]) -> Iterator[Any]:
        yield window.end // 1000, [value if isinstance(value, int) else value[1] for value in inputs]


class AllProcessed(ProcessAllWindowFunction[Any, Any, TimeWindow]):
    def process(self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Iterable[Any]) -> Iterator[Any]:
        fired = context.global_state().get_state(ValueStateDescriptor("fired", Types.INT()))
        fired.update((fired.value() or 0) + 1)
        context.window_state().get_state(ValueStateDescriptor("own", Types.INT())).update(1)
        yield context.window().end // 1000, fired.value(), len(list(elements))

    def clear(self, context: ProcessAllWindowFunction.Context[TimeWindow]) -> None:
        context.window_state().get_state(ValueStateDescriptor("own", Types.INT())).clear()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_over_all_records_are_evaluated_in_one_subtask(parallelism: int) -> None:
    def all_windowed() -> AllWindowedStream:
        return timed(parallelism).window_all(TumblingEventTimeWindows.of(Time.seconds(10)))

    applied = all_windowed().apply(AllApplied())
    assert job_of(applied.get_execution_environment()).vertices[-1].parallelism == 1
    with pytest.raises(ProgramError, match="non parallel operator must be 1"):
        applied.set_parallelism(2)
    assert results_of(applied) == [(10, [1, 2, 3]), (20, [12]), (30, [25])]
    assert results_of(all_windowed().process(AllProcessed())) == [(10, 1, 3), (20, 2, 1), (30, 3, 1)]
    assert results_of(all_windowed().sum(1)) == [("a", 6), ("a", 12), ("a", 25)]
    assert results_of(all_windowed().aggregate(CountOf(), AllApplied())) == [(10, [3]), (20, [1]), (30, [1])]
    assert results_of(all_windowed().reduce(lambda a, b: (a[0], a[1] + b[1]))) == [("a", 6), ("a", 12), ("a", 25)]
    late = OutputTag("late", Types.TUPLE([Types.STRING(), Types.INT()]))
    counted = all_windowed().side_output_late_data(late).aggregate(CountOf())
    assert results_of(counted.get_side_output(late)) == [("a", 5)]


def test_a_number_of_records_of_all_keys_is_a_window() -> None:
    assert results_of(timed(2).count_window_all(2).sum(1)) == [("a", 3), ("a", 15), ("a", 30)]
    assert results_of(timed(2).key_by(lambda pair: pair[0]).count_window_all(4, 2).sum(1)) == [("a", 18), ("a", 45)]
