"""The head operator of a source's chain: emits the records that were read (Flink's StreamSource)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.runtime.operator import OperatorFactoryBase, StreamOperator


class SourceOperator(StreamOperator):
    """Emits each batch as it was read."""

    keeps_positions = True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Emit a batch."""
        self.output.collect(values, timestamps)


@dataclass(frozen=True)
class SourceOperatorFactory(OperatorFactoryBase):
    """Makes the head operator of a source task."""

    reads_timestamps: bool = False

    def create(self) -> SourceOperator:
        """A fresh operator."""
        return SourceOperator()
