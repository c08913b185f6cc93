"""flinkish's types as Spark's, and back. Spark's names are written as DDL text, so that no pyspark is needed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flinkish.common.typeinfo import RowTypeInfo, TypeInformation, Types
from flinkish.errors import TypeMismatchError

if TYPE_CHECKING:
    import pyarrow as pa


def ddl_of(type_info: TypeInformation) -> str:
    """The schema of a DataFrame of records of this type.

    >>> ddl_of(Types.ROW_NAMED(["user", "tags"], [Types.STRING(), Types.LIST(Types.INT())]))
    '`user` STRING, `tags` ARRAY<INT>'

    Raises:
        TypeMismatchError: a type that Spark does not have (a time of day).
    """
    return ", ".join(f"{_quoted(field.name)} {_ddl_of_arrow(field.type)}" for field in type_info.to_arrow_fields())


def _ddl_of_arrow(arrow: pa.DataType) -> str:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(arrow):
        return f"STRUCT<{', '.join(f'{_quoted(field.name)}: {_ddl_of_arrow(field.type)}' for field in arrow)}>"
    if types.is_map(arrow):
        return f"MAP<{_ddl_of_arrow(arrow.key_type)}, {_ddl_of_arrow(arrow.item_type)}>"
    if types.is_list(arrow):
        return f"ARRAY<{_ddl_of_arrow(arrow.value_type)}>"
    if types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    # both with and without zone: Spark refuses to read a zoned column as one without, the decoder casts instead
    name = "TIMESTAMP" if types.is_timestamp(arrow) else _SIMPLE.get(str(arrow))
    if name is None:
        raise TypeMismatchError(f"Spark has no type for {arrow}", expected="a type other than SQL_TIME", where="schema")
    return name


_SIMPLE = {
    "string": "STRING",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "bool": "BOOLEAN",
    "float": "FLOAT",
    "double": "DOUBLE",
    "binary": "BINARY",
    "date32[day]": "DATE",
}


def type_of_schema(schema: Any) -> RowTypeInfo:
    """The ROW type of a DataFrame's schema (a pyspark ``StructType``), with its field names.

    Raises:
        TypeMismatchError: a Spark type without a counterpart (intervals, variants).
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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
