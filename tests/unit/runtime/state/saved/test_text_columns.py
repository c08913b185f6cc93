"""Columns of values as columns of texts are what each value alone would be; and back."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common.types import Row
from flinkish.core.time import TimeDomain
from flinkish.runtime.exchange.keys import frozen
from flinkish.runtime.state.saved.columns import stored_columns, stored_rows
from flinkish.runtime.state.saved.restore import decode_columns, encode_columns
from flinkish.runtime.state.saved.texts import (
    SavepointColumns,
    from_savepoint_columns,
    from_savepoint_row,
    from_texts,
    to_repeated_texts,
    to_savepoint_columns,
    to_savepoint_row,
    to_texts,
)
from flinkish.runtime.state.saved.values import ProgramState, ProgramStates, RowReader
from flinkish.runtime.state.state_rows import StateColumns, StateRow
from flinkish.runtime.stored.texts import from_text, to_text
from tests.support.any_values import ANY_INTEGERS, ANY_TEXTS
from tests.support.restored import body_of

#: Texts that hold what stands between values in JSON.
TEXTS = ANY_TEXTS | st.sampled_from(["a, b", "], [", '", "', '"], ["', "{}", "[", "]", ",", "\\", '"', "\n"])
PLAIN = st.none() | st.booleans() | ANY_INTEGERS | st.floats() | TEXTS
VALUES = st.recursive(
    PLAIN | st.dates() | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXTS | st.just("$tuple"), inner, max_size=2)
        | st.dictionaries(st.integers(), inner, max_size=2)
        | st.lists(inner, max_size=2).map(lambda items: Row(*items))
    ),
    max_leaves=4,
)
#: Columns of one type, which take the short way, and of several.
COLUMNS = st.one_of(
    *(
        st.lists(of, max_size=6)
        for of in (
            ANY_INTEGERS,
            st.floats(),
            TEXTS,
            PLAIN,
            st.lists(PLAIN, max_size=3),
            st.lists(PLAIN, max_size=3).map(tuple),
            st.tuples(TEXTS, ANY_INTEGERS),
            VALUES,
        )
    )
)
#: What an edit may leave: not every text is one of a value, but some only look as if they were not when put together.
EDITED = st.lists(
    PLAIN.map(to_text)
    | VALUES.map(to_text)
    | st.sampled_from(
        ["", " ", "1, 2", "[1", "2]", '"a', 'b"', "1]", "[2", "], [", '{"$tuple": 5}', '{"$tuple": [1], "$tuple": [2]}']
        + ['{"$tuple": {"a": 1}}', '{"$tuple": [[1]]}', '{"a": 1}', " 1 ", "NaN", "tru", "1 /**/", '{"$dict": [1]}']
        + ['{"$pickle": "AAAA"}', "\ufeff1", '{"$tuple": [1], "b": 2}']
    ),
    max_size=5,
)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal to the types of their parts; NaN is NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Row):
        return getattr(one, "_fields", None) == getattr(other, "_fields", None) and same(list(one), list(other))
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


@given(COLUMNS)
def test_the_texts_of_a_column_are_those_of_its_values(values: list[Any]) -> None:
    assert to_texts(values) == [to_text(value) for value in values]
    assert to_repeated_texts(values * 2) == [to_text(value) for value in values * 2]


@given(VALUES)
def test_every_value_has_a_text_in_utf8_and_is_read_from_it(value: Any) -> None:
    text = to_text(value)
    assert same(from_text(text.encode().decode()), value)


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("depth", [50, 99, 100, 101, 300])
def test_a_value_may_be_nested_deeply_and_may_hold_itself(kind: type[Any], depth: int) -> None:
    nested: Any = "inmost"
    for _ in range(depth):
        nested = kind([nested])
    read = from_text(to_text(nested))
    for _ in range(depth):
        assert type(read) is kind
        (read,) = read
    assert read == "inmost"
    itself: list[Any] = [1]
    itself.append(kind([itself]))
    read = from_text(to_text(itself))
    assert read[0] == 1 and type(read[1]) is kind and read[1][0] is read


@given(COLUMNS)
def test_the_values_of_a_column_are_those_of_its_texts(values: list[Any]) -> None:
    texts = [to_text(value) for value in values]
    assert same(from_texts(texts), [from_text(text) for text in texts])


@given(EDITED)
def test_a_column_of_edited_texts_is_read_as_its_texts_alone_or_not_at_all(texts: list[str]) -> None:
    try:
        alone: list[Any] | None = [from_text(text) for text in texts]
    except Exception:
        alone = None
    if alone is None:
        with pytest.raises(Exception):  # noqa: B017
            from_texts(texts)
    else:
        assert same(from_texts(texts), alone)


STATES = st.sampled_from(
    [("value", PLAIN), ("reducing", st.tuples(TEXTS, st.integers())), ("list", st.lists(PLAIN, max_size=3))]
)
KEYS = TEXTS | ANY_INTEGERS | st.tuples(TEXTS, ANY_INTEGERS) | st.lists(ANY_INTEGERS, max_size=2).map(frozen)
NAMESPACES = st.none() | st.tuples(st.integers(), st.integers()) | st.dates()


@st.composite
def state_rows(draw: st.DrawFn) -> list[StateRow]:
    kind, values = draw(STATES)
    entries = draw(st.dictionaries(st.tuples(NAMESPACES, KEYS), values, max_size=5))
    found = [StateRow("s", kind, namespace, key, value) for (namespace, key), value in entries.items()]
    for namespace, key in entries:
        found.append(StateRow("m", "map", namespace, key, ("a", draw(PLAIN))))
        found.append(StateRow("__timers__/t", TimeDomain.EVENT_TIME.name, namespace, key, draw(st.integers(0, 5))))
    return found


@given(state_rows())
def test_a_body_by_columns_gives_the_rows_of_a_savepoint_and_back(found: list[StateRow]) -> None:
    body = body_of(found)
    saved = [row for part in stored_columns(body, None) for row in to_savepoint_columns("u", part).rows()]
    assert saved == [to_savepoint_row("u", row) for row in stored_rows(body)]
    restored = [
        row
        for part in stored_columns(body, None)
        for row in from_savepoint_columns(to_savepoint_columns("u", part)).rows()
    ]
    assert same(restored, [from_savepoint_row(row)[1] for row in saved])
    passed_on = []
    for part in stored_columns(body, None):
        uid, columns = decode_columns(encode_columns("u", part))
        passed_on += [(uid, row) for row in columns.rows()]
    assert same(passed_on, [("u", row) for row in stored_rows(body)])


def test_a_namespace_that_was_left_out_is_none() -> None:
    saved = SavepointColumns("u", "s", "value", ["1", "2"], [None, "[3]"], ["1", "1"])  # type: ignore[list-item]
    assert from_savepoint_columns(saved).namespaces == [None, [3]]


@given(
    st.sampled_from(["value", "map", "list", "reducing", "operator", "nonsense", "EVENT_TIME"]),
    st.sampled_from(["s", "__timers__/t"]),
    EDITED,
    st.booleans(),
    st.sampled_from([None, "value", "map"]),
)
def test_rows_are_checked_by_columns_as_one_by_one(
    kind: str, state: str, texts: list[str], convert: bool, declared: str | None
) -> None:
    from flinkish.common import Types

    known = None if declared is None else ProgramState(declared, Types.STRING(), Types.INT())
    program = ProgramStates({"u": {} if known is None else {"s": known}}, {}, {"u": Types.LONG()})
    keys = [text if number % 2 else str(number) for number, text in enumerate(texts)]
    saved = SavepointColumns("u", state, kind, keys, ["null"] * len(texts), texts)
    by_columns, one_by_one = (RowReader(program, {}, convert) for _ in range(2))
    good = list(by_columns.read_columns(saved).rows())
    assert same(good, [row for row in map(one_by_one.read, saved.rows()) if row is not None])
    if texts:
        assert by_columns.found == one_by_one.found


def test_a_migration_is_applied_once_to_each_row() -> None:
    seen: list[int] = []

    def migration(value: int) -> int:
        seen.append(value)
        return 10 // value

    reader = RowReader(ProgramStates(), {("u", "s"): migration}, convert=False)
    good = reader.read_columns(SavepointColumns("u", "s", "value", ["1", "2"], ["null"] * 2, ["0", "5"]))
    assert seen == [0, 5]
    assert good == StateColumns("s", "value", [None], [2], [2])
    (found,) = reader.found.values()
    assert (found.rows, found.bad_rows) == (2, 1)
    assert "the row of key 1: the migration raised ZeroDivisionError" in found.problem


def test_special_numbers_keep_their_texts() -> None:
    values = [math.nan, math.inf, -math.inf, -0.0, 1e300, 2**80]
    assert to_texts(values) == [json.dumps(value) for value in values]
    assert to_texts([datetime.date(2020, 1, 1)]) == [to_text(datetime.date(2020, 1, 1))]
