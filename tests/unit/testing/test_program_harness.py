"""Whole programs in one process: the example of docs/testing.md, crashes, restores, records of what was emitted."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flinkish
from flinkish.common import Configuration, Row, Types, WatermarkStrategy
from flinkish.core.checkpointed_function import CheckpointedFunction
from flinkish.core.functions import KeyedProcessFunction, MapFunction, OutputTag, RuntimeContext
from flinkish.core.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ProgramError, SavepointError, UnserializableFunctionError, UserCodeError
from flinkish.runtime.stored.texts import to_text
from flinkish.testing import (
    CrashOnce,
    End,
    Pause,
    Phase,
    ProgramTestHarness,
    SimulatedCrash,
    StreamRecord,
    TestingSink,
    TestingSource,
    Watermark,
)
from flinkish.testing.program import PHASES
from tests.support.any_values import ANY_INTEGERS, ANY_TEXTS
from tests.support.profiles import examples

PAGE = Path(flinkish.__file__).parent.parent / "docs" / "testing.md"
SIDE = OutputTag("side")


def test_the_example_of_the_page_runs_and_is_short() -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)[0]
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    names["test_sums_outlive_a_crash_and_another_parallelism"]()
    program = example[example.index("def program") :]
    assert len([line for line in program.splitlines() if line.strip()]) <= 21


#: The functions that were opened.
COUNTS: list[Count] = []


class Count(KeyedProcessFunction):
    """Counts per key; a timer of event time tells the count; negative numbers go to the side output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.calls = 0
        COUNTS.append(self)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.calls += 1
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        ctx.timer_service().register_event_time_timer(100)
        ctx.timer_service().register_processing_time_timer(50)
        yield value[0], count
        if value[1] < 0:
            yield SIDE, value
        if value[1] == 13:
            raise ValueError("13 brings bad luck")

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield "timer", ctx.get_current_key(), self.count.value(), timestamp


ELEMENTS = [
    StreamRecord(("a", 1), 1),
    StreamRecord(("b", 2), 2),
    Pause(),
    StreamRecord(("a", 3), 3),
    StreamRecord(("c", -1), 4),
    Watermark(50),
    Pause(2),
    StreamRecord(("a", 5), 60),
    Watermark(99),
    StreamRecord(("b", 6), 99),
    End(),
]


def program(
    *elements: Any, sink: TestingSink | None = None, parallelism: int = 2, uid: str | None = "count"
) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(parallelism)
    source = TestingSource(*(elements or ELEMENTS))
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "records").uid("records")
    counts = records.key_by(lambda value: value[0]).process(Count())
    if uid is not None:
        counts.uid(uid)
    counts.get_side_output(SIDE).map(lambda value: value).name("negative")
    counts.sink_to(sink or TestingSink()).name("out")
    return env


def expected() -> list[Any]:
    sink = TestingSink()
    with ProgramTestHarness(program(sink=sink)) as harness:
        harness.run()
    return sorted(sink.values, key=repr)


def test_a_program_runs_to_its_end_and_what_each_operator_emitted_is_known() -> None:
    sink = TestingSink()
    with ProgramTestHarness(program(sink=sink)) as harness:
        assert harness.run() == 4 and harness.finished
        assert harness.emitted("records", epoch=0) == ELEMENTS[:2]
        assert harness.emitted("count", subtask=9) == []
        assert harness.emitted("count", SIDE) == harness.emitted("negative") == [StreamRecord(("c", -1), 4)]
        assert sorted(harness.received("count")) == sorted(e for e in ELEMENTS if isinstance(e, StreamRecord))
        assert sorted(record.value for record in harness.emitted("count") if record.timestamp == 100) == [
            ("timer", "a", 3, 100),
            ("timer", "b", 2, 100),
            ("timer", "c", 1, 100),
        ]
        assert [one.value for one in harness.received("Sink: out", epoch=2)] == []
        assert harness.watermarks("records", subtask=0) == [50, 99, 2**63 - 1]
        assert sorted(sink.values, key=repr) == sorted((one.value for one in harness.emitted("count")), key=repr)
        with pytest.raises(ProgramError, match="no operators are called 'nobody'.*count"):
            harness.emitted("nobody")


def test_processing_time_stands_still_until_the_test_moves_it() -> None:
    with ProgramTestHarness(program(*ELEMENTS[:6])) as harness:
        harness.run()
        fired = [one for one in harness.emitted("count") if one.value[0] == "timer"]
        assert fired == [] and not harness.finished
        harness.advance_processing_time(49)
        harness.run_epoch()
        harness.set_processing_time(50)
        epoch = harness.next_epoch
        harness.run_epoch()
        assert sorted(one.value for one in harness.emitted("count", epoch=epoch)) == [
            ("timer", "a", 2, 50),
            ("timer", "b", 1, 50),
            ("timer", "c", 1, 50),
        ]


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_a_crash_at_any_phase_changes_nothing(phase: Phase, epoch: int) -> None:
    sink = TestingSink()
    with ProgramTestHarness(program(sink=sink)) as harness:
        harness.crash_at(phase, epoch=epoch)
        with pytest.raises(SimulatedCrash, match=phase.name):
            harness.run()
        assert harness.next_epoch == epoch + (phase in (Phase.METADATA_COMMITTED, Phase.CLEANED_UP))
        harness.run()
        assert harness.finished
        assert sorted((one.value for one in harness.emitted("count")), key=repr) == expected()
    assert sorted(sink.values, key=repr) == expected()


def test_a_crash_that_never_comes_and_a_phase_that_never_is_passed_are_errors() -> None:
    with pytest.raises(ProgramError, match="has not come: STATE_WRITTEN"):
        with ProgramTestHarness(program()) as harness:
            harness.crash_at(Phase.STATE_WRITTEN, epoch=77)
            harness.run()
    with ProgramTestHarness(program()) as harness, pytest.raises(ProgramError, match="CHECKPOINT_READ"):
        harness.crash_at(Phase.CHECKPOINT_READ)


def test_what_a_function_keeps_outside_of_its_state_does_not_outlive_a_crash() -> None:
    with ProgramTestHarness(program()) as harness:
        COUNTS.clear()
        harness.run_epoch()
        first = list(COUNTS)
        assert sum(function.calls for function in first) == 2
        harness.crash()
        harness.run()
        assert len(COUNTS) == 2 * len(first), "they were made and opened anew"
        assert sum(function.calls for function in first) == 2
        assert sorted((one.value for one in harness.emitted("count")), key=repr) == expected()


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_savepoint_moves_a_program_to_another_parallelism(before: int, after: int, epochs: int) -> None:
    values: list[Any] = []
    with ProgramTestHarness(program(parallelism=before)) as harness:
        harness.run(epochs)
        values += [one.value for one in harness.emitted("count")]
        savepoint = harness.savepoint()
        assert sum(row.state == "count" for row in savepoint.rows("count")) == len({v[0] for v in values})
    with ProgramTestHarness(program(parallelism=after), restored=savepoint) as harness:
        harness.crash_at(Phase.EPOCH_PREPARED)
        with pytest.raises(SimulatedCrash):
            harness.run()
        harness.crash()
        harness.run()
        assert harness.finished
        values += [one.value for one in harness.emitted("count")]
    assert sorted(values, key=repr) == expected()


class TellRestored(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        self._restored = context.is_restored()

    def snapshot_state(self, context: Any) -> None:
        pass

    def map(self, value: Any) -> Any:
        return value, self._restored


def test_a_function_is_told_that_its_state_was_restored_from_a_savepoint() -> None:
    def build() -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration())
        source = TestingSource("a", Pause(), "b", End())
        records = env.from_source(source, WatermarkStrategy.no_watermarks(), "s").uid("s")
        records.rebalance().map(TellRestored()).uid("map").sink_to(sink).uid("sink")
        return env

    sink = TestingSink()
    with ProgramTestHarness(build()) as harness:
        harness.run_epoch()
        savepoint = harness.savepoint()
    assert sink.values == [("a", False)]
    sink = TestingSink()
    with ProgramTestHarness(build(), restored=savepoint) as harness:
        harness.run()
    assert sink.values == [("b", True)]


def hashable(value: Any) -> Any:
    return tuple(map(hashable, value)) if isinstance(value, (list, tuple)) else value


class Remember(KeyedProcessFunction):
    """Keeps the values of each key in every kind of state, and emits what it has kept."""

    def open(self, runtime_context: RuntimeContext) -> None:
        any_type = Types.PICKLED_BYTE_ARRAY()
        self.last = runtime_context.get_state(ValueStateDescriptor("last", any_type))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", any_type))
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", any_type, any_type))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        key, item = value
        ctx.timer_service().register_event_time_timer(100)
        self.last.update(item)
        self.all.add(item)
        map_key = hashable(item)
        self.counts.put(map_key, (self.counts.get(map_key) or 0) + 1)
        yield key, self.last.value(), list(self.all.get()), list(self.counts.items())

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), self.last.value(), list(self.all.get()), list(self.counts.items())


#: Any text, halves of surrogate pairs too, any integer, any float that equals itself, and what is made of them.
ANYTHING = st.recursive(
    ANY_TEXTS | ANY_INTEGERS | st.floats(allow_nan=False) | st.none() | st.booleans() | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.lists(inner, max_size=2).map(tuple),
    max_leaves=3,
)
RECORDS = st.tuples(ANYTHING, ANYTHING)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.lists(RECORDS, max_size=3), st.sampled_from(["0", "1 mb"]))
def test_whatever_is_a_key_or_a_value_is_saved_and_restored(before: list[Any], after: list[Any], inline: str) -> None:
    def remembering(parallelism: int) -> StreamExecutionEnvironment:
        configuration = Configuration().set_string("flinkish.state.inline-size", inline)
        env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)
        records = [*(StreamRecord(value, 1) for value in before), Pause(), *(StreamRecord(value, 2) for value in after)]
        source = TestingSource(*records, Watermark(200), End())
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "records").uid("records")
        stream.key_by(lambda value: value[0]).process(Remember()).uid("kept").sink_to(TestingSink()).name("out")
        return env

    def values_of(harness: ProgramTestHarness) -> list[str]:
        # the order in which keys are processed depends on the parallelism
        return sorted(to_text(one.value) for one in harness.emitted("kept"))

    with (
        tempfile.TemporaryDirectory() as folder,
        ProgramTestHarness(remembering(2), state_directory=folder) as harness,
    ):
        harness.run(1)
        savepoint = harness.savepoint()
        begun = values_of(harness)
        harness.crash()
        harness.run()
        expected = values_of(harness)
    for row in savepoint.rows():
        assert "".join(row).encode().decode() == "".join(row)
    with ProgramTestHarness(remembering(3), restored=savepoint) as harness:
        harness.run()
        assert sorted(begun + values_of(harness)) == expected


def test_a_savepoint_that_would_lose_state_is_refused() -> None:
    with ProgramTestHarness(program()) as harness:
        with pytest.raises(SavepointError, match="no epoch"):
            harness.savepoint()
        harness.run_epoch()
        savepoint = harness.savepoint()
    with pytest.raises(SavepointError, match="operators that the program does not have: count"):
        ProgramTestHarness(program(uid="other"), restored=savepoint)
    with pytest.raises(SavepointError, match="have no uid"):
        ProgramTestHarness(program(uid=None), restored=savepoint, allow_non_restored_state=True)
    with ProgramTestHarness(program(uid="other"), restored=savepoint, allow_non_restored_state=True) as harness:
        harness.run()
        assert max(value[1] for value in [one.value for one in harness.emitted("other")] if value[0] == "a") == 2


def test_an_error_of_a_function_is_raised_and_the_epoch_runs_again() -> None:
    with ProgramTestHarness(program(("a", 1), ("a", 13), End())) as harness:
        for _ in range(2):
            with pytest.raises(UserCodeError, match="13 brings bad luck") as raised:
                harness.run()
            assert isinstance(raised.value.__cause__, ValueError)
            assert harness.received("count") == [StreamRecord(("a", 1)), StreamRecord(("a", 13))]
        assert harness.next_epoch == 0


def test_a_main_function_is_taken_up_to_its_execute_and_its_ends_are_replaced() -> None:
    after = []

    def main() -> None:
        env = program()
        env.execute("a job of its own")
        after.append("execute returned")

    sink = TestingSink()
    source = TestingSource(("x", 1), ("x", 2), End())
    with ProgramTestHarness(main, sources={"records": source}, sinks={"out": sink}) as harness:
        assert harness.job.name == "a job of its own"
        harness.run()
    assert [value for value in sink.values if value[0] == "x"] == [("x", 1), ("x", 2)]
    assert after == []
    with pytest.raises(ProgramError, match="without calling execute"):
        ProgramTestHarness(lambda: None)
    with pytest.raises(ProgramError, match="no sources are called 'kafka'.*records"):
        ProgramTestHarness(program(), sources={"kafka": source})


def test_a_sink_that_gets_another_epoch_under_the_same_number_says_so() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    numbers = iter(range(100))
    sink = TestingSink()
    env.from_source(TestingSource(1, End()), WatermarkStrategy.no_watermarks(), "s").map(
        lambda value: next(numbers)
    ).sink_to(sink)
    with ProgramTestHarness(env) as harness:
        harness.run()
    sink.commits[0, 0] = ["something else"]
    with pytest.raises(Exception, match="committed again with other records"):
        _commit(sink, ["x"])


def _commit(sink: TestingSink, values: list[Any]) -> None:
    sink.create_committer().commit(iter([values]), sink.contexts[0])


def test_what_a_sink_has_kept_is_not_copied_for_the_tasks_that_begin_afterwards() -> None:
    sink = TestingSink()
    with ProgramTestHarness(program(sink=sink)) as harness:
        harness.run_epoch()
        sink.commits[0, -1] = [threading.Lock()]
        harness.crash()
        harness.run()
    del sink.commits[0, -1]
    assert sorted(sink.values, key=repr) == expected()


def test_what_is_on_record_is_not_changed_by_functions_that_change_their_argument() -> None:
    def change(value: list[int]) -> list[int]:
        value.append(9)
        return value

    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(1)
    stream = env.from_source(TestingSource(1, 2, End()), WatermarkStrategy.no_watermarks(), "s")
    stream.map(lambda value: [value]).name("lists").map(change).name("changed").sink_to(TestingSink())
    with ProgramTestHarness(env) as harness:
        harness.run()
        assert [one.value for one in harness.emitted("lists")] == [[1], [2]]
        assert [one.value for one in harness.received("changed")] == [[1], [2]]
        assert [one.value for one in harness.emitted("changed")] == [[1, 9], [2, 9]]


def test_large_state_lies_in_files_if_it_is_asked_for(tmp_path: Path) -> None:
    env = program()
    env.configure(Configuration().set_string("flinkish.state.inline-size", "0"))
    with ProgramTestHarness(env, state_directory=str(tmp_path)) as harness:
        harness.run_epoch()
        assert list(tmp_path.rglob("*.arrow"))
        harness.crash()
        harness.run()
        assert sorted((one.value for one in harness.emitted("count")), key=repr) == expected()


# ---------------------------------------------------------------------------------------------------- the source


def test_a_source_crashes_once_in_each_program_or_once_for_all_with_a_marker(tmp_path: Path) -> None:
    marker = tmp_path / "crashed"
    for crash in (CrashOnce(), CrashOnce(marker)):
        with ProgramTestHarness(program(("a", 1), crash, ("a", 2), End())) as harness:
            with pytest.raises(SimulatedCrash):
                harness.run()
            assert [one.value for one in harness.emitted("records")] == [("a", 1)]
            harness.run()
            assert [one.value for one in harness.emitted("records")] == [("a", 1), ("a", 2)]
    with ProgramTestHarness(program(("a", 1), CrashOnce(marker), End())) as harness:
        harness.run()


def test_splits_have_watermarks_of_their_own_and_records_with_and_without_time_keep_theirs() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(1)
    source = TestingSource.of_splits(
        [Watermark(10), StreamRecord("a", 5), "b", Row(1), Pause(), Watermark(30)], [Watermark(20), "c"]
    )
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "s").key_by(lambda value: 0)
    stream.reduce(lambda a, b: b).name("last").print()
    with ProgramTestHarness(env) as harness:
        harness.run_epoch()
        records = [StreamRecord("a", 5), StreamRecord("b"), StreamRecord(Row(1)), StreamRecord("c")]
        assert sorted(harness.emitted("Source: s"), key=repr) == sorted(records, key=repr)
        assert harness.watermarks("last") == [10]
        harness.run_epoch()
        assert harness.watermarks("last") == [10, 20]
        assert harness.run() == 1, "an open source that has nothing more"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TestingSource(End(), 1), "stands before other elements"),
        (lambda: TestingSource(Watermark(5), Watermark(4)), "the watermark 4 stands behind 5"),
        (lambda: TestingSource(Pause(0)), "at least one epoch"),
        (TestingSource.of_splits, "without splits"),
        (lambda: TestingSource.of_splits([1, End()], [2]), "some splits of a TestingSource end"),
    ],
)
def test_marks_that_contradict_each_other_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        make()


@pytest.mark.parametrize("pickled", [False, True])
def test_functions_that_spark_could_not_send_fail_where_they_are_pickled(pickled: bool) -> None:
    lock, seen = threading.Lock(), list[int]()

    def locked(value: int) -> int:
        with lock:
            return value

    def remembered(value: int) -> int:
        seen.append(value)
        return value

    def program(function: Callable[[int], int]) -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment()
        source = TestingSource(1, CrashOnce(), 2, End())
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        numbers.map(function).name("mapped").uid("m").sink_to(TestingSink()).uid("sink")
        return env

    refused = (
        pytest.raises(
            UnserializableFunctionError, match=r"sent to the workers: .*lock.*operator 'mapped' \(uid m\).*open"
        )
        if pickled
        else nullcontext()
    )
    with refused:
        ProgramTestHarness(program(locked), pickle_functions=pickled).close()
    sink = TestingSink()
    with ProgramTestHarness(program(remembered), pickle_functions=pickled, sinks={"sink": sink}) as harness:
        with pytest.raises(SimulatedCrash):
            harness.run()
        harness.run()
        assert [record.value for record in harness.emitted("m")] == sink.values == [1, 2]
    assert seen == ([] if pickled else [1, 1, 2])
