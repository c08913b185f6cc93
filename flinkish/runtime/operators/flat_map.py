"""``flat_map``: any number of results for each record. On a keyed stream the function may use keyed state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from flinkish.core.functions import FlatMapFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.side_outputs import Converter


class FlatMapOperator(UserFunctionOperator):
    """Each result has the timestamp of its record. A result that is falsy stands for none."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        # lazy to the end: a generator is exhausted before the function sees the next record. Not `map`: it would take
        # a StopIteration of the function for the end of the batch
        call = self.per_record(values, input_index)
        if timestamps is None:
            self.collect([result for value in values for result in call(value) or ()], None)
            return
        results: list[Any] = []
        times: list[int] = []
        for value, timestamp in zip(values, timestamps):
            iterable = call(value)
            if iterable:
                before = len(results)
                results.extend(iterable)
                times.extend(repeat(timestamp, len(results) - before))
        self.collect(results, times)


@dataclass
class FlatMapFactory(OperatorFactoryBase):
    """``converter`` converts the results of a batch to the declared type."""

    function: FlatMapFunction | Callable[[Any], Any]
    keyed: bool = False
    converter: Converter | None = None

    def create(self) -> FlatMapOperator:
        return FlatMapOperator(self.function, "flat_map", self.converter)
