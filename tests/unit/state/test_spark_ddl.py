"""Types as Spark's; and values on their way into and out of DataFrames."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from flinkish.common.time import Instant
from flinkish.common.typeinfo import Types
from flinkish.common.typeinfo.spark_ddl import spark_type
from flinkish.common.types import Row
from flinkish.state.native_rows import python_value
from flinkish.state.typed_rows import arrow_value


@pytest.mark.parametrize(
    ("declared", "ddl"),
    [
        (Types.STRING(), "STRING"),
        (Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), "MAP<STRING, ARRAY<BIGINT>>"),
        (Types.ROW_NAMED(["a", "b c"], [Types.INT(), Types.DOUBLE()]), "STRUCT<`a`: INT, `b c`: DOUBLE>"),
        (Types.PICKLED_BYTE_ARRAY(), None),
        (Types.TUPLE([Types.INT(), Types.PICKLED_BYTE_ARRAY()]), None),
        (Types.LIST(Types.LIST(Types.PICKLED_BYTE_ARRAY())), None),
        (Types.SQL_TIME(), None),
    ],
)
def test_types_have_the_name_of_a_column_type_unless_something_in_them_is_pickled(declared: Any, ddl: Any) -> None:
    assert spark_type(declared) == ddl


@pytest.mark.parametrize(
    ("value", "arrow"),
    [
        ((1, "a"), pa.struct([("x", pa.int64()), ("y", pa.string())])),
        (Row(1, None), pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ({"a": [1, 2]}, pa.map_(pa.string(), pa.list_(pa.int64()))),
        (Decimal("1.5"), pa.decimal128(38, 18)),
        (Instant(5, 0), pa.timestamp("us", "UTC")),
        (datetime.date(2024, 2, 29), pa.date32()),
        (5, pa.float64()),
        ([1, 2], pa.binary()),
        (None, pa.int64()),
    ],
)
def test_values_of_programs_fit_into_columns(value: Any, arrow: Any) -> None:
    assert pa.scalar(arrow_value(value, arrow), arrow) is not None


def test_columns_become_values_of_programs() -> None:
    struct = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    assert python_value({"x": 1, "y": ["a"]}, struct, as_key=True) == (1, ("a",))
    row = python_value({"x": 1, "y": ["a"]}, struct)
    assert isinstance(row, Row) and row.x == 1 and row.y == ["a"]
    assert python_value([("k", 1)], pa.map_(pa.string(), pa.int64())) == {"k": 1}
    zoned = datetime.datetime(2024, 1, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    assert python_value(zoned, pa.timestamp("us", "UTC")) == datetime.datetime(2024, 1, 1)
