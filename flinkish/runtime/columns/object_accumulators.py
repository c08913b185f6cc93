"""The aggregate functions that need more than a number for each slot: variances, lists of texts, and those that keep
the values themselves: for DISTINCT, and for rows that may be taken back."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.core.column_batch import python_values
from flinkish.runtime.columns.accumulators import (
    EXACT,
    TOO_LARGE,
    Accumulator,
    Field,
    to_column,
    type_info_of,
)
from flinkish.runtime.columns.keys import ROOM, Ints, KeyIds, arrow_values, first_rows, grown
from flinkish.runtime.stored.column_pickles import Column


class Variance(Accumulator):
    """VAR_POP, VAR_SAMP, STDDEV_POP and STDDEV_SAMP, by Welford's algorithm as Flink has it, row by row."""

    def __init__(self, function: str, name: str, of: pa.DataType) -> None:
        self._root, self._less, self.of = function.startswith("STDDEV"), int(function.endswith("SAMP")), of
        fields = [
            Field(name, type_info_of(of)),
            Field(f"{name} count", Types.LONG()),
            Field(f"{name} mean", Types.DOUBLE()),
            Field(f"{name} squares", Types.DOUBLE()),
        ]
        super().__init__(fields, n=(0, np.int64), mean=(0.0, np.float64), squares=(0.0, np.float64))

    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        numbers = values.cast(pa.float64()).to_numpy()
        signs = np.ones(len(slots), np.int64) if signs is None else signs
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        sizes = np.diff(np.append(begins, len(order)))
        # the first rows of all slots at once, then the second ones, until few slots are left
        for turn in range(int(sizes.max(initial=0))):
            left = begins[sizes > turn]
            if len(left) < _FEW_SLOTS:
                for begin, size in zip(left.tolist(), sizes[sizes > turn].tolist(), strict=True):
                    for row in order[begin + turn : begin + size].tolist():
                        self._step(slots[row : row + 1], numbers[row : row + 1], signs[row : row + 1])
                return
            rows = order[left + turn]
            self._step(slots[rows], numbers[rows], signs[rows])

    def _step(self, slots: Ints, numbers: npt.NDArray[np.float64], signs: Ints) -> None:
        n, mean, squares = (self.arrays[name] for name in ("n", "mean", "squares"))
        counts = n[slots] + signs
        n[slots] = counts
        empty = slots[(counts == 0) & (signs < 0)]
        mean[empty] = squares[empty] = 0.0
        there = counts > 0
        if not there.all():
            slots, numbers, signs, counts = slots[there], numbers[there], signs[there], counts[there]
        with np.errstate(all="ignore"):
            before = numbers - mean[slots]
            mean[slots] += signs * (before / counts)
            squares[slots] += signs * (before * (numbers - mean[slots]))

    def merge(self, slots: Ints, other: Variance, others: Ints) -> None:
        n, mean, squares = (self.arrays[name] for name in ("n", "mean", "squares"))
        there = other.arrays["n"][others] > 0
        slots, others = slots[there], others[there]
        added, own = other.arrays["n"][others], n[slots]
        total = own + added
        apart = other.arrays["mean"][others] - mean[slots]
        fresh = own == 0
        mean[slots] = np.where(fresh, other.arrays["mean"][others], mean[slots] + apart * added / total)
        more = np.where(fresh, 0.0, apart * apart * own * added / total)
        squares[slots] = np.where(fresh, 0.0, squares[slots]) + other.arrays["squares"][others] + more
        n[slots] = total

    def result(self, slots: Ints) -> pa.Array:
        counts, squares = self.arrays["n"][slots], self.arrays["squares"][slots]
        missing = (counts <= self._less) | (squares < 0)
        found = np.where(missing, 0.0, squares) / np.where(missing, 1, counts - self._less)
        if self._root:
            found = np.array([math.pow(number, 0.5) for number in found.tolist()])
        if pa.types.is_decimal(self.of):
            exact = [
                None if gone else decimal_of(number, self.of.scale)
                for number, gone in zip(found.tolist(), missing.tolist(), strict=True)
            ]
            return pa.array(exact, self.of)
        if pa.types.is_integer(self.of):
            found = np.trunc(found)
        return to_column(found, missing, self.of)

    def stored(self, slots: Ints) -> list[Column]:
        return [self.result(slots), *(pa.array(self.arrays[name][slots]) for name in self.arrays)]

    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        for array, values in zip(self.arrays.values(), stored[1:], strict=True):
            array[slots] = [value or 0 for value in values]


#: So few slots are worked on one by one.
_FEW_SLOTS = 4


def decimal_of(number: float, scale: int) -> Decimal | None:
    """A double as DECIMAL(38, scale), halves away from zero; None if it does not fit."""
    if number in (float("inf"), float("-inf")) or number != number:
        return None
    found = EXACT.quantize(Decimal(repr(number)), Decimal(1).scaleb(-scale))
    return found if abs(found) < Decimal(TOO_LARGE).scaleb(-scale) else None


class Texts(Accumulator):
    """LISTAGG."""

    retracts = False

    def __init__(self, name: str, separator: str) -> None:
        super().__init__([Field(name, Types.STRING())], text=(None, object))
        self._separator = separator

    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        lists: dict[int, list[str]] = {}
        for slot, value in zip(slots.tolist(), values.to_pylist(), strict=True):
            lists.setdefault(slot, []).append(value)
        for slot, texts in lists.items():
            self._append(slot, self._separator.join(texts))

    def _append(self, slot: int, text: str) -> None:
        texts = self.arrays["text"]
        texts[slot] = text if texts[slot] is None else texts[slot] + self._separator + text

    def merge(self, slots: Ints, other: Texts, others: Ints) -> None:
        for slot, text in zip(slots.tolist(), other.arrays["text"][others].tolist(), strict=True):
            if text is not None:
                self._append(slot, text)

    def result(self, slots: Ints) -> pa.Array:
        return pa.array(self.arrays["text"][slots].tolist(), pa.string())

    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        self.arrays["text"][slots] = np.array([*stored[0], None], object)[:-1]


class Outer(Accumulator):
    """The base of accumulators that keep the values themselves, and have the results computed by another one."""

    def __init__(self, inner: Accumulator, values: TypeInformation, **fills: tuple[Any, Any]) -> None:
        super().__init__([*inner.fields, Field(f"{inner.fields[0].name} values", values)], **fills)
        self.inner = inner

    def grow(self, size: int) -> None:
        super().grow(size)
        self.inner.grow(size)

    def clear(self, slots: Ints) -> None:
        super().clear(slots)
        self.inner.clear(slots)

    def result(self, slots: Ints) -> pa.Array:
        return self.inner.result(slots)


class Listed(Outer):
    """FIRST_VALUE, LAST_VALUE and LISTAGG of rows that may be taken back: keeps all values in their order. Of equal
    ones the first goes."""

    def __init__(self, inner: Accumulator, of: pa.DataType) -> None:
        super().__init__(inner, Types.LIST(type_info_of(of)), lists=(None, object))
        self._of = of

    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        lists = self.arrays["lists"]
        signed = np.ones(len(slots), np.int64) if signs is None else signs
        for slot, value, sign in zip(slots.tolist(), python_values(values), signed.tolist(), strict=True):
            kept = lists[slot]
            if kept is None:
                kept = lists[slot] = []
            if sign > 0:
                kept.append(value)
            elif value in kept:
                kept.remove(value)
        self._again(np.unique(slots))

    def _again(self, slots: Ints) -> None:
        self.inner.clear(slots)
        lists = self.arrays["lists"][slots].tolist()
        sizes = [len(kept or ()) for kept in lists]
        values = [value for kept in lists for value in kept or ()]
        if values:
            self.inner.add(np.repeat(slots, sizes), arrow_values(values, self._of), None)

    def merge(self, slots: Ints, other: Listed, others: Ints) -> None:
        lists = self.arrays["lists"]
        for slot, of_other in zip(slots.tolist(), other.arrays["lists"][others].tolist(), strict=True):
            lists[slot] = [*(lists[slot] or ()), *(of_other or ())]
        self._again(slots)

    def stored(self, slots: Ints) -> list[Column]:
        return [*self.inner.stored(slots), [list(kept or ()) for kept in self.arrays["lists"][slots].tolist()]]

    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        for slot, kept in zip(slots.tolist(), stored[-1], strict=True):
            self.arrays["lists"][slot] = list(kept or ())
        self._again(slots)


class Distinct(Outer):
    """Counts how often a slot has each value, and passes each on once: DISTINCT, and MIN and MAX of rows that may be
    taken back."""

    def __init__(self, inner: Accumulator, of: pa.DataType) -> None:
        super().__init__(inner, Types.MAP(type_info_of(of), Types.LONG()))
        self._of = of
        self._begin()

    def _begin(self) -> None:
        #: the ids of (slot, value); for each how often it is there, and its slot
        self._pairs = KeyIds([pa.int64(), self._of])
        self._counts, self._slots = np.zeros(ROOM, np.int64), np.zeros(ROOM, np.int64)

    def _ids(self, slots: Ints, values: pa.Array) -> Ints:
        ids = self._pairs.of([pa.array(slots), values])
        self._counts, self._slots = grown(self._counts, self._pairs.count), grown(self._slots, self._pairs.count)
        self._slots[ids] = slots
        return ids

    def add(self, slots: Ints, values: pa.Array, signs: Ints | None) -> None:
        ids = self._ids(slots, values)
        firsts, _ = first_rows(ids, self._pairs.count)
        pairs = ids[firsts]
        before = self._counts[pairs] > 0
        np.add.at(self._counts, ids, 1 if signs is None else signs)
        after = self._counts[pairs] > 0
        gone, new = firsts[before & ~after], firsts[after & ~before]
        if len(gone):
            if not self.inner.retracts:
                self._again(np.unique(slots[gone]))
            else:
                self.inner.add(slots[gone], values.take(pa.array(gone)), np.full(len(gone), -1))
        if len(new):
            self.inner.add(slots[new], values.take(pa.array(new)), None)

    def _of_slots(self, slots: Ints) -> Ints:
        """The pairs of these slots that are there, in the order in which they came."""
        count = self._pairs.count
        wanted = np.zeros(int(max(slots.max(initial=0), self._slots[:count].max(initial=0))) + 1, bool)
        wanted[slots] = True
        return np.flatnonzero((self._counts[:count] > 0) & wanted[self._slots[:count]])

    def _again(self, slots: Ints) -> None:
        self.inner.clear(slots)
        pairs = self._of_slots(slots)
        if len(pairs):
            self.inner.add(self._slots[pairs], self._pairs.columns(pairs)[1], None)

    def merge(self, slots: Ints, other: Distinct, others: Ints) -> None:
        pairs = other._of_slots(others)
        if not len(pairs):
            return
        place = np.zeros(int(others.max()) + 1, np.int64)
        place[others] = slots
        self.add(place[other._slots[pairs]], other._pairs.columns(pairs)[1], None)
        ids = self._ids(place[other._slots[pairs]], other._pairs.columns(pairs)[1])
        self._counts[ids] += other._counts[pairs] - 1

    def clear(self, slots: Ints) -> None:
        super().clear(slots)
        self._counts[self._of_slots(slots)] = 0
        count = self._pairs.count
        if count > 4 * ROOM and 2 * np.count_nonzero(self._counts[:count]) < count:
            there = np.flatnonzero(self._counts[:count])
            of_slots, values, counts = self._slots[there], self._pairs.columns(there)[1], self._counts[there]
            self._begin()
            self._counts[self._ids(of_slots, values)] = counts

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes + self._pairs.nbytes + self._counts.nbytes + self._slots.nbytes

    def stored(self, slots: Ints) -> list[Column]:
        pairs = self._of_slots(slots)
        maps: dict[int, dict[Any, int]] = {slot: {} for slot in slots.tolist()}
        values = python_values(self._pairs.columns(pairs)[1])
        of_pairs = self._slots[pairs].tolist(), self._counts[pairs].tolist()
        for slot, count, value in zip(*of_pairs, values, strict=True):
            maps[slot][value] = count
        return [*self.inner.stored(slots), list(maps.values())]

    def load(self, slots: Ints, stored: list[list[Any]]) -> None:
        self.inner.load(slots, stored[:-1])
        maps = [kept or {} for kept in stored[-1]]
        values = [value for kept in maps for value in kept]
        if values:
            ids = self._ids(np.repeat(slots, list(map(len, maps))), arrow_values(values, self._of))
            self._counts[ids] = [count for kept in maps for count in kept.values()]
