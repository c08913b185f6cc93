"""The continuous GROUP BY: keeps the aggregates of each key, and emits how the batch has changed them.

Changes are net, per key and batch, as with Flink's mini-batches: +I for a key that is new, -U and +U if a result
differs, -D if no row of the key is left, nothing if nothing has changed; keys come in the order in which the batch has
them. In BATCH mode there are only final rows, at the end of the input (`windows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.core.column_batch import ColumnBatch
from flinkish.runtime.columns.calls import Accumulators
from flinkish.runtime.columns.column_table import (
    FILED,
    STORED,
    UNFILED,
    ColumnOperator,
    ColumnTable,
    RowsOfNamespace,
    picked,
)
from flinkish.runtime.columns.described import AggregateCall
from flinkish.runtime.columns.keys import ROOM, Ints, KeyIds, columns_of_keys, first_rows, grown
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.state.files.rows import NO_TIME
from flinkish.runtime.state.state_rows import VOID_NAMESPACE
from flinkish.runtime.stored.column_pickles import Column

#: Once one part in so many of the rows in files was looked for, all are read: that costs less than further look-ups.
_LOOKED_UP_PART = 8
#: RowKind's numbers.
_INSERT, _UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = range(4)


@dataclass
class AggregateFactory(OperatorFactoryBase):
    """Makes the operator of a GROUP BY without a window.

    Args:
        keys: columns of the input; () : all rows are one group.
        calls: what is computed; () : the distinct keys (DISTINCT).
        schema: of the input.
        retracting: whether the input has other rows than inserts.
        ttl_ms: for how long the aggregates of a key are kept without new rows; 0: for ever.
        update_before: whether an update is -U and +U; else it is +U alone, for consumers that know rows by their key.
        final: whether there are only final rows, at the end of the input.
    """

    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    schema: pa.Schema
    retracting: bool = False
    ttl_ms: int = 0
    update_before: bool = True
    final: bool = False
    keyed: bool = True
    reads_timestamps: bool = False

    def create(self) -> StreamOperator:
        """A fresh operator."""
        if self.final:
            from flinkish.runtime.columns.windows import FinalAggregateOperator

            return FinalAggregateOperator(self.keys, self.calls, self.schema, self.retracting)
        return AggregateOperator(self)


def signs_of(batch: ColumnBatch) -> Ints | None:
    """1 for the rows that a batch adds, -1 for those that it takes back; None: it only adds rows."""
    if batch.kinds is None:
        return None
    signs: Ints = np.where((batch.kinds == _UPDATE_BEFORE) | (batch.kinds == _DELETE), -1, 1)
    return signs if (signs < 0).any() else None


class AggregateOperator(ColumnOperator):
    """Keeps the aggregates of the keys in arrays; the id of a key is its slot."""

    def __init__(self, factory: AggregateFactory) -> None:
        self._factory = factory
        self._columns = list(factory.keys)
        self._ttl_ms = factory.ttl_ms
        self._begin()

    def _begin(self) -> None:
        """Begin with no keys."""
        factory = self._factory
        self.types = [factory.schema.field(name).type for name in factory.keys]
        self._ids = KeyIds(self.types)
        self._held = Accumulators(factory.calls, factory.schema, factory.retracting)
        self._rows = RowsOfNamespace(VOID_NAMESPACE, self._ids, self._held)
        #: whether the state of a key was read; whether there is a row of it; whether it was used since the last release
        self._known, self._live, self._used = (np.zeros(ROOM, bool) for _ in range(3))
        #: when its row was written
        self._times = np.zeros(ROOM if self._ttl_ms else 0, np.int64)
        self._share()

    def _share(self) -> None:
        self._rows.live, self._rows.times = self._live, self._times if self._ttl_ms else None

    def initialize_state(self) -> None:
        self.table = ColumnTable(self, self.context, self._held, self._ttl_ms)
        #: whether there may be stored rows of keys that are not known, and how many were looked for
        self._cold, self._looked_up = True, 0

    def bring(self) -> None:
        inline, removed = self.table.take_over()
        self._cold = self.table.in_files
        for keys, rows, times in inline.values():
            columns = columns_of_keys(keys, self.types)
            slots = self._ids.of(columns, len(keys))
            self._grow()
            self._load(slots, self.table.columns_of(rows), times, self.table.inline_marks)
        for keys in removed.values():
            slots = self._ids.of_keys(keys)
            self._grow()
            self._known[slots] = True
            self._rows.marks[slots] = UNFILED | FILED

    def _load(self, slots: Ints, values: Sequence[Column], times: Sequence[int | None], marks: int) -> None:
        """Load rows into slots. ``times``: when they were written, NO_TIME or None: that is not known."""
        self._held.load(slots, values)
        self._live[slots] = self._known[slots] = True
        self._rows.marks[slots] = marks
        if self._ttl_ms:
            now_ms = self.context.epoch.processing_time_ms
            self._times[slots] = [now_ms if time in (None, NO_TIME) else time for time in times]

    def _load_all(self) -> None:
        """Load the rows of all keys that are not known."""
        self._cold = False
        filed = self.table.scan()
        slots = self._ids.of(filed.keys, len(filed.namespaces)) if filed.namespaces else np.zeros(0, np.int64)
        self._grow()
        at = np.flatnonzero(~self._known[slots])
        values = [picked(column, at) for column in filed.values]
        self._load(slots[at], values, filed.times[at].tolist(), STORED | FILED)

    @property
    def kept(self) -> Iterable[RowsOfNamespace]:
        return (self._rows,)

    # ------------------------------------------------------------------------------------------------ rows

    def process_batch(self, values: Any, timestamps: list[int] | None, input_index: int = 0) -> None:
        batch: ColumnBatch = values
        if not len(batch):
            return
        self.table.backend.make_room(len(batch))
        columns, signs = batch.columns, signs_of(batch)
        keys = [columns.column(name) for name in self._columns]
        slots = self._ids.of(keys, len(batch))
        firsts, _ = first_rows(slots, self._ids.count)
        touched = slots[firsts]
        self._enter(touched)
        if signs is not None:
            taken = self._without_rows_of_nothing(slots, signs)
            if not taken.all():
                rows = np.flatnonzero(taken)
                columns, slots, signs = columns.take(pa.array(rows)), slots[rows], signs[rows]
        before = self._live[touched]
        old = self._held.results(touched) if before.any() else None
        self._held.add(slots, columns, signs)
        after = self._held.exist(touched)
        new = self._held.results(touched)
        self._leave(touched, before, after)
        self._emit([key.take(pa.array(firsts)) for key in keys], old, new, before, after)

    def _enter(self, touched: Ints) -> None:
        """Read the state of keys that are not known, and let expired state go."""
        self._grow()
        if self._cold:
            unknown = touched[~self._known[touched]]
            self._looked_up += len(unknown)
            if self._looked_up * _LOOKED_UP_PART > self.table.rows_in_files and self.table.may_be_whole:
                self._load_all()
            elif len(unknown):
                places, values, times = self.table.find(self._ids.columns(unknown), len(unknown))
                self._load(unknown[places], values, times.tolist(), STORED | FILED)
        self._known[touched] = True
        self._used[touched] = True
        if self._ttl_ms:
            expired = touched[self._expired(touched)]
            self._held.clear(expired)
            self._live[expired] = False

    def _grow(self) -> None:
        self._rows.grow()
        self._known, self._live, self._used = (
            grown(array, self._ids.count) for array in (self._known, self._live, self._used)
        )
        if self._ttl_ms:
            self._times = grown(self._times, self._ids.count)
        self._share()

    def _expired(self, slots: Ints) -> npt.NDArray[np.bool_]:
        expired: npt.NDArray[np.bool_] = self._live[slots] & (
            self._times[slots] + self._ttl_ms <= self.context.epoch.processing_time_ms
        )
        return expired

    def _without_rows_of_nothing(self, slots: Ints, signs: Ints) -> npt.NDArray[np.bool_]:
        """Which rows count: those that are taken back from a key without rows do not, as in Flink: its state has
        expired."""
        added = np.flatnonzero(signs > 0)
        first = np.full(self._ids.count, len(slots))
        first[slots[added[::-1]]] = added[::-1]
        counts: npt.NDArray[np.bool_] = self._live[slots] | (np.arange(len(slots)) >= first[slots])
        return counts

    def _leave(self, touched: Ints, before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]) -> None:
        """Note what has become of the keys of a batch."""
        gone = touched[~after]
        if len(gone):
            self._held.clear(gone)
        self._live[touched] = after
        if not self._factory.calls and not self._factory.retracting and not self._ttl_ms:
            # the row of a key never changes
            touched = touched[~before]
        self._rows.change(touched)
        if self._ttl_ms:
            self._times[touched] = self.context.epoch.processing_time_ms

    def _emit(
        self,
        keys: list[pa.Array],
        old: list[pa.Array] | None,
        new: list[pa.Array],
        before: npt.NDArray[np.bool_],
        after: npt.NDArray[np.bool_],
    ) -> None:
        """Emit the changes of some keys, of whose results ``old`` and ``new`` are the columns."""
        count, names = len(before), [*self._columns, *(call.name for call in self._factory.calls)]
        changed = ~(before & after)
        for one, other in zip(old or [], new):
            if changed.all():
                break
            changed |= differing(one, other)
        shown = np.empty((count, 2), bool)
        shown[:, 0] = before & changed & (~after | self._factory.update_before)
        shown[:, 1] = after & changed
        kinds = np.empty((count, 2), np.int8)
        kinds[:, 0] = np.where(after, _UPDATE_BEFORE, _DELETE)
        kinds[:, 1] = np.where(before, _UPDATE_AFTER, _INSERT)
        rows = np.flatnonzero(shown)
        if not len(rows):
            return
        if old is None or not shown[:, 0].any():
            rows >>= 1
            found = pa.RecordBatch.from_arrays([*keys, *new], names)
            self.output.collect(ColumnBatch(_taken(found, rows), kinds[rows, 1]), None)
            return
        of_key = pa.array(rows >> 1)
        # the columns of both: old ones first
        place = pa.array((rows >> 1) + (rows & 1) * count)
        columns = [key.take(of_key) for key in keys]
        columns += [pa.concat_arrays([one, other]).take(place) for one, other in zip(old, new, strict=True)]
        emitted = ColumnBatch(pa.RecordBatch.from_arrays(columns, names), kinds.ravel()[rows])
        self.output.collect(emitted, None)

    # ------------------------------------------------------------------------------------------------ state

    def snapshot_state(self) -> None:
        count = self._ids.count
        live = self._live[:count]
        if self._ttl_ms:
            expired = np.flatnonzero(self._expired(np.arange(count)))
            if not self.table.in_files:
                # from files, compaction removes them
                self._held.clear(expired)
                self._live[expired] = False
                self._rows.change(expired)
            live = live.copy()
            live[expired] = False
        kept = np.flatnonzero(live | (self._rows.marks[:count] & self.table.pinned != 0))
        if count > ROOM and 2 * len(kept) < count:
            self._keep(kept)

    @property
    def cached_bytes(self) -> int:
        return self._rows.nbytes + 3 * len(self._known) + self._times.nbytes

    def release(self) -> None:
        kept = self._used[: self._ids.count] | (self._rows.marks[: self._ids.count] & self.table.pinned != 0)
        self._used[:] = False
        if not kept.all():
            self._cold, self._looked_up = True, 0
            self._keep(np.flatnonzero(kept))

    def _keep(self, slots: Ints) -> None:
        """Forget all keys but these."""
        before, arrays = self._rows, (self._known, self._live, self._used, self._times)
        live = self._live[slots]
        self._begin()
        fresh = self._ids.of(before.keys(slots), len(slots))
        self._grow()
        self._held.merge(fresh[live], before.held, slots[live])
        self._rows.marks[fresh] = before.marks[slots]
        for array, old in zip((self._known, self._live, self._used, self._times), arrays, strict=True):
            if len(old):
                array[fresh] = old[slots]


def _taken(columns: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
    return columns if len(rows) == columns.num_rows else columns.take(pa.array(rows))


def differing(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    """Where two columns differ. NULL is like NULL."""
    if one.type.num_fields:
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.array([value != before for value, before in pairs], bool)
    same = pc.equal(one, other)
    if same.null_count:
        both = pc.and_(one.is_null(), other.is_null())
        same = pc.if_else(same.is_null(), both, same)
    differs: npt.NDArray[np.bool_] = ~same.to_numpy(zero_copy_only=False)
    return differs


def names_of(keys: Sequence[str], calls: Sequence[AggregateCall]) -> list[str]:
    """The columns of the results of an aggregation."""
    return [*keys, *(call.name for call in calls)]
