"""Operators on columns with keyed state, driven batch by batch through snapshots and restores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flinkish.core.column_batch import ColumnBatch
from flinkish.runtime.exchange.column_keys import keys_of_columns
from flinkish.runtime.exchange.keys import subtask_of_key
from flinkish.testing import KeyedOneInputStreamOperatorTestHarness as Harness

#: What happens to an operator: a batch, a watermark, a processing time, or a barrier.
Step = tuple[str, Any]


def batch_of(schema: pa.Schema, rows: Sequence[Sequence[Any]], kinds: Sequence[int] | None = None) -> ColumnBatch:
    """A batch of these rows."""
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return ColumnBatch(batch, None if kinds is None else np.array(kinds, np.int8))


class Driven:
    """The subtasks of one operator on columns. A barrier with ``restore`` goes on in new instances of the operator."""

    def __init__(self, factory: Any, parallelism: int = 1, **options: Any) -> None:
        self._factory, self._options = factory, options
        self.parallelism = parallelism
        self.out: list[tuple[Any, ...]] = []
        self.harnesses = [self._harness(subtask) for subtask in range(parallelism)]

    def _harness(self, subtask: int, **options: Any) -> Harness:
        where = {"subtask": subtask, "parallelism": self.parallelism, "max_parallelism": 8}
        harness = Harness(self._factory, lambda value: value, **{**where, **self._options, **options})
        harness.operator.output = _Taken(self.out)  # type: ignore[assignment]
        return harness

    def feed(self, batch: ColumnBatch) -> None:
        """Give the rows to the subtasks of their keys."""
        keys = keys_of_columns([batch.columns.column(name) for name in self._factory.keys], len(batch))
        for subtask, harness in enumerate(self.harnesses):
            rows = [at for at, key in enumerate(keys) if subtask_of_key(key, self.parallelism, 8) == subtask]
            if rows:
                operator: Any = harness.operator
                operator.process_batch(batch.take(np.array(rows)), None)

    def watermark(self, watermark_ms: int) -> None:
        """Let the watermark rise."""
        self._each(lambda harness: harness.process_watermark(watermark_ms))

    def time(self, time_ms: int) -> None:
        """Let processing time advance."""
        self._each(lambda harness: harness.set_processing_time(time_ms))

    def barrier(self, restore: bool = True, parallelism: int | None = None, factory: Any = None) -> None:
        """Take a snapshot; ``restore``: and go on from it, with another parallelism or factory if it is given."""
        snapshots = [harness.snapshot() for harness in self.harnesses]
        if not restore:
            return
        for harness in self.harnesses:
            harness.close()
        self._factory = self._factory if factory is None else factory
        rescaled = parallelism is not None and parallelism != self.parallelism
        self.parallelism = self.parallelism if parallelism is None else parallelism
        self.harnesses = [
            self._harness(subtask, restored=snapshots if rescaled else snapshots[subtask])
            for subtask in range(self.parallelism)
        ]

    def _each(self, call: Callable[[Harness], None]) -> None:
        for harness in self.harnesses:
            call(harness)

    def late(self) -> int:
        """The number of late records that the present instances have dropped."""
        counters = [harness.metrics.counter("numLateRecordsDropped") for harness in self.harnesses]
        return sum(counter.get_count() for counter in counters)

    def take(self) -> list[tuple[Any, ...]]:
        """The rows that were emitted since the last call: their kind, and their values."""
        out = list(self.out)
        self.out.clear()
        return out


class _Taken:
    """Takes what an operator emits."""

    def __init__(self, out: list[tuple[Any, ...]]) -> None:
        self._out = out

    def collect(self, values: Any, timestamps: list[int] | None) -> None:
        self._out.extend(rows_of(values))

    def emit_watermark(self, watermark_ms: int) -> None:
        """Watermarks are not kept."""


def rows_of(batch: ColumnBatch) -> list[tuple[Any, ...]]:
    """The rows of a batch, each after the number of its kind."""
    kinds = [0] * len(batch) if batch.kinds is None else batch.kinds.tolist()
    return [(kind, *row.values()) for kind, row in zip(kinds, batch.columns.to_pylist(), strict=True)]
