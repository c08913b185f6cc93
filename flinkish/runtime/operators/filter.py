"""``filter``: emits the records for which the predicate is true, unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import Any

from flinkish.common.detach import SHARED, handed_over
from flinkish.core.functions import FilterFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.side_outputs import Converter


class FilterOperator(UserFunctionOperator):
    """Emits the records for which a FilterFunction returns a true value, with their timestamps."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        call, arriving = self.per_record(values, input_index), iter(values)
        # the truth of each answer is tested once, as Python's `filter` does
        if self.keeps_nothing[input_index]:
            chosen = list(map(bool, map(call, arriving)))
            if len(chosen) != len(values):
                raise self.stop_error("the filter function")
            kept = list(compress(values, chosen))
        else:
            chosen, kept = [], []
            try:
                for value in arriving:
                    is_chosen = bool(call(value))
                    chosen.append(is_chosen)
                    if is_chosen:
                        if value.__class__ not in SHARED:
                            value = handed_over(value, 1)  # noqa: PLW2901 - `values` refers to it, too
                        kept.append(value)
            except StopIteration as error:
                raise self.stop_error("the filter function") from error
        self.collect(kept, None if timestamps is None else list(compress(timestamps, chosen)))


@dataclass
class FilterFactory(OperatorFactoryBase):
    """Makes the operator of ``filter``. The type of the records stays the same, so ``converter`` is mostly None."""

    function: FilterFunction | Callable[[Any], Any]
    keyed: bool = False
    converter: Converter | None = None
    forwards_records: bool = True
    reads_timestamps: bool = False

    def create(self) -> FilterOperator:
        return FilterOperator(self.function, "filter", self.converter)
