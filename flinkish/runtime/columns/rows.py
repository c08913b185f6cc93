"""The borders between operators on columns and all others: records become batches of columns, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.common.types import Row, RowKind
from flinkish.core.column_batch import ColumnBatch, Kinds, epoch_ms, with_kinds
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.errors import ProgramError
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator, Values


class SourceColumnsOperator(StreamOperator):
    """The head of a source that reads columns: batches of Arrow become batches of columns."""

    keeps_positions = True

    def process_batch(self, values: Values, timestamps: list[int] | None, input_index: int = 0) -> None:
        """Emit a batch."""
        self.output.collect(values if isinstance(values, ColumnBatch) else ColumnBatch(values), None)


@dataclass(frozen=True)
class SourceColumnsFactory(OperatorFactoryBase):
    """Makes the head operator of a source that reads columns."""

    reads_timestamps: bool = False

    def create(self) -> SourceColumnsOperator:
        """A fresh operator."""
        return SourceColumnsOperator()


class RowsToColumnsOperator(StreamOperator):
    """Makes columns of records. See `RowsToColumnsFactory`."""

    keeps_positions = True

    def __init__(self, made: RowsToColumnsFactory) -> None:
        self._writer = RecordWriter(made.type_info, made.where)
        self._schema, self._positions, self._time, self._where = made.schema, made.positions, made.time, made.where

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Emit the records as columns."""
        written = self._writer.write(values)
        positions = iter(range(written.num_columns) if self._positions is None else self._positions)
        arrays = []
        for field in self._schema:
            column = self._times(timestamps) if field.name == self._time else written.column(next(positions))
            arrays.append(column if column.type == field.type else column.cast(field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self.output.collect(ColumnBatch(batch, kinds_of(values)), None)

    def _times(self, timestamps: list[int] | None) -> pa.Array:
        if timestamps is None or min(timestamps) == MIN_TIMESTAMP_MS:
            raise ProgramError(
                "Rowtime timestamp is not defined: a record has no timestamp",
                where=self._where,
                expected="a stream with event time",
                hint="assign_timestamps_and_watermarks() with a timestamp assigner gives records their event time",
            )
        return pa.array(timestamps, pa.int64()).cast(pa.timestamp("ms"))


def kinds_of(records: list[Any]) -> Kinds | None:
    """The kinds of Rows; None if all are inserts, as records of other classes are."""
    insert = RowKind.INSERT
    if all(record._row_kind is insert for record in records if record.__class__ is Row):
        return None
    kinds = [record._row_kind.value if isinstance(record, Row) else 0 for record in records]
    return np.array(kinds, np.int8)


@dataclass(frozen=True)
class RowsToColumnsFactory(OperatorFactoryBase):
    """Makes operators that make columns of records.

    Args:
        type_info: the type of the records.
        schema: the columns.
        positions: the fields of the columns, in their order; None: all fields.
        time: the column that gets the timestamps of the records, and is no field; None: there is none.
        where: names the stream in errors.
    """

    type_info: TypeInformation
    schema: pa.Schema
    positions: tuple[int, ...] | None = None
    time: str | None = None
    where: str = ""
    takes_misfits: bool = False

    @property
    def reads_timestamps(self) -> bool:  # type: ignore[override]
        """Whether a column gets them."""
        return self.time is not None

    def create(self) -> RowsToColumnsOperator:
        """A fresh operator."""
        return RowsToColumnsOperator(self)


class ColumnsToRowsOperator(StreamOperator):
    """Makes Rows of columns, with their kinds. ``time``: the column of their timestamps; None: they have none."""

    keeps_positions = True

    def __init__(self, read: Callable[[pa.RecordBatch], list[Row]], time: str | None) -> None:
        self._read = read
        self._time = time

    def process_batch(self, values: Values, timestamps: list[int] | None, input_index: int = 0) -> None:
        """Emit the rows of a batch as Rows."""
        for part in values.parts():
            rows = self._read(part.columns)
            times = None
            if self._time is not None:
                column = part.columns.column(self._time)
                times = [MIN_TIMESTAMP_MS] * len(rows) if column.null_count else epoch_ms(column).tolist()
            self.output.collect(rows if part.kinds is None else with_kinds(rows, part.kinds), times)


@dataclass(frozen=True)
class ColumnsToRowsFactory(OperatorFactoryBase):
    """Makes operators that make Rows of columns. ``make_reader`` gives what makes Rows of a batch of Arrow."""

    make_reader: Callable[[], Callable[[pa.RecordBatch], list[Row]]]
    time: str | None = None
    reads_timestamps: bool = False

    def create(self) -> ColumnsToRowsOperator:
        """A fresh operator."""
        return ColumnsToRowsOperator(self.make_reader(), self.time)
