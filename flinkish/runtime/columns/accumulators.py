"""Aggregate functions over columns: each keeps arrays in which a key, or a key and a window, has a place (its *slot*).

Results are those of a loop over the rows in their order: sums of doubles too, bit by bit. NULL is ignored, and without
any value a result is NULL (of COUNT, 0). Sums of integers wrap around; those of decimals are exact, and NULL once they
have more than 38 digits. AVG is the sum divided by the count; of integers, which are added up in 64 bits, towards zero.

An accumulator also says in which fields of a Row its state is stored. The first is the result itself, so that SQL reads
well; what else must be known follows, such as ``AVG(amount) count``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.core.column_batch import python_values
from flinkish.runtime.columns.keys import ROOM, Ints, arrow_values, first_rows, grown
from flinkish.runtime.stored.column_pickles import Column

EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_HALF_UP)
#: The first sum that DECIMAL(38, scale) cannot hold, without its point.
TOO_LARGE = 10**38
#: Decimals of so many digits can be added up in 64 bits within a batch.
_FEW_DIGITS = 12
_WORD = 1 << 64


def type_info_of(of: pa.DataType) -> TypeInformation:
    """The type of a column as state declares it."""
    for is_it, made in _TYPES:
        if is_it(of):
            return made()
    if pa.types.is_timestamp(of):
        return Types.SQL_TIMESTAMP() if of.tz is None else Types.INSTANT()
    return Types.PICKLED_BYTE_ARRAY()


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[], TypeInformation]], ...] = (
    (pa.types.is_int64, Types.LONG),
    (pa.types.is_int32, Types.INT),
    (pa.types.is_int16, Types.SHORT),
    (pa.types.is_int8, Types.BYTE),
    (pa.types.is_float64, Types.DOUBLE),
    (pa.types.is_float32, Types.FLOAT),
    (pa.types.is_boolean, Types.BOOLEAN),
    (pa.types.is_string, Types.STRING),
    (pa.types.is_large_string, Types.STRING),
    (pa.types.is_decimal, Types.BIG_DEC),
    (pa.types.is_date, Types.SQL_DATE),
    (pa.types.is_time, Types.SQL_TIME),
)


class Field(NamedTuple):
    """A field of the stored Row."""

    name: str
    type: TypeInformation


def _is_flat(of: pa.DataType) -> bool:
    """Whether values are numbers of a fixed width for numpy."""
    return bool(
        pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_boolean(of) or pa.types.is_temporal(of)
    )


def _flat(column: pa.Array) -> npt.NDArray[Any]:
    """The values of such a column, without NULL."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    values: npt.NDArray[Any] = column.to_numpy()
    return values


def to_column(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_], of: pa.DataType) -> pa.Array:
    """The inverse of `_flat`; ``missing``: where NULL is."""
    mask = missing if missing.any() else None
    if pa.types.is_temporal(of):
        return pa.array(values, mask=mask).view(of)
    column = pa.array(values, mask=mask)
    return column if column.type == of else column.cast(of, safe=False)


def _loaded(values: Sequence[Any], of: pa.DataType) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Python values as an array of numbers, with 0 for NULL, and where there are values."""
    column = arrow_values(values, of)
    there = column.is_valid().to_numpy(zero_copy_only=False)
    flat = np.zeros(len(values), _dtype(of))
    flat[there] = _flat(column.drop_null())
    return flat, there


def _dtype(of: pa.DataType) -> Any:
    if pa.types.is_boolean(of):
        return np.int8
    if pa.types.is_temporal(of):
        return np.int32 if of.bit_width == 32 else np.int64
    return of.to_pandas_dtype()


class Accumulator(ABC):
    """The accumulators of one aggregate call, of all slots. ``fills``: name of an array -> the value and the type of an
    empty slot."""

    #: whether values can be taken back
    retracts = True

    def __init__(self, fields: Sequence[Field], **fills: tuple[Any, Any]) -> None:
        self.fields = tuple(fields)
        self._fills = {name: fill for name, (fill, _) in fills.items()}
        self.arrays = {name: np.full(ROOM, fill, dtype) for name, (fill, dtype) in fills.items()}

    def grow(self, size: int) -> None:
        """Make room for so many slots."""
        for name, fill in self._fills.items():
            self.arrays[name] = grown(self.arrays[name], size, fill)

    def clear(self, slots: Ints) -> None:
        """Empty these slots."""
        for name, fill in self._fills.items():
            self.arrays[name][slots] = fill

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory it takes."""
        return sum(array.nbytes for array in self.arrays.values())

    @abstractmethod
    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        """Add the values, of which none is NULL, to their slots in their order; those with the sign -1 are taken
        back."""

    @abstractmethod
    def merge(self, slots: Ints, other: Any, others: Ints) -> None:
        """Add what slots of another accumulator of the call have, ``others``, to these slots, which are distinct."""

    @abstractmethod
    def result(self, slots: Ints) -> pa.Array:
        """The results of these slots."""

    def stored(self, slots: Ints) -> list[Column]:
        """The values of each field for these slots."""
        return [self.result(slots)]

    @abstractmethod
    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        """The inverse of `stored`, for empty slots. A field that was not stored is None."""


class Count(Accumulator):
    """COUNT."""

    def __init__(self, name: str) -> None:
        super().__init__([Field(name, Types.LONG())], n=(0, np.int64))

    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        np.add.at(self.arrays["n"], slots, 1 if signs is None else signs)

    def merge(self, slots: Ints, other: Count, others: Ints) -> None:
        self.arrays["n"][slots] += other.arrays["n"][others]

    def result(self, slots: Ints) -> pa.Array:
        return pa.array(self.arrays["n"][slots])

    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        self.arrays["n"][slots] = [number or 0 for number in stored[0]]


class Sum(Accumulator):
    """SUM of integers and floats. It counts its values only if they can be taken back: ``n`` is 1 then, or 0."""

    def __init__(self, name: str, of: pa.DataType, retracting: bool) -> None:
        fields = [Field(name, type_info_of(of)), *([Field(f"{name} count", Types.LONG())] if retracting else [])]
        total = np.int64 if pa.types.is_integer(of) else _dtype(of)
        super().__init__(fields, total=(0, total), n=(0, np.int64))
        self.of = of

    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        total = self.arrays["total"]
        numbers = _flat(values).astype(total.dtype, copy=False)
        np.add.at(total, slots, numbers if signs is None else numbers * signs.astype(total.dtype))
        if len(self.fields) > 1:
            np.add.at(self.arrays["n"], slots, 1 if signs is None else signs)
        else:
            self.arrays["n"][slots] = 1

    def merge(self, slots: Ints, other: Sum, others: Ints) -> None:
        there = other.arrays["n"][others] != 0
        slots, others = slots[there], others[there]
        self.arrays["total"][slots] += other.arrays["total"][others]
        if len(self.fields) > 1:
            self.arrays["n"][slots] += other.arrays["n"][others]
        else:
            self.arrays["n"][slots] = 1

    def totals(self, slots: Ints) -> npt.NDArray[Any]:
        """The sums, wrapped around to their type."""
        totals: npt.NDArray[Any] = self.arrays["total"][slots].astype(_dtype(self.of), copy=False)
        return totals

    def result(self, slots: Ints) -> pa.Array:
        return to_column(self.totals(slots), self.arrays["n"][slots] == 0, self.of)

    def stored(self, slots: Ints) -> list[Column]:
        return [self.result(slots), *([pa.array(self.arrays["n"][slots])] if len(self.fields) > 1 else [])]

    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        self.arrays["total"][slots], there = _loaded(stored[0], self.of)
        self.arrays["n"][slots] = there
        if len(stored) > 1:
            self.arrays["n"][slots] = [number or 0 for number in stored[1]]


class DecimalSum(Accumulator):
    """SUM of decimals, as Python's integers without the point."""

    def __init__(self, name: str, of: pa.DataType, retracting: bool) -> None:
        fields = [Field(name, Types.BIG_DEC()), *([Field(f"{name} count", Types.LONG())] if retracting else [])]
        super().__init__(fields, total=(0, object), n=(0, np.int64))
        self.scale = of.scale

    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        numbers = unscaled(values)
        if signs is not None:
            numbers = numbers * signs
        firsts, local = first_rows(slots, len(self.arrays["n"]))
        sums = np.zeros(len(firsts), numbers.dtype)
        np.add.at(sums, local, numbers)
        touched = slots[firsts]
        self.arrays["total"][touched] += sums.astype(object)
        np.add.at(self.arrays["n"], slots, 1 if signs is None else signs)

    def merge(self, slots: Ints, other: DecimalSum, others: Ints) -> None:
        for name in ("total", "n"):
            self.arrays[name][slots] += other.arrays[name][others]

    def totals(self, slots: Ints) -> npt.NDArray[Any]:
        """The sums without their point; None: there is none."""
        totals: npt.NDArray[Any] = self.arrays["total"][slots]
        totals[self.arrays["n"][slots] == 0] = None
        return totals

    def result(self, slots: Ints) -> pa.Array:
        return decimals(self.totals(slots), pa.decimal128(38, self.scale))

    def stored(self, slots: Ints) -> list[Column]:
        scaled = [None if n is None else EXACT.scaleb(Decimal(n), -self.scale) for n in self.totals(slots).tolist()]
        return [scaled, *([pa.array(self.arrays["n"][slots])] if len(self.fields) > 1 else [])]

    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        totals = np.empty(len(slots), object)
        totals[:] = [0 if number is None else int(EXACT.scaleb(number, self.scale)) for number in stored[0]]
        self.arrays["total"][slots] = totals
        self.arrays["n"][slots] = [number is not None for number in stored[0]]
        if len(stored) > 1:
            self.arrays["n"][slots] = [number or 0 for number in stored[1]]


def unscaled(column: pa.Array) -> npt.NDArray[Any]:
    """The decimals of a column without their point: 64-bit numbers if many of them can be added up, else Python's."""
    precision, scale = column.type.precision, column.type.scale
    column = column.cast(pa.decimal128(max(precision, 1), scale))
    words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
    if precision <= _FEW_DIGITS:
        few: npt.NDArray[Any] = words[::2].copy()
        return few
    numbers: npt.NDArray[Any] = words[1::2].astype(object) * _WORD + words[::2].view(np.uint64).astype(object)
    return numbers


def decimals(numbers: npt.NDArray[Any], of: pa.DataType) -> pa.Array:
    """The inverse of `unscaled`, for Python's integers: None, and what has too many digits, is NULL."""
    fits = np.array([n is not None and -TOO_LARGE < n < TOO_LARGE for n in numbers.tolist()], bool)
    words = np.zeros(2 * len(numbers), np.int64)
    some = numbers[fits]
    words[::2][fits] = (some % _WORD).astype(np.uint64).view(np.int64)
    words[1::2][fits] = (some // _WORD).astype(np.int64)
    validity = None if fits.all() else pa.py_buffer(np.packbits(fits, bitorder="little"))
    return pa.Array.from_buffers(of, len(numbers), [validity, pa.py_buffer(words)])


class Average(Accumulator):
    """AVG: the sum, divided by the count."""

    def __init__(self, name: str, of: pa.DataType, argument: pa.DataType) -> None:
        self.of, self._scale = of, argument.scale if pa.types.is_decimal(argument) else 0
        if pa.types.is_decimal(argument):
            self.sum: Any = DecimalSum(f"{name} sum", argument, True)
        else:
            wide = pa.int64() if pa.types.is_integer(argument) else pa.float64()
            self.sum = Sum(f"{name} sum", wide, True)
        counted = Field(f"{name} count", Types.LONG())
        super().__init__([Field(name, type_info_of(of)), self.sum.fields[0], counted])

    def grow(self, size: int) -> None:
        self.sum.grow(size)

    def clear(self, slots: Ints) -> None:
        self.sum.clear(slots)

    @property
    def nbytes(self) -> int:
        return int(self.sum.nbytes)

    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        self.sum.add(slots, values, signs)

    def merge(self, slots: Ints, other: Average, others: Ints) -> None:
        self.sum.merge(slots, other.sum, others)

    def result(self, slots: Ints) -> pa.Array:
        totals, counts = self.sum.totals(slots), self.sum.arrays["n"][slots]
        missing = counts == 0
        counts = np.where(missing, 1, counts)
        if isinstance(self.sum, DecimalSum):
            return decimals(_divided(totals, counts, self.of.scale - self._scale), self.of)
        if pa.types.is_floating(self.of):
            return to_column((totals / counts).astype(_dtype(self.of)), missing, self.of)
        quotient = totals // counts
        quotient += (quotient < 0) & (quotient * counts != totals)
        return to_column(quotient.astype(_dtype(self.of)), missing, self.of)

    def stored(self, slots: Ints) -> list[Column]:
        return [self.result(slots), *self.sum.stored(slots)]

    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        self.sum.load(slots, stored[1:])


def _divided(totals: npt.NDArray[Any], counts: Ints, more: int) -> npt.NDArray[Any]:
    """Sums without their point, divided, with so many more digits behind it, halves away from zero."""
    found = np.empty(len(totals), object)
    for place, (total, count) in enumerate(zip(totals.tolist(), counts.tolist(), strict=True)):
        if total is not None and -TOO_LARGE < total < TOO_LARGE:
            number = (2 * abs(total) * 10**more + count) // (2 * count)
            found[place] = number if total >= 0 else -number
    return found


class Picked(Accumulator):
    """MIN, MAX, FIRST_VALUE and LAST_VALUE: one of the values."""

    retracts = False

    def __init__(self, function: str, name: str, of: pa.DataType) -> None:
        self._function, self.of = function, of
        self._flat = _is_flat(of)
        value = (0, _dtype(of)) if self._flat else (None, object)
        super().__init__([Field(name, type_info_of(of))], value=value, there=(False, np.bool_))

    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        if not self._flat and self._function in ("MIN", "MAX"):
            function = self._function.lower()
            pairs = pa.table({"slot": slots, "value": values}).group_by("slot", use_threads=False)
            best = pairs.aggregate([("value", function)])
            self._take(best.column("slot").to_numpy(), best.column(f"value_{function}").combine_chunks())
        elif self._flat:
            self._take(slots, values)
        else:
            # only the rows that count become Python objects
            order = slots[::-1] if self._function == "LAST_VALUE" else slots
            rows, _ = first_rows(order, len(self.arrays["there"]))
            rows = len(slots) - 1 - rows if self._function == "LAST_VALUE" else rows
            self._take(slots[rows], values.take(pa.array(rows)))

    def _take(self, slots: Ints, values: pa.Array) -> None:
        if self._flat:
            self._pick(slots, _flat(values))
            return
        found = np.empty(len(slots), object)
        found[:] = python_values(values)
        self._pick(slots, found)

    def _pick(self, slots: Ints, values: npt.NDArray[Any], function: str = "") -> None:
        value, there, function = self.arrays["value"], self.arrays["there"], function or self._function
        if function == "LAST_VALUE":
            value[slots] = values
            there[slots] = True
            return
        new = np.flatnonzero(~there[slots])
        if len(new):
            # the first of several rows is assigned last
            value[slots[new[::-1]]] = values[new[::-1]]
            there[slots[new]] = True
        if function == "FIRST_VALUE":
            return
        least = self._function == "MIN"
        if not self._flat:
            for slot, one in zip(slots.tolist(), values.tolist(), strict=True):
                if one < value[slot] if least else one > value[slot]:
                    value[slot] = one
            return
        if values.dtype.kind == "f" and np.isnan(values).any():
            # nothing is less or greater than NaN, which is the result only if it comes first
            numbers = ~np.isnan(values)
            slots, values = slots[numbers], values[numbers]
        with np.errstate(invalid="ignore"):
            (np.minimum if least else np.maximum).at(value, slots, values)

    def merge(self, slots: Ints, other: Picked, others: Ints) -> None:
        there = other.arrays["there"][others]
        self._pick(slots[there], other.arrays["value"][others[there]])

    def merge_earlier(self, slots: Ints, other: Any, others: Ints) -> None:
        """Merge what came before the values of these slots."""
        there = other.arrays["there"][others]
        turned = {"FIRST_VALUE": "LAST_VALUE", "LAST_VALUE": "FIRST_VALUE"}.get(self._function, "")
        self._pick(slots[there], other.arrays["value"][others[there]], turned)

    def result(self, slots: Ints) -> pa.Array:
        values, there = self.arrays["value"][slots], self.arrays["there"][slots]
        return to_column(values, ~there, self.of) if self._flat else arrow_values(values.tolist(), self.of)

    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        if self._flat:
            self.arrays["value"][slots], self.arrays["there"][slots] = _loaded(stored[0], self.of)
            return
        values = np.empty(len(slots), object)
        values[:] = stored[0]
        self.arrays["value"][slots] = values
        self.arrays["there"][slots] = [value is not None for value in stored[0]]
