"""The public harnesses of single operators: names, outputs, counts, barriers, other parallelisms."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import Configuration, Time, Types
from flinkish.core.checkpointed_function import CheckpointedFunction
from flinkish.core.co_functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from flinkish.core.functions import KeyedProcessFunction, OutputTag, ProcessFunction, RuntimeContext
from flinkish.core.state import MapStateDescriptor, ValueStateDescriptor
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import ProgramError, TypeMismatchError
from flinkish.runtime.exchange.keys import subtask_of_key
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.testing import (
    KeyedOneInputStreamOperatorTestHarness,
    ProcessFunctionTestHarnesses,
    StreamRecord,
    Watermark,
    WatermarkStatus,
    harness_of,
)

LATE = OutputTag("late")
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
MAX_PARALLELISM = 8


def key_of(value: Any) -> Any:
    return value[0]


class Remember(KeyedProcessFunction):
    """Sums per key, told by a timer of event time at 100 and by one of processing time at 50."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.entries = runtime_context.get_map_state(MapStateDescriptor("entries", Types.LONG(), Types.LONG()))
        self.opened = True

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.total.update((self.total.value() or 0) + value[1])
        self.entries.put(value[1], 1)
        ctx.timer_service().register_event_time_timer(100)
        ctx.timer_service().register_processing_time_timer(50)
        if value[1] < 0:
            yield LATE, value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), self.total.value(), timestamp


def remember(**options: Any) -> KeyedOneInputStreamOperatorTestHarness:
    return ProcessFunctionTestHarnesses.for_keyed_process_function(Remember(), key_of, **options)


def test_a_keyed_function_has_state_timers_and_side_outputs_that_can_be_counted() -> None:
    with remember() as harness:
        harness.process_elements([("a", 1), ("b", 2), ("a", 3)], [1, 2, 3])
        harness.process_element(("a", -1), 4)
        assert harness.num_event_time_timers() == harness.num_processing_time_timers() == 2
        assert harness.num_keyed_state_entries("total") == 2 and harness.num_keyed_state_entries() == 4
        assert harness.get_side_output(LATE) == [StreamRecord(("a", -1), 4)]
        harness.process_watermark_status(True)
        harness.process_watermark(99)
        harness.set_processing_time(50)
        assert harness.num_processing_time_timers() == 0 and harness.get_processing_time() == 50
        assert harness.take_output() == [
            WatermarkStatus(True),
            Watermark(99),
            StreamRecord(("a", 3, 50)),
            StreamRecord(("b", 2, 50)),
        ]
        harness.process_watermark(MAX_WATERMARK_MS)
        assert harness.extract_output_values() == [("a", 3, 100), ("b", 2, 100)]
        assert harness.num_event_time_timers() == 0


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize(("before", "after", "moved"), [(1, 1, False), (1, 1, True), (1, 3, True), (3, 2, True)])
def test_snapshots_go_on_in_any_parallelism_with_functions_that_have_not_run(
    before: int, after: int, moved: bool, in_files: bool, tmp_path: Path
) -> None:
    def directory(name: str) -> StateDirectory | None:
        return StateDirectory(str(tmp_path / name)) if in_files else None

    keys = [f"key {number}" for number in range(20)]
    harnesses = [
        remember(subtask=n, parallelism=before, max_parallelism=MAX_PARALLELISM, directory=directory(f"before-{n}"))
        for n in range(before)
    ]
    for number, key in enumerate(keys):
        harnesses[subtask_of_key(key, before, MAX_PARALLELISM)].process_element((key, number), number)
    for harness in harnesses:
        harness.process_watermark(19)
    snapshots = [harness.snapshot() for harness in harnesses]
    found = []
    for subtask in range(after):
        options = {} if not moved else {"directory": directory(f"after-{subtask}")}
        again = harnesses[0].restore(*snapshots, subtask=subtask, parallelism=after, **options)
        assert again.operator is not harnesses[0].operator and again.epoch.watermark_ms == 19
        mine = [key for key in keys if subtask_of_key(key, after, MAX_PARALLELISM) == subtask]
        assert again.num_keyed_state_entries("total") == again.num_event_time_timers() == len(mine)
        again.process_watermark(100)
        found += again.extract_output_values()
        again.close()
    assert sorted(found) == sorted((key, number, 100) for number, key in enumerate(keys))


def test_a_function_that_cannot_be_copied_cannot_be_restored() -> None:
    function = Remember()
    function.lock = threading.Lock()  # type: ignore[attr-defined]
    with ProcessFunctionTestHarnesses.for_keyed_process_function(function, key_of) as harness:
        snapshot = harness.snapshot()
        with pytest.raises(ProgramError, match="cannot be copied, and has run"):
            harness.restore(snapshot)


class Both(CoProcessFunction):
    """Says which input a value came by, and the watermark."""

    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield 1, value, ctx.timer_service().current_watermark()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield 2, value, ctx.timer_service().current_watermark()


def test_the_watermark_of_two_inputs_is_the_lower_one_unless_an_input_is_idle() -> None:
    with ProcessFunctionTestHarnesses.for_co_process_function(Both()) as harness:
        harness.process_watermark1(10)
        assert harness.take_output() == []
        harness.process_watermark2(5)
        harness.process_element1("a", 7)
        harness.process_element2("b")
        assert harness.take_output() == [Watermark(5), StreamRecord((1, "a", 5), 7), StreamRecord((2, "b", 5))]
        harness.process_watermark_status2(True)
        assert harness.take_output() == [Watermark(10)]
        harness.process_watermark_status1(True)
        harness.process_watermark_status1(False)
        assert harness.take_output() == [WatermarkStatus(True), WatermarkStatus(False)]
        harness.process_both_watermarks(20)
        assert harness.take_output() == [Watermark(20)]


def test_an_input_that_resumes_behind_holds_back_the_other_one_from_where_it_is() -> None:
    with ProcessFunctionTestHarnesses.for_co_process_function(Both()) as harness:
        harness.process_both_watermarks(9)
        harness.process_watermark_status2(True)
        harness.process_watermark1(99)
        assert harness.take_output() == [Watermark(9), Watermark(99)]
        harness.process_watermark2(19)
        harness.process_watermark1(199)
        assert harness.take_output() == []
        harness.process_watermark2(149)
        assert harness.take_output() == [Watermark(149)]


def test_the_watermark_of_two_idle_inputs_is_the_higher_one() -> None:
    with ProcessFunctionTestHarnesses.for_co_process_function(Both()) as harness:
        harness.process_watermark1(30)
        harness.process_watermark2(10)
        harness.process_watermark_status1(True)
        harness.process_watermark_status2(True)
        assert harness.take_output() == [Watermark(10), Watermark(30), WatermarkStatus(True)]
        harness.process_watermark2(40)
        assert harness.take_output() == [WatermarkStatus(False), Watermark(40)]


class TellRestored(ProcessFunction, CheckpointedFunction):
    """Says for each record whether the state was restored."""

    def initialize_state(self, context: Any) -> None:
        self._restored = context.is_restored()

    def snapshot_state(self, context: Any) -> None:
        pass

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield self._restored


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_function_is_told_that_its_state_was_restored(parallelism: int) -> None:
    with ProcessFunctionTestHarnesses.for_process_function(TellRestored()) as harness:
        harness.process_element("a")
        assert harness.take_values() == [False]
        with harness.restore(harness.snapshot(), parallelism=parallelism) as again:
            again.process_element("a")
            assert again.take_values() == [True]


class Match(KeyedCoProcessFunction):
    """The first input sets what the second one gets."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self.seen.update(value)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield self.seen.value(), value


def test_both_inputs_of_a_keyed_function_share_the_state_of_a_key() -> None:
    harnesses = ProcessFunctionTestHarnesses
    with harnesses.for_keyed_co_process_function(Match(), key_of, lambda value: value[1]) as harness:
        harness.process_elements1([("a", 1), ("b", 2)])
        harness.process_elements2([(3, "b"), (4, "c")])
        assert harness.take_values() == [(("b", 2), (3, "b")), (None, (4, "c"))]


class Apply(BroadcastProcessFunction[Any, Any, Any]):
    """Numbers times the factor of their name."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[Any]:
        yield value[1] * (ctx.get_broadcast_state(RULES).get(value[0]) or 1)

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(*value)


class KeyedApply(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """The same, added up per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterable[Any]:
        self.total.update((self.total.value() or 0) + value[1] * (ctx.get_broadcast_state(RULES).get(value[0]) or 1))
        yield self.total.value()

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(*value)


def test_broadcast_state_comes_into_every_subtask_of_another_parallelism() -> None:
    with ProcessFunctionTestHarnesses.for_broadcast_process_function(Apply(), RULES) as harness:
        harness.process_broadcast_element(("a", 10))
        harness.process_element(("a", 2))
        harness.process_broadcast_elements([("b", 3)])
        harness.process_elements([("b", 2), ("c", 2)])
        harness.process_watermark(5)
        harness.process_broadcast_watermark(4)
        assert harness.take_output() == [StreamRecord(20), StreamRecord(6), StreamRecord(2), Watermark(4)]
        assert harness.get_broadcast_state("rules") == {"a": 10, "b": 3}
        snapshot = harness.snapshot()
        for subtask in range(3):
            again = harness.restore(snapshot, subtask=subtask, parallelism=3)
            again.process_element(("b", 5))
            assert again.take_values() == [15]
    with ProcessFunctionTestHarnesses.for_keyed_broadcast_process_function(KeyedApply(), key_of, RULES) as keyed:
        keyed.process_broadcast_element(("a", 10))
        keyed.process_elements([("a", 1), ("a", 2), ("b", 3)])
        assert keyed.take_values() == [10, 30, 3]
        assert keyed.num_keyed_state_entries() == 2


def test_the_operator_of_any_stream_can_be_tested_alone() -> None:
    stream = StreamExecutionEnvironment(Configuration()).from_collection([])
    windows = stream.key_by(key_of).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    with harness_of(windows.side_output_late_data(LATE).reduce(lambda a, b: (a[0], a[1] + b[1]))) as harness:
        harness.process_elements([("a", 1), ("a", 2), ("b", 5)], [1, 9, 12])
        assert harness.num_keyed_state_entries() == 2 and harness.num_event_time_timers() >= 2
        harness.process_watermark(9)
        harness.process_element(("a", 7), 3)
        harness.end_input()
        assert harness.take_output() == [StreamRecord(("a", 3), 9), Watermark(9)]
        assert harness.take_side_output(LATE) == [StreamRecord(("a", 7), 3)] and harness.get_side_output(LATE) == []
    with harness_of(stream.map(lambda value: value + 1, Types.INT())) as harness:
        harness.process_element(1)
        assert harness.extract_output_values() == [2]
        with pytest.raises(TypeMismatchError):
            harness.process_element(1.5)
    for none in (stream, stream.union(stream)):
        with pytest.raises(ProgramError, match="no operator of its own"):
            harness_of(none)


def test_a_record_for_a_side_output_that_nobody_listens_to_is_dropped_as_in_a_program() -> None:
    class Tag(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
            yield LATE, value

    with ProcessFunctionTestHarnesses.for_process_function(Tag(), side_outputs=()) as harness:
        harness.process_element(1)
        assert harness.get_output() == harness.get_side_output(LATE) == []
