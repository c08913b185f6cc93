"""Conversion of flinkish's types to Spark's and back. Spark's types are written as DDL text, so that this module needs
no pyspark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.common.typeinfo import RowTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.arrow import ddl_of_arrow, quoted
from flinkish.errors import TypeMismatchError


def ddl_of(type_info: TypeInformation) -> str:
    """The schema, as DDL text, of a DataFrame whose rows are records of this type.

    >>> ddl_of(Types.ROW_NAMED(["user", "tags"], [Types.STRING(), Types.LIST(Types.INT())]))
    '`user` STRING, `tags` ARRAY<INT>'

    Raises:
        TypeMismatchError: a field has a type that Spark does not have (a time of day).
    """
    return ", ".join(f"{quoted(field.name)} {ddl_of_arrow(field.type)}" for field in type_info.to_arrow_fields())


def type_of_schema(schema: Any) -> RowTypeInfo:
    """The ROW type of a DataFrame's schema (a pyspark ``StructType``), with its field names.

    Raises:
        TypeMismatchError: a column has a Spark type without a counterpart in flinkish (intervals, variants).
    """
    return Types.ROW_NAMED(
        [field.name for field in schema.fields], [_type_of(field.dataType) for field in schema.fields]
    )


def _type_of(spark_type: Any) -> TypeInformation:
    name = type(spark_type).__name__
    if name == "StructType":
        return type_of_schema(spark_type)
    if name == "ArrayType":
        return Types.LIST(_type_of(spark_type.elementType))
    if name == "MapType":
        return Types.MAP(_type_of(spark_type.keyType), _type_of(spark_type.valueType))
    if name not in _OF_SPARK:
        raise TypeMismatchError(
            f"flinkish has no type for Spark's {spark_type.simpleString()}",
            where="schema of a DataFrame",
            expected=f"one of {', '.join(sorted(_OF_SPARK))}, or structs, arrays and maps of them",
            hint="cast or drop the column first",
        )
    return _OF_SPARK[name]()


def with_wider_decimals(frame: Any, schema: Any) -> Any | None:
    """The DataFrame with the columns of a schema (a pyspark ``StructType``) where these differ by wider decimals alone;
    None: there is no such column."""
    there = {field.name.lower(): field.dataType for field in schema.fields}
    wider = {}
    for field in frame.schema.fields:
        kind = there.get(field.name.lower(), field.dataType)
        if _shape(kind) != _shape(field.dataType) and _holds(kind, field.dataType):
            wider[field.name] = frame[quoted(field.name)].cast(kind)
    return frame.withColumns(wider) if wider else None


def _shape(kind: Any) -> str:
    return str(kind.simpleString())


def _holds(wide: Any, narrow: Any) -> bool:
    """Whether each value of a Spark type, cast to the other one, is the same number there."""
    name = type(wide).__name__
    if name != type(narrow).__name__:
        return False
    if name == "DecimalType":
        return bool(wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale)
    if name == "ArrayType":
        return _holds(wide.elementType, narrow.elementType)
    if name == "MapType":
        return _holds(wide.keyType, narrow.keyType) and _holds(wide.valueType, narrow.valueType)
    if name == "StructType":
        pairs = list(zip(wide.fields, narrow.fields, strict=False))
        same = len(wide.fields) == len(narrow.fields) and all(one.name == other.name for one, other in pairs)
        return same and all(_holds(one.dataType, other.dataType) for one, other in pairs)
    return _shape(wide) == _shape(narrow)


_OF_SPARK: dict[str, Callable[[], TypeInformation]] = {
    "StringType": Types.STRING,
    "VarcharType": Types.STRING,
    "CharType": Types.STRING,
    "ByteType": Types.BYTE,
    "ShortType": Types.SHORT,
    "IntegerType": Types.INT,
    "LongType": Types.LONG,
    "FloatType": Types.FLOAT,
    "DoubleType": Types.DOUBLE,
    "BooleanType": Types.BOOLEAN,
    "DecimalType": Types.BIG_DEC,
    "DateType": Types.SQL_DATE,
    "TimestampType": Types.INSTANT,
    "TimestampNTZType": Types.SQL_TIMESTAMP,
    "BinaryType": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
}
