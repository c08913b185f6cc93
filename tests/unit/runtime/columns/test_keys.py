"""Keys in columns and their ids."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.runtime.columns import keys
from flinkish.runtime.columns.keys import KeyIds

VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "text": (pa.string(), st.text(max_size=20)),
    "long text": (pa.string(), st.sampled_from(["x" * size for size in (7, 8, 9, 127, 128, 129, 300)])),
    "bytes": (pa.binary(), st.binary(max_size=9)),
    "int64": (pa.int64(), st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "double": (pa.float64(), st.sampled_from([0.0, 1.5, -1e300, float("inf")])),
    "boolean": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(20, 3), st.sampled_from([Decimal("0.001"), Decimal("-12345678901234567.000")])),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes(datetime.datetime(1, 1, 1))),
}


def numbered(rows: list[Any]) -> list[int]:
    """The ids of these keys, by a dict."""
    known: dict[str, int] = {}
    return [known.setdefault(repr(row), len(known)) for row in rows]


@given(data=st.data(), names=st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
def test_ids_count_the_keys_in_the_order_in_which_they_first_come(data: st.DataObject, names: list[str]) -> None:
    types = [VALUES[name][0] for name in names]
    ids, found, rows = KeyIds(types), list[int](), list[Any]()
    for _ in range(3):
        some = data.draw(st.lists(st.tuples(*(st.none() | VALUES[name][1] for name in names)), max_size=12))
        columns = [pa.array([row[place] for row in some], of) for place, of in enumerate(types)]
        # a part of a longer column
        columns = [pa.concat_arrays([column[:1], column]).slice(min(1, len(column))) for column in columns]
        found += ids.of(columns).tolist()
        rows += some
    assert found == numbered(rows)
    assert ids.count == len(set(found))
    stored = ids.keys(np.array(found, np.int64))
    assert stored == (rows if len(names) > 1 else [row[0] for row in rows])
    assert ids.of_keys(stored).tolist() == found


@pytest.mark.parametrize("of", [pa.int64(), pa.string()], ids=str)
def test_many_keys_keep_their_ids_while_their_tables_grow(of: pa.DataType) -> None:
    rng, ids, known = random.Random(7), KeyIds([of]), dict[Any, int]()
    for size in (1, 5_000, 3, 20_000, 20_000):
        values = [rng.randrange(15_000) * 2**40 for _ in range(size)]
        column = pa.array(values).cast(of)
        expected = [known.setdefault(value, len(known)) for value in values]
        assert ids.of([column]).tolist() == expected


def test_texts_with_the_same_hash_are_different_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "text_hashes", lambda texts: np.zeros(len(texts), np.uint64))
    ids = KeyIds([pa.string()])
    assert ids.of([pa.array(["a", "b", "a", None, ""])]).tolist() == [0, 2, 0, 1, 3]
    assert ids.of([pa.array(["", "b", "c", "a", None])]).tolist() == [3, 2, 4, 0, 1]
    assert ids.keys(np.arange(5)) == ["a", None, "b", "", "c"]


def test_no_columns_are_one_key() -> None:
    ids = KeyIds([])
    assert ids.of([], 3).tolist() == [0, 0, 0]
    assert ids.keys(np.array([0])) == [()]
