"""``filter``: records for which the predicate is true go on, unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import Any

from flinkish.core.functions import FilterFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.side_outputs import Converter


class FilterOperator(UserFunctionOperator):
    """Timestamps stay with their records."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        call = self.per_record(values, input_index)
        if timestamps is None:
            self.collect([value for value in values if call(value)], None)
            return
        # truth is asked for once, as `filter` does
        chosen = list(map(bool, map(call, values)))
        if len(chosen) != len(values):
            raise self.stop_error("the filter function")
        self.collect(list(compress(values, chosen)), list(compress(timestamps, chosen)))


@dataclass
class FilterFactory(OperatorFactoryBase):
    """The type of the records stays, so that there is mostly nothing to convert."""

    function: FilterFunction | Callable[[Any], Any]
    keyed: bool = False
    converter: Converter | None = None

    def create(self) -> FilterOperator:
        return FilterOperator(self.function, "filter", self.converter)
