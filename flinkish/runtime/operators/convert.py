"""Hands on batches as they are, in the form of a declared type: the head of a typed source, a side output's stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.runtime.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.side_outputs import Converter


class ConvertOperator(StreamOperator):
    """Costs nothing per record when there is nothing to convert."""

    def __init__(self, converter: Converter | None) -> None:
        self._converter = converter

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.output.collect(values if self._converter is None else self._converter(values), timestamps)


@dataclass(frozen=True)
class ConvertFactory(OperatorFactoryBase):
    """``converter`` None: nothing to convert."""

    converter: Converter | None

    def create(self) -> ConvertOperator:
        """A fresh operator."""
        return ConvertOperator(self.converter)
