"""The stored form of aggregates: a ValueState of ROW type by key and window, as a row operator would have it, read and
written for many keys at once.

Operators keep their accumulators in arrays and write to the state what has changed when the barrier comes, or when the
backend needs room. So what is in the arrays and was not changed since can be dropped and read again.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from flinkish.common.time import Time
from flinkish.common.typeinfo import RowTypeInfo
from flinkish.common.typeinfo.base import ListConverter
from flinkish.common.types import Row, _create_rows
from flinkish.core.state import ValueStateDescriptor
from flinkish.core.state_ttl import StateTtlConfig
from flinkish.errors import InternalError
from flinkish.runtime.columns.accumulators import Field
from flinkish.runtime.columns.calls import Accumulators
from flinkish.runtime.columns.keys import Ints
from flinkish.runtime.job.operator import OperatorContext
from flinkish.runtime.state.limits import WriteBackCache
from flinkish.runtime.state.state_table import StateTable

_LOG = logging.getLogger("flinkish.Aggregate")

#: The name of the state.
AGGREGATES = "aggregates"


class AggregatesTypeInfo(RowTypeInfo):
    """The type of the stored rows. A row that an earlier form of the query has written stays as it is until its key has
    new rows; then it is taken by the names of its fields (`StoredRows.load`)."""

    def _convert(self, value: Any) -> Any:
        own = getattr(value, "_fields", None) if isinstance(value, Row) else None
        return super()._convert(value) if own is None or own == self._names else value

    def _list_converter(self) -> ListConverter:
        return lambda values: list(map(self._convert, values))


class StoredRows:
    """Reads and writes the rows of one operator.

    Args:
        context: of the operator.
        fields: of the rows.
        cache: the operator, which keeps them in a form of its own.
        ttl_ms: for how long they are kept without being written; 0: for ever.
    """

    def __init__(
        self, context: OperatorContext, fields: Sequence[Field], cache: WriteBackCache, ttl_ms: int = 0
    ) -> None:
        if context.keyed_state is None:
            raise InternalError("an aggregation has no keyed state", where=f"operator {context.uid!r}")
        self.backend = context.keyed_state
        self._where = f"operator '{context.name}' (uid {context.uid})"
        self._names = [field.name for field in fields]
        descriptor = ValueStateDescriptor(AGGREGATES, AggregatesTypeInfo([field.type for field in fields], self._names))
        if ttl_ms:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).build())
        self.backend.partitioned_state(descriptor)
        self._cache = cache
        self.backend.caches.append(cache)
        #: the fields of rows that were read, in their order
        self._read: set[tuple[str, ...]] = set()

    @property
    def table(self) -> StateTable:
        """The table of the state."""
        return self.backend.table(AGGREGATES, "value")

    def leave(self) -> None:
        """The operator is not used any more."""
        if self._cache in self.backend.caches:
            self.backend.caches.remove(self._cache)

    @property
    def any(self) -> bool:
        """Whether there may be any rows."""
        return self.backend.in_files or any(True for _ in self.table.items())

    def load(self, into: Accumulators, slots: Ints, keys: dict[Hashable, list[Any]]) -> tuple[Ints, list[Any]]:
        """Load the rows of these keys, which are given by namespace, into their slots, which are empty. Returns the
        indexes of the keys that have rows, and the times of their last writing (None: none is known)."""
        self.backend.fetch_all(keys)
        table = self.table
        places: list[int] = []
        rows: list[Row] = []
        times: list[Any] = []
        begin = 0
        for namespace, of_namespace in keys.items():
            values = table.namespace(namespace)
            of_times = {} if table.times is None else table.times.namespace(namespace)
            for place, key in enumerate(of_namespace, begin):
                if key in values:
                    places.append(place)
                    rows.append(values[key])
                    times.append(of_times.get(key))
            begin += len(of_namespace)
        there = np.array(places, np.int64)
        if rows:
            into.load(slots[there], self._columns(rows))
        return there, times

    def _columns(self, rows: list[Row]) -> list[list[Any]]:
        """The values of each field of these rows."""
        columns: list[list[Any]] = [[] for _ in self._names]
        for row in rows:
            # a Row without fields has no names
            names = tuple(row._fields) if len(row) else ()
            if names not in self._read:
                self._compare(names)
            values = row if list(names) == self._names else map(row.as_dict().get, self._names)
            for column, value in zip(columns, values):
                column.append(value)
        return columns

    def _compare(self, names: tuple[str, ...]) -> None:
        """Say once what the query has that stored rows have not, and the other way round."""
        self._read.add(names)
        new, gone = set(self._names).difference(names), set(names).difference(self._names)
        if new:
            _LOG.warning("%s: stored aggregates have no %s, which begins at nothing", self._where, _listed(new))
        if gone:
            _LOG.warning("%s: stored aggregates have %s, which is dropped", self._where, _listed(gone))

    def put(self, namespace: Hashable, keys: list[Any], columns: list[list[Any]], times: list[int]) -> None:
        """Write the rows of these keys, which have a value for each field. ``times``: when they were written, if state
        expires."""
        table = self.table
        values = zip(*columns, strict=True) if columns else [()] * len(keys)
        table.namespace(namespace).update(zip(keys, _create_rows(self._names, values), strict=True))
        table.mark_all(namespace, keys)
        if table.times is not None:
            table.times.namespace(namespace).update(zip(keys, times, strict=True))
            table.times.mark_all(namespace, keys)

    def put_each(self, namespaces: list[Any], keys: list[Any], columns: list[list[Any]]) -> None:
        """`put`, with a namespace for each key."""
        table = self.table
        values = zip(*columns, strict=True) if columns else [()] * len(keys)
        for namespace, key, row in zip(namespaces, keys, _create_rows(self._names, values), strict=True):
            table.namespace(namespace)[key] = row
            table.mark(namespace, key)

    def remove(self, namespace: Hashable, keys: list[Any]) -> None:
        """Remove the rows of these keys, as far as there are any."""
        table = self.table
        table.fetch(namespace, keys)
        table.remove_all(namespace, keys)
        if table.times is not None:
            table.times.remove_all(namespace, keys)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
