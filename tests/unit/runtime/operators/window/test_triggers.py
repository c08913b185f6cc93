"""Triggers in the window operator: counting, purging, those of users, and processing time."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.common.typeinfo import Types
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.counts import CountTrigger
from flinkish.core.window.trigger import EventTimeTrigger, ProcessingTimeTrigger, PurgingTrigger, TriggerResult
from flinkish.core.window.tumbling_sliding import TumblingProcessingTimeWindows
from flinkish.core.window.window import GlobalWindow
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from tests.unit.runtime.operators.window.building_blocks import SUM, TEN, AllInOne, Elements, Ignore
from tests.unit.runtime.operators.window.window_driver import WindowDriver


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


def test_processing_time_windows_fire_by_the_epochs_time_and_need_no_timestamps() -> None:
    assigner = TumblingProcessingTimeWindows(10)
    driver = WindowDriver(WindowOperatorFactory(assigner, assigner.get_default_trigger(None), SUM))
    driver.harness.set_processing_time(3)
    driver.harness.process_elements([("a", 1), ("b", 2)])
    driver.harness.set_processing_time(8)
    driver.harness.process_elements([("a", 10)])
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
