"""Assigners, triggers and functions that the tests of the window operator share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flinkish.core.functions import WindowFunction
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.trigger import EventTimeTrigger, Trigger, TriggerResult
from flinkish.core.window.tumbling_sliding import TumblingEventTimeWindows
from flinkish.core.window.window import GlobalWindow, TimeWindow
from flinkish.runtime.operators.window.contents import WindowLogic

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
