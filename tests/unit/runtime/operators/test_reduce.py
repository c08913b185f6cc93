"""Rolling reduce, sum, min, max, min_by and max_by."""

from __future__ import annotations

from collections import namedtuple
from decimal import Context, Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.common.typeinfo import Types
from flinkish.common.types import Row
from flinkish.core.functions import ReduceFunction, RuntimeContext
from flinkish.core.state import ValueStateDescriptor
from flinkish.errors import TypeMismatchError
from flinkish.runtime.operators.reduce import (
    AccumulateType,
    ReduceFactory,
    RollingAggregation,
    RollingAggregationFactory,
)
from flinkish.testing import KeyedOneInputStreamOperatorTestHarness as KeyedHarness
from flinkish.testing import StreamRecord
from tests.support.changed_keys import changed_keys

SUM, MIN, MAX = AccumulateType.SUM, AccumulateType.MIN, AccumulateType.MAX
MIN_BY, MAX_BY = AccumulateType.MIN_BY, AccumulateType.MAX_BY
Sale = namedtuple("Sale", "shop amount note")


def rolling(kind: AccumulateType, position: Any, records: list[Any], key: Any = lambda v: v[0]) -> list[Any]:
    with KeyedHarness(RollingAggregationFactory(kind, position), key) as harness:
        harness.process_elements(records)
        return harness.take_values()


def test_each_record_gives_what_was_reduced_so_far_for_its_key_with_its_timestamp() -> None:
    factory = ReduceFactory(lambda a, b: (a[0], a[1] + b[1]))
    with KeyedHarness(factory, lambda v: v[0], recording=True) as harness:
        harness.process_elements([("a", 1), ("b", 10), ("a", 2)], [5, 6, 7])
        assert harness.take_output() == [
            StreamRecord(("a", 1), 5),
            StreamRecord(("b", 10), 6),
            StreamRecord(("a", 3), 7),
        ]
        assert harness.backend is not None
        assert changed_keys(harness.backend) == {"_reduce_state": {(None, "a"), (None, "b")}}
        body = harness.snapshot()
        harness.process_element(("b", 1))
        assert changed_keys(harness.backend) == {"_reduce_state": {(None, "b")}}
        assert harness.take_values() == [("b", 11)]
    with KeyedHarness(factory, lambda v: v[0], restored=body) as harness:
        harness.process_elements([("b", 5), ("c", 1)])
        assert harness.take_values() == [("b", 15), ("c", 1)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=50), st.integers(1, 10))
def test_batches_make_no_difference(records: list[tuple[str, int]], size: int) -> None:
    totals: dict[str, int] = {}
    expected = []
    for key, number in records:
        totals[key] = totals.get(key, 0) + number
        expected.append((key, totals[key]))
    with KeyedHarness(RollingAggregationFactory(SUM, 1), lambda v: v[0]) as harness:
        for start in range(0, len(records), size):
            harness.process_elements(records[start : start + size])
        assert harness.take_values() == expected


def test_a_reduce_function_may_change_and_return_its_first_argument() -> None:
    def in_place(first: Any, second: Any) -> Any:
        first[1] += second[1]
        return first

    for make in (list, lambda fields: Row(*fields)):
        with KeyedHarness(ReduceFactory(in_place), lambda v: v[0]) as harness:
            harness.process_elements([make(["a", 1]), make(["a", 2]), make(["a", 3])])
            harness.process_elements([make(["a", 4])])
            assert harness.take_values() == [make(["a", n]) for n in (1, 3, 6, 10)]


def test_a_reduce_function_that_returns_none_is_refused() -> None:
    harness = KeyedHarness(ReduceFactory(lambda a, b: None), lambda v: v)
    with pytest.raises(TypeMismatchError, match=r"the reduce function \(key 'a'\) returned None.*uid tested"):
        harness.process_elements(["a", "a"])


def test_a_reduce_function_may_use_keyed_state() -> None:
    class CountReductions(ReduceFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.count = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))

        def reduce(self, value1: Any, value2: Any) -> Any:
            self.count.update((self.count.value() or 0) + 1)
            return value1[0], self.count.value()

    with KeyedHarness(ReduceFactory(CountReductions()), lambda v: v[0]) as harness:
        harness.process_elements([("a", 0), ("b", 0), ("a", 0), ("a", 0), ("b", 0)])
        assert harness.take_values() == [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (SUM, [("a", 5, "first"), ("a", 7, "first"), ("a", 9, "first"), ("a", 18, "first")]),
        (MIN, [("a", 5, "first"), ("a", 2, "first"), ("a", 2, "first"), ("a", 2, "first")]),
        (MAX, [("a", 5, "first"), ("a", 5, "first"), ("a", 5, "first"), ("a", 9, "first")]),
        (MIN_BY, [("a", 5, "first"), ("a", 2, "second"), ("a", 2, "second"), ("a", 2, "second")]),
        (MAX_BY, [("a", 5, "first"), ("a", 5, "first"), ("a", 5, "first"), ("a", 9, "last")]),
    ],
)
@pytest.mark.parametrize(
    ("make", "position"),
    [
        (tuple, 1),
        (tuple, -2),
        (list, 1),
        (lambda fields: Row(*fields), 1),
        (lambda fields: Row("shop", "amount", "note")(*fields), "amount"),
        (lambda fields: Sale(*fields), "amount"),
        (lambda fields: Sale(*fields), 1),
    ],
    ids=["tuple", "negative index", "list", "Row", "named Row", "named tuple by name", "named tuple"],
)
def test_fields_are_aggregated_as_in_flink_in_every_kind_of_record(
    kind: AccumulateType, expected: list[Any], make: Any, position: Any
) -> None:
    records = [make(r) for r in [("a", 5, "first"), ("a", 2, "second"), ("a", 2, "third"), ("a", 9, "last")]]
    results = rolling(kind, position, records)
    assert results == [make(record) for record in expected]
    assert {type(result) for result in results} == {type(records[0])}
    assert records == [make(r) for r in [("a", 5, "first"), ("a", 2, "second"), ("a", 2, "third"), ("a", 9, "last")]]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(SUM, [3, 4, 9]), (MIN, [3, 1, 1]), (MAX, [3, 3, 5]), (MIN_BY, [3, 1, 1]), (MAX_BY, [3, 3, 5])],
)
def test_single_values_are_their_own_field(kind: AccumulateType, expected: list[int]) -> None:
    assert rolling(kind, 0, [3, 1, 5], key=lambda v: "all") == expected


@pytest.mark.parametrize(
    ("record", "position"),
    [(("a", 1), 2), (("a", 1), "amount"), (["a", 1], "amount"), (Row("a", 1), 5), (Row(a=1), "b"), (3, 1), (3, "x")],
)
def test_a_field_that_records_do_not_have_is_refused(record: Any, position: Any) -> None:
    with pytest.raises(TypeMismatchError, match="field"):
        rolling(SUM, position, [record, record], key=lambda v: "all")


def test_a_position_is_an_index_or_a_name() -> None:
    with pytest.raises(TypeError, match="must be of int or str type"):
        RollingAggregation(SUM, 1.5)  # type: ignore[arg-type]


def test_records_of_several_types_in_one_stream_are_aggregated() -> None:
    assert rolling(SUM, 1, [("a", 1), ["b", 1], ("a", 2), ["b", 2]]) == [("a", 1), ["b", 1], ("a", 3), ["b", 3]]


BIG, SMALL = Decimal("12345678901234567890123456789012345678"), Decimal("0.123456789012345678901234567890")


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: ("a", v), lambda v: ["a", v], lambda v: Row("a", v)])
def test_sums_of_decimals_are_exact_as_in_java(wrap: Any) -> None:
    position = 0 if wrap(1) == 1 else 1
    sums = [
        "12345678901234567890123456789012345678",
        "12345678901234567890123456789012345678.123456789012345678901234567890",
    ]
    sums.append("12345678901234567890123456789012345679.123456789012345678901234567890")
    sums.append("12345678901234567890123456789012345679.1234567890123456789012345678900000000001")
    with localcontext(Context(prec=3)):
        found = rolling(SUM, position, list(map(wrap, [BIG, SMALL, 1, Decimal("1e-40")])), key=lambda v: "a")
        # as windows call it
        of_two = RollingAggregation(SUM, position).reduce(wrap(BIG), wrap(SMALL))
    assert found == [wrap(Decimal(text)) for text in sums]
    assert of_two == found[1]
