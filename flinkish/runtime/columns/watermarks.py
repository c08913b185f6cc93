"""The watermarks of a column of event time, by the rules of `flinkish.runtime.operators.watermarks`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flinkish.core.column_batch import ColumnBatch, epoch_ms
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.errors import TypeMismatchError
from flinkish.runtime.columns.described import Evaluator
from flinkish.runtime.job.operator import Values
from flinkish.runtime.operators.watermarks import (
    ExtractTimestamp,
    Times,
    TimestampsAndWatermarksFactory,
    TimestampsAndWatermarksOperator,
)


class ColumnWatermarksOperator(TimestampsAndWatermarksOperator):
    """Emits the watermarks of a column of event time. See `ColumnWatermarksFactory`."""

    def __init__(self, made: ColumnWatermarksFactory) -> None:
        super().__init__(None, made.out_of_orderness_ms, made.interval_ms, made.before_next, made.every_records)
        self._time = made.time
        self._expression = made.watermark

    def process_batch(self, values: Values, timestamps: list[int] | None, input_index: int = 0) -> None:
        if self._delay_ms is None:
            self.output.collect(values, None)
            return
        column = values.columns.column(self._time)
        if column.null_count:
            raise self._no_time(values[self._first_null(column) :])
        times_ms = epoch_ms(column)
        marks_ms = times_ms if self._expression is None else self._marks(self._expression, values.columns)
        self._emit_between(values, None, times_ms, marks_ms)

    def _marks(self, expression: Evaluator, columns: pa.RecordBatch) -> Times:
        """The watermark that each row stands for; a row for which it is NULL stands for none."""
        found = expression(columns, self.context.epoch.processing_time_ms)
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, columns.num_rows)
        if not found.null_count:
            return epoch_ms(found)
        marks = np.full(len(found), MIN_TIMESTAMP_MS, np.int64)
        marks[found.is_valid().to_numpy(zero_copy_only=False)] = epoch_ms(found.drop_null())
        return marks

    def _first_null(self, column: pa.Array) -> int:
        return int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])

    def _no_time(self, batch: ColumnBatch) -> TypeMismatchError:
        where = f"column '{self._time}' of a table, which has a WATERMARK for it"
        what = f"the event time of {batch[:1].rows()[0]!r:.200} is None"
        return TypeMismatchError(what, where=where, expected="a time")


@dataclass(frozen=True)
class ColumnWatermarksFactory(TimestampsAndWatermarksFactory):
    """Makes the operators of WATERMARK FOR ``time``. The watermark of a row is its time less ``out_of_orderness_ms``
    and a millisecond, or, if there is one, the value of the expression ``watermark`` (``out_of_orderness_ms`` is -1
    then)."""

    extract_timestamp: ExtractTimestamp | None = None
    out_of_orderness_ms: int | None = -1
    time: str = ""
    watermark: Evaluator | None = None

    @property
    def reads_timestamps(self) -> bool:  # type: ignore[override]
        """Event time is a column."""
        return False

    def create(self) -> ColumnWatermarksOperator:
        return ColumnWatermarksOperator(self)
