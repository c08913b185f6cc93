"""The stored form of many values, made by columns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common.types import Row
from flinkish.runtime.stored.column_pickles import dumps_columns, loads_columns, python_column
from flinkish.runtime.stored.pickles import dumps_all
from tests.support.profiles import examples

#: Numbers at the borders of the sizes that pickle has for them.
BORDERS = [sign * (1 << bits) + more for bits in (0, 8, 16, 31, 39, 47, 55, 62) for sign in (1, -1) for more in (-1, 0)]
TEXTS = st.one_of(st.text(max_size=5), st.sampled_from(["x" * 255, "x" * 256, "é" * 128, "\U0001f600" * 70]))
COLUMNS = {
    "BIGINT": (pa.int64(), st.one_of(st.sampled_from(BORDERS), st.integers(-(2**63), 2**63 - 1))),
    "SMALLINT": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "DOUBLE": (pa.float64(), st.floats()),
    "FLOAT": (pa.float32(), st.floats(width=32)),
    "BOOLEAN": (pa.bool_(), st.booleans()),
    "STRING": (pa.string(), TEXTS),
    "DECIMAL": (pa.decimal128(20, 2), st.integers(0, 10**9).map(lambda n: Decimal(n).scaleb(-2))),
    "DATE": (pa.date32(), st.dates()),
    "TIMESTAMP_LTZ": (pa.timestamp("us", "UTC"), st.datetimes()),
    "LIST": (None, st.lists(st.integers(), max_size=3)),
    "MAP": (None, st.dictionaries(st.text(max_size=2), st.integers(), max_size=3)),
}
ROWS = st.lists(st.sampled_from(list(COLUMNS)), max_size=5).flatmap(
    lambda kinds: st.tuples(
        st.just(kinds),
        st.lists(st.tuples(*(st.one_of(st.none(), COLUMNS[kind][1]) for kind in kinds)), min_size=1, max_size=6),
    )
)


def columns_of(kinds: list[str], values: list[Any]) -> list[Any]:
    found = zip([COLUMNS[kind][0] for kind in kinds], zip(*values, strict=True), strict=True)
    return [list(column) if of is None else pa.array(column, of) for of, column in found]


def row_of(values: Any) -> Row:
    row = Row(*values)
    row.set_field_names([f"SUM(column {place})" for place in range(len(row))])
    return row


@pytest.mark.parametrize(
    "made",
    [row_of, lambda values: (None, tuple(values)), lambda values: ((1_700_000_000_000, 5), *values)],
    ids=["rows", "keys", "keys of a window"],
)
@given(rows=ROWS)
@settings(max_examples=examples(150), deadline=None)
def test_columns_are_stored_as_the_values_one_by_one(made: Any, rows: tuple[list[str], list[Any]]) -> None:
    kinds, values = rows
    columns = columns_of(kinds, values)
    of_rows = zip(*map(python_column, columns), strict=True) if columns else [()] * len(values)
    assert dumps_columns(made, columns, len(values)).to_pylist() == dumps_all(map(made, of_rows))


@pytest.mark.parametrize("size", [32_000, 33_000, 70_000])
def test_large_values_are_stored_as_the_values_one_by_one(size: int) -> None:
    values: list[Any] = ["a", "b" * size, None]
    for column in (values, pa.array(values)):
        assert dumps_columns(tuple, [column], 3).to_pylist() == dumps_all((value,) for value in values)


READ = {"BIGINT", "DOUBLE", "STRING"}


@pytest.mark.parametrize("made", [row_of, lambda values: ((7, 5), tuple(values))], ids=["rows", "keys of a window"])
@given(rows=ROWS, begin=st.integers(0, 2))
@settings(max_examples=examples(150), deadline=None)
def test_columns_are_read_as_they_were_stored(made: Any, rows: tuple[list[str], list[Any]], begin: int) -> None:
    kinds, values = rows
    columns = columns_of(kinds, values)
    stored = dumps_columns(made, columns, len(values)).slice(begin)
    found = loads_columns(made, len(kinds), stored)
    if found is None:
        # texts that are not short, and other types, are left to the reader of single values
        assert (
            not len(stored) or set(kinds) - READ or any(type(v) is str and len(v) > 60 for row in values for v in row)
        )
    else:
        for column, read in zip(columns, found, strict=True):
            assert repr(read.to_pylist()) == repr(python_column(column)[begin:])
    other = dumps_columns(lambda values: ("another form", *values), columns, len(values))
    assert loads_columns(made, len(kinds), other) is None
