"""``map`` on connected streams: at most one result for each record of either input. On keyed streams the function may
use keyed state, which both inputs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.core.co_functions import CoMapFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.outputs import Converter


class CoMapOperator(UserFunctionOperator):
    """Emits the results of a CoMapFunction, each with the timestamp of its record. None stands for no result, as in
    PyFlink."""

    keeps_positions = True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        results = self.results(values, f"map{input_index + 1}()", input_index)
        if any(result is None for result in results):
            kept = [place for place, result in enumerate(results) if result is not None]
            results = [results[place] for place in kept]
            timestamps = None if timestamps is None else [timestamps[place] for place in kept]
        self.collect(results, timestamps)


@dataclass
class CoMapFactory(OperatorFactoryBase):
    """Makes the operator of ``map`` on connected streams.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: CoMapFunction
    keyed: bool = False
    converter: Converter | None = None
    reads_timestamps: bool = False

    def create(self) -> CoMapOperator:
        return CoMapOperator(self.function, "map1", self.converter, "map2")
