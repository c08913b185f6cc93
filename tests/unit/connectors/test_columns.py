"""Arrow columns become records of the declared type, nulls, nesting and slices included."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest

from flinkish.common.time import Instant
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.common.types import Row
from flinkish.connectors.column_decoder import ColumnDecoder
from flinkish.connectors.columns import RecordReader
from flinkish.connectors.spark_types import ddl_of
from flinkish.errors import TypeMismatchError

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
