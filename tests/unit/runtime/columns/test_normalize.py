"""The rows of a table of changes by a key: each change comes with the row that it replaces."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.runtime.columns.normalize import normalize
from tests.support.column_operators import Driven, batch_of
from tests.support.profiles import examples

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
UPDATE, DELETE = 2, 3
CHANGES = st.lists(
    st.tuples(
        st.sampled_from([UPDATE, UPDATE, DELETE]),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, [], ["x", None]]),
    ),
    min_size=1,
    max_size=6,
)


@given(steps=st.lists(st.one_of(CHANGES, st.integers(0, 1)), max_size=10))
@settings(max_examples=examples(60), deadline=None)
def test_each_batch_gives_the_net_changes_with_the_rows_before(steps: list[Any]) -> None:
    driven = Driven(normalize(("k",), SCHEMA, 0))
    rows: dict[Any, tuple[Any, ...]] = {}
    for step in steps:
        if isinstance(step, int):
            driven.barrier(restore=step > 0)
            continue
        before, expected = dict(rows), []
        last = {key: (number, kind, (key, *others)) for number, (kind, key, *others) in enumerate(step)}
        for _, kind, row in sorted(last.values(), key=lambda change: change[0]):
            old, new = before.get(row[0]), None if kind == DELETE else row
            rows.pop(row[0], None)
            if new is not None:
                rows[row[0]] = new
            if old != new:
                expected += [] if old is None else [(1 if new else DELETE, *old)]
                expected += [] if new is None else [(UPDATE if old else 0, *new)]
        driven.feed(batch_of(SCHEMA, [row[1:] for row in step], [row[0] for row in step]))
        assert driven.take() == expected
