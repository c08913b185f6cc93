"""The window operator: lateness, order, lifecycle and bad input."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.core.functions import ReduceFunction, RuntimeContext
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.counts import CountTrigger
from flinkish.core.window.trigger import EventTimeTrigger, ProcessingTimeTrigger, PurgingTrigger
from flinkish.core.window.tumbling_sliding import TumblingProcessingTimeWindows
from flinkish.core.window.window import TimeWindow
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.event_time_operators import AlignedEventTimeOperator
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from flinkish.runtime.operators.window.window_operator import WindowOperator
from flinkish.testing import StreamRecord, Watermark
from tests.unit.runtime.operators.window.building_blocks import SUM, TEN, AllInOne, Elements, TwoSizes, add_up
from tests.unit.runtime.operators.window.window_driver import LATE, WindowDriver


@pytest.mark.parametrize("make", [AlignedEventTimeOperator, WindowOperator])
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


@pytest.mark.parametrize("make", [AlignedEventTimeOperator, WindowOperator])
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
        StreamRecord(("a", 2), 9),
        StreamRecord(("b", 3), 9),
        StreamRecord(("a", 1), 19),
        Watermark(30),
    ]


def test_an_element_that_its_assigner_gives_no_window_is_late_only_behind_the_allowed_lateness() -> None:
    class NoWindow(TwoSizes):
        def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
            return []

    driver = WindowDriver(WindowOperatorFactory(NoWindow(), EventTimeTrigger(), SUM, 5, LATE))
    driver.watermark(10)
    driver.add(("a", 1, 5), ("a", 2, 6))
    assert driver.late == [(("a", 1), 5)]


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
    expected = ["open reduce 0", "open apply", "close reduce", "close apply"]
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


@pytest.mark.parametrize("make", [AlignedEventTimeOperator, WindowOperator])
@pytest.mark.parametrize("timestamps", [None, [5, -(2**63)]])
def test_an_element_without_timestamp_is_refused_with_the_way_out(make: Any, timestamps: Any) -> None:
    driver = WindowDriver(WindowOperatorFactory(TEN, EventTimeTrigger(), SUM), make)
    with pytest.raises(ProgramError, match="did you forget to call assign_timestamps_and_watermarks"):
        driver.harness.process_elements([("a", 1), ("b", 2)], timestamps)


@pytest.mark.parametrize("make", [AlignedEventTimeOperator, WindowOperator])
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
        assert factory.keyed and not factory.has_operator_state
        return factory.watermark_sensitive, factory.uses_processing_time

    class Mine(EventTimeTrigger):
        def on_event_time(self, time: int, window: Any, ctx: Any) -> Any:
            return super().on_event_time(time, window, ctx)

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
