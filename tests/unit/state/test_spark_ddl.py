"""Types as Spark's; values on their way into and out of DataFrames; and what `flinkish sql` takes for a statement."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from flinkish.common.typeinfo import Types
from flinkish.common.typeinfo.arrow import spark_type
from flinkish.common.types import Row
from flinkish.runtime.state.saved.texts import SavepointRow
from flinkish.runtime.stored.classes import NO_CLASSES
from flinkish.runtime.stored.texts import to_text
from flinkish.spark.worker import DeployedClasses, WorkerFailure
from flinkish.state.console import statements, typed
from flinkish.state.rows import NativeToTexts, TextsToTyped, python_value
from flinkish.table import DataTypes


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
        (DataTypes.DECIMAL(10, 2), "DECIMAL(10, 2)"),
    ],
)
def test_types_have_the_name_of_a_column_type_unless_something_in_them_is_pickled(declared: Any, ddl: Any) -> None:
    assert spark_type(declared) == ddl


SCHEMA = pa.schema(
    [("key", pa.int64()), ("namespace", pa.string()), ("value", pa.struct([("x", pa.int64()), ("y", pa.float64())]))]
)


def saved(key: str, value: Any) -> dict[str, str]:
    row = SavepointRow("counter", "seen", "value", key, "null", to_text(value))
    return dict(zip(SavepointRow._fields, row, strict=True))


def test_rows_of_a_savepoint_become_columns_of_their_type() -> None:
    convert = TextsToTyped("value", SCHEMA, frozenset(), DeployedClasses.of(NO_CLASSES))
    batch = pa.RecordBatch.from_pylist([saved("1", Row(x=1, y=0.5)), saved("2", (2, 3)), saved("3", None)])
    (typed,) = convert(iter([batch]))
    assert [row["value"] for row in typed.to_pylist()] == [{"x": 1, "y": 0.5}, {"x": 2, "y": 3.0}, None]


def test_a_row_of_a_savepoint_that_does_not_fit_its_type_is_named() -> None:
    convert = TextsToTyped("value", SCHEMA, frozenset(), DeployedClasses.of(NO_CLASSES))
    batch = pa.RecordBatch.from_pylist([saved("1", Row(x=1, y=0.5)), saved("2", Row(x=1.5, y=0.5))])
    said = r"the value 1.5 does not fit.*uid counter, state seen, key 2, column 'value', field 'x'\].*a whole number"
    with pytest.raises(WorkerFailure, match=said):
        list(convert(iter([batch])))


def test_columns_become_values_of_programs() -> None:
    struct = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    assert python_value({"x": 1, "y": ["a"]}, struct, as_key=True) == (1, ("a",))
    row = python_value({"x": 1, "y": ["a"]}, struct)
    assert isinstance(row, Row) and row.x == 1 and row.y == ["a"]
    assert python_value([("k", 1)], pa.map_(pa.string(), pa.int64())) == {"k": 1}
    zoned = datetime.datetime(2024, 1, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    assert python_value(zoned, pa.timestamp("us", "UTC")) == datetime.datetime(2024, 1, 1)


ROWS = Types.ROW_NAMED(["n", "f"], [Types.INT(), Types.DOUBLE()])


@pytest.mark.parametrize(
    ("value", "declared", "fits"),
    [
        (pa.array([2**31 - 1]), Types.INT(), True),
        (pa.array([2**31]), Types.INT(), False),
        (pa.array([2]), Types.BOOLEAN(), False),
        (pa.array([Decimal("1.999")]), DataTypes.DECIMAL(10, 2), False),
        (pa.array([Decimal("1.990")]), DataTypes.DECIMAL(10, 2), True),
        (pa.array([0.1]), Types.FLOAT(), False),
        (pa.array([float("nan")]), Types.FLOAT(), True),
        (pa.array([[1, 2]]), Types.PRIMITIVE_ARRAY(Types.BYTE()), True),
        (pa.array([[300]]), Types.PRIMITIVE_ARRAY(Types.BYTE()), False),
        (pa.array([{"n": 1, "f": None}]), ROWS, True),
        (pa.array([{"n": 2**40, "f": None}]), ROWS, False),
        (pa.array([{"n": 1, "f": 0.5}]), Types.TUPLE([Types.INT(), Types.DOUBLE()]), True),
    ],
)
def test_a_value_for_a_savepoint_is_the_same_under_its_declared_type_or_refused(
    value: pa.Array, declared: Any, fits: bool
) -> None:
    columns = {"uid": ["op"], "state": ["s"], "key": ["k"], "value": value}
    convert = NativeToTexts(tuple(columns), {("op", "s"): declared}, False, DeployedClasses.of(NO_CLASSES))
    batches = iter([pa.RecordBatch.from_pydict(columns)])
    if fits:
        assert next(convert(batches)).num_rows == 1
    else:
        with pytest.raises(WorkerFailure, match="would become"):
            next(convert(batches))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' AS `a;b`", ["SELECT ';' AS `a;b`"]),
        ("SELECT 'it\\';s'; SELECT 2", ["SELECT 'it\\';s'", "SELECT 2"]),
        ('SELECT "x;y"; SELECT 2', ['SELECT "x;y"', "SELECT 2"]),
        ("-- a; comment\n;; /* only; a comment */ ;", []),
        ("SELECT 1 -- one; of them\n + 1", ["SELECT 1 -- one; of them\n + 1"]),
    ],
)
def test_semicolons_separate_statements_but_in_texts_names_and_comments(text: str, expected: list[str]) -> None:
    assert statements(text) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["SELECT\n", "1;\n", "SELECT 2"], ["SELECT\n1", "SELECT 2"]),
        (["SELECT 1;\n", "exit\n", "SELECT 2;\n"], ["SELECT 1"]),
        (["QUIT;\n", "SELECT 2;\n"], []),
        (["SELECT ';'\n", ", 2;\n"], ["SELECT ';'\n, 2"]),
    ],
)
def test_a_statement_that_somebody_types_ends_with_a_semicolon_at_the_end_of_a_line(
    lines: list[str], expected: list[str]
) -> None:
    assert list(typed(lines)) == expected
