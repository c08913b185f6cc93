"""What windows keep of their elements."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.functions import AggregateFunction
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.contents import ListContents, WindowContents, WindowLogic


class Mean(AggregateFunction):
    """The mean of integers."""

    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: int, accumulator: Any) -> Any:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> float:
        return float(accumulator[0] / accumulator[1])

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


def _all_kinds() -> list[WindowContents]:
    return [ListContents(), WindowLogic(lambda a, b: a - b).contents(), WindowLogic(Mean()).contents()]


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


class Joined(AggregateFunction):
    """The elements of all lists, in the list that came first."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        if accumulator is None:
            return value
        accumulator += value
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


@pytest.mark.parametrize("elements", [[[1]], [[1], [2], [3]]])
@pytest.mark.parametrize("fold", [Joined(), lambda a, b: a.extend(b) or a])
def test_neither_a_fold_nor_who_gets_its_result_changes_the_elements_that_stay(elements: Any, fold: Any) -> None:
    kept = copy.deepcopy(elements)
    result = WindowLogic(fold).contents().of(kept)
    assert result == [number for element in elements for number in element]
    result.clear()
    assert kept == elements


def test_a_window_function_behind_a_fold_gets_the_one_result() -> None:
    contents = WindowLogic(Mean(), window_function=object()).contents()
    stored: dict[Any, Any] = {}
    contents.add_all(stored, "aa", [1, 2])
    assert contents.as_elements(contents.read(stored["a"])) == [1.5]


def test_a_window_needs_a_function() -> None:
    with pytest.raises(ProgramError, match="expected reduce, aggregate, apply or process"):
        WindowLogic()
