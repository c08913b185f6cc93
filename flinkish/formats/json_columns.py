"""Decodes JSON objects into columns, for tables: what `flinkish.formats.json` reads, without making Rows.

Rule upheld here: the values are those of the schema for Rows. A message that is unusual in any way is read by it, and
so it raises the schema's error.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flinkish.common.typeinfo import RowTypeInfo, Types
from flinkish.formats._json_values import JsonReading, finality, json_reader
from flinkish.formats.columns import ColumnDecoder, column_of
from flinkish.formats.json import fastest_rows, read_column

#: The messages that are decoded at a time, so that their objects stay in the processor's cache.
_AT_A_TIME = 4_096


class JsonColumns(ColumnDecoder):
    """Decodes the fields ``used`` of a ROW; others are passed over, unless a field that is missing is an error."""

    def __init__(self, row_type: RowTypeInfo, how: JsonReading, used: Collection[str]) -> None:
        fields = dict(zip(row_type.get_field_names(), row_type.get_field_types(), strict=True))
        self._used = [name for name in fields if name in used]
        read = list(fields) if how.fail_on_missing_field else self._used
        self._type, self._how = Types.ROW_NAMED(read, [fields[name] for name in read]), how
        self._rows: Any = None

    def __getstate__(self) -> tuple[RowTypeInfo, JsonReading, list[str]]:
        return self._type, self._how, self._used

    def __setstate__(self, state: tuple[RowTypeInfo, JsonReading, list[str]]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def decode(self, messages: Sequence[bytes | None]) -> tuple[pa.RecordBatch, Sequence[int] | None]:
        if self._rows is None:
            self._compile()
        parts = [
            self._part(list(messages[begin : begin + _AT_A_TIME])) for begin in range(0, len(messages), _AT_A_TIME)
        ]
        if not parts:
            return pa.RecordBatch.from_pylist([], schema=self._schema).select(self._used), None
        batch = pa.concat_batches([part for part, _ in parts]) if len(parts) > 1 else parts[0][0]
        batch = batch.select(self._used)
        if len(batch) == len(messages):
            return batch, None
        kept = [number * _AT_A_TIME + place for number, (_, places) in enumerate(parts) for place in places]
        return batch, kept

    def _compile(self) -> None:
        self._rows = fastest_rows(self._type, self._how)
        self._types = self._type.get_field_types()
        self._schema = pa.schema(self._type.to_arrow_fields())
        self._finals = [finality(kind) is not None for kind in self._types]
        # moments are read by Arrow, where their texts are the usual ones
        times = self._how.times
        self._moments = {
            place: rf"^\d{{4}}-\d\d-\d\d{times}\d\d:\d\d:\d\d(\.\d{{1,6}})?{'Z' if kind.tz else ''}$"
            for place, kind in enumerate(self._schema.types)
            if times and pa.types.is_timestamp(kind)
        }
        self._readers = {place: json_reader(self._types[place], self._how) for place in self._moments}

    def _part(self, messages: list[bytes | None]) -> tuple[pa.RecordBatch, Sequence[int]]:
        columns, left = self._rows.columns(messages, self._moments)
        arrays: dict[int, pa.Array] = {}
        for place, pattern in self._moments.items():
            found = _moments_of(columns[place], pattern, self._schema.field(place).type)
            if found is None:
                columns[place] = read_column(columns[place], self._readers[place], left)
            else:
                arrays[place] = found
        if not left:
            return self._batch(columns, arrays), range(len(messages))
        rows = {place: self._rows.plain.read_one(messages[place]) for place in sorted(left)}
        gone = {place for place, row in rows.items() if row is None}
        kept = [place for place in range(len(messages)) if place not in gone]
        for number in arrays:
            columns[number] = read_column(columns[number], self._readers[number], set())
        for place, row in rows.items():
            for number, value in enumerate(row or ()):
                columns[number][place] = value
        if gone:
            columns = [[column[place] for place in kept] for column in columns]
        return self._batch(columns, {}), kept

    def _batch(self, columns: list[list[Any]], known: dict[int, pa.Array]) -> pa.RecordBatch:
        arrays = [
            known[place] if place in known else self._array(place, column) for place, column in enumerate(columns)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, place: int, values: list[Any]) -> pa.Array:
        kind = self._schema.field(place).type
        if self._finals[place]:
            try:
                return pa.array(values, kind)
            except (pa.ArrowException, ValueError, TypeError):
                pass  # half of a surrogate pair: the error names it
        return column_of(values, self._type.get_field_names()[place], self._types[place])


def _moments_of(values: list[Any], pattern: str, kind: pa.DataType) -> pa.Array | None:
    """The column of texts of moments; None: one of them is not the usual one."""
    try:
        texts = pa.array(values, pa.string())
        usual = pc.all(pc.match_substring_regex(texts, pattern)).as_py()
        return texts.cast(kind) if usual is not False else None
    except (pa.ArrowException, ValueError, TypeError):
        return None
