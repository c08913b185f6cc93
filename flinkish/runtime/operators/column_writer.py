"""The writing half of sinks that take DataFrames: records become columns in the task.

So a record that does not fit its declared type fails the epoch while nothing of it is committed, and a program that was
mended gives other records for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.core.sink import SinkWriter

#: Records of one batch of columns.
MAX_RECORDS = 20_000


class ColumnWriter(SinkWriter):
    """Each committable is a batch of columns, as Arrow's IPC stream. ``where``: for errors, which sink."""

    def __init__(self, input_type: TypeInformation, where: str) -> None:
        self._columns = RecordWriter(input_type, where)
        self._held: list[Any] = []

    def write(self, values: list[Any], timestamps: list[int] | None) -> list[Any]:
        """Hold records back until they are enough for a batch."""
        self._held.extend(values)
        return self.prepare_commit() if len(self._held) >= MAX_RECORDS else []

    def prepare_commit(self) -> list[Any]:
        """The records that were held back, as a batch."""
        held, self._held = self._held, []
        return [_encoded(self._columns.write(held))] if held else []


def _encoded(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def batches_of(committables: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """The batches of columns that a `ColumnWriter` has made."""
    for data in committables:
        yield from pa.ipc.open_stream(data)
