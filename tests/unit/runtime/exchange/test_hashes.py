"""Hashes by which state lies in files."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.core.window.window import CountWindow, GlobalWindow, TimeWindow
from flinkish.errors import InvalidKeyError
from flinkish.runtime.exchange.hashes import entry_hashes, group_hashes, group_hashes_in, row_hashes

KEYS: list[Any] = [1, -1, 0, 2**70, "a", "", "é", "\ud800", b"a", (1, "a"), None, 1.5, dt.date(2020, 1, 1)]


@pytest.mark.parametrize("keys", [[1, 1.0, True, Decimal(1), np.int64(1)], ["a", np.str_("a")], [(1,), (True,)]])
def test_equal_keys_have_equal_hashes_however_they_come(keys: list[Any]) -> None:
    assert len(set(group_hashes("s", None, keys).tolist())) == 1
    assert {int(group_hashes("s", None, [key])[0]) for key in keys} == set(group_hashes("s", None, keys).tolist())


def test_a_list_of_one_kind_is_hashed_as_its_values_are_alone() -> None:
    for keys in ([1, -1, 0, 2**61 - 1, 2**61, 2**70, -(2**70)], ["a", "", "é", "\ud800"], KEYS):
        mixed = group_hashes("s", None, [*keys, 1.5])[:-1].tolist()
        assert group_hashes("s", None, keys).tolist() == mixed
        assert [int(group_hashes("s", None, [key])[0]) for key in keys] == mixed


def test_state_namespace_and_key_all_count() -> None:
    namespaces = [None, 0, TimeWindow(0, 10), TimeWindow(0, 20), CountWindow(1), GlobalWindow()]
    hashes = [group_hashes(state, namespace, [1, 2]) for state in ("one", "other") for namespace in namespaces[:4]]
    assert len({int(value) for of in hashes for value in of}) == 16
    keys = list(range(len(namespaces)))
    alone = [int(group_hashes("one", namespace, [key])[0]) for namespace, key in zip(namespaces, keys)]
    assert group_hashes_in("one", namespaces, keys).tolist() == alone


def test_hashes_of_many_keys_are_all_different_and_evenly_spread() -> None:
    for keys in (list(range(100_000)), [f"user-{number}" for number in range(100_000)]):
        hashes = group_hashes("count", None, keys)
        assert len(np.unique(hashes)) == len(keys)
        per_part = np.bincount((hashes >> np.uint64(60)).astype(np.int64), minlength=16)
        assert per_part.min() > 5_500 and per_part.max() < 7_000


def test_hashes_are_the_same_in_every_process() -> None:
    code = (
        "from flinkish.runtime.exchange.hashes import *; "
        "print(group_hashes('s', None, ['a', 1, (1, 'b')]).tolist(), entry_hashes(['k', 1.0]).tolist())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_key_that_cannot_be_one_is_refused_but_a_user_key_of_a_map_is_not() -> None:
    with pytest.raises(InvalidKeyError, match="NaN"):
        group_hashes("s", None, [1.0, float("nan")])
    with pytest.raises(InvalidKeyError):
        group_hashes("s", None, [object()])
    assert len(entry_hashes([object(), float("nan"), 1])) == 3
    assert entry_hashes([object(), 1])[1] == entry_hashes([1])[0]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # the examples of PySpark's documentation
        (("ABC",), 4105715581806190027),
        (("ABC", "DEF"), 3233247871021311208),
        (("ABC", None, "DEF"), 3233247871021311208),
        ((None,), 42),
    ],
)
def test_the_hash_of_a_row_is_that_of_spark(row: tuple[str | None, ...], expected: int) -> None:
    assert row_hashes([[value] for value in row]) == [expected]


@given(st.lists(st.tuples(st.text(max_size=80), st.none() | st.text(max_size=80)), max_size=12))
def test_the_hash_of_a_row_does_not_depend_on_the_other_rows(rows: list[tuple[str, str | None]]) -> None:
    together = row_hashes([[row[number] for row in rows] for number in (0, 1)])
    assert together == [row_hashes([[text], [other]])[0] for text, other in rows]
