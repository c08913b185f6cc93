"""What windows keep goes through the texts of a savepoint and back, and the changes of epochs say all of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.assigner import GlobalWindows
from flinkish.core.window.counts import CountSlidingWindowAssigner, CountTrigger, CountTumblingWindowAssigner
from flinkish.core.window.evictor import CountEvictor
from flinkish.core.window.sessions import EventTimeSessionWindows
from flinkish.core.window.trigger import ContinuousEventTimeTrigger, EventTimeTrigger, PurgingTrigger
from flinkish.core.window.tumbling_sliding import SlidingEventTimeWindows
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from flinkish.runtime.state.changelog import apply_changes
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.saved.columns import stored_rows
from flinkish.runtime.state.saved.texts import from_savepoint_row, to_savepoint_row
from flinkish.runtime.state.state_rows import StateRow
from flinkish.runtime.state.stored_state import StoredState
from flinkish.testing import KeyedOneInputStreamOperatorTestHarness
from tests.support.restored import body_of
from tests.unit.runtime.operators.window.building_blocks import SUM, Elements
from tests.unit.runtime.operators.window.test_against_the_model import LOGICS, Events
from tests.unit.runtime.operators.window.test_sessions_against_the_model import streams
from tests.unit.runtime.operators.window.window_driver import WindowDriver, key_of

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


# --- Windows whose state lies in files: it is looked up for a batch, never for each element -------------------------


KEYS = [f"u{number}" for number in range(60)]
GENERAL = PurgingTrigger.of(EventTimeTrigger())
COUNTS = CountTumblingWindowAssigner(5)


def batch(first_ms: int) -> tuple[list[Any], list[int]]:
    """Each key at two times of its own."""
    times = [first_ms + number % 7 for number in range(2 * len(KEYS))]
    return [(key, time) for key, time in zip(KEYS * 2, times, strict=True)], times


@pytest.mark.parametrize("logic", [SUM, WindowLogic(None, Elements())], ids=["reduce", "apply"])
@pytest.mark.parametrize(
    ("assigner", "trigger"),
    [
        (SlidingEventTimeWindows(20, 5), EventTimeTrigger()),
        (SlidingEventTimeWindows(20, 5), GENERAL),
        (EventTimeSessionWindows(9), EventTimeTrigger()),
        (EventTimeSessionWindows(9), GENERAL),
        (COUNTS, COUNTS.get_default_trigger(None)),
    ],
    ids=str,
)
def test_a_batch_and_a_watermark_look_into_files_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assigner: Any, trigger: Any, logic: WindowLogic
) -> None:
    factory = WindowOperatorFactory(assigner, trigger, logic)
    directory = StateDirectory(str(tmp_path))
    looks = 0

    def counted(method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal looks
            looks += 1
            return method(*arguments)

        return call

    for name in ("values", "lists"):
        monkeypatch.setattr(StoredState, name, counted(getattr(StoredState, name)))

    def run(directory: StateDirectory | None) -> list[Any]:
        nonlocal looks
        values: list[Any] = []
        body = None
        for first_ms in (0, 8, 16):
            harness = KeyedOneInputStreamOperatorTestHarness(factory, key_of, restored=body, directory=directory)
            harness.process_watermark(first_ms - 1)
            # states that user code asks for while it works are known from the first time on
            harness.process_elements([("u0", 0)], [first_ms])
            looks = 0
            harness.process_elements(*batch(first_ms))
            # one for the contents, and for each other state; where windows are few, one for each window
            assert looks <= 20
            values += harness.take_values()
            body = harness.snapshot()
        harness = KeyedOneInputStreamOperatorTestHarness(factory, key_of, restored=body, directory=directory)
        looks = 0
        harness.process_watermark(MAX_WATERMARK_MS)
        assert looks <= 20
        return values + harness.take_values()

    in_files = run(directory)
    assert list(tmp_path.rglob("*.arrow"))
    assert in_files == run(None)
    assert len(in_files) >= len(KEYS)
