"""``filter``: emits the records for which the predicate is true, unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

from flinkish.common.detach import SCALARS, SHARED, cannot_change, handed_over
from flinkish.core.functions import FilterFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.outputs import Converter


class FilterOperator(UserFunctionOperator):
    """Emits the records for which a FilterFunction returns a true value, with their timestamps."""

    keeps_positions = True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        call, arriving = self.per_record(values, input_index), iter(values)
        chosen = self._answers(call, arriving, values, input_index)
        if chosen is not None and not SCALARS.issuperset(map(type, chosen)):
            # an answer may be a part of its record, whose truth is code of the program
            answers, arriving = iter(chosen), iter(values)
            call, chosen = (lambda value: next(answers)), None
        if chosen is not None:
            kept = list(compress(values, chosen))
        else:
            chosen, kept = [], []
            try:
                for value in arriving:
                    is_chosen = bool(call(value))
                    chosen.append(is_chosen)
                    if is_chosen:
                        if type(value) not in SHARED:
                            value = handed_over(value, 1)  # noqa: PLW2901 - `values` refers to it, too
                        kept.append(value)
            except StopIteration as error:
                raise self.stop_error("the filter function") from error
        self.collect(kept, None if timestamps is None else list(compress(timestamps, chosen)))

    def _answers(
        self, call: Callable[[Any], Any], arriving: Iterator[Any], values: list[Any], input_index: int
    ) -> list[Any] | None:
        """What the function answers to each record; None if a call may change or keep other records. The truth of each
        answer is tested once, as Python's `filter` does."""
        if self.proof_for(values, input_index) is not None:
            answers = list(map(call, arriving))
        elif cannot_change(values):
            answers = list(map(bool, map(call, arriving)))
        else:
            return None
        if len(answers) != len(values):
            raise self.stop_error("the filter function")
        return answers


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
