"""The columns of a DataFrame sink: records become batches of columns in the task, which are stored as Arrow IPC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.common.types import Row, RowKind, check_inserts_only
from flinkish.core.sink import DELETED_COLUMN, DataFrameSink, SinkWriter
from flinkish.runtime.exchange.buffer import is_columns
from flinkish.runtime.job.operator import Values

#: The number of records from which a batch of columns is made.
MAX_RECORDS = 20_000


class ColumnWriter(SinkWriter):
    """A sink writer whose committables are batches of columns, each as an Arrow IPC stream.

    It turns records into columns in the task. So a record that does not fit its declared type fails the epoch before
    anything of the epoch is committed, and a corrected program may emit other records in that epoch.

    Args:
        sink: the sink that gets the columns.
        input_type: type of the records.
        where: names the sink in errors.
    """

    def __init__(self, sink: DataFrameSink, input_type: TypeInformation, where: str) -> None:
        self._sink = sink
        self._where = where
        self._columns = RecordWriter(input_type, where)
        self._held: list[Any] = []

    def write(self, values: Values, timestamps: list[int] | None) -> list[Any]:
        """Hold records back until there are enough for a batch. A batch of columns is one."""
        if is_columns(values):
            return [encoded(self._columns_of(values))] if values else []
        self._held.extend(values)
        return self.prepare_commit() if len(self._held) >= MAX_RECORDS else []

    def prepare_commit(self) -> list[Any]:
        """A batch of the records that were held back; an empty list if there are none."""
        held, self._held = self._held, []
        return [encoded(self._batch(held))] if held else []

    def _batch(self, records: list[Any]) -> pa.RecordBatch:
        if not self._sink.takes_changes:
            check_inserts_only(records, self._where)
            batch = self._columns.write(records)
            self._sink.check_columns(batch, self._where)
            return batch
        kinds = [record._row_kind if type(record) is Row else RowKind.INSERT for record in records]
        if RowKind.UPDATE_BEFORE in kinds:
            records = [row for row, kind in zip(records, kinds, strict=True) if kind is not RowKind.UPDATE_BEFORE]
            kinds = [kind for kind in kinds if kind is not RowKind.UPDATE_BEFORE]
        batch = self._columns.write(records)
        deleted = pa.array([kind is RowKind.DELETE for kind in kinds], pa.bool_())
        self._sink.check_columns(batch.filter(pc.invert(deleted)), self._where)
        return pa.RecordBatch.from_arrays([*batch.columns, deleted], schema=frame_schema(self._sink, batch.schema))

    def _columns_of(self, values: Any) -> pa.RecordBatch:
        """What is stored of a batch of columns: of changes the last one of each key, if the sink says what a key is."""
        from flinkish.core.last_changes import last_changes

        if not self._sink.takes_changes:
            self._sink.check_columns(values.columns, self._where)
            return values.columns
        kept = last_changes(values, self._sink.key_columns)
        deleted = pa.array([False] * len(kept) if kept.kinds is None else kept.kinds != 0, pa.bool_())
        self._sink.check_columns(kept.columns.filter(pc.invert(deleted)), self._where)
        columns = [*kept.columns.columns, deleted]
        return pa.RecordBatch.from_arrays(columns, schema=frame_schema(self._sink, kept.columns.schema))


def frame_schema(sink: DataFrameSink, columns: pa.Schema) -> pa.Schema:
    """The schema of the DataFrame of a sink, given that of its records."""
    return columns.append(pa.field(DELETED_COLUMN, pa.bool_())) if sink.takes_changes else columns


def encoded(batch: pa.RecordBatch) -> bytes:
    """The committable of a batch of columns."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def batches_of(committables: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Decode the committables of a `ColumnWriter`: the batches of columns, in order."""
    for data in committables:
        yield from pa.ipc.open_stream(data)
