"""Windows that merge in the window operator: state of triggers and functions, custom assigners, processing time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from flinkish.common.time import Time
from flinkish.common.typeinfo import Types
from flinkish.core.functions import ProcessWindowFunction
from flinkish.core.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.counts import CountTrigger
from flinkish.core.window.sessions import EventTimeSessionWindows, ProcessingTimeSessionWindows
from flinkish.core.window.trigger import (
    ContinuousEventTimeTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TriggerResult,
)
from flinkish.core.window.window import TimeWindow
from flinkish.errors import ProgramError, StateAccessError
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from tests.support.functions import Aggregate, summed_pairs
from tests.unit.runtime.operators.window.building_blocks import SUM, Elements, Ignore
from tests.unit.runtime.operators.window.window_driver import LATE, WindowDriver

GAP_5 = EventTimeSessionWindows(5)
ELEMENTS = WindowLogic(None, Elements())


def test_counts_of_merged_windows_add_up() -> None:
    driver = WindowDriver(WindowOperatorFactory(GAP_5, PurgingTrigger.of(CountTrigger.of(4)), ELEMENTS))
    driver.add(("a", 1, 0), ("a", 2, 8), ("a", 3, 9))
    driver.restart()
    driver.add(("b", 9, 4), ("a", 4, 4))
    assert driver.results == [(("a", TimeWindow(0, 14), [1, 2, 3, 4]), 13)]
    driver.watermark(MAX_WATERMARK_MS)
    assert driver.is_empty()


def test_a_merged_window_fires_once_at_its_own_end() -> None:
    driver = WindowDriver(WindowOperatorFactory(GAP_5, EventTimeTrigger(), ELEMENTS))
    driver.add(("a", 1, 0), ("a", 2, 7))
    driver.add(("a", 3, 4))
    driver.watermark(4)
    assert driver.results == []
    driver.watermark(11)
    assert driver.results == [(("a", TimeWindow(0, 12), [1, 2, 3]), 11)]
    assert driver.is_empty()


def test_an_early_firing_of_merged_windows_goes_on_at_the_earliest_time() -> None:
    trigger = ContinuousEventTimeTrigger.of(Time.milliseconds(4))
    driver = WindowDriver(WindowOperatorFactory(GAP_5, trigger, ELEMENTS))
    driver.add(("a", 1, 1), ("a", 2, 9), ("a", 3, 5))
    driver.watermark(4)
    driver.watermark(20)
    assert [value for value, _ in driver.results] == [("a", TimeWindow(1, 14), [1, 2, 3])] * 4
    assert driver.is_empty()


def test_what_a_purge_leaves_of_a_session_goes_on_in_the_same_place() -> None:
    driver = WindowDriver(WindowOperatorFactory(GAP_5, PurgingTrigger.of(EventTimeTrigger()), SUM, 20, LATE))
    driver.add(("a", 1, 0))
    driver.watermark(10)
    driver.add(("a", 2, 3), ("a", 4, 7))
    driver.restart()
    driver.watermark(40)
    # (0, 8) is behind the watermark and fires at once; (0, 12) is not, and fires what has come since
    assert driver.results == [(("a", 1), 4), (("a", 2), 7), (("a", 4), 11)]
    driver.add(("a", 9, 12))
    assert driver.late == [(("a", 9), 12)]
    assert driver.is_empty()


class Remember(Ignore):
    """Fires what it remembers when the third element has come: the state of a descriptor merges."""

    def __init__(self, descriptor: StateDescriptor) -> None:
        self.descriptor = descriptor

    def can_merge(self) -> bool:
        return True

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        state = ctx.get_partitioned_state(self.descriptor)
        state.add(element[1])
        remembered.append((window, state.get()))
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self.descriptor)

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.descriptor).clear()


remembered: list[Any] = []


@pytest.mark.parametrize(
    ("descriptor", "expected"),
    [
        (ListStateDescriptor("list", Types.INT()), [1, 2, 3]),
        (
            AggregatingStateDescriptor(
                "aggregating",
                Aggregate(lambda: (0, 0), lambda a, value: (a[0] + 1, a[1] + value), summed_pairs),
                Types.PICKLED_BYTE_ARRAY(),
            ),
            (3, 6),
        ),
    ],
)
def test_the_state_of_a_trigger_of_a_user_merges(descriptor: StateDescriptor, expected: Any) -> None:
    remembered.clear()
    driver = WindowDriver(WindowOperatorFactory(GAP_5, Remember(descriptor), SUM))
    driver.add(("a", 1, 0), ("a", 2, 7))
    driver.restart()
    driver.add(("a", 3, 4))
    assert remembered[-1] == (TimeWindow(0, 12), expected)
    driver.watermark(MAX_WATERMARK_MS)
    assert driver.is_empty()


def expiring() -> StateDescriptor:
    descriptor = ListStateDescriptor("list", Types.INT())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    return descriptor


@pytest.mark.parametrize("descriptor", [ValueStateDescriptor("value", Types.INT()), expiring()])
def test_state_that_cannot_merge_is_refused(descriptor: StateDescriptor) -> None:
    class Wrong(Remember):
        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
            return TriggerResult.CONTINUE

    driver = WindowDriver(WindowOperatorFactory(GAP_5, Wrong(descriptor), SUM))
    with pytest.raises(StateAccessError, match="expected list, reducing or aggregating state without a time-to-live"):
        driver.add(("a", 1, 0), ("a", 2, 4))


def test_a_trigger_that_cannot_merge_is_refused() -> None:
    with pytest.raises(ProgramError, match="expected a trigger whose can_merge"):
        WindowOperatorFactory(GAP_5, NeverTrigger(), SUM).create()


def test_no_state_per_window_where_windows_merge_but_state_of_the_key() -> None:
    class Count(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
            with pytest.raises(StateAccessError, match="Per-window state is not allowed when using merging windows"):
                context.window_state()
            fired = context.global_state().get_state(ValueStateDescriptor("fired", Types.INT()))
            fired.update((fired.value() or 0) + 1)
            yield key, fired.value(), context.window()

        def clear(self, context: Any) -> None:
            cleared.append(context.window())

    cleared: list[Any] = []
    driver = WindowDriver(WindowOperatorFactory(GAP_5, EventTimeTrigger(), WindowLogic(None, Count())))
    driver.add(("a", 1, 0), ("a", 2, 3))
    driver.watermark(9)
    driver.restart()
    driver.add(("a", 2, 20))
    driver.watermark(30)
    windows = [TimeWindow(0, 8), TimeWindow(20, 25)]
    assert [value for value, _ in driver.results] == [("a", 1, windows[0]), ("a", 2, windows[1])]
    assert cleared == windows


def test_sessions_of_processing_time_go_on_with_each_element() -> None:
    assigner = ProcessingTimeSessionWindows(10)
    driver = WindowDriver(WindowOperatorFactory(assigner, ProcessingTimeTrigger(), SUM))
    for now_ms in (3, 8, 12):
        driver.harness.set_processing_time(now_ms)
        driver.harness.process_elements([("a", now_ms)])
    driver.restart()
    driver.harness.set_processing_time(20)
    assert driver.results == []
    driver.harness.set_processing_time(21)
    assert driver.results == [(("a", 23), 21)]
    assert driver.is_empty()


class Days(EventTimeSessionWindows):
    """A merging assigner of a user: sessions that begin in the same ten milliseconds are one window of these ten."""

    def merge_windows(self, windows: Any, callback: Any) -> None:
        days: dict[int, list[TimeWindow]] = {}
        for window in windows:
            days.setdefault(window.start // 10 * 10, []).append(window)
        for start, of_day in days.items():
            callback.merge(of_day, TimeWindow(start, start + 10))


def test_a_merging_assigner_of_a_user() -> None:
    driver = WindowDriver(WindowOperatorFactory(Days(1), EventTimeTrigger(), ELEMENTS, 0, LATE))
    driver.add(("a", 1, 3), ("a", 2, 12), ("a", 3, 8))
    driver.watermark(9)
    driver.add(("a", 4, 13), ("a", 5, 9))
    driver.watermark(19)
    assert driver.results == [
        (("a", TimeWindow(0, 10), [1, 3]), 9),
        (("a", TimeWindow(10, 20), [2, 4]), 19),
    ]
    assert driver.late == [(("a", 5), 9)]
    assert driver.is_empty()


def test_a_merge_that_ends_before_the_watermark_is_refused() -> None:
    class Wrong(Days):
        """What becomes one window ends too early."""

        def merge_windows(self, windows: Any, callback: Any) -> None:
            if len(windows) > 1:
                callback.merge(windows, TimeWindow(0, 4))

    driver = WindowDriver(WindowOperatorFactory(Wrong(9), EventTimeTrigger(), SUM))
    driver.add(("a", 1, 5))
    driver.watermark(4)
    with pytest.raises(ProgramError, match="which is over already.*expected a merge that ends no earlier"):
        driver.add(("a", 2, 6))
