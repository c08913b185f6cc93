"""Windows as values, and their written form in state."""

from __future__ import annotations

import pickle
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
from flinkish.core.window.window import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    PickledWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    Window,
)
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.contents import WindowLogic, namespace_of, window_of
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from tests.unit.runtime.operators.window.building_blocks import Elements
from tests.unit.runtime.operators.window.window_driver import WindowDriver

ALL_KINDS = [TimeWindow(0, 10), TimeWindow(-10, 0), CountWindow(0), CountWindow(7), GlobalWindow.get()]


class FullMoon(Window):
    """A window of a user."""

    def __init__(self, number: int) -> None:
        self.number = number

    def max_timestamp(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FullMoon) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)


def test_the_last_timestamp_of_a_time_window_is_before_its_end() -> None:
    assert TimeWindow(0, 60_000).max_timestamp() == 59_999


@pytest.mark.parametrize("window", [CountWindow(1), GlobalWindow.get()])
def test_windows_without_an_end_end_with_time_itself(window: Window) -> None:
    assert window.max_timestamp() == MAX_WATERMARK_MS


def test_equal_windows_are_one_window_also_after_pickling() -> None:
    for window in ALL_KINDS:
        copy = pickle.loads(pickle.dumps(window))
        assert copy == window
        assert hash(copy) == hash(window)
    assert len(set(ALL_KINDS)) == len(ALL_KINDS)


def test_a_time_window_is_not_a_tuple_of_its_ends() -> None:
    assert TimeWindow(0, 1) != (0, 1)


def test_windows_that_touch_intersect_and_their_cover_holds_both() -> None:
    assert TimeWindow(0, 5).intersects(TimeWindow(5, 9))
    assert not TimeWindow(0, 5).intersects(TimeWindow(6, 9))
    assert TimeWindow(0, 5).cover(TimeWindow(8, 9)) == TimeWindow(0, 9)


@given(st.integers(-(2**62), 2**62), st.integers(-1000, 1000), st.integers(1, 1000))
def test_a_window_start_is_aligned_and_at_or_before_the_timestamp(ts: int, offset: int, size: int) -> None:
    start = TimeWindow.get_window_start_with_offset(ts, offset, size)
    assert start <= ts < start + size
    assert (start - offset) % size == 0


def test_every_window_comes_back_from_its_namespace() -> None:
    for window in [*ALL_KINDS, FullMoon(3)]:
        assert window_of(namespace_of(window)) == window


def test_every_window_comes_back_from_its_serializer() -> None:
    serializers = [TimeWindowSerializer(), TimeWindowSerializer(), CountWindowSerializer(), CountWindowSerializer()]
    for window, serializer in zip(ALL_KINDS, [*serializers, GlobalWindowSerializer()], strict=True):
        assert serializer.from_bytes(serializer.to_bytes(window)) == window  # type: ignore[attr-defined]
    pickled = PickledWindowSerializer()
    assert pickled.from_bytes(pickled.to_bytes(FullMoon(3))) == FullMoon(3)


def test_namespaces_of_different_kinds_of_windows_differ() -> None:
    assert len({namespace_of(window) for window in ALL_KINDS}) == len(ALL_KINDS)
    assert None not in {namespace_of(window) for window in ALL_KINDS}  # None is state that belongs to no window


def test_windows_of_one_kind_are_ordered_by_where_they_begin() -> None:
    windows = [TimeWindow(5, 9), TimeWindow(0, 9), TimeWindow(0, 5)]
    assert sorted(windows) == windows[::-1]
    assert TimeWindow(0, 5) <= TimeWindow(0, 5) < TimeWindow(0, 6) <= TimeWindow(1, 2)
    assert TimeWindow(1, 2) > TimeWindow(0, 9) >= TimeWindow(0, 9)
    assert CountWindow(1) <= CountWindow(1) < CountWindow(2) and CountWindow(2) >= CountWindow(1)
    with pytest.raises(TypeError):
        _ = TimeWindow(0, 5) < CountWindow(1)


# --- Count windows and global windows, against a plain list per key -------------------------------------------------


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
