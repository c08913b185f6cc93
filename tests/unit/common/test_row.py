"""Row and RowKind behave as PyFlink's."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from flinkish.common import Row, RowKind
from tests.support.rows import hold, refuses

NAMES = st.lists(st.text("abcde", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
VALUES = st.one_of(st.none(), st.integers(), st.text(max_size=4))


def test_a_row_shows_its_names_or_is_bracketed():
    assert repr(Row(name="Alice", age=11)) == "Row(name='Alice', age=11)"
    assert repr(Row("a", 1)) == "<Row('a', 1)>"
    assert repr(Row()) == "<Row()>"
    assert Row("name", "age")("Bob", 12) == Row(name="Bob", age=12), "a Row of names makes rows"


def test_fields_are_reached_by_position_slice_name_and_attribute():
    row = Row(a=1, b=2, c=3)
    assert (row[0], row[0:2], row["b"], row.c) == (1, [1, 2], 2, 3)
    row["b"] = 20
    row[0] = 10
    assert list(row) == [10, 20, 3]
    assert "a" in row and 10 not in row and 1 in Row(1), "in looks at names if there are any and else at values"


def test_what_a_row_does_not_have_is_refused_as_in_pyflink_with_the_fields_there_are():
    row, nameless = Row(id=1, name="a"), Row(1, "a")
    rows = [
        (lambda: Row(1, a=2), ValueError, "both args and kwargs"),
        (lambda: row["price"], ValueError, r"the Row has no field 'price' \[Row\[...\]\]; expected one of id, name"),
        (lambda: nameless["price"], AttributeError, "the Row has no field names, so no field 'price'"),
        (lambda: row.price, AttributeError, "^the Row has no field 'price'; it has id, name"),
        (lambda: nameless.price, AttributeError, "^the Row has no field names, so no .*output_type=Types.ROW_NAMED"),
        (lambda: setattr(row, "id", 2), AttributeError, ""),
        (lambda: nameless.__setitem__("id", 1), KeyError, ""),
        (lambda: row.get_fields_by_names(["b"]), ValueError, "not exist"),
        (lambda: Row("name", "age")(1, 2, 3), ValueError, "expected 2 values"),
        (lambda: nameless.as_dict(), TypeError, ""),
    ]
    hold(refuses, rows)


def test_as_dict_goes_into_rows_lists_and_dicts_if_asked():
    row = Row(a=Row(b=[Row(c=1)]), d={"k": Row(e=2)})
    assert row.as_dict(True) == {"a": {"b": [{"c": 1}]}, "d": {"k": {"e": 2}}}
    assert row.as_dict()["a"] == Row(b=[Row(c=1)])


def test_kinds_have_flinks_signs_and_count_for_equality():
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]
    deleted = Row.of_kind(RowKind.DELETE, 1)
    assert deleted.get_row_kind() is RowKind.DELETE
    assert deleted != Row(1)
    deleted.set_row_kind(RowKind.INSERT)
    assert deleted == Row(1)
    assert Row(1) != Row(a=1) and Row(1) != (1,)


@given(NAMES, st.data())
def test_named_rows_are_equal_in_any_order_of_fields_and_then_hash_alike(names, data):
    values = {name: data.draw(VALUES) for name in names}
    shuffled = data.draw(st.permutations(names))
    first, second = Row(**values), Row(**{name: values[name] for name in shuffled})
    assert first == second
    assert hash(first) == hash(second)


@given(st.lists(VALUES, max_size=4), st.sampled_from(RowKind), st.booleans())
def test_a_row_survives_pickling(values, kind, named):
    row = Row.of_kind(kind, *values)
    if named:
        row.set_field_names([f"n{i}" for i in range(len(values))])
    copied = pickle.loads(pickle.dumps(row))
    assert copied == row
    assert repr(copied) == repr(row)
    assert copied.get_row_kind() is kind
    assert hasattr(copied, "_fields") == named
