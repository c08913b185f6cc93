"""Converts records to Arrow, in the one place of the code base; the inverse is ``connectors/columns.py``.

The conversion works by columns, and nested types are split into columns as well: there is no work per value where the
values already have the class that pyarrow takes for the column.

Rule upheld here: a value is converted to its column's type, or an error names the value and the field. pyarrow alone
would truncate a float under an integer type and a datetime under a date, and drop the time zone of a time of day. Three
things are narrowed: an Instant keeps microseconds (Spark's and Arrow's unit here), a datetime with a time zone becomes
UTC, and a number under SQL's DECIMAL(precision, scale) is rounded as Flink does it.

Spark's counterparts of types are here as well. They are written as DDL, so that this package does not need pyspark.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any

from flinkish.common.time import Instant
from flinkish.common.typeinfo.base import Mismatch, PickledBytesTypeInfo, TypeInformation
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.typeinfo.composite import ExternalTypeInfo, RowTypeInfo, TupleTypeInfo
from flinkish.common.typeinfo.lossless import scaled
from flinkish.common.types import Row
from flinkish.errors import TypeMismatchError

if TYPE_CHECKING:
    import pyarrow as pa


class RecordWriter:
    """Writes records of a type as Arrow batches: a column per field of a ROW or TUPLE, else one called ``value``.

    >>> from flinkish.common.typeinfo import Types
    >>> writer = RecordWriter(Types.ROW_NAMED(["a", "n"], [Types.STRING(), Types.LIST(Types.LONG())]))
    >>> writer.write([("x", [1, None]), ("y", None)]).to_pylist()
    [{'a': 'x', 'n': [1, None]}, {'a': 'y', 'n': None}]

    Args:
        type_info: the type of the records.
        where: what the records are written for, such as a sink; part of error messages.

    Raises:
        TypeMismatchError: the type holds pickled objects, which no column can hold.
    """

    def __init__(self, type_info: TypeInformation, where: str = "") -> None:
        import pyarrow as pa

        while isinstance(type_info, ExternalTypeInfo):
            type_info = type_info._type_info
        if holds_pickled(type_info):
            raise no_columns(type_info, where)
        self._type_info = type_info
        self._where = where
        #: schema of the batches
        self.schema = pa.schema(type_info.to_arrow_fields())
        self._single = not isinstance(type_info, (RowTypeInfo, TupleTypeInfo))

    def write(self, records: Sequence[Any]) -> pa.RecordBatch:
        """These records as one batch.

        Raises:
            TypeMismatchError: a value does not fit its column; the error names both.
        """
        import pyarrow as pa

        try:
            if self._single:
                columns = [arrow_array(records, self.schema.field(0).type, self._type_info)]
            else:
                columns = _field_arrays(records, list(self.schema), self._type_info)
        except Mismatch as mismatch:
            raise self._type_info._error(mismatch, self._where) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def no_columns(type_info: TypeInformation, where: str) -> TypeMismatchError:
    """The error for a type that cannot be written as columns, since it has no fields or holds pickled objects."""
    return TypeMismatchError(
        f"the type {type_info!r} has no fields, or one of pickled objects, which no column can hold",
        where=where,
        expected="a declared type for each field",
        hint="declare such as Types.STRING(); for bytes Types.PRIMITIVE_ARRAY(Types.BYTE())",
    )


def arrow_array(values: Sequence[Any], arrow: pa.DataType, declared: TypeInformation | None = None) -> pa.Array:
    """A column of an Arrow type that holds these values; None becomes null.

    Args:
        declared: the declared type of the values, whose Arrow type ``arrow`` is. It says which numbers are rounded.
            None: there is none, and all numbers have to fit.

    Raises:
        Mismatch: for the first value that does not fit.
    """
    import pyarrow as pa

    while isinstance(declared, ExternalTypeInfo):
        declared = declared._type_info
    if pa.types.is_struct(arrow):
        return _structs(values, arrow, declared)
    if pa.types.is_map(arrow):
        return _maps(values, arrow, declared)
    if pa.types.is_list(arrow):
        return _lists(values, arrow, declared)
    taken, adapt, expected = next(leaf for name, leaf in _LEAVES.items() if getattr(pa.types, name)(arrow))
    if isinstance(declared, DecimalTypeInfo):
        try:
            # most numbers need no rounding
            return pa.array(scaled(values, arrow.scale), arrow)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
            convert = declared._convert
            values = [None if value is None else convert(value) for value in values]
    try:
        plain = values
        if not set(map(type, values)) <= taken | {type(None)}:
            plain = [value if value is None or type(value) in taken else adapt(value) for value in values]
        return pa.array(scaled(plain, arrow.scale) if pa.types.is_decimal(arrow) else plain, arrow)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        if len(values) == 1:
            reason = " ".join(str(error).split())
            raise Mismatch(values[0], f"{expected}, for a column of type {arrow} ({reason})") from None
        for value in values:
            arrow_array([value], arrow)
        raise


def _structs(values: Sequence[Any], arrow: pa.StructType, declared: TypeInformation | None) -> pa.Array:
    import pyarrow as pa

    fields = list(arrow)
    if not fields:
        return pa.array([None if value is None else {} for value in values], arrow)
    nothing = (None,) * len(fields)
    absent = [value is None for value in values]
    arrays = _field_arrays([nothing if value is None else value for value in values], fields, declared)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent, pa.bool_()) if any(absent) else None)


def _field_arrays(records: Sequence[Any], fields: list[pa.Field], declared: TypeInformation | None) -> list[pa.Array]:
    names = [field.name for field in fields]
    rows = [_fields_of(record, names) for record in records]
    columns: Any = zip(*rows, strict=True) if rows else [()] * len(names)
    types: list[Any] = [None] * len(names)
    if isinstance(declared, (RowTypeInfo, TupleTypeInfo)):
        types = declared.get_field_types()
    arrays = []
    for field, column, field_type in zip(fields, columns, types, strict=True):
        try:
            arrays.append(arrow_array(column, field.type, field_type))
        except Mismatch as mismatch:
            raise mismatch.inside(f"field '{field.name}'") from None
    return arrays


def _fields_of(record: Any, names: list[str]) -> Sequence[Any]:
    values: Sequence[Any] = ()
    if isinstance(record, Row):
        own = getattr(record, "_fields", None)
        by_position = own is None or own == names or sorted(own) != sorted(names)
        values = record._values if by_position else record.get_fields_by_names(names)
    elif isinstance(record, (tuple, list)):
        values = record
    elif isinstance(record, dict) and record.keys() == set(names):
        values = [record[name] for name in names]
    if len(values) != len(names):
        raise Mismatch(record, f"a Row or tuple with the fields {', '.join(names)}")
    return values


def _lists(values: Sequence[Any], arrow: pa.ListType, declared: TypeInformation | None) -> pa.Array:
    import pyarrow as pa

    elements: list[Any] = []
    offsets = []
    for value in values:
        if value is not None and not isinstance(value, (list, tuple)):
            raise Mismatch(value, f"a list, for a column of type {arrow}")
        # a null offset makes a null list
        offsets.append(None if value is None else len(elements))
        elements.extend(value or ())
    offsets.append(len(elements))
    try:
        made = arrow_array(elements, arrow.value_type, getattr(declared, "_element_type", None))
    except Mismatch as mismatch:
        raise mismatch.inside("an element") from None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), made, type=arrow)


def _maps(values: Sequence[Any], arrow: pa.MapType, declared: TypeInformation | None) -> pa.Array:
    import pyarrow as pa

    keys: list[Any] = []
    items: list[Any] = []
    offsets = []
    for value in values:
        if value is not None and (not isinstance(value, dict) or None in value):
            raise Mismatch(value, f"a dict without the key None, for a column of type {arrow}")
        offsets.append(None if value is None else len(keys))
        keys.extend(value or ())
        items.extend(value.values() if value else ())
    offsets.append(len(keys))
    arrays = []
    types = [getattr(declared, name, None) for name in ("_key_type_info", "_value_type_info")]
    parts = zip(("a key", "a value"), (keys, items), (arrow.key_type, arrow.item_type), types, strict=True)
    for part, column, kind, part_type in parts:
        try:
            arrays.append(arrow_array(column, kind, part_type))
        except Mismatch as mismatch:
            raise mismatch.inside(part) from None
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), *arrays, type=arrow)


def _exactly(value: Any) -> Any:
    raise TypeError(f"not {type(value).__name__}")


def _whole(value: Any) -> int:
    return int(index(value))  # bool and numpy's integers, but no floats


def _real(value: Any) -> float:
    return float(value) if isinstance(value, (Real, Decimal)) else _exactly(value)


def _decimal(value: Any) -> Any:
    return value if isinstance(value, Decimal) else _exactly(value)


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, (bytearray, memoryview, list)) else _exactly(value)


def _day(value: Any) -> Any:
    # datetime is a subclass of date; converted to a day it would lose its time
    return value if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime) else _exactly(value)


def _time_of_day(value: Any) -> Any:
    return value if isinstance(value, datetime.time) and value.tzinfo is None else _exactly(value)


def _moment(value: Any) -> Any:
    if isinstance(value, Instant):
        return value.seconds * 1_000_000 + value.nanos // 1_000
    if not isinstance(value, datetime.datetime):
        return _exactly(value)
    return value if value.tzinfo is None else value.astimezone(datetime.timezone.utc).replace(tzinfo=None)


# predicate of pyarrow.types -> the classes that pyarrow takes as they are, the conversion of a value of another class,
# and what error messages expect
_LEAVES: dict[str, tuple[frozenset[type], Callable[[Any], Any], str]] = {
    "is_string": (frozenset({str}), _exactly, "a text (str)"),
    "is_integer": (frozenset({int}), _whole, "a whole number (int)"),
    "is_floating": (frozenset({float}), _real, "a number (float or int)"),
    "is_boolean": (frozenset({bool}), _exactly, "a truth value (bool)"),
    "is_decimal": (frozenset({int, Decimal}), _decimal, "a decimal.Decimal or an int"),
    "is_binary": (frozenset({bytes}), _bytes, "bytes"),
    "is_date": (frozenset({datetime.date}), _day, "a datetime.date"),
    "is_time": (frozenset(), _time_of_day, "a datetime.time without a zone"),
    "is_timestamp": (frozenset(), _moment, "a datetime.datetime or a flinkish.common.Instant"),
    "is_duration": (frozenset({datetime.timedelta}), _exactly, "a datetime.timedelta"),
    "is_null": (frozenset(), _exactly, "None"),
}


# --- names of Spark ----------------------------------------------------------------------------------------------


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
