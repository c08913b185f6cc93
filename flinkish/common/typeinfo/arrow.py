"""Converts records to Arrow, in the one place of the code base; the inverse is ``connectors/columns.py``.

The conversion works by columns, and nested types are split into columns as well: there is no work per value where the
values already have the class that pyarrow takes for the column.

Rule upheld here: a value is converted to its column's type, or an error names the value and the field. pyarrow alone
would truncate a float under an integer type and a datetime under a date, and drop the time zone of a time of day. Two
things are narrowed: an Instant keeps microseconds (Spark's and Arrow's unit here), and a datetime with a time zone
becomes UTC.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any

from flinkish.common.time import Instant
from flinkish.common.typeinfo.base import Mismatch, TypeInformation
from flinkish.common.typeinfo.composite import ExternalTypeInfo, RowTypeInfo, TupleTypeInfo
from flinkish.common.typeinfo.spark_ddl import holds_pickled
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
                columns = [arrow_array(records, self.schema.field(0).type)]
            else:
                columns = _field_arrays(records, list(self.schema))
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


def arrow_array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """A column of an Arrow type that holds these values; None becomes null.

    Raises:
        Mismatch: for the first value that does not fit.
    """
    import pyarrow as pa

    if pa.types.is_struct(arrow):
        return _structs(values, arrow)
    if pa.types.is_map(arrow):
        return _maps(values, arrow)
    if pa.types.is_list(arrow):
        return _lists(values, arrow)
    taken, adapt, expected = next(leaf for name, leaf in _LEAVES.items() if getattr(pa.types, name)(arrow))
    try:
        if set(map(type, values)) <= taken | {type(None)}:
            return pa.array(values, arrow)
        plain = [value if value is None or type(value) in taken else adapt(value) for value in values]
        return pa.array(plain, arrow)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        if len(values) == 1:
            reason = " ".join(str(error).split())
            raise Mismatch(values[0], f"{expected}, for a column of type {arrow} ({reason})") from None
        for value in values:
            arrow_array([value], arrow)
        raise


def _structs(values: Sequence[Any], arrow: pa.StructType) -> pa.Array:
    import pyarrow as pa

    fields = list(arrow)
    if not fields:
        return pa.array([None if value is None else {} for value in values], arrow)
    nothing = (None,) * len(fields)
    absent = [value is None for value in values]
    arrays = _field_arrays([nothing if value is None else value for value in values], fields)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(absent, pa.bool_()) if any(absent) else None)


def _field_arrays(records: Sequence[Any], fields: list[pa.Field]) -> list[pa.Array]:
    names = [field.name for field in fields]
    rows = [_fields_of(record, names) for record in records]
    columns: Any = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = []
    for field, column in zip(fields, columns, strict=True):
        try:
            arrays.append(arrow_array(column, field.type))
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


def _lists(values: Sequence[Any], arrow: pa.ListType) -> pa.Array:
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
        made = arrow_array(elements, arrow.value_type)
    except Mismatch as mismatch:
        raise mismatch.inside("an element") from None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), made, type=arrow)


def _maps(values: Sequence[Any], arrow: pa.MapType) -> pa.Array:
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
    for part, column, kind in (("a key", keys, arrow.key_type), ("a value", items, arrow.item_type)):
        try:
            arrays.append(arrow_array(column, kind))
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
