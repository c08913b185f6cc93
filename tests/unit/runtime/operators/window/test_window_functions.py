"""Window functions in the window operator: state, side outputs, and what becomes of results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from flinkish.common.typeinfo import Types
from flinkish.core.functions import OutputTag, ProcessWindowFunction, WindowFunction
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.trigger import EventTimeTrigger
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.event_time_operators import AlignedEventTimeOperator
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from flinkish.runtime.operators.window.window_operator import WindowOperator
from tests.unit.runtime.operators.window.building_blocks import SUM, TEN, add_up
from tests.unit.runtime.operators.window.window_driver import LATE, WindowDriver


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
    assert driver.harness.get_side_output("odd") == [(1, 9), (3, 9)]


@pytest.mark.parametrize("make", [AlignedEventTimeOperator, WindowOperator])
def test_what_user_code_does_to_a_result_does_not_reach_the_state(make: Any) -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(lambda a, b: a + b), 5), make)
    driver.harness.process_elements([["a", 1], ["a", 2]], [1, 2])
    driver.watermark(9)
    driver.results[0][0].append("changed downstream")
    driver.harness.process_elements([["a", 3]], [3])
    assert driver.results[1] == (["a", 1, "a", 2, "a", 3], 9)


@pytest.mark.parametrize("make", [AlignedEventTimeOperator, WindowOperator])
def test_a_result_of_none_is_not_emitted(make: Any) -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(lambda a, b: None)), make)
    driver.add(("a", 1, 1), ("a", 2, 2), ("b", 3, 3))
    driver.watermark(9)
    assert driver.results == [(("b", 3), 9)]
    assert driver.is_empty()


def test_a_process_function_also_sends_to_side_outputs_by_its_context_even_while_it_clears() -> None:
    seen = OutputTag("seen")

    class Send(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            context.output(seen, ("fired", key))
            context.output(OutputTag("nobody listens"), key)
            yield key

        def clear(self, context: Any) -> None:
            context.output(seen, ("cleared", context.window().start))

    factory = WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(None, Send()))
    driver = WindowDriver(factory, side_tags=("seen", "nobody listens"))
    driver.add(("a", 1, 0))
    driver.watermark(9)
    assert driver.results == [("a", 9)]
    assert driver.harness.get_side_output("seen") == [(("fired", "a"), 9), (("cleared", 0), 9)]


def test_a_watermark_that_fires_many_windows_keeps_few_results_in_memory() -> None:
    seen, held = OutputTag("seen"), [0]

    class Send(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            context.output(seen, key)
            held.append(len(driver.harness.get_side_output("seen")))
            yield key

    driver = WindowDriver(
        WindowOperatorFactory(TEN, EventTimeTrigger(), WindowLogic(None, Send())), side_tags=("seen",)
    )
    driver.add(*[(number, 1, 0) for number in range(25_000)])
    driver.watermark(9)
    assert sorted(set(held)) == [0, 10_000, 20_000]
    assert [value for value, _ in driver.harness.get_side_output("seen")] == list(range(25_000))
    assert [value for value, _ in driver.results] == list(range(25_000))


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
