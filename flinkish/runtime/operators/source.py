"""The head of a source's chain: hands on what was read (Flink's StreamSource)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.runtime.operator import OperatorFactoryBase, StreamOperator


class SourceOperator(StreamOperator):
    """Passes batches on; converts values to the declared type if there is something to convert."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Hand on a batch."""
        self.output.collect(values, timestamps)


@dataclass(frozen=True)
class SourceOperatorFactory(OperatorFactoryBase):
    """Makes the head of one source task."""

    def create(self) -> SourceOperator:
        """A fresh operator."""
        return SourceOperator()
