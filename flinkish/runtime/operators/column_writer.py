"""The writing half of sinks that take DataFrames: records become columns in the task.

So a record that does not fit its declared type fails the epoch while nothing of it is committed, and a program that was
mended gives other records for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from flinkish.common.typeinfo import TypeInformation
from flinkish.core.sink import SinkWriter

#: Records of one batch of columns.
MAX_RECORDS = 20_000


class ColumnWriter(SinkWriter):
    """Each committable is a batch of columns, as Arrow's IPC stream."""

    def __init__(self, input_type: TypeInformation) -> None:
        self._type = input_type
        self._held: list[Any] = []

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        """Hold records back until they are enough for a batch."""
        self._held.extend(values)
        return self.prepare_commit() if len(self._held) >= MAX_RECORDS else []

    def prepare_commit(self) -> list[Any]:
        """The records that were held back, as a batch."""
        held, self._held = self._held, []
        return [_encoded(records_to_arrow(held, self._type))] if held else []


def records_to_arrow(values: list[Any], input_type: TypeInformation) -> pa.RecordBatch:
    """Records of a declared type as columns."""
    fields = list(input_type.to_arrow_fields())
    schema = pa.schema(fields)
    if len(fields) == 1 and fields[0].name == "value" and not hasattr(input_type, "get_field_names"):
        columns = [values]
    else:
        columns = [list(column) for column in zip(*values)] if values else [[] for _ in fields]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, fields)], schema=schema)


def _encoded(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def batches_of(committables: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """The batches of columns that a `ColumnWriter` has made."""
    for data in committables:
        yield from pa.ipc.open_stream(data)
