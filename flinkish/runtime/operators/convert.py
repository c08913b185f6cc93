"""Converts records to their declared type and changes nothing else: the head of a typed source, or of the stream of a
side output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.runtime.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.outputs import Converter


class ConvertOperator(StreamOperator):
    """Emits each batch in the form of the declared type. It costs nothing per record if there is nothing to convert."""

    keeps_positions = True

    def __init__(self, converter: Converter | None) -> None:
        self._converter = converter

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self.output.collect(values if self._converter is None else self._converter(values), timestamps)


@dataclass(frozen=True)
class ConvertFactory(OperatorFactoryBase):
    """Makes converting operators. ``converter`` None: there is nothing to convert."""

    converter: Converter | None
    reads_timestamps: bool = False

    def create(self) -> ConvertOperator:
        """A fresh operator."""
        return ConvertOperator(self.converter)
