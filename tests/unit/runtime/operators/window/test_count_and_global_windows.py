"""Count windows and global windows, against a plain list per key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.assigner import GlobalWindows
from flinkish.core.window.counts import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    count_windows,
)
from flinkish.core.window.window import CountWindow
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.contents import WindowLogic
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from tests.unit.runtime.operators.window.building_blocks import Elements
from tests.unit.runtime.operators.window.window_driver import WindowDriver

ELEMENTS = WindowLogic(None, Elements())


def driver_of(assigner: Any) -> WindowDriver:
    return WindowDriver(WindowOperatorFactory(assigner, assigner.get_default_trigger(None), ELEMENTS))


@given(st.integers(1, 5), st.integers(0, 7), st.lists(st.sampled_from("ab"), max_size=30), st.integers(0, 30))
def test_each_full_window_of_a_key_fires_once_and_is_thrown_away(
    size: int, slide: int, keys: list[str], restart_at: int
) -> None:
    driver = driver_of(count_windows(size, slide))
    for position, key in enumerate(keys):
        if position == restart_at:
            driver.restart()
        driver.add((key, position, 0))
    expected = []
    of_key: dict[str, list[int]] = {}
    for position, key in enumerate(keys):
        elements = of_key.setdefault(key, [])
        elements.append(position)
        begin = len(elements) - size
        if begin >= 0 and begin % (slide or size) == 0:
            expected.append(((key, CountWindow(begin // (slide or size)), elements[begin:]), MAX_WATERMARK_MS))
    assert driver.results == expected
    table = driver.harness.backend.table("__window_contents__", "list")  # type: ignore[union-attr]
    waiting = [key for _, of_window in table.items() for key in of_window]
    assert len(waiting) <= len(of_key) * (size // (slide or size) + 1)


def test_the_windows_of_pyflinks_example() -> None:
    driver = driver_of(CountSlidingWindowAssigner.of(3, 1))
    driver.add(*[("a", value, 0) for value in range(5)])
    assert [value[2] for value, _ in driver.results] == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_a_global_window_needs_a_trigger() -> None:
    driver = driver_of(GlobalWindows.create())
    driver.add(("a", 1, 0), ("a", 2, 5))
    driver.watermark(MAX_WATERMARK_MS)
    assert driver.results == []
    driver = WindowDriver(WindowOperatorFactory(GlobalWindows.create(), CountTrigger.of(2), ELEMENTS))
    driver.add(("a", 1, 0), ("a", 2, 5))
    assert [value[2] for value, _ in driver.results] == [[1, 2]]


@pytest.mark.parametrize("number", [0, -1, 1.5, None])
def test_what_is_no_number_of_elements_is_refused(number: Any) -> None:
    with pytest.raises(ProgramError, match="expected a whole number of more than 0"):
        CountTumblingWindowAssigner.of(number)
    with pytest.raises(ProgramError, match="expected a whole number of more than 0"):
        CountSlidingWindowAssigner.of(3, number)
