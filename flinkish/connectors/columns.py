"""Conversion of Arrow columns to records, one column at a time: the only work per record is the ``zip`` that makes it a
tuple. ``common/typeinfo/arrow.py`` is the inverse. The second part converts records to columns of pandas, and back; the
third decodes the records of sources whose DataFrame has one column per field.

Rule upheld here: a record holds what its type declares, whichever types the writer of a file chose, and a column of
another type is converted by the one table of `lossless` conversions, or refused. Which conversion a column needs is
found out once per type of column, not per value.

(Dictionary-encoding a column before the conversion was measured and does not pay: 0.05 to 0.09 microseconds per
string against 0.03.)
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from flinkish.common.time import Instant
from flinkish.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    ExternalTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from flinkish.common.typeinfo.arrow import RecordWriter, arrow_array
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.typeinfo.collections import _SequenceTypeInfo
from flinkish.common.typeinfo.lossless import Conversion, lossless, unreadable
from flinkish.common.types import _create_rows
from flinkish.core.source import RecordDecoder
from flinkish.errors import TypeMismatchError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow
    import pyarrow as pa


ColumnReader = Callable[["pa.Array"], list[Any]]
#: Called with (start, stop): gives the values of the rows from start (inclusive) to stop (exclusive).
_PartReader = Callable[[int, int], list[Any]]


#: Raised for a value that would be another one; pyarrow's errors are among them.
_LOSSES = (ValueError, ArithmeticError, NotImplementedError)


class RecordReader:
    """Reads batches whose columns are the type's fields, in the same order, as records: Rows for a ROW, tuples for a
    TUPLE, and the values of the only column for any other type.

    >>> import pyarrow as pa
    >>> from flinkish.common.typeinfo import Types
    >>> batch = pa.RecordBatch.from_pydict({"a": ["x", "y"], "n": [1, None]})
    >>> RecordReader(Types.TUPLE([Types.STRING(), Types.LONG()])).read(batch)
    [('x', 1), ('y', None)]
    """

    def __init__(self, type_info: TypeInformation, where: str = "") -> None:
        while isinstance(type_info, ExternalTypeInfo):
            type_info = type_info._type_info
        self._where = where
        self._type_info = type_info
        self._fields = type_info.to_arrow_fields()
        self._types = field_types(type_info)
        self._readers = [_column_reader(field_type) for field_type in self._types]
        # for each column, the type that it had last, and the conversion that columns of this type need
        self._conversions: list[tuple[pa.DataType, Conversion | None]] = [(field.type, None) for field in self._fields]
        self._names = type_info.get_field_names() if isinstance(type_info, RowTypeInfo) else None
        self._single = not isinstance(type_info, (RowTypeInfo, TupleTypeInfo))

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        """All rows of the batch as records.

        Raises:
            TypeMismatchError: a column cannot be read as the declared type.
        """
        return next(self.parts(batch, [(0, batch.num_rows)]))

    def parts(self, batch: pa.RecordBatch, ranges: Iterable[tuple[int, int]]) -> Iterator[list[Any]]:
        """The records of each range (start, stop) of rows, one list per range, made when the iterator reaches it.

        The columns are converted once for all ranges, and no records are made for rows outside of the ranges.
        """
        columns = [
            self._part_reader(column, position, read)
            for position, (column, read) in enumerate(zip(batch.columns, self._readers, strict=True))
        ]
        for start, stop in ranges:
            values = [column(start, stop) for column in columns]
            if self._single:
                yield values[0]
                continue
            records = list(zip(*values, strict=True))
            names = self._names
            yield records if names is None else _create_rows(names, records)

    def _part_reader(self, column: pa.Array, position: int, read: ColumnReader) -> _PartReader:
        if read is not _read_characters and _is_encoded(column, self._fields[position]):
            return _encoded_reader(column)
        found = column.type
        try:
            last, convert = self._conversions[position]
            if found != last:
                convert = lossless(found, _read_as(self._types[position], found))
                self._conversions[position] = (found, convert)
            if convert is not None:
                column = convert(column)
            if column.type.num_fields:
                # Convert the whole column once: a slice of a list or map column still refers to all of its elements.
                values = read(column)
                return lambda start, stop: values[start:stop]
        except _LOSSES as error:
            raise self._refused(position, found, error) from None

        def read_part(start: int, stop: int) -> list[Any]:
            try:
                return read(column.slice(start, stop - start))
            except _LOSSES as error:
                raise self._refused(position, found, error) from None

        return read_part

    def _refused(self, position: int, found: pa.DataType, why: Exception) -> TypeMismatchError:
        field = self._fields[position]
        return unreadable(field.name, found, field.type, why, self._where, f"columns of {self._type_info!r}")


def _read_as(type_info: TypeInformation, found: pa.DataType) -> pa.DataType:
    """The Arrow type as which a column of the type ``found`` is read: that of the declared type, but for types whose
    values are not limited as its are. A BIG_DEC has any digits, a BIG_INT any size, and an Instant nanoseconds."""
    import pyarrow as pa

    types = pa.types
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info._type_info
    while types.is_dictionary(found):
        found = found.value_type
    wanted = type_info.arrow_type()
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)) and types.is_struct(found):
        parts = {field.name: field.type for field in found}
        pairs = zip(wanted, type_info.get_field_types(), strict=True)
        return pa.struct([field.with_type(_read_as(kind, parts.get(field.name, field.type))) for field, kind in pairs])
    if isinstance(type_info, MapTypeInfo) and types.is_map(found):
        return pa.map_(
            _read_as(type_info._key_type_info, found.key_type), _read_as(type_info._value_type_info, found.item_type)
        )
    if types.is_list(wanted) and hasattr(found, "value_type"):
        return pa.list_(_read_as(type_info.elem_type, found.value_type))  # type: ignore[attr-defined]
    kind = None if not isinstance(type_info, BasicTypeInfo) else type_info._basic_type
    if kind is BasicType.BIG_DEC and not isinstance(type_info, DecimalTypeInfo):
        return found if types.is_decimal(found) else pa.decimal128(20, 0) if types.is_integer(found) else wanted
    if kind is BasicType.BIG_INT:
        if types.is_decimal(found):
            return found if found.scale <= 0 else pa.decimal256(76, 0)
        return found if types.is_integer(found) else pa.int64() if types.is_floating(found) else wanted
    if kind is BasicType.INSTANT and types.is_timestamp(found):
        return pa.timestamp(found.unit, "UTC")
    return wanted


def _is_encoded(column: pa.Array, field: pa.Field) -> bool:
    """Whether this is a dictionary-encoded column of strings that is declared as strings."""
    import pyarrow as pa

    kind = column.type
    return bool(pa.types.is_dictionary(kind) and kind.value_type == field.type and pa.types.is_string(field.type))


def _encoded_reader(column: pa.DictionaryArray) -> _PartReader:
    """The reader of a dictionary-encoded column of strings. Equal strings become one object, which is cheaper to make,
    to pickle and to look up."""
    texts, indices = column.dictionary.to_numpy(zero_copy_only=False), column.indices

    def read(start: int, stop: int) -> list[Any]:
        places = indices.slice(start, stop - start)
        if places.null_count:
            return [None if index is None else texts[index] for index in places.to_pylist()]
        chosen: list[Any] = texts[places.to_numpy()].tolist()
        return chosen

    return read


def field_types(type_info: TypeInformation) -> list[TypeInformation]:
    """The types of the columns: the field types of a ROW or TUPLE, for any other type the type itself."""
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return list(type_info.get_field_types())
    return [type_info]


def _column_reader(type_info: TypeInformation) -> ColumnReader:
    if isinstance(type_info, ExternalTypeInfo):
        return _column_reader(type_info._type_info)
    if isinstance(type_info, PickledBytesTypeInfo):
        raise TypeMismatchError(
            "a column has no declared type", expected="a type such as Types.STRING() for each column, not pickled bytes"
        )
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return _struct_reader(type_info)
    if isinstance(type_info, MapTypeInfo):
        return _map_reader(type_info)
    if isinstance(type_info, _SequenceTypeInfo):
        return _sequence_reader(type_info)
    if isinstance(type_info, BasicTypeInfo):
        if type_info._basic_type is BasicType.INSTANT:
            return _read_instants
        if type_info._basic_type is BasicType.BIG_INT:
            return lambda column: [None if value is None else int(value) for value in column.to_pylist()]
        if type_info._basic_type is BasicType.CHAR:
            return _read_characters
    return lambda column: list(column.to_pylist())


def _struct_reader(type_info: RowTypeInfo | TupleTypeInfo) -> ColumnReader:
    readers = [_column_reader(field_type) for field_type in type_info.get_field_types()]
    names = type_info.get_field_names() if isinstance(type_info, RowTypeInfo) else None

    def read(column: pa.Array) -> list[Any]:
        columns = [read_field(child) for read_field, child in zip(readers, column.flatten(), strict=True)]
        records: list[Any] = list(zip(*columns, strict=True))
        if names is not None:
            records = _create_rows(names, records)
        return _with_nulls(records, column)

    return read


def _map_reader(type_info: MapTypeInfo) -> ColumnReader:
    read_key, read_value = _column_reader(type_info._key_type_info), _column_reader(type_info._value_type_info)

    def read(column: pa.Array) -> list[Any]:
        # offsets point into the whole child arrays, also of a column that is a slice
        pairs = list(zip(read_key(column.keys), read_value(column.items), strict=True))
        offsets = column.offsets.to_pylist()
        maps = [dict(pairs[begin:end]) for begin, end in zip(offsets, offsets[1:], strict=False)]
        if sum(map(len, maps)) != offsets[-1] - offsets[0]:
            raise ValueError("a map has a key twice")
        return _with_nulls(maps, column)

    return read


def _sequence_reader(type_info: _SequenceTypeInfo) -> ColumnReader:
    import pyarrow as pa

    if pa.types.is_binary(type_info.arrow_type()):
        return lambda column: list(column.to_pylist())
    read_element = _column_reader(type_info.elem_type)

    def read(column: pa.Array) -> list[Any]:
        elements = read_element(column.values)
        offsets = column.offsets.to_pylist()
        lists = [elements[begin:end] for begin, end in zip(offsets, offsets[1:], strict=False)]
        return _with_nulls(lists, column)

    return read


def _read_instants(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    per_second = _PER_SECOND[column.type.unit]
    nanos = 1_000_000_000 // per_second
    return [
        None if value is None else Instant(value // per_second, value % per_second * nanos)
        for value in column.cast(pa.int64()).to_pylist()
    ]


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _read_characters(column: pa.Array) -> list[Any]:
    texts = list(column.to_pylist())
    longer = next((text for text in texts if text is not None and len(text) != 1), None)
    if longer is not None:
        raise ValueError(f"{longer[:50]!r} is not one character")
    return texts


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    if not column.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)]


# --- pandas -----------------------------------------------------------------------------------------------------


class FrameWriter:
    """Writes records of a type as DataFrames. The types of the columns follow from the declared types alone, whether or
    not a batch has a None in them, and no value becomes another one: numbers and truth values are in pandas' nullable
    types, moments in microseconds, and all else is in columns of objects.

    Raises:
        TypeMismatchError: the type holds pickled objects, which no column can hold.
    """

    def __init__(self, type_info: TypeInformation, where: str) -> None:
        self._columns = RecordWriter(type_info, where)
        while isinstance(type_info, ExternalTypeInfo):
            type_info = type_info._type_info
        self._objects = [_object_reader(kind) for kind in field_types(type_info)]

    def write(self, records: list[Any]) -> pd.DataFrame:
        """These records as a DataFrame.

        Raises:
            TypeMismatchError: a value does not fit its column.
        """
        import pandas as pd

        batch = self._columns.write(records)
        numbers = _nullable_types()
        columns: dict[str, Any] = {}
        for name, column, read in zip(batch.schema.names, batch.columns, self._objects, strict=True):
            if read is None:
                columns[name] = column.to_pandas(types_mapper=numbers.get)
            else:
                values = [None if value is None else read(value) for value in column.to_pylist()]
                columns[name] = pd.Series(values, dtype=object)
        frame: pd.DataFrame = pd.DataFrame(columns, index=pd.RangeIndex(len(records)))
        return frame


def _nullable_types() -> dict[pa.DataType, Any]:
    import pandas as pd
    import pyarrow as pa

    return {
        pa.bool_(): pd.BooleanDtype(),
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.float32(): pd.Float32Dtype(),
        pa.float64(): pd.Float64Dtype(),
    }


def _object_reader(type_info: TypeInformation) -> Callable[[Any], Any] | None:
    """What makes the objects of a DataFrame of those that Arrow gives for a type: lists, and dicts of maps and rows.
    None: pandas' own conversion is right."""
    if isinstance(type_info, ExternalTypeInfo):
        return _object_reader(type_info._type_info)
    if isinstance(type_info, BasicTypeInfo):
        return int if type_info._basic_type is BasicType.BIG_INT else None
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        fields = [(field.name, field.type) for field in type_info.to_arrow_fields()]
        parts = [(name, _part(kind)) for (name, _), kind in zip(fields, type_info.get_field_types(), strict=True)]
        return lambda value: {name: read(value[name]) for name, read in parts}
    if isinstance(type_info, MapTypeInfo):
        read_key, read_value = _part(type_info._key_type_info), _part(type_info._value_type_info)
        return lambda pairs: {read_key(key): read_value(value) for key, value in pairs}
    if isinstance(type_info, _SequenceTypeInfo) and not getattr(type_info, "_is_binary", False):
        read_element = _part(type_info.elem_type)
        return lambda values: [read_element(value) for value in values]
    return None


def _part(type_info: TypeInformation) -> Callable[[Any], Any]:
    read = _object_reader(type_info)
    return (lambda value: value) if read is None else lambda value: None if value is None else read(value)


def columns_of_frame(frame: pd.DataFrame, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a DataFrame, of the types that it has.

    A missing value (None, NA, NaT) is null. NaN is a number in columns that are declared as floats; in all others it is
    pandas' missing value.

    Args:
        schema: the columns of the declared type, which say what objects are; other columns are left out.

    Raises:
        Mismatch: an object is none of the declared type.
        ValueError: pyarrow has no column for the values.
    """
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    arrays = []
    for field in schema:
        try:
            arrays.append(_column_of_series(frame.iloc[:, names.index(field.name)], field.type))
        except Mismatch as mismatch:
            raise mismatch.inside(f"column '{field.name}'") from None
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _column_of_series(series: pd.Series[Any], declared: pa.DataType) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    if series.dtype == object:
        return _column_of_objects(series.tolist(), declared)
    if isinstance(series.dtype, np.dtype):
        column = pa.array(series.to_numpy(), from_pandas=not pa.types.is_floating(declared))
    else:
        # an extension of pandas knows its missing values itself
        column = pa.array(series)
    if column.null_count == len(column):
        # pandas makes floats of missing texts, if there is no other one
        return pa.nulls(len(column), declared)
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _column_of_objects(values: list[Any], declared: pa.DataType) -> pa.Array:
    import pyarrow as pa

    plain = values
    if declared.num_fields or not set(map(type, values)) <= _PLAIN:
        plain = list(map(_plainer(declared), values))
    try:
        return arrow_array(plain, declared)
    except Mismatch:
        if pa.types.is_decimal(declared) and set(map(type, plain)) <= {int, Decimal, type(None)}:
            # they have more digits; whether they fit the declared type is the reader's to say
            return pa.array(plain)
        raise


#: Classes of objects that neither pandas nor numpy has made.
_PLAIN = {type(None), str, bytes, int, bool, Decimal, datetime.date, datetime.time, datetime.datetime}


def _plainer(declared: pa.DataType) -> Callable[[Any], Any]:
    """What makes objects that `arrow_array` takes of those of a DataFrame: without the classes of pandas and numpy."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    types = pa.types
    sequences = (list, tuple, np.ndarray, pd.Series, pd.api.extensions.ExtensionArray)
    if types.is_list(declared):
        item = _plainer(declared.value_type)

        def convert(value: Any) -> Any:
            return list(map(item, value)) if isinstance(value, sequences) else value

    elif types.is_map(declared):
        key, item = _plainer(declared.key_type), _plainer(declared.item_type)

        def convert(value: Any) -> Any:
            pairs = value.items() if isinstance(value, dict) else value
            if not isinstance(value, (dict, *sequences)) or not all(len(pair) == 2 for pair in pairs):
                return value
            found = {key(one): item(other) for one, other in pairs}
            if len(found) != len(value):
                raise Mismatch(value, "a map with different keys")
            return found

    elif types.is_struct(declared):
        fields = {field.name: _plainer(field.type) for field in declared}

        def convert(value: Any) -> Any:
            if isinstance(value, dict) and value.keys() == fields.keys():
                return {name: plain(value[name]) for name, plain in fields.items()}
            if isinstance(value, (tuple, list)) and len(value) == len(fields):
                return tuple(plain(item) for plain, item in zip(fields.values(), value, strict=True))
            return value

    else:
        is_float = types.is_floating(declared)

        def convert(value: Any) -> Any:
            if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
                value = value.item()
            elif isinstance(value, pd.Timestamp) and value.nanosecond:
                raise Mismatch(value, "a moment in microseconds")
            return None if isinstance(value, float) and math.isnan(value) and not is_float else value

    missing = (pd.NA, pd.NaT)

    def plain(value: Any) -> Any:
        if value is None or any(value is one for one in missing):
            return None
        if not declared.num_fields or not isinstance(value, float):
            return convert(value)
        return None if math.isnan(value) else value

    return plain


class ColumnDecoder(RecordDecoder):
    """Decodes Arrow batches, one column per field of the type, to records of that type without timestamps.

    ``where`` names the source in error messages.
    """

    def __init__(self, type_info: TypeInformation, where: str) -> None:
        self._type_info = type_info
        self._where = where
        self._reader: RecordReader | None = None

    def decode(self, batch: pyarrow.RecordBatch) -> tuple[list[Any], list[int] | None]:
        reader = self._reader
        if reader is None:
            reader = self._reader = RecordReader(self._type_info, self._where)
        return reader.read(batch), None

    def __getstate__(self) -> tuple[TypeInformation, str]:
        return (self._type_info, self._where)

    def __setstate__(self, state: tuple[TypeInformation, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]
