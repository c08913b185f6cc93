"""Row and RowKind behave as PyFlink's."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common import Row, RowKind

NAMES = st.lists(st.text("abcde", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
VALUES = st.one_of(st.none(), st.integers(), st.text(max_size=4))


def test_a_row_shows_its_names_or_is_bracketed():
    assert repr(Row(name="Alice", age=11)) == "Row(name='Alice', age=11)"
    assert repr(Row("a", 1)) == "<Row('a', 1)>"
    assert repr(Row()) == "<Row()>"


def test_positional_and_named_values_do_not_mix():
    with pytest.raises(ValueError, match="both args and kwargs"):
        Row(1, a=2)


def test_fields_are_reached_by_position_slice_name_and_attribute():
    row = Row(a=1, b=2, c=3)
    assert (row[0], row[0:2], row["b"], row.c) == (1, [1, 2], 2, 3)
    row["b"] = 20
    row[0] = 10
    assert list(row) == [10, 20, 3]


def test_unknown_fields_raise_as_in_pyflink():
    row = Row(a=1)
    with pytest.raises(ValueError, match="zz"):
        row["zz"]
    with pytest.raises(AttributeError):
        row.zz  # noqa: B018
    with pytest.raises(AttributeError):
        row.a = 2
    with pytest.raises(KeyError):
        Row(1)["a"] = 1
    with pytest.raises(ValueError, match="not exist"):
        row.get_fields_by_names(["b"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Row(1, "a"), "the Row has no field names, so no field 'price'; output_type=Types.ROW_NAMED"),
        (Row(id=1, name="a"), "the Row has no field 'price'; it has id, name"),
    ],
    ids=["without names", "of other names"],
)
def test_an_attribute_that_is_no_field_says_what_fields_there_are(row: Row, message: str) -> None:
    with pytest.raises(AttributeError) as raised:
        _ = row.price
    assert str(raised.value).startswith(message)


def test_a_name_in_brackets_that_is_no_field_says_what_fields_there_are() -> None:
    with pytest.raises(ValueError, match=r"the Row has no field 'price' \[Row\[...\]\]; expected one of id, name"):
        _ = Row(id=1, name="a")["price"]
    with pytest.raises(AttributeError, match="the Row has no field names, so no field 'price'"):
        _ = Row(1, "a")["price"]


def test_in_looks_at_names_if_there_are_any_and_else_at_values():
    assert "a" in Row(a=1) and 1 not in Row(a=1)
    assert 1 in Row(1)


def test_a_row_of_names_makes_rows():
    person = Row("name", "age")
    assert person("Bob", 12) == Row(name="Bob", age=12)
    with pytest.raises(ValueError, match="expected 2 values"):
        person(1, 2, 3)


def test_as_dict_goes_into_rows_lists_and_dicts_if_asked():
    row = Row(a=Row(b=[Row(c=1)]), d={"k": Row(e=2)})
    assert row.as_dict(True) == {"a": {"b": [{"c": 1}]}, "d": {"k": {"e": 2}}}
    assert row.as_dict()["a"] == Row(b=[Row(c=1)])
    with pytest.raises(TypeError):
        Row(1).as_dict()


def test_kinds_have_flinks_signs_and_count_for_equality():
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]
    deleted = Row.of_kind(RowKind.DELETE, 1)
    assert deleted.get_row_kind() is RowKind.DELETE
    assert deleted != Row(1)
    deleted.set_row_kind(RowKind.INSERT)
    assert deleted == Row(1)


def test_a_row_without_names_is_not_equal_to_one_with_names_nor_to_a_tuple():
    assert Row(1) != Row(a=1)
    assert Row(1) != (1,)


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
