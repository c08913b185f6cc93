"""process with keys: state, timers in both domains, and what survives a barrier."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.typeinfo import Types
from flinkish.core.functions import KeyedProcessFunction, OutputTag, RuntimeContext
from flinkish.core.state import ListStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, TimeDomain
from flinkish.errors import StateAccessError, TypeMismatchError
from flinkish.runtime.operators.keyed_process import KeyedProcessFactory
from flinkish.testing import KeyedOneInputStreamOperatorTestHarness, StreamRecord, Watermark
from tests.support.profiles import examples

ANY = Types.PICKLED_BYTE_ARRAY()


class Process(KeyedProcessFunction):
    """Made of two functions (value, ctx, state) and (timestamp, ctx, state)."""

    def __init__(self, on_element: Callable[..., Any], on_timer: Callable[..., Any] = lambda *_: None) -> None:
        self._on_element = on_element
        self._on_timer = on_timer

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("state", ANY))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        return self._on_element(value, ctx, self.state)  # type: ignore[no-any-return]

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        return self._on_timer(timestamp, ctx, self.state)  # type: ignore[no-any-return]


def keyed(function: KeyedProcessFunction, **options: Any) -> KeyedOneInputStreamOperatorTestHarness:
    return KeyedOneInputStreamOperatorTestHarness(KeyedProcessFactory(function), lambda value: value[0], **options)


def count(value: Any, ctx: Any, state: Any) -> Any:
    number = (state.value() or 0) + 1
    state.update(number)
    yield ctx.get_current_key(), number


def test_state_is_per_key_and_survives_barriers_and_restores() -> None:
    records = [(key, None) for key in "abacab"]
    with keyed(Process(count)) as harness:
        harness.process_elements(records, list(range(6)))
        assert sorted(harness.take_values()) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)]
        body = harness.snapshot()
        harness.process_elements(records[:1])
        assert harness.take_output() == [StreamRecord(("a", 4), None)]
    with keyed(Process(count), restored=body) as harness:
        harness.process_elements(records[:2], [7, 7])
        assert sorted(harness.take_values()) == [("a", 4), ("b", 3)]


def test_equal_numbers_are_one_key() -> None:
    with keyed(Process(count)) as harness:
        harness.process_elements([(1, 0), (1.0, 0), (True, 0)])
        assert [number for _, number in harness.take_values()] == [1, 2, 3]


def test_event_timers_fire_in_time_order_before_the_watermark_is_handed_on() -> None:
    def register(value: Any, ctx: Any, state: Any) -> None:
        for timer_ms in value[1]:
            ctx.timer_service().register_event_time_timer(timer_ms)

    def on_timer(timestamp: int, ctx: Any, state: Any) -> Any:
        assert ctx.timestamp() == timestamp and ctx.time_domain() is TimeDomain.EVENT_TIME
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()

    with keyed(Process(register, on_timer)) as harness:
        harness.process_elements([("a", [30, 10, 50, 10]), ("b", [20, 10])], [1, 2])
        assert harness.take_output() == []
        harness.process_watermark(9)
        harness.process_watermark(30)
        harness.process_watermark(MAX_WATERMARK_MS)
        assert harness.take_output() == [
            Watermark(9),
            StreamRecord(("a", 10, 30), 10),
            StreamRecord(("b", 10, 30), 10),
            StreamRecord(("b", 20, 30), 20),
            StreamRecord(("a", 30, 30), 30),
            Watermark(30),
            StreamRecord(("a", 50, MAX_WATERMARK_MS), 50),
            Watermark(MAX_WATERMARK_MS),
        ]


def test_processing_timers_fire_when_time_has_come_and_their_results_have_no_timestamp() -> None:
    def register(value: Any, ctx: Any, state: Any) -> None:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + value[1])

    def on_timer(timestamp: int, ctx: Any, state: Any) -> Any:
        return [(timestamp, ctx.timestamp(), ctx.time_domain(), ctx.timer_service().current_processing_time())]

    with keyed(Process(register, on_timer)) as harness:
        harness.set_processing_time(1000)
        harness.process_elements([("a", 5), ("a", 10)], [1, 2])
        harness.process_watermark(MAX_WATERMARK_MS)
        harness.set_processing_time(1004)
        assert harness.take_values() == []
        harness.set_processing_time(1005)
        harness.set_processing_time(2000)
        assert harness.take_output() == [
            StreamRecord((1005, 1005, TimeDomain.PROCESSING_TIME, 1005), None),
            StreamRecord((1010, 1010, TimeDomain.PROCESSING_TIME, 2000), None),
        ]


def test_timers_survive_a_restore_and_need_no_data_to_fire() -> None:
    def register(value: Any, ctx: Any, state: Any) -> None:
        state.update(value[1])
        ctx.timer_service().register_event_time_timer(100)
        ctx.timer_service().register_processing_time_timer(200)

    def on_timer(timestamp: int, ctx: Any, state: Any) -> Any:
        yield timestamp, ctx.get_current_key(), state.value()

    with keyed(Process(register, on_timer)) as harness:
        harness.process_elements([("a", 1), ("b", 2)], [1, 1])
        body = harness.snapshot()
    with keyed(Process(register, on_timer), restored=body) as harness:
        harness.process_watermark(100)
        assert sorted(harness.take_values()) == [(100, "a", 1), (100, "b", 2)]
        harness.set_processing_time(200)
        assert sorted(harness.take_values()) == [(200, "a", 1), (200, "b", 2)]
        harness.process_watermark(1000)
        assert harness.take_values() == []


def test_timers_registered_while_timers_fire_fire_in_the_same_advance_if_they_are_due() -> None:
    def register(value: Any, ctx: Any, state: Any) -> None:
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(timestamp: int, ctx: Any, state: Any) -> Any:
        ctx.timer_service().register_event_time_timer(timestamp + 10)
        yield timestamp

    with keyed(Process(register, on_timer)) as harness:
        harness.process_element(("a", None), 1)
        harness.process_watermark(35)
        assert harness.take_values() == [10, 20, 30]
        harness.process_watermark(40)
        assert harness.take_values() == [40]


def test_a_deleted_timer_does_not_fire() -> None:
    def element(value: Any, ctx: Any, state: Any) -> None:
        for domain in ("event_time", "processing_time"):
            getattr(ctx.timer_service(), f"{value[1]}_{domain}_timer")(10)

    with keyed(Process(element, lambda timestamp, ctx, state: [ctx.get_current_key()])) as harness:
        harness.process_elements([("a", "register"), ("b", "register"), ("a", "delete"), ("c", "delete")], [1] * 4)
        harness.process_watermark(10)
        harness.set_processing_time(10)
        assert harness.take_values() == ["b", "b"]


def test_timers_may_emit_to_side_outputs_and_return_nothing() -> None:
    def register(value: Any, ctx: Any, state: Any) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(timestamp: int, ctx: Any, state: Any) -> Any:
        return [(OutputTag("fired"), timestamp), timestamp] if timestamp == 10 else None

    with keyed(Process(register, on_timer), side_outputs=("fired",)) as harness:
        harness.process_elements([("a", 10), ("a", 20)], [1, 2])
        harness.process_watermark(20)
        assert harness.take_output() == [StreamRecord(10, 10), Watermark(20)]
        assert harness.output.sides == {"fired": [(10, 10)]}


def test_a_timer_of_a_time_that_is_no_integer_is_refused() -> None:
    def register(value: Any, ctx: Any, state: Any) -> None:
        ctx.timer_service().register_event_time_timer(1.5)

    with pytest.raises(TypeError, match="float"), keyed(Process(register)) as harness:
        harness.process_element(("a", None))


@pytest.mark.parametrize("timestamp_ms", [1 << 63, -(1 << 63) - 1])
def test_a_timer_of_a_time_beyond_64_bits_is_refused(timestamp_ms: int) -> None:
    def register(value: Any, ctx: Any, state: Any) -> None:
        ctx.timer_service().register_event_time_timer(timestamp_ms)

    with pytest.raises(TypeMismatchError, match="a timer was registered for.*key 'a'.*of 64 bits"):
        with keyed(Process(register)) as harness:
            harness.process_element(("a", None))


def test_what_a_function_does_to_an_object_after_it_emitted_it_does_not_change_the_state() -> None:
    def collect(value: Any, ctx: Any, state: Any) -> Any:
        elements = state.value() or []
        elements.append(value[1])
        state.update(elements)
        yield elements

    with keyed(Process(collect)) as harness:
        harness.process_elements([("a", 1), ("a", 2)])
        harness.process_elements([("a", 3)])
        assert harness.take_values() == [[1], [1, 2], [1, 2, 3]]


def test_without_timestamps_the_context_says_so() -> None:
    with keyed(Process(lambda value, ctx, state: [ctx.timestamp()])) as harness:
        harness.process_element(("a", None))
        assert harness.take_output() == [StreamRecord(MIN_TIMESTAMP_MS, None)]


def test_state_in_open_has_no_key_yet() -> None:
    class Eager(Process):
        def open(self, runtime_context: RuntimeContext) -> None:
            super().open(runtime_context)
            self.state.update(1)

    with pytest.raises(StateAccessError, match="'state' was used while no record is processed"):
        keyed(Eager(count))


def test_a_descriptor_of_the_wrong_kind_is_refused() -> None:
    class Wrong(Process):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_state(ListStateDescriptor("s", ANY))  # type: ignore[arg-type]

    with pytest.raises(StateAccessError, match="a ListStateDescriptor was given.*expected a ValueStateDescriptor"):
        keyed(Wrong(count))


def test_only_a_function_that_reacts_to_timers_asks_for_epochs_without_data() -> None:
    class WithoutTimers(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            return None

    assert not KeyedProcessFactory(WithoutTimers()).has_timers
    assert KeyedProcessFactory(Process(count)).has_timers


class Sessions(KeyedProcessFunction):
    """Sums values until a key was silent for 5 ms: state, a timer that moves, deletion."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b, ANY))
        self.end = runtime_context.get_state(ValueStateDescriptor("end", ANY))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        end = self.end.value()
        if end is not None:
            ctx.timer_service().delete_event_time_timer(end)
        new_end = max(ctx.timestamp() + 5, end or 0)
        ctx.timer_service().register_event_time_timer(new_end)
        self.end.update(new_end)
        self.sum.add(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp, self.sum.get()
        self.sum.clear()
        self.end.clear()


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 9)), max_size=40),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_sessions_are_the_same_with_and_without_barriers_in_between(
    records: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    times, now = [], 0
    for _, _, gap in records:
        now += gap
        times.append(now)
    expected = _sessions([(key, number, time) for (key, number, _), time in zip(records, times, strict=True)])

    results: list[Any] = []
    harness = keyed(Sessions())
    for index, ((key, number, _), time) in enumerate(zip(records, times, strict=True)):
        if index in cuts:
            results += harness.take_values()
            harness = keyed(Sessions(), restored=harness.snapshot())
        harness.process_watermark(time - 1)
        harness.process_element((key, number), time)
    harness.process_watermark(MAX_WATERMARK_MS)
    results += harness.take_values()
    assert sorted(results) == sorted(expected)
    assert harness.snapshot().keyed_state is None


def _sessions(records: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    open_sessions: dict[str, tuple[int, int]] = {}
    closed = []
    for key, number, time in records:
        end, total = open_sessions.get(key, (time, 0))
        if key in open_sessions and end <= time - 1:
            closed.append((key, end, total))
            total = 0
        open_sessions[key] = (time + 5, total + number)
    return closed + [(key, end, total) for key, (end, total) in open_sessions.items()]
