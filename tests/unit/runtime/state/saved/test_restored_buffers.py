"""The rows of a savepoint go to the subtasks that own their keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.errors import InvalidKeyError
from flinkish.runtime.exchange.keys import subtask_of_key
from flinkish.runtime.state.saved.restore import columns_by_subtask
from flinkish.runtime.state.state_rows import StateColumns

TEXTS = st.text(st.characters(), max_size=5)
KEYS = st.one_of(
    st.lists(st.integers(-(2**80), 2**80), max_size=20),
    st.lists(TEXTS, max_size=20),
    st.lists(st.one_of(st.integers(), TEXTS, st.booleans(), st.none(), st.tuples(TEXTS, st.integers())), max_size=20),
)


def columns(keys: list[Any]) -> StateColumns:
    """Rows of a value state, whose values are the indices of the keys."""
    return StateColumns("count", "value", [None] * len(keys), keys, list(range(len(keys))))


@given(KEYS, st.integers(1, 6), st.integers(6, 200))
def test_each_row_goes_to_the_subtask_of_its_key(keys: list[Any], parallelism: int, max_parallelism: int) -> None:
    expected: dict[int, list[int]] = {}
    for number, key in enumerate(keys):
        expected.setdefault(subtask_of_key(key, parallelism, max_parallelism), []).append(number)
    found = dict(columns_by_subtask(columns(keys), parallelism, max_parallelism))
    assert {subtask: some.values for subtask, some in found.items()} == expected


def test_a_key_without_a_stable_hash_is_refused() -> None:
    with pytest.raises(InvalidKeyError):
        list(columns_by_subtask(columns(["a", object()]), 2, 8))
