"""Sessions: the merging window operator and the model must say the same of any input, across restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common.time import Time
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.counts import CountTrigger
from flinkish.core.window.sessions import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from flinkish.core.window.trigger import EventTimeTrigger
from flinkish.runtime.operators.window.event_time_operators import SessionEventTimeOperator
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from flinkish.runtime.operators.window.merging_window_operator import OPEN_WINDOWS, MergingWindowOperator
from tests.support.window_model import Element, SessionModel, Watermark
from tests.unit.runtime.operators.window.test_against_the_model import LOGICS, Events, contents_and_timers, expected
from tests.unit.runtime.operators.window.window_driver import WindowDriver

#: How long the sessions of an element stay open behind it.
GAPS = {"x": 1, "y": 4, "z": 9}


class ByValue(SessionWindowTimeGapExtractor):
    """Values of these tests are (key, letter)."""

    def extract(self, element: Any) -> int:
        return GAPS[element[1]]


@st.composite
def streams(draw: st.DrawFn) -> Events:
    """Elements out of order, watermarks anywhere; close to each other, so that sessions merge and touch."""
    times = st.integers(-5, 40)
    elements = st.builds(Element, st.sampled_from("ab"), st.sampled_from("xyz"), times)
    return draw(st.lists(st.one_of(elements, elements, elements, st.builds(Watermark, times)), max_size=40))


@pytest.mark.parametrize("dynamic", [False, True])
@given(
    streams(),
    st.sampled_from(sorted(LOGICS)),
    st.sampled_from([0, 0, 3, 10, MAX_WATERMARK_MS]),
    st.integers(0, 40),
    st.booleans(),
)
def test_sessions_are_those_of_the_model_also_across_a_restart(
    dynamic: bool, events: Events, name: str, lateness: int, restart_at: int, fast: bool
) -> None:
    events = [*events, Watermark(MAX_WATERMARK_MS)]
    model = SessionModel((lambda value: GAPS[value]) if dynamic else (lambda value: 4), lateness)
    model.run(events)

    assigner: Any = EventTimeSessionWindows.with_gap(Time.milliseconds(4))
    if dynamic:
        assigner = EventTimeSessionWindows.with_dynamic_gap(ByValue())
        assert type(assigner) is DynamicEventTimeSessionWindows
    trigger = assigner.get_default_trigger(None)
    factory = WindowOperatorFactory(assigner, trigger, LOGICS[name], lateness, "late")
    driver = WindowDriver(factory, SessionEventTimeOperator if fast else MergingWindowOperator)
    driver.run(events[:restart_at])
    driver.restart()
    driver.run(events[restart_at:])

    assert driver.results == [expected(name, fired) for fired in model.fired]
    assert driver.late == [((element.key, element.value), element.timestamp) for element in model.late]
    assert driver.is_empty() or lateness == MAX_WATERMARK_MS


@given(streams(), st.sampled_from(sorted(LOGICS)), st.sampled_from([0, 3, 10, MAX_WATERMARK_MS]), st.booleans())
def test_the_fast_way_leaves_the_same_trace_as_the_general_one(
    events: Events, name: str, lateness: int, dynamic: bool
) -> None:
    assigner: Any = DynamicEventTimeSessionWindows(ByValue()) if dynamic else EventTimeSessionWindows(4)
    factory = WindowOperatorFactory(assigner, EventTimeTrigger(), LOGICS[name], lateness)
    kind = factory.window_logic.contents().kind
    fast, general = WindowDriver(factory, SessionEventTimeOperator), WindowDriver(factory, MergingWindowOperator)
    for start in range(0, len(events), 5):
        fast.run(events[start : start + 5])
        general.run(events[start : start + 5])
        assert fast.events == general.events
        assert fast.dropped == general.dropped
        one, other = fast.harness.backend, general.harness.backend
        assert one is not None and other is not None
        traces = [contents_and_timers(backend, kind) for backend in (one, other)]
        assert traces[0] == traces[1]
        windows = [backend.table(OPEN_WINDOWS, "value").namespace(None) for backend in (one, other)]
        assert [{key: set(open_windows) for key, open_windows in of_keys.items()} for of_keys in windows] == [
            {key: set(open_windows) for key, open_windows in windows[1].items()}
        ] * 2
        one.snapshot(), other.snapshot()


def test_the_factory_takes_the_fast_way_where_it_is_right_and_nowhere_else() -> None:
    class Mine(EventTimeSessionWindows):
        def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
            return super().assign_windows(element, timestamp, context)

    class Renamed(EventTimeSessionWindows):
        """Overrides nothing."""

    def made(assigner: Any, trigger: Any) -> type[MergingWindowOperator]:
        return type(WindowOperatorFactory(assigner, trigger, LOGICS["reduce"]).create())  # type: ignore[return-value]

    assert made(EventTimeSessionWindows(4), EventTimeTrigger()) is SessionEventTimeOperator
    assert made(DynamicEventTimeSessionWindows(ByValue()), EventTimeTrigger()) is SessionEventTimeOperator
    assert made(Renamed(4), EventTimeTrigger()) is SessionEventTimeOperator
    assert made(Mine(4), EventTimeTrigger()) is MergingWindowOperator
    assert made(EventTimeSessionWindows(4), CountTrigger.of(2)) is MergingWindowOperator
