"""The rows of a table of changes by a key, such as a compacted topic: remembers the row of each key, so that what
follows gets all changes with the row that was there before (Flink's ChangelogNormalize).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from flinkish.core.column_batch import ColumnBatch
from flinkish.core.last_changes import DELETE, last_changes
from flinkish.runtime.columns.aggregate import AggregateFactory, AggregateOperator
from flinkish.runtime.columns.described import AggregateCall
from flinkish.runtime.job.operator import StreamOperator


@dataclass
class NormalizeFactory(AggregateFactory):
    """Makes the operator. The columns of its output are the keys, then the others."""

    retracting: bool = True

    def create(self) -> StreamOperator:
        return NormalizeOperator(self)


def normalize(keys: Sequence[str], schema: pa.Schema, ttl_ms: int) -> NormalizeFactory:
    """The factory for rows of these columns."""
    others = [field for field in schema if field.name not in keys]
    calls = tuple(AggregateCall("LAST_VALUE", field.name, field.name, field.type) for field in others)
    return NormalizeFactory(tuple(keys), calls, schema, ttl_ms=ttl_ms)


class NormalizeOperator(AggregateOperator):
    """Keeps the last row of each key, in the way of LAST_VALUE of each column: a row takes the place of the one before
    it, and a deletion removes it."""

    def process_batch(self, values: Any, timestamps: list[int] | None, input_index: int = 0) -> None:
        batch: ColumnBatch = last_changes(values, self._columns)
        if not len(batch):
            return
        self.table.backend.make_room(len(batch))
        keys = [batch.columns.column(name) for name in self._columns]
        slots = self._ids.of(keys, len(batch))
        self._enter(slots)
        before = self._live[slots]
        old = self._held.results(slots) if before.any() else None
        self._held.clear(slots)
        after = np.ones(len(batch), bool) if batch.kinds is None else batch.kinds != DELETE
        there = np.flatnonzero(after)
        self._held.add(slots[there], batch.columns.take(pa.array(there)), None)
        new = self._held.results(slots)
        self._leave(slots, before, after)
        self._emit(keys, old, new, before, after)
