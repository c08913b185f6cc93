"""``flat_map`` on connected streams: any number of results for each record of either input. On keyed streams the
function may use keyed state, which both inputs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.core.co_functions import CoFlatMapFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.outputs import Converter


class CoFlatMapOperator(UserFunctionOperator):
    """Emits the results of a CoFlatMapFunction, each with the timestamp of its record. A falsy return value stands for
    no results."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.collect(*self.flat_results(values, timestamps, input_index))


@dataclass
class CoFlatMapFactory(OperatorFactoryBase):
    """Makes the operator of ``flat_map`` on connected streams.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: CoFlatMapFunction
    keyed: bool = False
    converter: Converter | None = None
    reads_timestamps: bool = False

    def create(self) -> CoFlatMapOperator:
        return CoFlatMapOperator(self.function, "flat_map1", self.converter, "flat_map2")
