"""Aggregate functions of tests."""

from __future__ import annotations

from typing import Any

from flinkish.datastream.functions import AggregateFunction


class ListOf(AggregateFunction):
    """All values, in an accumulator that is changed in place."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return acc_a + acc_b
