"""Operators with two inputs: map, flat_map and process on connected streams, keyed or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.typeinfo import Types
from flinkish.core.co_functions import CoFlatMapFunction, CoMapFunction, CoProcessFunction, KeyedCoProcessFunction
from flinkish.core.functions import OutputTag, RuntimeContext
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, TimeDomain
from flinkish.errors import ProgramError, StateAccessError, TypeMismatchError
from flinkish.runtime.job.failure import describe_failure
from flinkish.runtime.operators.functions import CoFlatMapFactory, CoMapFactory, CoProcessFactory
from flinkish.runtime.operators.keyed_process import KeyedCoProcessFactory
from flinkish.testing import KeyedTwoInputStreamOperatorTestHarness as KeyedHarness
from flinkish.testing import StreamRecord, Watermark
from flinkish.testing import TwoInputStreamOperatorTestHarness as Harness
from tests.support.profiles import examples

ANY = Types.PICKLED_BYTE_ARRAY()
TAG = OutputTag("side")


def first(value: Any) -> Any:
    return value[0]


def second(value: Any) -> Any:
    return value[1]


# --- map ------------------------------------------------------------------------------------------------------------


class Tell(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return ("one", value) if value else None

    def map2(self, value: Any) -> Any:
        return (TAG, value) if value else None


def test_each_input_has_its_map_and_none_is_no_result() -> None:
    with Harness(CoMapFactory(Tell()), side_outputs=("side",)) as harness:
        harness.process_elements1([1, 0, 2], [10, 20, 30])
        harness.process_elements2([3, 0], [40, 50])
        harness.process_elements1([4], None)
        harness.process_both_watermarks(60)
        assert harness.take_output() == [
            StreamRecord(("one", 1), 10),
            StreamRecord(("one", 2), 30),
            StreamRecord(("one", 4), None),
            Watermark(60),
        ]
        assert harness.output.sides == {"side": [(3, 40)]}


def test_a_map_that_raises_stop_iteration_does_not_end_the_batch_silently() -> None:
    class Next(Tell):
        def map2(self, value: Any) -> Any:
            return next(iter(()))

    with pytest.raises(ProgramError, match=r"map2\(\) raised StopIteration"):
        with Harness(CoMapFactory(Next())) as harness:
            harness.process_elements2([1, 2], None)


def test_results_are_converted_to_the_declared_type() -> None:
    converter = Types.ROW([Types.STRING(), Types.INT()]).batch_converter("results of 'Co-Map'")
    with Harness(CoMapFactory(Tell(), converter=converter)) as harness:
        harness.process_element1(2**33 + 7)
        assert [list(row) for row in harness.take_values()] == [["one", 7]]
    with pytest.raises(TypeMismatchError, match="results of 'Co-Map'"):
        with Harness(CoMapFactory(Tell(), converter=converter)) as harness:
            harness.process_element1("no number")


class Remember(CoMapFunction):
    """``(key, value)`` from input 1, ``(value, key)`` from input 2; both put the value and get the one before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", ANY))

    def _swap(self, value: Any) -> Any:
        before = self.last.value()
        self.last.update(value)
        return before, value

    def map1(self, value: Any) -> Any:
        return self._swap(value[1])

    def map2(self, value: Any) -> Any:
        return self._swap(value[0])


def test_both_inputs_find_the_state_of_a_key_each_with_its_own_selector() -> None:
    with KeyedHarness(CoMapFactory(Remember(), keyed=True), first, second) as harness:
        harness.process_elements1([("a", 1), ("b", 2)])
        harness.process_elements2([(3, "a"), (4, "a"), (5, "c")])
        harness.process_element1(("a", 6))
        assert harness.take_values() == [(None, 1), (None, 2), (1, 3), (3, 4), (None, 5), (4, 6)]
        body = harness.snapshot()
    with KeyedHarness(CoMapFactory(Remember(), keyed=True), first, second, restored=body) as harness:
        harness.process_element2((7, "a"))
        assert harness.take_values() == [(6, 7)]


# --- flat_map -------------------------------------------------------------------------------------------------------


def test_each_input_has_its_flat_map() -> None:
    class Both(CoFlatMapFunction):
        def flat_map1(self, value: Any) -> Any:
            return range(value)

        def flat_map2(self, value: Any) -> Any:
            if value:
                yield TAG, value
                yield -value

    with Harness(CoFlatMapFactory(Both()), side_outputs=("side",)) as harness:
        harness.process_elements1([2, 0, 1], [1, 2, 3])
        harness.process_elements2([0, 5], [4, 5])
        harness.process_elements2([1], None)
        assert harness.take_output() == [
            StreamRecord(0, 1),
            StreamRecord(1, 1),
            StreamRecord(0, 3),
            StreamRecord(-5, 5),
            StreamRecord(-1, None),
        ]
        assert harness.output.sides == {"side": [(5, 5), (1, None)]}


# --- process --------------------------------------------------------------------------------------------------------


class TellTime(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        yield 1, value, ctx.timestamp(), ctx.timer_service().current_watermark()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        ctx.request_commit()
        return [(2, value, ctx.timestamp(), ctx.timer_service().current_processing_time())]


def test_a_co_process_function_sees_times_of_both_inputs() -> None:
    with Harness(CoProcessFactory(TellTime())) as harness:
        harness.epoch.processing_time_ms = 77
        harness.process_both_watermarks(5)
        harness.process_element1("a", 10)
        assert not harness.epoch.commit_requested
        harness.process_element2("b", None)
        assert harness.epoch.commit_requested
        assert harness.take_values() == [(1, "a", 10, 5), (2, "b", MIN_TIMESTAMP_MS, 77)]


def test_streams_without_keys_have_neither_state_nor_timers() -> None:
    class Timers(TellTime):
        def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
            ctx.timer_service().register_event_time_timer(1)

    with pytest.raises(StateAccessError, match="Register timers is only supported on a keyed stream"):
        with Harness(CoProcessFactory(Timers())) as harness:
            harness.process_element1("a")

    class State(TellTime):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_state(ValueStateDescriptor("s", ANY))

    with pytest.raises(StateAccessError, match="only accessible by functions executed on a KeyedStream"):
        Harness(CoProcessFactory(State()))


class Join(KeyedCoProcessFunction):
    """Orders ``(key, text)`` wait 10 ms for payments ``(amount, key)``, or are told alone."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.order = runtime_context.get_state(ValueStateDescriptor("order", ANY))
        self.until = runtime_context.get_state(ValueStateDescriptor("until", ANY))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        if self.until.value() is not None:
            ctx.timer_service().delete_event_time_timer(self.until.value())
        self.order.update(value[1])
        self.until.update(ctx.timestamp() + 10)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        if self.order.value() is None:
            yield TAG, (ctx.get_current_key(), value[0])
            return
        ctx.timer_service().delete_event_time_timer(self.until.value())
        yield ctx.get_current_key(), self.order.value(), value[0]
        self.order.clear()
        self.until.clear()

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME and ctx.timestamp() == timestamp
        yield ctx.get_current_key(), self.order.value(), "unpaid"
        self.order.clear()
        self.until.clear()


def join(**options: Any) -> KeyedHarness:
    return KeyedHarness(KeyedCoProcessFactory(Join()), first, second, side_outputs=("side",), **options)


def test_records_of_one_key_meet_in_state_and_timers_fire_for_those_that_do_not() -> None:
    with join() as harness:
        harness.process_elements1([("a", "tea"), ("b", "milk")], [1, 2])
        harness.process_elements2([(5, "a"), (7, "c")], [3, 4])
        harness.process_both_watermarks(12)
        assert harness.take_output() == [
            StreamRecord(("a", "tea", 5), 3),
            StreamRecord(("b", "milk", "unpaid"), 12),
            Watermark(12),
        ]
        assert harness.output.sides == {"side": [(("c", 7), 4)]}
        assert harness.snapshot().keyed_state is None


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1), st.integers(0, 6), st.integers(0, 5)), max_size=40),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_a_join_with_timeouts_gives_what_a_model_gives_wherever_barriers_are(
    records: list[tuple[str, int, int, int]], cuts: list[int]
) -> None:
    now, harness = 0, join()
    results: list[Any] = []
    for index, (key, input_index, gap, number) in enumerate(records):
        if index in cuts:
            results += harness.take_values()
            harness = join(restored=harness.snapshot())
        now += gap
        harness.process_both_watermarks(now - 1)
        if input_index:
            harness.process_element2((number, key), now)
        else:
            harness.process_element1((key, number), now)
    harness.process_both_watermarks(MAX_WATERMARK_MS)
    results += harness.take_values()
    assert sorted(map(str, results)) == sorted(map(str, _joined(records)))
    assert harness.snapshot().keyed_state is None


def _joined(records: list[tuple[str, int, int, int]]) -> list[tuple[Any, ...]]:
    now, results = 0, []
    waiting: dict[str, tuple[int, int]] = {}
    for key, input_index, gap, number in records:
        now += gap
        for late in [k for k, (until, _) in waiting.items() if until <= now - 1]:
            results.append((late, waiting.pop(late)[1], "unpaid"))
        if not input_index:
            waiting[key] = now + 10, number
        elif key in waiting:
            results.append((key, waiting.pop(key)[1], number))
    return results + [(key, number, "unpaid") for key, (_, number) in waiting.items()]


def test_a_co_process_function_on_keyed_streams_has_state_and_timers_as_in_java() -> None:
    class Count(CoProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.count = runtime_context.get_state(ValueStateDescriptor("count", ANY))

        def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> None:
            self.count.update((self.count.value() or 0) + 1)
            ctx.timer_service().register_processing_time_timer(100)

        process_element2 = process_element1

        def on_timer(self, timestamp: int, ctx: CoProcessFunction.OnTimerContext) -> Any:
            return [(ctx.time_domain(), self.count.value())]

    factory = KeyedCoProcessFactory(Count())
    assert factory.has_timers
    with KeyedHarness(factory, first, second) as harness:
        harness.process_elements1([("a", 0), ("a", 0)])
        harness.process_element2((0, "a"))
        harness.set_processing_time(100)
        assert harness.take_output() == [StreamRecord((TimeDomain.PROCESSING_TIME, 3), None)]


def test_functions_that_react_to_timers_are_called_in_epochs_without_data() -> None:
    assert KeyedCoProcessFactory(Join()).has_timers
    assert not KeyedCoProcessFactory(TellTime()).has_timers


def test_the_error_of_a_function_names_the_input_and_the_key() -> None:
    class Fails(Join):
        def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
            raise ValueError("no")

    with KeyedHarness(KeyedCoProcessFactory(Fails()), first, second) as harness:
        with pytest.raises(ValueError, match="no") as raised:
            harness.process_element2((1, "k"))
    described = describe_failure(raised.value, "Task (1/1)", 3)
    assert "operator 'tested' (uid tested), input 2, key 'k', record (1, 'k'), epoch 3" in str(described)


def test_keys_are_fetched_by_batch_and_records_seen_in_their_order() -> None:
    seen: dict[str, list[int]] = defaultdict(list)

    class See(Join):
        def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
            seen[ctx.get_current_key()].append(value[1])

        def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
            seen[ctx.get_current_key()].append(value[0])

    with KeyedHarness(KeyedCoProcessFactory(See()), first, second) as harness:
        fetched: list[list[Any]] = []
        assert harness.backend is not None
        harness.backend.prefetch = fetched.append  # type: ignore[method-assign,assignment]
        harness.process_elements1([("a", 1), ("b", 2), ("a", 3)])
        harness.process_elements2([(4, "b"), (5, "a")])
    assert fetched == [["a", "b", "a"], ["b", "a"]]
    assert seen == {"a": [1, 3, 5], "b": [2, 4]}
