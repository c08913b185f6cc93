"""``map``: one result for each record. On a keyed stream the function may use keyed state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.core.functions import MapFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.side_outputs import Converter


class MapOperator(UserFunctionOperator):
    """Emits the result of a MapFunction for each record, with the record's timestamp. None is a result as any other."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.collect(self.results(values, "the map function", input_index), timestamps)


@dataclass
class MapFactory(OperatorFactoryBase):
    """Makes the operator of ``map``. ``converter`` converts the results of a batch to the declared type."""

    function: MapFunction | Callable[[Any], Any]
    keyed: bool = False
    converter: Converter | None = None

    def create(self) -> MapOperator:
        return MapOperator(self.function, "map", self.converter)
