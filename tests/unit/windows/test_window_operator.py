"""The general window operator: triggers, window functions, state, side outputs, lifecycle and bad input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from flinkish.common.typeinfo import Types
from flinkish.core.functions import ProcessWindowFunction, ReduceFunction, RuntimeContext, WindowFunction
from flinkish.core.output_tag import OutputTag
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.time_limits import MAX_WATERMARK_MS
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.count_trigger import CountTrigger
from flinkish.core.window.event_time_trigger import EventTimeTrigger
from flinkish.core.window.processing_time_trigger import ProcessingTimeTrigger
from flinkish.core.window.purging_trigger import PurgingTrigger
from flinkish.core.window.trigger import Trigger, TriggerResult
from flinkish.core.window.tumbling_event_time import TumblingEventTimeWindows
from flinkish.core.window.tumbling_processing_time import TumblingProcessingTimeWindows
from flinkish.core.window.window import GlobalWindow, TimeWindow
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.tumbling_event_time_operator import TumblingEventTimeOperator
from flinkish.runtime.operators.window.window_operator import WindowOperator
from flinkish.runtime.operators.window.window_operator_factory import WindowOperatorFactory
from flinkish.runtime.windowing.window_logic import WindowLogic
from tests.unit.windows.window_driver import LATE, WindowDriver

TEN = TumblingEventTimeWindows(10)


def add_up(one: tuple[Any, int], other: tuple[Any, int]) -> tuple[Any, int]:
    return one[0], one[1] + other[1]


SUM = WindowLogic(add_up)


class Elements(WindowFunction[Any, Any, Any, Any]):
    """(key, window, its values)."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, window, [value for _, value in inputs])]


class AllInOne(WindowAssigner[Any, GlobalWindow]):
    """One window for everything, without an end; never fires by itself."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Any:
        raise AssertionError("not asked for here")

    def is_event_time(self) -> bool:
        return False

    def needs_processing_time(self) -> bool:
        return False


class TwoSizes(WindowAssigner[Any, TimeWindow]):
    """Each element is in a window of 10 ms and in one of 20 ms."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        starts = (size * (timestamp // size) for size in (10, 20))
        return [TimeWindow(start, start + size) for start, size in zip(starts, (10, 20), strict=True)]

    def get_default_trigger(self, env: Any) -> EventTimeTrigger:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class Ignore(Trigger[Any, Any]):
    """Does nothing; base of the triggers of these tests."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None:
        raise AssertionError("nothing merges here")

    def clear(self, window: Any, ctx: Any) -> None:
        pass


# --- lateness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [TumblingEventTimeOperator, WindowOperator])
def test_within_the_allowed_lateness_each_late_element_fires_the_window_again(make: Any) -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), SUM, 5, LATE), make)
    driver.add(("a", 1, 3), ("b", 7, 4))
    driver.watermark(9)
    driver.add(("a", 10, 5), ("a", 100, 6))
    driver.watermark(13)
    driver.add(("a", 1000, 1))
    driver.watermark(14)
    driver.add(("a", 9999, 2))
    assert driver.results == [(("a", 1), 9), (("b", 7), 9), (("a", 11), 9), (("a", 111), 9), (("a", 1111), 9)]
    assert driver.late == [(("a", 9999), 2)]
    assert driver.is_empty()


@pytest.mark.parametrize("make", [TumblingEventTimeOperator, WindowOperator])
def test_late_elements_without_a_side_output_are_counted(make: Any) -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), SUM), make)
    driver.watermark(25)
    driver.add(("a", 1, 3), ("a", 1, 29), ("b", 1, 19))
    driver.watermark(MAX_WATERMARK_MS)
    assert driver.dropped == 2
    assert driver.results == [(("a", 1), 29)]


def test_an_element_is_not_late_while_one_of_its_windows_is_open() -> None:
    driver = WindowDriver(WindowOperatorFactory(TwoSizes(), EventTimeTrigger(), SUM, 0, LATE))
    driver.watermark(9)
    driver.add(("a", 1, 3))
    driver.watermark(19)
    driver.add(("a", 5, 4))
    assert driver.results == [(("a", 1), 19)]
    assert driver.late == [(("a", 5), 4)]


def test_windows_fire_before_the_watermark_goes_on_and_in_the_order_of_their_ends() -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), SUM))
    driver.add(("a", 1, 15), ("a", 2, 5), ("b", 3, 4))
    driver.watermark(30)
    assert driver.events == [
        ("record", ("a", 2), 9),
        ("record", ("b", 3), 9),
        ("record", ("a", 1), 19),
        ("watermark", 30),
    ]


# --- triggers -------------------------------------------------------------------------------------------------------


def test_a_count_trigger_fires_at_every_nth_element_and_keeps_the_elements() -> None:
    driver = WindowDriver(WindowOperatorFactory(AllInOne(), CountTrigger.of(2), WindowLogic(None, Elements())))
    driver.add(("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("a", 3, 0), ("a", 4, 0))
    window = GlobalWindow.get()
    assert [value for value, _ in driver.results] == [("a", window, [1, 2]), ("a", window, [1, 2, 3, 4])]
    assert {timestamp for _, timestamp in driver.results} == {MAX_WATERMARK_MS}


def test_a_purging_trigger_throws_away_what_has_fired_and_counts_on_after_a_restart() -> None:
    trigger = PurgingTrigger.of(CountTrigger.of(2))
    driver = WindowDriver(WindowOperatorFactory(AllInOne(), trigger, SUM))
    driver.add(("a", 1, 0), ("a", 2, 0), ("a", 3, 0))
    driver.restart()
    driver.add(("a", 4, 0))
    assert [value for value, _ in driver.results] == [("a", 3), ("a", 7)]
    assert driver.is_empty()


def test_a_purging_event_time_trigger_sends_only_what_came_since_the_last_firing() -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, PurgingTrigger.of(EventTimeTrigger()), SUM, 5))
    driver.add(("a", 1, 3))
    driver.watermark(9)
    driver.add(("a", 10, 4))
    driver.watermark(MAX_WATERMARK_MS)
    assert driver.results == [(("a", 1), 9), (("a", 10), 9)]
    assert driver.is_empty()


def test_a_trigger_of_a_user_has_timers_and_state_of_its_key_and_window() -> None:
    fired = ValueStateDescriptor("fired", Types.INT())

    class EveryThreeMs(Ignore):
        """Fires every three milliseconds of event time, twice, then purges."""

        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
            if window.start + 3 > ctx.get_current_watermark():
                ctx.register_event_time_timer(window.start + 3)
            ctx.register_event_time_timer(window.start + 100)
            ctx.delete_event_time_timer(window.start + 100)
            return TriggerResult.CONTINUE

        def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
            if time == window.max_timestamp():
                return TriggerResult.CONTINUE
            state = ctx.get_partitioned_state(fired)
            count = (state.value() or 0) + 1
            state.update(count)
            if count == 2:
                return TriggerResult.FIRE_AND_PURGE
            ctx.register_event_time_timer(time + 3)
            return TriggerResult.FIRE

        def clear(self, window: Any, ctx: Any) -> None:
            ctx.get_partitioned_state(fired).clear()

    driver = WindowDriver(WindowOperatorFactory(TEN, EveryThreeMs(), SUM))
    driver.add(("a", 1, 0), ("b", 5, 11))
    driver.watermark(3)
    driver.add(("a", 2, 1))
    driver.watermark(6)
    driver.add(("a", 4, 8))
    driver.watermark(30)
    # a's third element came after the purge and no timer fires for it any more
    assert driver.results == [(("a", 1), 9), (("a", 3), 9), (("b", 5), 19), (("b", 5), 19)]
    assert driver.is_empty()


def test_a_trigger_knows_watermark_processing_time_and_metrics() -> None:
    seen = []

    class Look(Ignore):
        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
            ctx.get_metric_group().counter("asked").inc()
            seen.append((ctx.get_current_watermark(), ctx.get_current_processing_time()))
            return TriggerResult.PURGE

    driver = WindowDriver(WindowOperatorFactory(TEN, Look(), SUM))
    driver.harness.set_processing_time(77)
    driver.watermark(5)
    driver.add(("a", 1, 20))
    assert seen == [(5, 77)]
    assert driver.harness.metrics.snapshot()["asked"] == 1


def test_a_trigger_that_returns_something_else_is_told_so() -> None:
    class Wrong(Ignore):
        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
            return None

    driver = WindowDriver(WindowOperatorFactory(TEN, Wrong(), SUM))
    with pytest.raises(ProgramError, match="returned None; expected a TriggerResult"):
        driver.add(("a", 1, 0))


# --- processing time ------------------------------------------------------------------------------------------------


def test_processing_time_windows_fire_by_the_epochs_time_and_need_no_timestamps() -> None:
    assigner = TumblingProcessingTimeWindows(10)
    driver = WindowDriver(WindowOperatorFactory(assigner, assigner.get_default_trigger(None), SUM))
    driver.harness.set_processing_time(3)
    driver.harness.process_batch([("a", 1), ("b", 2)])
    driver.harness.set_processing_time(8)
    driver.harness.process_batch([("a", 10)])
    assert driver.results == []
    driver.harness.set_processing_time(9)
    assert driver.results == [(("a", 11), 9), (("b", 2), 9)]
    assert driver.is_empty()


def test_no_watermark_makes_an_element_late_in_processing_time() -> None:
    assigner = TumblingProcessingTimeWindows(10)
    driver = WindowDriver(WindowOperatorFactory(assigner, ProcessingTimeTrigger(), SUM))
    driver.watermark(MAX_WATERMARK_MS)
    driver.add(("a", 1, 0))
    driver.harness.set_processing_time(20)
    assert driver.results == [(("a", 1), 9)]
    assert driver.dropped == 0


# --- window functions -----------------------------------------------------------------------------------------------


def test_a_process_function_has_state_per_window_and_per_key_and_is_asked_to_clear_it() -> None:
    firings = ValueStateDescriptor("firings", Types.INT())

    class Count(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            counts = []
            for store in (context.window_state(), context.global_state()):
                state = store.get_state(firings)
                state.update((state.value() or 0) + 1)
                counts.append(state.value())
            yield key, context.window().start, *counts, context.current_watermark(), context.current_processing_time()

        def clear(self, context: Any) -> None:
            context.window_state().get_state(firings).clear()
            cleared.append(context.window().start)

    cleared: list[int] = []
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(add_up, Count()), 10))
    driver.harness.set_processing_time(5)
    driver.add(("a", 1, 1))
    driver.watermark(9)
    driver.add(("a", 2, 2), ("b", 1, 3))
    driver.restart()
    driver.harness.set_processing_time(6)
    driver.add(("a", 2, 12))
    driver.watermark(MAX_WATERMARK_MS)
    assert [value for value, _ in driver.results] == [
        ("a", 0, 1, 1, 9, 5),
        ("a", 0, 2, 2, 9, 5),
        ("b", 0, 1, 1, 9, 5),
        ("a", 10, 1, 3, MAX_WATERMARK_MS, 6),
    ]
    assert cleared == [0, 0, 10]


def test_a_window_function_may_return_nothing_and_send_to_side_outputs() -> None:
    odd = OutputTag("odd")

    class Split(WindowFunction[Any, Any, Any, Any]):
        def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Any:
            if key == "none":
                return None
            return ((odd, value) if value % 2 else value for _, value in inputs)

    factory = WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(None, Split()))
    driver = WindowDriver(factory, side_tags=("odd",))
    driver.add(("a", 1, 0), ("none", 2, 0), ("a", 4, 0), ("a", 3, 0))
    driver.watermark(9)
    assert driver.results == [(4, 9)]
    assert driver.harness.output.sides["odd"] == [(1, 9), (3, 9)]


@pytest.mark.parametrize("make", [TumblingEventTimeOperator, WindowOperator])
def test_what_user_code_does_to_a_result_does_not_reach_the_state(make: Any) -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(lambda a, b: a + b), 5), make)
    driver.harness.process_batch([["a", 1], ["a", 2]], [1, 2])
    driver.watermark(9)
    driver.results[0][0].append("changed downstream")
    driver.harness.process_batch([["a", 3]], [3])
    assert driver.results[1] == (["a", 1, "a", 2, "a", 3], 9)


@pytest.mark.parametrize("make", [TumblingEventTimeOperator, WindowOperator])
def test_a_result_of_none_is_not_emitted(make: Any) -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(lambda a, b: None)), make)
    driver.add(("a", 1, 1), ("a", 2, 2), ("b", 3, 3))
    driver.watermark(9)
    assert driver.results == [(("b", 3), 9)]
    assert driver.is_empty()


def test_results_are_narrowed_to_the_output_type_but_not_the_late_elements() -> None:
    converter = Types.TUPLE([Types.STRING(), Types.SHORT()]).batch_converter()
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), SUM, 0, LATE, converter))
    driver.add(("a", 43_000, 1), ("a", 878, 1))
    driver.watermark(9)
    driver.add(("a", 43_878, 1))
    assert driver.results == [(("a", -21_658), 9)]
    assert driver.late == [(("a", 43_878), 1)]


def test_a_stream_without_keys_runs_under_a_constant_key() -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), SUM), key_selector=lambda value: 0)
    driver.add(("a", 1, 1), ("b", 2, 2))
    driver.watermark(9)
    assert driver.results == [(("a", 3), 9)]


# --- lifecycle and bad input ----------------------------------------------------------------------------------------


def test_functions_are_opened_once_and_closed_once_also_after_a_failed_open() -> None:
    calls: list[str] = []

    class Reduce(ReduceFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            calls.append(f"open reduce {runtime_context.get_index_of_this_subtask()}")

        def close(self) -> None:
            calls.append("close reduce")

        def reduce(self, value1: Any, value2: Any) -> Any:
            return value1

    class Apply(Elements):
        def open(self, runtime_context: RuntimeContext) -> None:
            calls.append("open apply")
            if fail:
                raise OSError("no connection")

        def close(self) -> None:
            calls.append("close apply")

    fail = False
    factory = WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(Reduce(), Apply()))
    with WindowDriver(factory).harness:
        pass
    expected = ["open reduce 1", "open apply", "close reduce", "close apply"]
    assert calls == expected
    calls.clear()
    fail = True
    operator = factory.create()
    harness = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), SUM)).harness
    operator.setup(harness.operator.context, harness.output)
    with pytest.raises(OSError, match="no connection"):
        operator.open()
    operator.dispose()
    assert calls == expected


@pytest.mark.parametrize("make", [TumblingEventTimeOperator, WindowOperator])
@pytest.mark.parametrize("timestamps", [None, [5, -(2**63)]])
def test_an_element_without_timestamp_is_refused_with_the_way_out(make: Any, timestamps: Any) -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), SUM), make)
    with pytest.raises(ProgramError, match="did you forget to call assign_timestamps_and_watermarks"):
        driver.harness.process_batch([("a", 1), ("b", 2)], timestamps)


@pytest.mark.parametrize("make", [TumblingEventTimeOperator, WindowOperator])
def test_when_user_code_fails_the_current_key_is_that_of_the_failing_element(make: Any) -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), SUM), make)
    with pytest.raises(TypeError):
        driver.add(("a", 1, 1), ("b", 1, 2), ("b", "x", 3), ("c", 1, 4))
    assert driver.harness.backend is not None
    assert driver.harness.backend.current_key == "b"


def test_a_negative_lateness_and_a_function_of_another_kind_are_refused() -> None:
    with pytest.raises(ProgramError, match="expected a lateness of 0 ms or more"):
        WindowOperatorFactory(TEN, EventTimeTrigger(), SUM, -1)
    with pytest.raises(ProgramError, match="expected a WindowFunction or a ProcessWindowFunction"):
        WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(None, len)))


def test_the_factory_says_what_the_engine_must_prepare() -> None:
    def needs(assigner: Any, trigger: Any) -> tuple[bool, bool]:
        factory = WindowOperatorFactory(assigner, trigger, SUM)
        assert factory.keyed and not factory.has_subtask_state
        return factory.watermark_sensitive, factory.uses_processing_time

    class Mine(EventTimeTrigger):
        """A subclass may do anything."""

    assert needs(TEN, EventTimeTrigger()) == (False, False)
    assert needs(TEN, PurgingTrigger.of(EventTimeTrigger())) == (False, False)
    assert needs(AllInOne(), CountTrigger.of(1)) == (False, False)
    assert needs(TumblingProcessingTimeWindows(10), ProcessingTimeTrigger()) == (False, True)
    assert needs(TEN, ProcessingTimeTrigger()) == (False, True)
    assert needs(TEN, Mine()) == (True, True)
    assert needs(TEN, PurgingTrigger.of(Mine())) == (True, True)


def test_a_factory_travels_to_a_worker() -> None:
    from pyspark import cloudpickle  # as the engine does; nothing else here needs Spark

    factory = WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(lambda a, b: add_up(a, b)), 5, LATE)
    driver = WindowDriver(cloudpickle.loads(cloudpickle.dumps(factory)))  # type: ignore[no-untyped-call]
    driver.add(("a", 1, 1), ("a", 2, 2))
    driver.watermark(9)
    assert driver.results == [(("a", 3), 9)]
