"""``map``: one result for each record. On a keyed stream the function may use keyed state."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.core.functions import MapFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.outputs import Converter
from flinkish.runtime.stored.code_scan import decoder_of_json, is_function_of

#: The function as it was when this module was loaded, and its code: a program may replace both.
_LOADS = json.loads
_CODE = getattr(_LOADS, "__code__", None)


class MapOperator(UserFunctionOperator):
    """Emits the result of a MapFunction for each record, with the record's timestamp. None is a result as any other."""

    keeps_positions = True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.collect(self.results(values, "the map function", input_index), timestamps)

    def results(self, values: list[Any], what: str, input_index: int = 0) -> list[Any]:
        is_original = self.function is _LOADS and is_function_of(_LOADS, json) and _LOADS.__code__ is _CODE
        decoder = decoder_of_json() if is_original else None
        return super().results(values, what, input_index) if decoder is None else self._loaded(values, decoder)

    def _loaded(self, values: list[Any], decoder: json.JSONDecoder) -> list[Any]:
        """The result of ``json.loads`` for each value, by the C scanner behind that function, for which it takes three
        calls in Python and two regular expressions. What the scanner does not read from end to end is left to it."""
        scan = decoder.scan_once  # type: ignore[attr-defined]
        results: list[Any] = []
        arriving = iter(values)
        for value in arriving:
            try:
                text = value if value.__class__ is str else value.decode() if value.__class__ is bytes else ""
                result, end = scan(text, 0)
                whole = end == len(text)
            except (TypeError, ValueError, StopIteration, RecursionError):
                whole = False
            results.append(result if whole else _LOADS(value))
        return results


@dataclass
class MapFactory(OperatorFactoryBase):
    """Makes the operator of ``map``. ``converter`` converts the results of a batch to the declared type."""

    function: MapFunction | Callable[[Any], Any]
    keyed: bool = False
    converter: Converter | None = None
    reads_timestamps: bool = False

    def create(self) -> MapOperator:
        return MapOperator(self.function, "map", self.converter)
