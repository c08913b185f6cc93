"""What decodes messages into columns, for tables: the decoders of CSV and of single values; `json_columns` has that of
JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flinkish.common.serialization import SimpleStringSchema
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.typeinfo.arrow import arrow_array
from flinkish.common.typeinfo.base import Mismatch
from flinkish.formats._csv_values import CsvDialect, CsvReading
from flinkish.formats.csv import CsvRowDeserializationSchema


class ColumnDecoder(ABC):
    """Decodes messages into columns, as the schema of the format decodes them one by one into Rows."""

    @abstractmethod
    def decode(self, messages: Sequence[bytes | None]) -> tuple[pa.RecordBatch, Sequence[int] | None]:
        """The columns, and the positions of the messages that they are of: None stands for all. The others are no
        records: those that are None, and those that the format was told to pass over.

        Raises:
            MalformedRecordError: a message cannot be read.
        """


def column_of(values: Sequence[Any], name: str, kind: TypeInformation) -> pa.Array:
    """The column of values of a type that a format has read. Raises TypeMismatchError for one that no column can hold,
    such as a text with half of a surrogate pair."""
    try:
        return arrow_array(values, kind.arrow_type(), kind)
    except Mismatch as mismatch:
        raise kind._error(mismatch.inside(f"column '{name}'"), "a table") from None


def as_declared(fact: pa.Array, kind: pa.DataType, zone: str) -> pa.Array:
    """A column of metadata as the type that a table declares it as. ``zone``: that of local times."""
    if fact.type == kind:
        return fact
    if pa.types.is_timestamp(kind) and kind.tz is None:
        fact = pc.local_timestamp(fact.cast(pa.timestamp(fact.type.unit, zone)))
    return fact.cast(kind)


class CsvColumns(ColumnDecoder):
    """Decodes the fields ``used`` of lines whose fields are those of a ROW."""

    def __init__(self, row_type: RowTypeInfo, dialect: CsvDialect, how: CsvReading, used: Collection[str]) -> None:
        names, types = row_type.get_field_names(), row_type.get_field_types()
        self._width = len(names)
        self._places = [place for place, name in enumerate(names) if name in used]
        self._types = [types[place] for place in self._places]
        self._schema = pa.schema([(names[place], types[place].arrow_type()) for place in self._places])
        self._rows = CsvRowDeserializationSchema(row_type, dialect, how, used=used)

    def decode(self, messages: Sequence[bytes | None]) -> tuple[pa.RecordBatch, Sequence[int] | None]:
        found = self._rows.deserialize_batch(list(messages))
        rows = [row for row in found if row is not None]
        columns = list(zip(*rows, strict=True)) if rows else [()] * self._width
        arrays = [
            column_of(columns[place], column.name, kind)
            for place, column, kind in zip(self._places, self._schema, self._types, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if len(rows) == len(found):
            return batch, None
        return batch, [place for place, row in enumerate(found) if row is not None]


class RawColumns(ColumnDecoder):
    """Decodes the only column of a schema. ``charset``: that of texts; empty: the column is one of bytes."""

    def __init__(self, schema: pa.Schema, charset: str) -> None:
        self._schema, self._charset = schema, charset

    def decode(self, messages: Sequence[bytes | None]) -> tuple[pa.RecordBatch, Sequence[int] | None]:
        values = SimpleStringSchema(self._charset).deserialize_batch(list(messages)) if self._charset else messages
        return pa.RecordBatch.from_arrays([pa.array(values, self._schema.field(0).type)], schema=self._schema), None
