"""Arrow columns become records of the declared type, nulls, nesting and slices included."""

from __future__ import annotations

import datetime
import pickle
from array import array
from decimal import Decimal

import pyarrow as pa
import pytest

from flinkish.common.time import Instant
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.types import Row
from flinkish.connectors.columns import ColumnDecoder, RecordReader
from flinkish.connectors.spark import ddl_of
from flinkish.errors import TypeMismatchError
from flinkish.table import DataTypes

NESTED = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.LIST(Types.STRING())])
VALUES: list[tuple[TypeInformation, list[object]]] = [
    (Types.STRING(), ["a", "", None]),
    (Types.LONG(), [1, -1, None]),
    (Types.BOOLEAN(), [True, False, None]),
    (Types.DOUBLE(), [1.5, -0.0, None]),
    (Types.BIG_INT(), [10**30, 0, None]),
    (Types.BIG_DEC(), [Decimal("1.500000000000000000"), Decimal(0), None]),
    (Types.INSTANT(), [Instant(-1, 999_999_000), Instant(5, 0), None]),
    (Types.SQL_DATE(), [datetime.date(2024, 2, 29), None]),
    (Types.SQL_TIMESTAMP(), [datetime.datetime(2024, 2, 29, 1, 2, 3, 4), None]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"\x00", b"", None]),
    (Types.LIST(Types.LONG()), [[1, None], [], None, [2]]),
    (Types.MAP(Types.STRING(), Types.LIST(Types.INT())), [{"a": [1]}, {}, None, {"b": [], "c": [2]}]),
    (NESTED, [Row(a=1, b=["x"]), None, Row(a=None, b=None), Row(a=2, b=[])]),
    (Types.TUPLE([Types.INT(), Types.STRING()]), [(1, "a"), None]),
    (Types.LIST(NESTED), [[Row(a=1, b=["x"]), None], None, []]),
]


@pytest.mark.parametrize(("type_info", "values"), VALUES, ids=[repr(type_info) for type_info, _ in VALUES])
def test_a_column_of_each_type_gives_back_its_values(type_info: TypeInformation, values: list[object]) -> None:
    row_type = Types.ROW_NAMED(["x"], [type_info])
    batch = RecordWriter(row_type).write([Row(x=value) for value in values])
    reader = RecordReader(row_type)
    assert [row.x for row in reader.read(batch)] == values
    assert [row.x for row in reader.read(batch.slice(1, 1))] == values[1:2]
    assert reader.read(batch.slice(0, 0)) == []


def test_a_tuple_type_gives_tuples_and_a_simple_type_values() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x"], "n": [1]})
    assert RecordReader(Types.TUPLE([Types.STRING(), Types.LONG()])).read(batch) == [("x", 1)]
    assert RecordReader(Types.STRING()).read(batch.select(["a"])) == ["x"]


def test_columns_of_another_width_or_zone_are_cast() -> None:
    moment = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([7], pa.int64()), pa.array([moment], pa.timestamp("us", "Europe/Paris"))], ["n", "t"]
    )
    read = RecordReader(Types.TUPLE([Types.INT(), Types.SQL_TIMESTAMP()])).read(batch)
    assert read == [(7, datetime.datetime(2024, 1, 1, 10))]


#: (type of a column, values of it): each is read as each declared type.
D = Decimal
CELLS: list[tuple[pa.DataType, list[object]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [0, 1, 2, -128]),
    (pa.int16(), [2**15 - 1]),
    (pa.int32(), [-(2**31), 2**24 + 1]),
    (pa.int64(), [1, 2**31, 2**53, 2**53 + 1, -(2**63), 1_700_000_000_000]),
    (pa.uint8(), [200]),
    (pa.uint64(), [2**64 - 1, 7]),
    (pa.float16(), [1.5, 2.0]),
    (pa.float32(), [1.5, 3.0, 2.0**24, float("inf")]),
    (pa.float64(), [1.5, 0.1, -2.0, 2.0**53, 2.0**53 + 2, 1e19, 1e300, float("inf"), float("nan")]),
    (pa.decimal128(10, 2), [D("1.50"), D("-3.00"), D("99999999.99")]),
    (pa.decimal128(10, 3), [D("1.999"), D("1.990")]),
    (pa.decimal128(38, 0), [D(2**64), D(7), D("12345678901234567890123456789012345678"), D("-99999999999999999999")]),
    (pa.decimal128(38, 30), [D("1.5"), D("3"), D("-99999999.123456789012345678901234567891")]),
    (pa.decimal128(38, 38), [D("0.5"), D("0"), D("-0." + "1" * 38)]),
    (pa.decimal256(76, 0), [D("9" * 76), D(2**128 + 1), D(5)]),
    (pa.decimal256(76, 40), [D("1" * 36 + "." + "3" * 40), D("0.25")]),
    (pa.string(), ["", "a", "ab", "12", "true", "2024-01-01"]),
    (pa.large_string(), ["a"]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "bc"]),
    (pa.dictionary(pa.int8(), pa.decimal128(38, 0)), [D(2**100)]),
    (pa.binary(), [b"", b"a"]),
    (pa.large_binary(), [b"a"]),
    (pa.binary(2), [b"ab"]),
    (pa.date32(), [datetime.date(1, 1, 1), datetime.date(2024, 2, 29)]),
    (pa.date64(), [datetime.date(2024, 2, 29)]),
    (pa.time32("ms"), [datetime.time(1, 2, 3, 4000)]),
    (pa.time64("us"), [datetime.time(23, 59, 59, 999_999)]),
    (pa.timestamp("s"), [datetime.datetime(2024, 2, 29)]),
    (pa.timestamp("ms", "UTC"), [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000)]),
    (pa.timestamp("us"), [datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime.datetime(1, 1, 1)]),
    (pa.timestamp("ns", "Europe/Paris"), [datetime.datetime(2024, 7, 1, 12, 0, 0, 1)]),
    (pa.duration("us"), [datetime.timedelta(seconds=1)]),
    (pa.list_(pa.int64()), [[1, 2**40], []]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)]]),
    (pa.struct([("a", pa.int64())]), [{"a": 1}]),
]
WHOLE = {Types.BYTE(): 8, Types.SHORT(): 16, Types.INT(): 32, Types.LONG(): 64}
DECLARED: list[TypeInformation] = [
    *WHOLE, Types.BIG_INT(), Types.BIG_DEC(), DataTypes.DECIMAL(10, 2), DataTypes.DECIMAL(38, 0),
    DataTypes.DECIMAL(38, 30), Types.BOOLEAN(), Types.FLOAT(), Types.DOUBLE(), Types.STRING(), Types.CHAR(),
    Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.INSTANT(),
]  # fmt: skip
REFUSED = object()


def expected(value: object, declared: TypeInformation) -> object:
    """What the value is under the declared type, by Python's exact arithmetic; REFUSED: it is another value there."""
    number = value if isinstance(value, (int, float, Decimal)) else None
    if declared in (Types.STRING(), Types.CHAR()):
        return value if isinstance(value, str) and (declared == Types.STRING() or len(value) == 1) else REFUSED
    if declared == Types.BOOLEAN():
        return value if isinstance(value, bool) else REFUSED
    if isinstance(value, datetime.datetime):
        if declared == Types.INSTANT():
            since = value - datetime.datetime(1970, 1, 1)
            return Instant(since // datetime.timedelta(seconds=1), value.microsecond * 1_000)
        return value if declared == Types.SQL_TIMESTAMP() else REFUSED
    if number is None:
        of = {
            bytes: Types.PRIMITIVE_ARRAY(Types.BYTE()),
            datetime.date: Types.SQL_DATE(),
            datetime.time: Types.SQL_TIME(),
        }
        return value if of.get(type(value)) == declared else REFUSED
    if declared in WHOLE or declared == Types.BIG_INT():
        if isinstance(number, float) and (not abs(number) <= 2**53 or number != int(number)):
            return REFUSED
        if isinstance(number, bool) and declared == Types.BIG_INT():
            return REFUSED
        limit = 2 ** (WHOLE.get(declared, 10_000) - 1)
        return int(number) if int(number) == number and -limit <= number < limit else REFUSED
    if declared in (Types.FLOAT(), Types.DOUBLE()):
        bits = 24 if declared == Types.FLOAT() else 53
        if isinstance(number, float):
            exact = declared == Types.DOUBLE() or number != number or array("f", [number])[0] == number
            return number if exact else REFUSED
        return float(number) if type(number) is int and abs(number) <= 2**bits else REFUSED
    if isinstance(declared, DecimalTypeInfo) or declared == Types.BIG_DEC():
        if isinstance(number, (float, bool)):
            return REFUSED
        exact = Decimal(number)
        same = declared == Types.BIG_DEC() or declared.convert(exact) == exact
        return exact if same else REFUSED
    return REFUSED


def column_of(found: pa.DataType, value: object) -> pa.Array:
    plain = found.value_type if pa.types.is_dictionary(found) else found
    column = pa.array([value, None], plain)
    return column if plain == found else column.dictionary_encode()


@pytest.mark.parametrize("inside", ["", "list"])
@pytest.mark.parametrize("declared", DECLARED, ids=repr)
def test_each_value_of_each_column_is_itself_under_the_declared_type_or_refused(
    declared: TypeInformation, inside: str
) -> None:
    kind = Types.LIST(declared) if inside else declared
    for found, value in ((found, value) for found, values in CELLS for value in values):
        column = column_of(found, value)
        if inside:
            column = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), column)
        wanted = expected(value, declared)
        try:
            read = RecordReader(kind).read(pa.RecordBatch.from_arrays([column], ["x"]))
            read = read[0] if inside else read
        except TypeMismatchError as error:
            assert wanted is REFUSED and "declare the type that the column has" in str(error), (found, value)
            continue
        # NaN equals nothing
        shown = [(type(one), repr(one) if one != one else one) for one in (read[0], wanted)]
        assert shown[0] == shown[1] and read[1:] == [None], (found, value)


def test_an_instant_keeps_nanoseconds_and_a_datetime_refuses_them() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([-1, 1_000_000_001], pa.timestamp("ns"))], ["t"])
    assert RecordReader(Types.INSTANT()).read(batch) == [Instant(-1, 999_999_999), Instant(1, 1)]
    for column in (batch.column(0), pa.array([2**62], pa.timestamp("us")), pa.array([2**30], pa.date32())):
        declared = Types.SQL_DATE() if pa.types.is_date(column.type) else Types.SQL_TIMESTAMP()
        with pytest.raises(TypeMismatchError, match="declare the type that the column has"):
            RecordReader(declared).read(pa.RecordBatch.from_arrays([column], ["t"]))


NARROW = Types.ROW_NAMED(
    ["b", "m"], [Types.LIST(Types.INT()), Types.MAP(Types.STRING(), Types.TUPLE([Types.BIG_INT()]))]
)
WIDE = pa.struct(
    [
        ("m", pa.map_(pa.large_string(), pa.struct([("other", pa.int8()), ("f0", pa.decimal128(38, 0))]))),
        ("b", pa.large_list(pa.int64())),
        ("c", pa.string()),
    ]
)


def test_nested_columns_are_converted_at_any_depth_and_their_fields_found_by_name() -> None:
    values = [
        {"m": [("a", {"other": 1, "f0": D(10**30)}), ("b", None)], "b": [1, None], "c": "x"},
        None,
        {"m": None, "b": None, "c": None},
        {"m": [], "b": [], "c": ""},
        {"m": [("c", {"other": None, "f0": None})], "b": [5], "c": ""},
    ]
    rows = [Row(b=[1, None], m={"a": (10**30,), "b": None}), None, Row(b=None, m=None), Row(b=[], m={})]
    rows.append(Row(b=[5], m={"c": (None,)}))
    batch = pa.RecordBatch.from_arrays([pa.array(values, WIDE)], ["x"])
    reader = RecordReader(Types.ROW_NAMED(["x"], [NARROW]))
    assert [row.x for row in reader.read(batch)] == rows
    for start in range(5):
        assert [row.x for row in reader.read(batch.slice(start, 2))] == rows[start : start + 2]
    too_large = pa.array([{"b": [2**31]}], WIDE)
    with pytest.raises(TypeMismatchError, match="column 'x'.*2147483648"):
        reader.read(pa.RecordBatch.from_arrays([too_large], ["x"]))
    with pytest.raises(TypeMismatchError, match="it has no field 'm'"):
        reader.read(pa.RecordBatch.from_arrays([pa.array([{"b": [1]}])], ["x"]))


def test_a_map_that_has_a_key_twice_is_refused() -> None:
    column = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(TypeMismatchError, match="a map has a key twice"):
        RecordReader(Types.MAP(Types.STRING(), Types.LONG())).read(pa.RecordBatch.from_arrays([column], ["m"]))


def test_files_of_several_types_are_read_one_after_the_other() -> None:
    reader = RecordReader(Types.BIG_DEC())
    for column in (pa.array([D("1.5")]), pa.array([2]), pa.nulls(1), pa.array([D(2**100)]), pa.array([D("1.5")])):
        (wanted,) = column.to_pylist()
        assert reader.read(pa.RecordBatch.from_arrays([column], ["x"])) == [wanted]


def test_a_column_that_would_lose_something_is_an_error_that_names_it() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [2**40]})
    reader = RecordReader(Types.ROW_NAMED(["n"], [Types.INT()]), "FileSource")
    with pytest.raises(TypeMismatchError, match=r"column 'n' of type int64 cannot be read as int32.*\[FileSource\]"):
        reader.read(batch)


def test_a_decoder_travels() -> None:
    decoder = ColumnDecoder(Types.ROW_NAMED(["n"], [Types.LONG()]), "x")
    batch = pa.RecordBatch.from_pydict({"n": [1]})
    assert decoder.decode(batch) == ([Row(n=1)], None)
    assert pickle.loads(pickle.dumps(decoder)).decode(batch) == ([Row(n=1)], None)


def test_types_have_a_ddl_form() -> None:
    type_info = Types.ROW_NAMED(
        ["a`b", "m", "r"], [Types.BIG_DEC(), Types.MAP(Types.STRING(), Types.DOUBLE()), Types.TUPLE([Types.INSTANT()])]
    )
    assert ddl_of(type_info) == "`a``b` DECIMAL(38, 18), `m` MAP<STRING, DOUBLE>, `r` STRUCT<`f0`: TIMESTAMP>"
    with pytest.raises(TypeMismatchError, match="Spark has no type for time64"):
        ddl_of(Types.ROW([Types.SQL_TIME()]))


def test_untyped_columns_are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="no declared type"):
        RecordReader(Types.PICKLED_BYTE_ARRAY())
