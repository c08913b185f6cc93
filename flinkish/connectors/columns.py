"""Conversion of Arrow columns to records, one column at a time: the only work per record is the ``zip`` that makes it a
tuple. ``common/typeinfo/arrow.py`` is the inverse.

Rule upheld here: a column is first cast to the Arrow type of the declared type (the cast fails where it would lose
information), so that a record holds what its type declares, whichever types the writer of a file chose.

(Dictionary-encoding a column before the conversion was measured and does not pay: 0.05 to 0.09 microseconds per
string against 0.03.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from flinkish.common.typeinfo.collections import _SequenceTypeInfo
from flinkish.common.types import _create_rows
from flinkish.errors import TypeMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

ColumnReader = Callable[["pa.Array"], list[Any]]
#: Called with (start, stop): gives the values of the rows from start (inclusive) to stop (exclusive).
_PartReader = Callable[[int, int], list[Any]]


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
        self._readers = [_column_reader(field_type) for field_type in field_types(type_info)]
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

        The columns are cast once for all ranges, and no records are made for rows outside of the ranges.
        """
        columns = [
            self._part_reader(column, field, read)
            for column, field, read in zip(batch.columns, self._fields, self._readers, strict=True)
        ]
        for start, stop in ranges:
            values = [column(start, stop) for column in columns]
            if self._single:
                yield values[0]
                continue
            records = list(zip(*values, strict=True))
            names = self._names
            yield records if names is None else _create_rows(names, records)

    def _part_reader(self, column: pa.Array, field: pa.Field, read: ColumnReader) -> _PartReader:
        if _is_encoded(column, field):
            return _encoded_reader(column)
        column = self._cast(column, field)
        if column.type.num_fields:
            # Convert the whole column once: a slice of a list or map column still refers to all of its elements.
            values = read(column)
            return lambda start, stop: values[start:stop]
        return lambda start, stop: read(column.slice(start, stop - start))

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.type == field.type:
            return column
        import pyarrow as pa

        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TypeMismatchError(
                f"the column '{field.name}' of type {column.type} cannot be read as {field.type}: {error}",
                where=self._where,
                expected=f"columns of {self._type_info!r}",
                hint="declare the type that the column has",
            ) from None


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

    return [
        None if value is None else Instant(value // 1_000_000, value % 1_000_000 * 1_000)
        for value in column.cast(pa.int64()).to_pylist()
    ]


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    if not column.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)]
