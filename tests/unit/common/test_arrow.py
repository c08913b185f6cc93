"""Records of every type become Arrow columns, and come back equal through the reader of columns."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Instant, Row, Types
from flinkish.common.typeinfo import ExternalTypeInfo, LocalTimeTypeInfo, TypeInformation
from flinkish.common.typeinfo.arrow import RecordWriter, arrow_array
from flinkish.common.typeinfo.base import Mismatch
from flinkish.connectors.columns import RecordReader
from flinkish.errors import TypeMismatchError
from tests.support.profiles import examples

TIMES_OF_DAY = st.times().map(lambda time: time.replace(fold=0))
MOMENTS = st.datetimes().map(lambda moment: moment.replace(fold=0))
TIMES = LocalTimeTypeInfo.TimeType
MICROSECONDS = st.integers(-(10**15), 10**15)
DECIMALS = st.decimals(-(10**19), 10**19, allow_nan=False, allow_infinity=False, places=18)
CHARACTERS = st.sampled_from("a Zä\x00\n\U0001f600")
TEXTS = st.text(CHARACTERS, max_size=3)


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


#: Type without parts -> its values.
LEAVES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.STRING(), TEXTS),
    (Types.BYTE(), whole(8)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.SHORT(), whole(16)),
    (Types.INT(), whole(32)),
    (Types.LONG(), whole(64)),
    (Types.FLOAT(), st.floats(width=32, allow_nan=False)),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.CHAR(), CHARACTERS),
    (Types.BIG_INT(), st.integers(-(10**38) + 1, 10**38 - 1)),
    (Types.BIG_DEC(), DECIMALS),
    (Types.INSTANT(), MICROSECONDS.map(lambda us: Instant(us // 10**6, us % 10**6 * 1_000))),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), TIMES_OF_DAY),
    (Types.SQL_TIMESTAMP(), MOMENTS),
    (LocalTimeTypeInfo(TIMES.LOCAL_DATE), st.dates()),
    (LocalTimeTypeInfo(TIMES.LOCAL_TIME), TIMES_OF_DAY),
    (LocalTimeTypeInfo(TIMES.LOCAL_DATE_TIME), MOMENTS),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=5)),
    (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), st.lists(st.floats(allow_nan=False), max_size=3)),
    (Types.BASIC_ARRAY(Types.STRING()), st.lists(st.none() | TEXTS, max_size=3)),
]
KEYS = [leaf for leaf in LEAVES if not isinstance(leaf[0], (type(Types.PRIMITIVE_ARRAY(Types.INT()))))]
#: Declared types that have no column.
WITHOUT_COLUMN = {"PICKLED_BYTE_ARRAY"}

Typed = tuple[TypeInformation, st.SearchStrategy[Any]]


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    """Types around other types; each value of a field, an element or an entry may be None."""

    def composite(fields: list[Typed]) -> list[Typed]:
        types = [type_info for type_info, _ in fields]
        values = [st.none() | strategy for _, strategy in fields]
        names = [f"n {position}" for position in range(len(fields))]
        plain = [f"f{position}" for position in range(len(fields))]
        return [
            (Types.ROW_NAMED(names, types), st.tuples(*values).map(lambda items: named(names, items))),
            (Types.ROW(types), st.tuples(*values).map(lambda items: named(plain, items))),
            (Types.TUPLE(types), st.tuples(*values)),
        ]

    def sequences(element: Typed) -> list[Typed]:
        values = st.lists(st.none() | element[1], max_size=3)
        return [
            (Types.LIST(element[0]), values),
            (Types.OBJECT_ARRAY(element[0]), values),
            (ExternalTypeInfo(Types.LIST(element[0])), values),
        ]

    fields = st.lists(inner, min_size=1, max_size=3)
    maps = st.tuples(st.sampled_from(KEYS[:-1]), inner).map(
        lambda pair: (
            Types.MAP(pair[0][0], pair[1][0]),
            st.dictionaries(pair[0][1], st.none() | pair[1][1], max_size=3),
        )
    )
    return fields.map(composite).flatmap(st.sampled_from) | inner.map(sequences).flatmap(st.sampled_from) | maps


def named(names: list[str], items: tuple[Any, ...]) -> Row:
    row = Row(*items)
    row.set_field_names(names)
    return row


ANY_TYPE = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=6)


def round_trip(type_info: TypeInformation, values: list[Any]) -> list[Any]:
    """As the one column of a stream, and as one of its fields with all that can be None."""
    batch = RecordWriter(type_info).write(values)
    assert batch.schema == pa.schema(type_info.to_arrow_fields())
    batch.validate(full=True)
    return RecordReader(type_info).read(batch)


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_every_type_gives_back_its_values_also_nested_and_none(data: st.DataObject) -> None:
    type_info, strategy = data.draw(ANY_TYPE)
    records = data.draw(st.lists(strategy, max_size=4))
    assert round_trip(type_info, records) == records
    values = [*data.draw(st.lists(st.none() | strategy, max_size=4)), None]
    row_type = Types.ROW_NAMED(["x"], [type_info])
    found = round_trip(row_type, [Row(x=value) for value in values])
    assert [row.x for row in found] == values
    # what comes back is what the type says: 1 == 1.0 == True would hide another class
    assert [repr(row.x) for row in found] == [repr(value) for value in values] or not is_exact(type_info)


def is_exact(type_info: TypeInformation) -> bool:
    """Decimals come back with as many digits as their column has."""
    return "Big" not in repr(type_info)


@pytest.mark.parametrize(("type_info", "strategy"), LEAVES, ids=lambda item: repr(item)[:30])
def test_every_simple_type_gives_back_its_values(type_info: TypeInformation, strategy: Any) -> None:
    @settings(max_examples=examples(10), deadline=None, database=None)
    @given(st.lists(strategy))
    def check(values: list[Any]) -> None:
        assert round_trip(type_info, values) == values

    check()


def test_every_declared_type_is_tried_here() -> None:
    tried = {"ROW", "ROW_NAMED", "TUPLE", "LIST", "MAP", "OBJECT_ARRAY", "PRIMITIVE_ARRAY", "BASIC_ARRAY"}
    simple = {name for name in vars(Types) if name.isupper()} - tried - WITHOUT_COLUMN
    assert {repr(getattr(Types, name)()) for name in simple} <= {repr(type_info) for type_info, _ in LEAVES}


def test_rows_with_names_go_to_their_columns_in_any_order_and_dicts_by_key() -> None:
    type_info = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.LONG()])
    records = [("x", 1), Row("x", 1), Row(a="x", b=1), Row(b=1, a="x"), {"b": 1, "a": "x"}, ["x", 1], Row(f0="x", f1=1)]
    assert RecordWriter(type_info).write(records).to_pylist() == [{"a": "x", "b": 1}] * len(records)


def test_moments_with_a_zone_become_utc_and_instants_keep_microseconds() -> None:
    moment = datetime.datetime(2026, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    naive = datetime.datetime(2026, 1, 1)
    assert round_trip(Types.SQL_TIMESTAMP(), [moment, naive]) == [naive, naive]
    assert round_trip(Types.INSTANT(), [Instant(-1, 999_999_999)]) == [Instant(-1, 999_999_000)]


WORDS = Types.ROW_NAMED(["word", "tags"], [Types.STRING(), Types.LIST(Types.ROW_NAMED(["n"], [Types.BIG_INT()]))])


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ((7, []), r"the value 7 of type int does not fit.*\[sink 'out', field 'word'\].*a text"),
        (
            (None, [(1,), (10**40,)]),
            r"the value 1000+ of type int.*\[sink 'out', field 'tags', an element, .*'n'\]",
        ),
        ((None, "ab"), r"the value 'ab' of type str.*field 'tags'\].*a list"),
        ((None, [(1, 2)]), r"the value \(1, 2\) of type tuple.*field 'tags', an element\].*the fields n"),
        (None, r"the value None of type NoneType.*\[sink 'out'\].*the fields word, tags"),
        (("\ud800", None), r"field 'word'\].*surrogates not allowed"),
        ({"word": "a", "tag": []}, r"a Row or tuple with the fields word, tags"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_field_and_sink(record: Any, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        RecordWriter(WORDS, "sink 'out'").write([("a", []), record, ("b", None)])


@pytest.mark.parametrize(
    ("value", "arrow"),
    [
        (1.5, pa.int64()),
        (1, pa.string()),
        (1, pa.bool_()),
        (0.1, pa.decimal128(10, 2)),
        (Decimal("0.001"), pa.decimal128(10, 2)),
        # pyarrow makes 0 of it
        (Decimal("8." + "1" * 49), pa.decimal128(18, 10)),
        (Decimal("1E+8"), pa.decimal128(10, 2)),
        (Decimal("1E+500"), pa.decimal128(10, 2)),
        (Decimal("NaN"), pa.decimal128(10, 2)),
        ("a", pa.binary()),
        (b"a", pa.string()),
        (2**63, pa.int64()),
        (10**400, pa.float64()),
        (datetime.datetime(2026, 1, 1, 5), pa.date32()),
        (datetime.date(2026, 1, 1), pa.timestamp("us")),
        (datetime.time(1, tzinfo=datetime.timezone.utc), pa.time64("us")),
        (Instant(10**15, 0), pa.timestamp("us", "UTC")),
        ({None: 1}, pa.map_(pa.string(), pa.int64())),
        ([("a", 1)], pa.map_(pa.string(), pa.int64())),
        ({"a": "b"}, pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)
def test_a_value_that_would_lose_something_is_refused(value: Any, arrow: Any) -> None:
    assert arrow_array([None], arrow).to_pylist() == [None]
    with pytest.raises(Mismatch):
        arrow_array([None, value], arrow)


def test_numbers_widen_but_do_not_round() -> None:
    numbers = arrow_array([1, True, 2**60 + 1, Decimal("0.5"), None], pa.float64()).to_pylist()
    assert numbers == [1, 1, 2.0**60, 0.5, None]
    assert arrow_array([True, 5], pa.int8()).to_pylist() == [1, 5]
    assert arrow_array([5, Decimal("0.5")], pa.decimal128(10, 2)).to_pylist() == [5, Decimal("0.50")]
    assert arrow_array([Decimal("8." + "0" * 49)], pa.decimal128(18, 10)).to_pylist() == [8]


@pytest.mark.parametrize("inside", [lambda t: t, Types.LIST, lambda t: Types.MAP(Types.STRING(), Types.TUPLE([t]))])
def test_pickled_objects_have_no_column(inside: Any) -> None:
    with pytest.raises(TypeMismatchError, match=r"one of pickled objects.*\[sink 'out'\].*PRIMITIVE_ARRAY"):
        RecordWriter(Types.ROW([inside(Types.PICKLED_BYTE_ARRAY())]), "sink 'out'")
