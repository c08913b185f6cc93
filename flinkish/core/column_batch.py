"""A batch of columns, with the kind of change of each of its rows: what operators on columns hand to each other.

A `ColumnBatch` travels where lists of records do (``process_batch``, the exchange, the input gate): it has a length,
and slices are batches again, which share the columns. It never changes, so that several consumers may hold it. Its
``timestamps`` are always None: event time is a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.common.time import Instant
from flinkish.common.types import Row, RowKind, _create_rows

#: The kinds of changes, as bytes: the values of `flinkish.common.types.RowKind`.
Kinds = npt.NDArray[np.int8]

#: The most rows of a batch that an operator works on at once.
MAX_ROWS = 65_536

#: The kinds of changes by their numbers.
ROW_KINDS = tuple(sorted(RowKind, key=lambda kind: int(kind.value)))


class ColumnBatch:
    """Columns of equal length, and the kinds of their rows. ``kinds`` None: all rows are inserts.

    >>> batch = ColumnBatch(pa.record_batch({"n": [1, 2, 3]}))
    >>> len(batch), batch[1:].columns.column(0).to_pylist()
    (3, [2, 3])
    """

    __slots__ = ("columns", "kinds")

    def __init__(self, columns: pa.RecordBatch, kinds: Kinds | None = None) -> None:
        self.columns = columns
        self.kinds = kinds

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def __getitem__(self, rows: slice) -> ColumnBatch:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            return self.take(np.arange(start, stop, step))
        kinds = None if self.kinds is None else self.kinds[start:stop]
        return ColumnBatch(self.columns.slice(start, max(0, stop - start)), kinds)

    def __reduce__(self) -> tuple[Any, ...]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.columns.schema) as stream:
            stream.write_batch(self.columns)
        return _decoded, (sink.getvalue(), None if self.kinds is None else self.kinds.tobytes())

    @property
    def nbytes(self) -> int:
        """The size of the rows in memory."""
        return int(self.columns.nbytes)

    def take(self, positions: npt.NDArray[np.int64]) -> ColumnBatch:
        """The rows at these positions, in their order."""
        kinds = None if self.kinds is None else self.kinds[positions]
        return ColumnBatch(self.columns.take(pa.array(positions)), kinds)

    def parts(self) -> Iterator[ColumnBatch]:
        """The batch in parts of at most `MAX_ROWS` rows."""
        if len(self) <= MAX_ROWS:
            yield self
            return
        for start in range(0, len(self), MAX_ROWS):
            yield self[start : start + MAX_ROWS]

    def rows(self) -> list[Any]:
        """The rows as Rows, for messages and for those that listen to a job."""
        values = zip(*map(python_values, self.columns.columns), strict=True)
        rows = _create_rows(self.columns.schema.names, list(values))
        return rows if self.kinds is None else with_kinds(rows, self.kinds)

    @staticmethod
    def joined(batches: Sequence[ColumnBatch]) -> ColumnBatch:
        """One batch of the rows of these batches, of which there is one at least, all with the same columns."""
        if len(batches) == 1:
            return batches[0]
        columns = pa.concat_batches([batch.columns for batch in batches])
        if all(batch.kinds is None for batch in batches):
            return ColumnBatch(columns)
        kinds = [np.zeros(len(batch), np.int8) if batch.kinds is None else batch.kinds for batch in batches]
        return ColumnBatch(columns, np.concatenate(kinds))


joined = ColumnBatch.joined


def _decoded(data: pa.Buffer, kinds: bytes | None) -> ColumnBatch:
    with pa.ipc.open_stream(data) as stream:
        columns = stream.read_next_batch()
    return ColumnBatch(columns, None if kinds is None else np.frombuffer(kinds, np.int8))


def with_kinds(rows: list[Row], kinds: Kinds) -> list[Row]:
    """These Rows, which are inserts so far, with their kinds."""
    for position in np.flatnonzero(kinds).tolist():
        rows[position]._row_kind = ROW_KINDS[kinds[position]]
    return rows


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column as they are in Rows and keys: what Arrow gives, but Instants for moments with a zone."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if one is None else Instant(one // 1_000_000, one % 1_000_000 * 1_000) for one in micros]
    return list(column.to_pylist())


def epoch_ms(column: pa.Array) -> npt.NDArray[np.int64]:
    """The milliseconds of a column of moments without nulls, rounded down."""
    numbers = column.view(pa.int64()).to_numpy(zero_copy_only=False)
    factor = {"s": -1_000, "ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    ms: npt.NDArray[np.int64] = numbers if factor == 1 else numbers * -factor if factor < 0 else numbers // factor
    return ms
