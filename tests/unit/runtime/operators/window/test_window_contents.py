"""What windows keep of their elements."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.core.window.window import GlobalWindow, TimeWindow
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.contents import ListContents, WindowContents, WindowLogic, WindowTime
from tests.support.functions import Aggregate, average


def _all_kinds() -> list[WindowContents]:
    return [ListContents(), WindowLogic(lambda a, b: a - b).contents(), WindowLogic(average()).contents()]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers())), st.sets(st.sampled_from("abc")))
def test_adding_a_batch_is_the_same_as_adding_one_by_one_and_tells_the_new_keys(
    elements: list[tuple[str, int]], known: set[str]
) -> None:
    for contents in _all_kinds():
        single: dict[Any, Any] = {}
        for key in known:
            contents.add(single, key, 1)
        batch: dict[Any, Any] = {}
        contents.add_all(batch, list(known), [1] * len(known))
        for key, value in elements:
            contents.add(single, key, value)
        new = contents.add_all(batch, [key for key, _ in elements], [value for _, value in elements])
        assert batch == single
        assert new == list(dict.fromkeys(key for key, _ in elements if key not in known))


def test_the_list_that_a_function_gets_is_its_own() -> None:
    contents, stored = ListContents(), {"k": [1, 2]}
    contents.as_elements(contents.read(stored["k"])).clear()
    assert stored == {"k": [1, 2]}


@pytest.mark.parametrize("elements", [[[1]], [[1], [2], [3]]])
@pytest.mark.parametrize(
    "fold",
    [
        Aggregate(lambda: None, lambda a, value: value if a is None else operator.iadd(a, value), operator.add),
        lambda a, b: a.extend(b) or a,
    ],
)
def test_neither_a_fold_nor_who_gets_its_result_changes_the_elements_that_stay(elements: Any, fold: Any) -> None:
    kept = copy.deepcopy(elements)
    result = WindowLogic(fold).contents().of(kept)
    assert result == [number for element in elements for number in element]
    result.clear()
    assert kept == elements


def test_a_window_function_behind_a_fold_gets_the_one_result() -> None:
    contents = WindowLogic(average(), window_function=object()).contents()
    stored: dict[Any, Any] = {}
    contents.add_all(stored, "aa", [1, 2])
    assert contents.as_elements(contents.read(stored["a"])) == [1.5]


def test_a_window_needs_a_function() -> None:
    with pytest.raises(ProgramError, match="expected reduce, aggregate, apply or process"):
        WindowLogic()


# --- Clean-up times and lateness ------------------------------------------------------------------------------------


WINDOW = TimeWindow(0, 10)


def test_a_window_is_late_once_the_watermark_reaches_its_last_timestamp_plus_the_lateness() -> None:
    time = WindowTime(event_time=True, allowed_lateness_ms=5)
    assert not time.is_window_late(WINDOW, 13)
    assert time.is_window_late(WINDOW, 14)


def test_before_the_first_watermark_nothing_is_late() -> None:
    time = WindowTime(event_time=True, allowed_lateness_ms=0)
    assert not time.is_window_late(WINDOW, MIN_TIMESTAMP_MS)
    assert not time.is_element_late(-(10**15), MIN_TIMESTAMP_MS)


def test_a_lateness_beyond_the_end_of_time_means_never() -> None:
    time = WindowTime(event_time=True, allowed_lateness_ms=MAX_WATERMARK_MS)
    assert time.cleanup_ms(WINDOW) == MAX_WATERMARK_MS
    assert time.cleanup_ms(GlobalWindow.get()) == MAX_WATERMARK_MS


def test_in_processing_time_nothing_is_late_and_the_lateness_does_not_count() -> None:
    time = WindowTime(event_time=False, allowed_lateness_ms=5)
    assert time.cleanup_ms(WINDOW) == 9
    assert not time.is_window_late(WINDOW, MAX_WATERMARK_MS)
    assert not time.is_element_late(0, MAX_WATERMARK_MS)
