"""``flat_map``: any number of results for each record. On a keyed stream the function may use keyed state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.core.functions import FlatMapFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.outputs import Converter


class FlatMapOperator(UserFunctionOperator):
    """Emits the results of a FlatMapFunction, each with the timestamp of its record. A falsy return value stands for no
    results."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.collect(*self.flat_results(values, timestamps, input_index))


@dataclass
class FlatMapFactory(OperatorFactoryBase):
    """Makes the operator of ``flat_map``. ``converter`` converts the results of a batch to the declared type."""

    function: FlatMapFunction | Callable[[Any], Any]
    keyed: bool = False
    converter: Converter | None = None
    reads_timestamps: bool = False

    def create(self) -> FlatMapOperator:
        return FlatMapOperator(self.function, "flat_map", self.converter)
