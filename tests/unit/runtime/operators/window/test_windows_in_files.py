"""Windows whose state lies in files: it is looked up for a batch, never for each element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.counts import CountTumblingWindowAssigner
from flinkish.core.window.sessions import EventTimeSessionWindows
from flinkish.core.window.trigger import EventTimeTrigger, PurgingTrigger
from flinkish.core.window.tumbling_sliding import SlidingEventTimeWindows
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.stored_state import StoredState
from flinkish.testing import KeyedOneInputStreamOperatorTestHarness
from tests.unit.runtime.operators.window.building_blocks import SUM, Elements
from tests.unit.runtime.operators.window.window_driver import key_of

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
