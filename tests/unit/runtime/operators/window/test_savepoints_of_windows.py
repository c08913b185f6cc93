"""What windows keep goes through the texts of a savepoint and back, and the changes of epochs say all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.assigner import GlobalWindows
from flinkish.core.window.counts import CountSlidingWindowAssigner, CountTrigger
from flinkish.core.window.evictor import CountEvictor
from flinkish.core.window.sessions import EventTimeSessionWindows
from flinkish.core.window.trigger import ContinuousEventTimeTrigger, EventTimeTrigger, PurgingTrigger
from flinkish.core.window.tumbling_sliding import SlidingEventTimeWindows
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from flinkish.runtime.state.changelog import apply_changes
from flinkish.runtime.state.saved.columns import stored_rows
from flinkish.runtime.state.saved.texts import from_savepoint_row, to_savepoint_row
from flinkish.runtime.state.state_rows import StateRow
from tests.support.restored import body_of
from tests.unit.runtime.operators.window.building_blocks import Elements
from tests.unit.runtime.operators.window.test_against_the_model import LOGICS, Events
from tests.unit.runtime.operators.window.test_sessions_against_the_model import streams
from tests.unit.runtime.operators.window.window_driver import WindowDriver

ELEMENTS = WindowLogic(None, Elements())
SESSIONS = EventTimeSessionWindows(5)


def through_texts(body: bytes | None) -> bytes | None:
    """The state of a job that was restored from the rows of a savepoint."""
    saved = [to_savepoint_row("u", row) for row in stored_rows(body)]
    return body_of(from_savepoint_row(row)[1] for row in saved)


FACTORIES = [
    WindowOperatorFactory(SESSIONS, EventTimeTrigger(), ELEMENTS, 3),
    WindowOperatorFactory(SESSIONS, PurgingTrigger.of(CountTrigger.of(2)), ELEMENTS),
    WindowOperatorFactory(SESSIONS, ContinuousEventTimeTrigger(2), LOGICS["reduce"]),
    WindowOperatorFactory(SlidingEventTimeWindows(9, 3), EventTimeTrigger(), LOGICS["reduce"], 3),
    WindowOperatorFactory(CountSlidingWindowAssigner(3, 2), PurgingTrigger.of(CountTrigger.of(3)), ELEMENTS),
    WindowOperatorFactory(GlobalWindows(), CountTrigger.of(2), ELEMENTS, evictor=CountEvictor(3)),
]

each_factory = pytest.mark.parametrize(
    "factory", FACTORIES, ids=lambda factory: f"{factory.assigner} {factory.trigger}"
)


@each_factory
def test_windows_go_on_from_the_texts_of_a_savepoint(factory: Any) -> None:
    parts = [
        [("a", "1", 0), ("b", "2", 3), ("a", "3", 4), ("a", "4", 20)],
        [("a", "5", 9), ("b", "6", 8), ("a", "7", 16), ("b", "8", 30)],
    ]
    whole, restored = WindowDriver(factory), WindowDriver(factory)
    for driver in (whole, restored):
        driver.add(*parts[0])
        driver.watermark(5)
    stored = restored.harness.snapshot()
    assert stored.keyed_state is not None
    second = restored._harness(replace(stored, keyed_state=through_texts(stored.keyed_state)))
    before, restored.harness = restored.results, second
    for driver in (whole, restored):
        driver.add(*parts[1])
        driver.watermark(MAX_WATERMARK_MS)
    assert sorted(before + restored.results, key=repr) == sorted(whole.results, key=repr)
    assert len(restored.results) > 0
    # what is kept for ever by windows without an end is the same, too
    one, other = (driver.harness.snapshot().keyed_state for driver in (whole, restored))
    assert sorted(map(repr, stored_rows(one))) == sorted(map(repr, stored_rows(other)))


@each_factory
@given(events=streams(), chunk=st.integers(1, 7))
def test_the_changes_of_all_epochs_give_the_rows_of_the_last(factory: Any, events: Events, chunk: int) -> None:
    driver = WindowDriver(factory)
    backend = driver.harness.backend
    assert backend is not None
    backend.recording = True
    table: dict[tuple[Any, ...], tuple[StateRow, ...]] = {}
    for start in range(0, len(events), chunk):
        driver.run(events[start : start + chunk])
        body = driver.harness.snapshot().keyed_state
        apply_changes(table, backend.take_changes())
        in_table = sorted(repr(row) for of_entry in table.values() for row in of_entry)
        assert in_table == sorted(map(repr, stored_rows(body)))
