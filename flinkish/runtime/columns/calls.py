"""The aggregates of all calls of a GROUP BY, by slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.runtime.columns.accumulators import Accumulator, Average, Count, DecimalSum, Picked, Sum
from flinkish.runtime.columns.described import AggregateCall
from flinkish.runtime.columns.keys import ROOM, Ints
from flinkish.runtime.columns.object_accumulators import Distinct, Listed, Texts, Variance
from flinkish.runtime.stored.column_pickles import Column, python_column


def accumulator_of(call: AggregateCall, argument: pa.DataType | None, retracting: bool) -> Accumulator:
    """The accumulators of a call. ``argument``: the type of its argument; ``retracting``: rows may be taken back."""
    if argument is None:
        return Count(call.name)
    inner = _plain(call, argument, retracting)
    extreme = call.function in ("MIN", "MAX")
    if call.distinct and not extreme or retracting and extreme:
        return Distinct(inner, argument)
    return inner if inner.retracts or not retracting else Listed(inner, argument)


def _plain(call: AggregateCall, argument: pa.DataType, retracting: bool) -> Accumulator:
    if call.function == "COUNT":
        return Count(call.name)
    if call.function == "SUM":
        if pa.types.is_decimal(argument):
            return DecimalSum(call.name, argument, retracting)
        return Sum(call.name, call.result, retracting)
    if call.function == "AVG":
        return Average(call.name, call.result, argument)
    if call.function == "LISTAGG":
        return Texts(call.name, call.separator)
    if call.function.startswith(("VAR", "STDDEV")):
        return Variance(call.function, call.name, call.result)
    return Picked(call.function, call.name, argument)


class Accumulators:
    """The accumulators of all calls of an aggregation, and of the number of rows of a slot, if rows may be taken
    back."""

    def __init__(self, calls: Sequence[AggregateCall], schema: pa.Schema, retracting: bool) -> None:
        self._calls = tuple(calls)
        types = [None if call.column is None else schema.field(call.column).type for call in calls]
        self.parts = [accumulator_of(call, of, retracting) for call, of in zip(calls, types, strict=True)]
        self._rows = Count("row count") if retracting else None
        self._all = [*self.parts, *([] if self._rows is None else [self._rows])]
        self.fields = [field for part in self._all for field in part.fields]
        self._room = ROOM

    def grow(self, size: int) -> None:
        """Make room for so many slots."""
        if size > self._room:
            self._room = max(size, 2 * self._room)
            for part in self._all:
                part.grow(self._room)

    def add(self, slots: Ints, columns: pa.RecordBatch, signs: Ints | None) -> None:
        """Add rows to their slots; those with the sign -1 are taken back."""
        for call, part in zip(self._calls, self.parts, strict=True):
            values = columns.column(0 if call.column is None else call.column) if columns.num_columns else None
            taken = None if call.condition is None else columns.column(call.condition).fill_null(False)
            if call.column is not None and values is not None and values.null_count:
                valid = values.is_valid()
                taken = valid if taken is None else pc.and_(taken, valid)
            if taken is None:
                part.add(slots, values, signs)
                continue
            rows = np.flatnonzero(taken.to_numpy(zero_copy_only=False))
            some = values if call.column is None or values is None else values.take(pa.array(rows))
            part.add(slots[rows], some, None if signs is None else signs[rows])
        if self._rows is not None:
            self._rows.add(slots, None, signs)

    def exist(self, slots: Ints) -> npt.NDArray[np.bool_]:
        """Whether these slots, to which rows were added, have any rows left."""
        return np.ones(len(slots), bool) if self._rows is None else self._rows.arrays["n"][slots] > 0

    def results(self, slots: Ints) -> list[pa.Array]:
        """The results of the calls for these slots."""
        return [part.result(slots) for part in self.parts]

    def clear(self, slots: Ints) -> None:
        """Empty these slots."""
        for part in self._all:
            part.clear(slots)

    def merge(self, slots: Ints, other: Accumulators, others: Ints, earlier: bool = False) -> None:
        """Add what slots of another aggregation of the same calls have to these slots, which are distinct.
        ``earlier``: it had its rows before."""
        for part, of_other in zip(self._all, other._all, strict=True):
            if earlier and isinstance(part, Picked):
                part.merge_earlier(slots, of_other, others)
            else:
                part.merge(slots, of_other, others)

    def stored(self, slots: Ints) -> list[Column]:
        """The values of each field for these slots."""
        return [values for part in self._all for values in part.stored(slots)]

    def load(self, slots: Ints, columns: Sequence[Column]) -> None:
        """The inverse of `stored`, for empty slots."""
        begin, stored = 0, [python_column(column) for column in columns]
        for part in self._all:
            part.load(slots, stored[begin : begin + len(part.fields)])
            begin += len(part.fields)

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory they take."""
        return sum(part.nbytes for part in self._all)
