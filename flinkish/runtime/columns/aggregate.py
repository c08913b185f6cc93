"""The continuous GROUP BY: keeps the aggregates of each key, and emits how the batch has changed them.

Changes are net, per key and batch, as with Flink's mini-batches: +I for a key that is new, -U and +U if a result
differs, -D if no row of the key is left, nothing if nothing has changed; keys come in the order in which the batch has
them. In BATCH mode there are only final rows, at the end of the input (`windows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.core.column_batch import ColumnBatch
from flinkish.runtime.columns.calls import Accumulators
from flinkish.runtime.columns.described import AggregateCall
from flinkish.runtime.columns.keys import ROOM, Ints, KeyIds, first_rows, grown
from flinkish.runtime.columns.stored_rows import StoredRows
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.state.state_rows import VOID_NAMESPACE

#: RowKind's numbers.
_INSERT, _UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = range(4)
#: About how many bytes a row takes that is not written yet.
ROW_BYTES = 400


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


class AggregateOperator(StreamOperator):
    """Keeps the aggregates of the keys in arrays; the id of a key is its slot."""

    def __init__(self, factory: AggregateFactory) -> None:
        self._factory = factory
        self._columns = list(factory.keys)
        self._ttl_ms = factory.ttl_ms
        self._begin()

    def _begin(self) -> None:
        """Begin with no keys."""
        factory = self._factory
        self._ids = KeyIds([factory.schema.field(name).type for name in factory.keys])
        self._held = Accumulators(factory.calls, factory.schema, factory.retracting)
        #: whether the state of a key was read; whether there is a row of it; whether that has changed since it was
        #: written; whether it was used since the last release
        self._known, self._live, self._dirty, self._used = (np.zeros(ROOM, bool) for _ in range(4))
        #: when its row was written
        self._times = np.zeros(ROOM if self._ttl_ms else 0, np.int64)
        self._unwritten = 0

    def initialize_state(self) -> None:
        self._rows = StoredRows(self.context, self._held.fields, self, self._ttl_ms)
        #: whether there may be stored rows of keys that are not known
        self._cold = True

    def open(self) -> None:
        self._cold = self._rows.any

    # ------------------------------------------------------------------------------------------------ rows

    def process_batch(self, values: Any, timestamps: list[int] | None, input_index: int = 0) -> None:
        batch: ColumnBatch = values
        if not len(batch):
            return
        self._rows.backend.make_room(len(batch))
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
        count = self._ids.count
        self._held.grow(count)
        self._known, self._live, self._dirty, self._used = (
            grown(array, count) for array in (self._known, self._live, self._dirty, self._used)
        )
        if self._ttl_ms:
            self._times = grown(self._times, count)
        if self._cold:
            unknown = touched[~self._known[touched]]
            if len(unknown):
                there, times = self._rows.load(self._held, unknown, {VOID_NAMESPACE: self._ids.keys(unknown)})
                self._live[unknown[there]] = True
                if self._ttl_ms:
                    now_ms = self.context.epoch.processing_time_ms
                    self._times[unknown[there]] = [now_ms if time is None else time for time in times]
        self._known[touched] = True
        self._used[touched] = True
        if self._ttl_ms:
            expired = touched[self._expired(touched)]
            self._held.clear(expired)
            self._live[expired] = False

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
        self._unwritten += len(touched) - int(self._dirty[touched].sum())
        self._dirty[touched] = True
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
        self.write_back()
        count = self._ids.count
        if count > ROOM:
            kept = self._live[:count]
            if self._ttl_ms:
                kept = kept & ~self._expired(np.arange(count))
            if 2 * int(kept.sum()) < count:
                self._keep(np.flatnonzero(kept))

    def write_back(self) -> None:
        """Write the rows that have changed."""
        if not self._unwritten:
            return
        dirty = np.flatnonzero(self._dirty[: self._ids.count])
        there, gone = dirty[self._live[dirty]], dirty[~self._live[dirty]]
        if len(there):
            keys, columns = self._ids.keys(there), self._held.stored(there)
            self._rows.put(VOID_NAMESPACE, keys, columns, self._times[there].tolist() if self._ttl_ms else [])
        if len(gone):
            self._rows.remove(VOID_NAMESPACE, self._ids.keys(gone))
        self._dirty[dirty] = False
        self._unwritten = 0

    @property
    def unwritten_bytes(self) -> int:
        """About how many bytes the rows take that are not written."""
        return self._unwritten * ROW_BYTES

    @property
    def cached_bytes(self) -> int:
        """About how many bytes the arrays take."""
        return self._ids.nbytes + self._held.nbytes + 4 * len(self._known) + self._times.nbytes

    def release(self) -> None:
        """Drop the keys that were not used since the last call, and have not changed since they were written."""
        kept = self._used[: self._ids.count] | self._dirty[: self._ids.count]
        self._used[:] = False
        if not kept.all():
            self._cold = True
            self._keep(np.flatnonzero(kept))

    def _keep(self, slots: Ints) -> None:
        """Forget all keys but these."""
        ids, held, times = self._ids, self._held, self._times
        flags, live = (self._known, self._live, self._dirty, self._used), self._live[slots]
        unwritten = self._unwritten
        self._begin()
        self._unwritten = unwritten
        fresh = self._ids.of(ids.columns(slots), len(slots))
        self._held.grow(len(fresh))
        self._held.merge(fresh[live], held, slots[live])
        self._known, self._live, self._dirty, self._used = (
            grown(np.concatenate([flag[slots], np.zeros(1, bool)]), ROOM) for flag in flags
        )
        if self._ttl_ms:
            self._times = grown(times[slots], ROOM)

    def dispose(self) -> None:
        self._rows.leave()


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
