"""Spark's counterparts of types, written as DDL, so that this package does not need pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flinkish.common.typeinfo.base import TypeInformation
from flinkish.common.typeinfo.pickled import PickledBytesTypeInfo
from flinkish.errors import TypeMismatchError

if TYPE_CHECKING:
    import pyarrow as pa


def spark_type(type_info: TypeInformation) -> str | None:
    """The Spark type, in DDL, of a column of such values; None if Spark has none for them (anything pickled).

    >>> from flinkish.common.typeinfo import Types
    >>> spark_type(Types.LIST(Types.LONG())), spark_type(Types.PICKLED_BYTE_ARRAY())
    ('ARRAY<BIGINT>', None)
    """
    if holds_pickled(type_info):
        return None
    try:
        return ddl_of_arrow(type_info.arrow_type())
    except TypeMismatchError:
        return None


def holds_pickled(value: Any) -> bool:
    """Whether a type is, or contains anywhere, the type of pickled objects."""
    if isinstance(value, PickledBytesTypeInfo):
        return True
    if isinstance(value, (list, tuple)):
        return any(map(holds_pickled, value))
    return isinstance(value, TypeInformation) and any(map(holds_pickled, vars(value).values()))


def ddl_of_arrow(arrow: pa.DataType) -> str:
    """Spark's name of an Arrow type.

    Raises:
        TypeMismatchError: Spark has no such type (a time of day).
    """
    import pyarrow as pa

    types = pa.types
    if types.is_struct(arrow):
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {ddl_of_arrow(field.type)}' for field in arrow)}>"
    if types.is_map(arrow):
        return f"MAP<{ddl_of_arrow(arrow.key_type)}, {ddl_of_arrow(arrow.item_type)}>"
    if types.is_list(arrow):
        return f"ARRAY<{ddl_of_arrow(arrow.value_type)}>"
    if types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    # with and without a zone: Spark refuses to read a column with a zone as one without, so the decoder casts
    name = "TIMESTAMP" if types.is_timestamp(arrow) else _SIMPLE.get(str(arrow))
    if name is None:
        raise TypeMismatchError(f"Spark has no type for {arrow}", expected="a type other than SQL_TIME", where="schema")
    return name


def quoted(name: str) -> str:
    """A column's name as DDL quotes it."""
    return "`" + name.replace("`", "``") + "`"


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
