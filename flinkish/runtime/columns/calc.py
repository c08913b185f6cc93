"""Selections and projections of columns, and what evaluates expressions for them.

Rule upheld here: an error of an expression names the row for which it was computed. So where a batch fails, the first
row that fails by itself is looked for, and the error is raised by a call whose ``value`` is the row: messages name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from flinkish.common.types import Row
from flinkish.core.column_batch import ColumnBatch
from flinkish.errors import FlinkishError, InternalError, ProgramError, TypeMismatchError, message_of
from flinkish.runtime.columns.described import Evaluator
from flinkish.runtime.job.context import StreamingRuntimeContext
from flinkish.runtime.job.failure import OWN_ROOT
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator, Values

#: The files of what computes columns, beside flinkish's own: an error that comes from elsewhere is one of user code.
_KERNELS = ("/pyarrow/", "/numpy/", "pyarrow/")


@dataclass(frozen=True)
class ColumnNamed:
    """The evaluator of a column of the input."""

    name: str

    @property
    def text(self) -> str:
        return self.name

    def __call__(self, columns: pa.RecordBatch, now_ms: int) -> pa.Array:
        return columns.column(self.name)


class CalcOperator(StreamOperator):
    """Drops the rows of which a condition is not true, and computes the columns of the others.

    Args:
        condition: None: no row is dropped.
        outputs: what computes each column of ``schema``.
        used: the columns that the outputs read; None: it is not known.
    """

    keeps_positions = True

    def __init__(
        self, condition: Evaluator | None, outputs: Sequence[Evaluator], schema: pa.Schema, used: Sequence[str] | None
    ) -> None:
        self._condition = condition
        self._outputs = outputs
        self._schema = schema
        self._used = None if used is None else list(used)
        self._open: list[Any] = []

    def open(self) -> None:
        """Open the functions of the program that the expressions call."""
        evaluators = (*([] if self._condition is None else [self._condition]), *self._outputs)
        for function in {id(one): one for each in evaluators for one in getattr(each, "functions", ())}.values():
            self._open.append(function)
            function.open(StreamingRuntimeContext(self.context))

    def close(self) -> None:
        """Close them."""
        while self._open:
            self._open.pop().close()

    def dispose(self) -> None:
        self.close()

    def process_batch(self, values: Values, timestamps: list[int] | None, input_index: int = 0) -> None:
        """Compute the columns of a batch, of at most `MAX_ROWS` rows at a time."""
        now_ms = self.context.epoch.processing_time_ms
        for part in values.parts():
            kept = part if self._condition is None else self._selected(self._condition, part, now_ms)
            if kept:
                self.output.collect(self._projected(kept, now_ms), None)

    def _selected(self, condition: Evaluator, batch: ColumnBatch, now_ms: int) -> ColumnBatch:
        """The rows of which the condition is true, with the columns that are used behind it."""
        mask = self._evaluated(condition, batch.columns, now_ms)
        if isinstance(mask, pa.Scalar):
            return batch if mask.as_py() else batch[:0]
        columns = batch.columns if not self._used else batch.columns.select(self._used)
        if mask.null_count == 0 and mask.true_count == len(mask):
            return ColumnBatch(columns, batch.kinds)
        if batch.kinds is None:
            return ColumnBatch(columns.filter(mask))
        chosen = np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))
        return ColumnBatch(columns, batch.kinds).take(chosen)

    def _projected(self, batch: ColumnBatch, now_ms: int) -> ColumnBatch:
        columns, rows = batch.columns, len(batch)
        arrays = []
        for evaluate, field in zip(self._outputs, self._schema, strict=True):
            found = self._evaluated(evaluate, columns, now_ms)
            if isinstance(found, pa.ChunkedArray):
                found = found.combine_chunks()
            if found.type != field.type:
                raise InternalError(
                    f"the column '{field.name}' has the type {found.type}",
                    where=f"expression {getattr(evaluate, 'text', '')}",
                    expected=str(field.type),
                )
            arrays.append(pa.repeat(found, rows) if isinstance(found, pa.Scalar) else found)
        if not arrays:
            # a batch without columns has no length
            return ColumnBatch(pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""]), batch.kinds)
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=self._schema), batch.kinds)

    def _evaluated(self, evaluate: Evaluator, columns: pa.RecordBatch, now_ms: int) -> Any:
        try:
            return evaluate(columns, now_ms)
        except Exception as error:
            if _is_of_program(error) or isinstance(error, TypeMismatchError):
                # the call of a function of the program names the arguments, and is not repeated
                raise
            explained = _explained(error, evaluate)
            first = _first_failing(evaluate, columns, now_ms)
            if first is None:
                raise explained from error
            self._fail(explained, first)

    def _fail(self, error: Exception, row: pa.RecordBatch) -> NoReturn:
        """Raise the error of an expression for a row."""
        value: Row = ColumnBatch(row).rows()[0]  # noqa: F841 - messages name it
        # the row is looked for in the frames of this call
        raise error.with_traceback(None)


def _first_failing(evaluate: Evaluator, columns: pa.RecordBatch, now_ms: int) -> pa.RecordBatch | None:
    """The first row for which an expression fails; None if it fails for no single row."""
    low, high = 0, columns.num_rows
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fails(evaluate, columns.slice(low, middle - low), now_ms) else (middle, high)
    row = columns.slice(low, 1)
    return row if row.num_rows and row.num_columns and _fails(evaluate, row, now_ms) else None


def _fails(evaluate: Evaluator, columns: pa.RecordBatch, now_ms: int) -> bool:
    try:
        evaluate(columns, now_ms)
    except Exception:
        return True
    return False


def _is_of_program(error: Exception) -> bool:
    """Whether a function of the program has raised it."""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(OWN_ROOT) and not any(part in file for part in _KERNELS):
            return True
        trace = trace.tb_next
    return False


def _explained(error: Exception, evaluate: Evaluator) -> Exception:
    """The error to raise for one that an expression has raised: that of a kernel names the expression, that of user
    code stays as it is."""
    where = f"expression {getattr(evaluate, 'text', '')}".rstrip()
    if isinstance(error, FlinkishError):
        if where not in error.where and type(error) is ProgramError:
            error.where = "; ".join(filter(None, (where, error.where)))
        return error
    if _is_of_program(error):
        return error
    return ProgramError(
        " ".join(message_of(error).split()),
        where=where,
        expected="values that it can be computed for",
        hint="select the rows with WHERE, or use TRY_CAST or CASE, which give NULL instead",
    )


@dataclass(frozen=True)
class CalcFactory(OperatorFactoryBase):
    """Makes `CalcOperator` instances, with the same arguments."""

    condition: Evaluator | None
    outputs: tuple[Evaluator, ...]
    schema: pa.Schema
    used: tuple[str, ...] | None = None
    reads_timestamps: bool = False

    def create(self) -> CalcOperator:
        """A fresh operator."""
        return CalcOperator(self.condition, self.outputs, self.schema, self.used)


class LimitOperator(StreamOperator):
    """Emits the first rows that arrive, in the one subtask that it has."""

    def __init__(self, count: int) -> None:
        self._count = self._left = count

    def save(self) -> int:
        """The number of rows that may still be emitted."""
        return self._left

    def restore(self, saved: Any) -> None:
        self._left = self._count if saved is None else saved

    def process_batch(self, values: Values, timestamps: list[int] | None, input_index: int = 0) -> None:
        """Emit the rows of a batch, as long as some may be emitted."""
        first = values[: self._left]
        self._left -= len(first)
        self.output.collect(first, None)


@dataclass(frozen=True)
class LimitFactory(OperatorFactoryBase):
    """Makes the operator of LIMIT."""

    count: int
    reads_timestamps: bool = False

    def create(self) -> LimitOperator:
        """A fresh operator."""
        return LimitOperator(self.count)
