"""Types check values, narrow them as Java does, and know their Arrow form."""

from __future__ import annotations

import ctypes
import datetime
import pickle
import struct
from array import array
from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flinkish.common import Instant, Row, RowKind, Types
from flinkish.common.typeinfo import ExternalTypeInfo, LocalTimeTypeInfo, declared_type
from flinkish.errors import TypeMismatchError
from tests.support.rows import hold, refuses

WORD_COUNT = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.INT()])
C_TYPES = [
    (Types.BYTE(), ctypes.c_int8),
    (Types.SHORT(), ctypes.c_int16),
    (Types.INT(), ctypes.c_int32),
    (Types.LONG(), ctypes.c_int64),
]
DAY, CLOCK = datetime.date(2026, 1, 31), datetime.time(12, 30, 0, 5)
MOMENT = datetime.datetime(2026, 1, 31, 12, 30, 0, 5)
EXAMPLES = [
    (Types.STRING(), "a"),
    (Types.CHAR(), "a"),
    (Types.BYTE(), -1),
    (Types.BOOLEAN(), True),
    (Types.SHORT(), 5),
    (Types.INT(), 5),
    (Types.LONG(), 5),
    (Types.FLOAT(), 0.5),
    (Types.DOUBLE(), 0.1),
    (Types.BIG_INT(), 10**30),
    (Types.BIG_DEC(), Decimal("1.5")),
    (Types.INSTANT(), Instant(5, 6_000)),
    (Types.SQL_DATE(), DAY),
    (Types.SQL_TIME(), CLOCK),
    (Types.SQL_TIMESTAMP(), MOMENT),
    (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME), MOMENT),
    (Types.PICKLED_BYTE_ARRAY(), {"any": object}),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"ab"),
    (Types.PRIMITIVE_ARRAY(Types.INT()), [1, 2]),
    (Types.BASIC_ARRAY(Types.STRING()), ["a", None]),
    (Types.OBJECT_ARRAY(Types.TUPLE([Types.INT()])), [(1,)]),
    (Types.LIST(Types.LONG()), [1, None]),
    (Types.MAP(Types.STRING(), Types.INT()), {"a": None}),
    (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", 1)),
    (WORD_COUNT, Row(word="a", count=None)),
    (Types.ROW([WORD_COUNT, Types.LIST(WORD_COUNT)]), Row(f0=Row(word="a", count=1), f1=[Row(word="b", count=2)])),
    (ExternalTypeInfo(Types.INT()), 5),
]


@pytest.mark.parametrize(("type_info", "value"), EXAMPLES, ids=lambda item: repr(item)[:40])
def test_a_value_that_fits_comes_out_unchanged_alone_and_in_a_list(type_info, value):
    type_info.validate(value)
    assert type_info.convert(value) == value
    convert = type_info.batch_converter()
    if convert is not None:
        assert convert([value, value]) == [value, value]
        assert convert([]) == []
    copied = pickle.loads(pickle.dumps(type_info))
    assert (copied, hash(copied), repr(copied)) == (type_info, hash(type_info), repr(type_info)), "types are values"
    assert type_info != Types.TUPLE([type_info])


@given(st.integers(-(2**70), 2**70))
@example(9147483648)
@example(43878)
def test_whole_numbers_wrap_as_in_c_and_java(value):
    for type_info, c_type in C_TYPES:
        assert type_info.convert(value) == c_type(value).value
        assert type_info.batch_converter()([value, 1]) == [c_type(value).value, 1]
    # as real PyFlink narrows them
    assert (Types.INT().convert(9147483648), Types.SHORT().convert(43878)) == (557549056, -21658)


@given(st.one_of(st.floats(-1e38, 1e38), st.floats(allow_nan=False, width=32)))
def test_floats_are_rounded_to_32_bits_and_infinite_beyond_their_range(value):
    rounded = struct.unpack("f", struct.pack("f", value))[0]
    assert Types.FLOAT().convert(value) == rounded
    assert Types.FLOAT().batch_converter()([value, 1]) == [rounded, 1.0]
    assert Types.FLOAT().batch_converter()([1e39, -1e39]) == [float("inf"), float("-inf")]
    assert Types.DOUBLE().convert(-(10**400)) == float("-inf")


def test_ints_become_floats_and_bools_become_ints_where_declared_so():
    assert repr(Types.DOUBLE().batch_converter()([1, 2.5])) == "[1.0, 2.5]"
    assert repr(Types.INT().batch_converter()([True, 2])) == "[1, 2]"
    assert Types.BOOLEAN().convert(1) is True


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.INT(), 1.0),
        (Types.INT(), "1"),
        (Types.INT(), None),
        (Types.STRING(), 1),
        (Types.STRING(), b"a"),
        (Types.CHAR(), "ab"),
        (Types.DOUBLE(), "1"),
        (Types.BOOLEAN(), "true"),
        (Types.BIG_DEC(), 0.1),
        (Types.BIG_DEC(), Decimal("NaN")),
        (Types.SQL_DATE(), MOMENT),
        (Types.SQL_TIMESTAMP(), DAY),
        (Types.INSTANT(), 5),
        (Types.LIST(Types.INT()), "ab"),
        (Types.LIST(Types.INT()), ["a"]),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [None]),
        (Types.MAP(Types.STRING(), Types.INT()), {1: 1}),
        (Types.TUPLE([Types.INT()]), (1, 2)),
        (Types.TUPLE([Types.INT()]), (None,)),
        (Types.TUPLE([Types.INT()]), 1),
        (WORD_COUNT, ("a",)),
        (WORD_COUNT, ("a", "b")),
        (WORD_COUNT, None),
        (WORD_COUNT, "ab"),
        (WORD_COUNT, {"word": "a", "cuont": 1}),
        (WORD_COUNT, Row(word="a")),
        (WORD_COUNT, Row(word="a", count=1, more=2)),
    ],
    ids=repr,
)
def test_what_does_not_fit_is_refused_alone_and_in_a_list(type_info, value):
    with pytest.raises(TypeMismatchError) as alone:
        type_info.convert(value, "operator 'x'")
    assert "operator 'x'" in str(alone.value)
    with pytest.raises(TypeMismatchError) as in_a_list:
        type_info.batch_converter("operator 'x'")([value])
    assert (in_a_list.value.what, in_a_list.value.position) == (alone.value.what, 0)


def test_an_error_leads_to_the_value():
    type_info = Types.ROW_NAMED(["a", "b"], [Types.MAP(Types.STRING(), Types.LIST(Types.INT())), Types.INT()])
    with pytest.raises(TypeMismatchError) as caught:
        type_info.batch_converter("operator 'parse'")([({}, 1), ({"k": [1, "q"]}, 2)])
    assert str(caught.value).startswith("the value 'q' of type str does not fit the declared type RowTypeInfo(a: ")
    assert "[operator 'parse', record ({'k': [1, 'q']}, 2), field 'a', entry 'k', element 1]" in str(caught.value)
    assert "expected a whole number (int)" in str(caught.value)
    with pytest.raises(TypeMismatchError) as caught:
        Types.INT().convert("x" * 1_000)
    assert len(str(caught.value)) < 400, "long values are abbreviated"


@dataclass
class WordCount:
    word: str
    count: int


@pytest.mark.parametrize(
    "value",
    [("a", 1), ["a", 1], Row("a", 1), Row(count=1, word="a"), {"count": 1, "word": "a"}, WordCount("a", 1)],
    ids=repr,
)
def test_whatever_is_returned_under_a_row_comes_out_as_a_row_with_its_names(value):
    expected = "Row(word='a', count=1)"
    assert repr(WORD_COUNT.convert(value)) == expected
    assert repr(WORD_COUNT.batch_converter()([value, ("b", 2)])[0]) == expected


def test_a_row_type_without_names_calls_its_fields_f0_f1():
    type_info = Types.ROW([Types.STRING(), Types.INT()])
    assert repr(type_info.convert(("a", 1))) == "Row(f0='a', f1=1)"
    assert repr(type_info.convert(Row(x="a", y=1))) == "Row(f0='a', f1=1)"
    assert type_info.get_field_names() == ["f0", "f1"]


def test_kinds_of_rows_survive():
    row = Row.of_kind(RowKind.DELETE, "a", 2**31)
    for converted in (WORD_COUNT.convert(row), *WORD_COUNT.batch_converter()([row, ("b", 1)])[:1]):
        assert converted.get_row_kind() is RowKind.DELETE
        assert converted["count"] == -(2**31)


@given(st.lists(st.tuples(st.text(max_size=2), st.one_of(st.none(), st.integers(-(2**40), 2**40)))))
def test_a_list_is_converted_as_its_records_are(values):
    records = [Row(*value) if index % 2 else value for index, value in enumerate(values)]
    for given_values in (values, records):
        assert WORD_COUNT.batch_converter()(given_values) == [WORD_COUNT.convert(value) for value in given_values]


def test_tuples_lists_and_bytes_come_out_of_any_sequence():
    type_info = Types.TUPLE([Types.STRING(), Types.SHORT()])
    assert type_info.batch_converter()([["a", 43878], Row("b", 1)]) == [("a", -21658), ("b", 1)]
    assert Types.LIST(Types.INT()).convert(array("i", [1, 2])) == [1, 2]
    assert Types.LIST(Types.INT()).convert((1, 2**32)) == [1, 0]
    assert Types.PRIMITIVE_ARRAY(Types.BYTE()).convert(bytearray(b"a")) == b"a"
    assert Types.PRIMITIVE_ARRAY(Types.BYTE()).convert([1, 255, -1]) == b"\x01\xff\xff"


def test_numpys_numbers_become_pythons():
    numpy = pytest.importorskip("numpy")
    assert type(Types.INT().convert(numpy.int64(5))) is int
    assert type(Types.DOUBLE().batch_converter()([numpy.float64(5)])[0]) is float
    assert type(Types.BOOLEAN().convert(numpy.bool_(True))) is bool
    assert type(Types.STRING().convert(numpy.str_("a"))) is str
    assert Types.LIST(Types.DOUBLE()).convert(numpy.array([1.5, 2.5])) == [1.5, 2.5]


def test_the_names_of_types_are_pyflinks():
    assert repr(WORD_COUNT) == "RowTypeInfo(word: String, count: Integer)"
    assert repr(Types.TUPLE([Types.LONG(), Types.BIG_DEC()])) == "TupleTypeInfo(Long, BigDecimal)"
    assert repr(Types.MAP(Types.STRING(), Types.LIST(Types.INT()))) == "MapTypeInfo<String, ListTypeInfo<Integer>>"
    assert repr(Types.PICKLED_BYTE_ARRAY()) == "PickledByteArrayTypeInfo"


def test_wrong_declarations_are_refused_at_once():
    rows = [
        (lambda: Types.ROW([int]), TypeError, "TypeInformation"),
        (lambda: Types.LIST(Types.INT), TypeError, "Types.INT"),
        (lambda: Types.ROW_NAMED(["a", "b"], [Types.INT()]), ValueError, "2 field names for 1"),
        (lambda: Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()]), ValueError, "twice"),
        (lambda: Types.PRIMITIVE_ARRAY(Types.STRING()), TypeError, "primitive array"),
        (lambda: declared_type(int), TypeError, "Types.INT"),
    ]
    hold(refuses, rows)


def test_what_output_type_means():
    assert declared_type(None) == Types.PICKLED_BYTE_ARRAY()
    assert declared_type(None).batch_converter() is None, "untyped data needs no conversion"
    assert declared_type([Types.INT()]) == Types.ROW([Types.INT()])
    assert declared_type(Types.INT()) == Types.INT()


@pytest.mark.parametrize(
    ("type_info", "value", "internal"),
    [
        (Types.SQL_DATE(), datetime.date(1970, 1, 3), 2),
        (Types.INSTANT(), Instant(1, 5_000_000), 1_005_000),
        (Types.TUPLE([Types.SQL_DATE(), Types.INT()]), (datetime.date(1970, 1, 2), 3), (1, 3)),
        (WORD_COUNT, Row(word="a", count=1), (0, "a", 1)),
    ],
    ids=repr,
)
def test_the_internal_form_is_pyflinks(type_info, value, internal):
    assert type_info.need_conversion()
    assert type_info.to_internal_type(value) == internal


@given(st.datetimes(datetime.datetime(1971, 1, 1), datetime.datetime(2037, 1, 1)))
def test_dates_and_times_come_back_from_their_internal_form(moment):
    for type_info, value in ((Types.SQL_DATE(), moment.date()), (Types.SQL_TIME(), moment.time())):
        assert type_info.from_internal_type(type_info.to_internal_type(value)) == value
