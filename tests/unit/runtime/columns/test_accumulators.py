"""Aggregate functions over columns, against loops over the rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flinkish.runtime.columns.calls import Accumulators
from flinkish.runtime.columns.described import AggregateCall
from flinkish.runtime.stored.column_pickles import python_column
from tests.support.column_operators import batch_of

EXACT = Context(prec=200, rounding=ROUND_HALF_UP)
#: The values of a type: NULL, ordinary ones and extreme ones.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [None, 1, -1, 127, -128],
    pa.int32(): [None, 1, 7, -(2**31), 2**31 - 1],
    pa.int64(): [None, 1, -5, -(2**63), 2**63 - 1],
    pa.float64(): [None, 0.1, -0.7, 1e16, 1e-300, 3.0],
    pa.float32(): [None, 0.5, -1.25, 1e10],
    pa.decimal128(10, 2): [None, Decimal("0.01"), Decimal("-7.25"), Decimal("99999999.99")],
    pa.decimal128(38, 4): [None, Decimal("0.0001"), Decimal("-1") * 10**33, Decimal("9") * 10**33],
    pa.string(): [None, "", "a", "B", "ü", "\U0001f600", "\uffff", "aa"],
    pa.bool_(): [None, True, False],
    pa.binary(): [None, b"", b"\xff", b"a"],
    pa.date32(): [None, 0, 19_000, -1],
    pa.timestamp("us"): [None, 0, 1_700_000_000_000_001, -1],
    pa.timestamp("ms", "UTC"): [None, 0, 1_700_000_000_000, -1],
}
INTS, FLOATS = [pa.int8(), pa.int32(), pa.int64()], [pa.float64(), pa.float32()]
DECIMALS = [pa.decimal128(10, 2), pa.decimal128(38, 4)]


def wrapped(total: int, of: pa.DataType) -> int:
    half = 1 << (of.bit_width - 1)
    return (total + half) % (2 * half) - half


def added(values: list[Any], of: pa.DataType) -> Any:
    """SUM."""
    if not values:
        return None
    if of in INTS:
        return wrapped(sum(values), of)
    if of in DECIMALS:
        total = Decimal(0)
        for value in values:
            total = EXACT.add(total, value)
        return total if abs(EXACT.scaleb(total, of.scale)) < 10**38 else None
    total = values[0] + 0.0
    for value in values[1:]:
        total = float(np.float32(total) + np.float32(value)) if of == pa.float32() else total + value
    return total


def average(values: list[Any], of: pa.DataType) -> Any:
    total = added(values, pa.int64() if of in INTS else pa.float64() if of in FLOATS else of)
    if total is None:
        return None
    if of in INTS:
        return abs(total) // len(values) * (1 if total >= 0 else -1)
    if of in DECIMALS:
        found = EXACT.quantize(EXACT.divide(total, Decimal(len(values))), Decimal(1).scaleb(-max(6, of.scale)))
        return found if abs(EXACT.scaleb(found, max(6, of.scale))) < 10**38 else None
    return float(np.float32(total / len(values))) if of == pa.float32() else total / len(values)


def moments(values: list[Any]) -> tuple[int, float]:
    """Welford's algorithm, as Flink has it."""
    n, mean, squares = 0, 0.0, 0.0
    for value in values:
        n += 1
        before = float(value) - mean
        mean += before / n
        squares += before * (float(value) - mean)
    return n, squares


def variance(less: int, root: bool) -> Callable[[list[Any], pa.DataType], Any]:
    def compute(values: list[Any], of: pa.DataType) -> Any:
        n, squares = moments(values)
        if n <= less:
            return None
        found = squares / (n - less)
        return math.pow(found, 0.5) if root else found

    return compute


FUNCTIONS: dict[str, tuple[Callable[[list[Any], pa.DataType], Any], list[pa.DataType]]] = {
    "COUNT": (lambda values, of: len(values), list(VALUES)),
    "SUM": (added, [*INTS, *FLOATS, *DECIMALS]),
    "AVG": (average, [*INTS, *FLOATS, *DECIMALS]),
    "MIN": (lambda values, of: min(values, default=None), list(VALUES)),
    "MAX": (lambda values, of: max(values, default=None), list(VALUES)),
    "FIRST_VALUE": (lambda values, of: values[0] if values else None, list(VALUES)),
    "LAST_VALUE": (lambda values, of: values[-1] if values else None, list(VALUES)),
    "VAR_POP": (variance(0, False), [pa.float64()]),
    "VAR_SAMP": (variance(1, False), [pa.float64()]),
    "STDDEV_POP": (variance(0, True), [pa.float64()]),
    "STDDEV_SAMP": (variance(1, True), [pa.float64()]),
    "LISTAGG": (lambda values, of: ",".join(values) if values else None, [pa.string()]),
}
CASES = [(function, of) for function, (_, types) in FUNCTIONS.items() for of in types]


def result_type(function: str, of: pa.DataType) -> pa.DataType:
    if function == "COUNT":
        return pa.int64()
    if of in DECIMALS:
        scale = {"AVG": max(6, of.scale)}.get(function, of.scale)
        return of if function not in ("SUM", "AVG") else pa.decimal128(38, scale)
    return of


def call_of(function: str, of: pa.DataType, **options: Any) -> AggregateCall:
    return AggregateCall(function, f"{function}(x)", "x", result_type(function, of), **options)


def plain(of: pa.DataType, value: Any) -> Any:
    """A value as Arrow gives it."""
    return pa.array([value], of).to_pylist()[0]


class Kept:
    """The accumulators of one call, beside the values of each slot."""

    def __init__(self, call: AggregateCall, of: pa.DataType, retracting: bool) -> None:
        self.call, self.of, self.retracting = call, of, retracting
        self.schema = pa.schema([("x", of), ("f", pa.bool_())])
        self.made = self._new()
        self.values: dict[int, list[Any]] = {}

    def _new(self) -> Accumulators:
        made = Accumulators([self.call], self.schema, self.retracting)
        made.grow(3_000)
        return made

    def add(self, rows: list[tuple[int, Any, Any, int]]) -> None:
        """Add rows: slot, value, condition, sign."""
        batch = batch_of(self.schema, [(value, taken) for _, value, taken, _ in rows])
        signs = np.array([sign for *_, sign in rows]) if self.retracting else None
        self.made.add(np.array([slot for slot, *_ in rows]), batch.columns, signs)
        for slot, value, taken, sign in rows:
            kept = self.values.setdefault(slot, [])
            if value is None or self.call.condition is not None and not taken:
                continue
            if sign > 0:
                kept.append(plain(self.of, value))
            else:
                kept.remove(plain(self.of, value))

    def reload(self) -> None:
        """Store all slots, and load them into new accumulators."""
        slots = np.array(sorted(self.values), np.int64)
        stored, self.made = [python_column(column) for column in self.made.stored(slots)], self._new()
        self.made.load(slots, stored)

    def check(self) -> None:
        slots = sorted(self.values)
        expected = []
        for slot in slots:
            values = self.values[slot]
            if self.call.distinct:
                values = list(dict.fromkeys(values))
            expected.append(FUNCTIONS[self.call.function][0](values, self.of))
        found = self.made.results(np.array(slots, np.int64))[0]
        assert found.type == self.call.result
        assert repr(found.to_pylist()) == repr(pa.array(expected, self.call.result).to_pylist())


@pytest.mark.parametrize(("function", "of"), CASES, ids=str)
@pytest.mark.parametrize("options", [{}, {"condition": "f"}, {"distinct": True}], ids=["", "FILTER", "DISTINCT"])
def test_results_are_those_of_a_loop_over_the_rows(function: str, of: pa.DataType, options: dict[str, Any]) -> None:
    rng = random.Random(f"{function} {of}")
    kept = Kept(call_of(function, of, **options), of, retracting=False)
    for batch in range(6):
        slots = [3, 2_999, 0] if batch % 2 else range(40)
        kept.add([(rng.choice(slots), rng.choice(VALUES[of]), rng.choice([True, False, None]), 1) for _ in range(60)])
        kept.check()
        kept.reload()
        kept.check()


@pytest.mark.parametrize(("function", "of"), [case for case in CASES if case[1] not in FLOATS], ids=str)
@pytest.mark.parametrize("options", [{}, {"condition": "f"}, {"distinct": True}], ids=["", "FILTER", "DISTINCT"])
def test_rows_that_are_taken_back_do_not_count(function: str, of: pa.DataType, options: dict[str, Any]) -> None:
    rng = random.Random(f"{function} {of}")
    kept = Kept(call_of(function, of, **options), of, retracting=True)
    there: list[tuple[int, Any, Any]] = []
    for _ in range(8):
        rows: list[tuple[int, Any, Any, int]] = []
        for _ in range(30):
            if there and rng.random() < 0.5:
                # a distinct value that comes again has its old place: so all of one value go or come at once
                row = there.pop(rng.randrange(len(there)))
                rows.append((*row, -1))
            else:
                new = rng.choice([0, 5, 2_999]), rng.choice(VALUES[of]), rng.choice([True, False, None])
                there.append(new)
                rows.append((*new, 1))
        kept.add(rows)
        if not (options.get("distinct") and function in ("FIRST_VALUE", "LAST_VALUE", "LISTAGG")):
            kept.check()
            kept.reload()
            kept.check()


@pytest.mark.parametrize(("function", "of"), CASES, ids=str)
def test_two_slots_are_merged_to_one(function: str, of: pa.DataType) -> None:
    if of in FLOATS and function in ("SUM", "AVG"):
        values = [None, 0.5, 2.0, -8.0]
    else:
        values = VALUES[of] if of not in FLOATS else [None, 0.5, 2.0]
    for distinct in (False, True):
        rng = random.Random(f"{function} {of}")
        one, other = (Kept(call_of(function, of, distinct=distinct), of, retracting=False) for _ in range(2))
        for kept in (one, other):
            kept.add([(rng.randrange(4), rng.choice(values), True, 1) for _ in range(12)])
        one.made.merge(np.array([7, 0, 1]), other.made, np.array([0, 1, 2]))
        for slot, of_other in ((7, 0), (0, 1), (1, 2)):
            one.values[slot] = [*one.values.get(slot, []), *other.values.get(of_other, [])]
        if not function.startswith(("VAR", "STDDEV")):
            one.check()


def test_an_extreme_is_nan_only_if_it_comes_first() -> None:
    for first, expected in (([math.nan, 1.0], "nan"), ([1.0, math.nan, 0.5, math.nan, 2.0], "0.5")):
        kept = Kept(call_of("MIN", pa.float64()), pa.float64(), retracting=False)
        for value in first:
            kept.made.add(np.array([0]), batch_of(kept.schema, [(value, True)]).columns, None)
        assert str(kept.made.results(np.array([0]))[0][0]) == expected
