"""GROUP BY with a window: the aggregates of each key and window, emitted once, when time has reached the window's end.

Rows are added to *slices*, stretches of time in which no window begins or ends: a tumbling window is one slice, a
hopping or cumulating one is merged from several when it fires. Windows fire in the order of their ends, and the keys of
one in the order in which they first came. Rows all of whose windows have fired are dropped, and counted.

The state of a slice is, by key, in the namespace (start, end) in local time, with a timer for its last window. Slices
are in memory as long as there is room; keys of one that is not are found by its timers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.core.column_batch import ColumnBatch
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, TimeDomain
from flinkish.runtime.columns.aggregate import names_of, signs_of
from flinkish.runtime.columns.calls import Accumulators
from flinkish.runtime.columns.described import AggregateCall, WindowAssigner
from flinkish.runtime.columns.keys import ROOM, Ints, KeyIds, SomeKeys, grown
from flinkish.runtime.columns.stored_rows import StoredRows
from flinkish.runtime.columns.window_times import Slices, WindowTimes
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.operators.window.contents import TIMERS

#: A batch is split into its slices by a look at each one if there are at most so many.
_FEW_SLICES = 16
#: The table of keys of all slices may hold the keys of so many.
_SLICES_OF_KEYS = 4
WINDOW_COLUMNS = ("window_start", "window_end", "window_time")


@dataclass
class WindowFactory(OperatorFactoryBase):
    """Makes the operator of a GROUP BY with a window. ``schema``: of the input."""

    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    window: WindowAssigner
    schema: pa.Schema
    keyed: bool = True
    reads_timestamps: bool = False

    def __post_init__(self) -> None:
        self.uses_processing_time = self.window.time is None
        self.merges_windows = self.window.kind == "SESSION" and self.window.time is not None

    def create(self) -> StreamOperator:
        """A fresh operator."""
        if self.window.kind == "SESSION":
            from flinkish.runtime.columns.sessions import SessionOperator

            return SessionOperator(self.keys, self.calls, self.schema, self.window)
        return SliceOperator(self.keys, self.calls, self.schema, self.window)


class Slice:
    """The aggregates of the keys of a slice. The id of a key is its slot."""

    def __init__(
        self, namespace: Any, pending: list[tuple[int, tuple[int, int]]], last_ms: int, complete: bool
    ) -> None:
        self.namespace = namespace
        #: its windows that have not fired, and when they do, the next one last
        self.pending = pending
        #: the time of its timers: when its last window fires
        self.last_ms = last_ms
        #: whether all of its keys are in memory
        self.complete = complete
        #: whether it was used since the last release
        self.used = True
        self.unwritten = 0
        #: keys that come first when it fires, in their order, if that is not the order of the ids
        self.first: Ints | None = None

    def begin(self, keys: KeyIds, held: Accumulators) -> None:
        """Begin with no keys in memory."""
        self.ids, self.held = SomeKeys(keys), held
        #: whether a key has changed since it was written; whether it has a timer
        self.dirty, self.timed = np.zeros(ROOM, bool), np.zeros(ROOM, bool)

    def grow(self) -> None:
        """Make room for all keys."""
        self.held.grow(self.ids.count)
        self.dirty, self.timed = grown(self.dirty, self.ids.count), grown(self.timed, self.ids.count)

    def order(self) -> Ints:
        """The slots in the order in which the keys first came."""
        slots = np.arange(self.ids.count)
        if self.first is None:
            return slots
        others = np.ones(self.ids.count, bool)
        others[self.first] = False
        return np.concatenate([self.first, slots[others]])

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory it takes."""
        return self.ids.nbytes + self.held.nbytes + 2 * len(self.dirty)


class KeptOperator(StreamOperator):
    """The base of the operators that keep slices, or sessions, in memory: columns in, rows of state out."""

    domain = TimeDomain.EVENT_TIME

    def __init__(
        self, keys: Sequence[str], calls: Sequence[AggregateCall], schema: pa.Schema, retracting: bool = False
    ) -> None:
        self.keys, self.calls, self._schema, self._retracting = list(keys), tuple(calls), schema, retracting
        self.types = [schema.field(name).type for name in keys]
        of_calls = (name for call in calls for name in (call.column, call.condition) if name is not None)
        #: the columns that are read, besides the time; one at least, since a batch without columns has no length
        self._used = list(dict.fromkeys([*keys, *of_calls])) or schema.names[:1]

    def accumulators(self) -> Accumulators:
        """New ones, for no keys."""
        return Accumulators(self.calls, self._schema, self._retracting)

    def initialize_state(self) -> None:
        self.rows = StoredRows(self.context, self.accumulators().fields, self)
        self.backend = self.rows.backend
        self.late = self.context.exact_counter("numLateRecordsDropped")

    @property
    def where(self) -> str:
        """Names the operator in errors."""
        return f"operator '{self.context.name}' (uid {self.context.uid})"

    def bring_timers(self, upto_ms: int) -> dict[Hashable, list[Any]]:
        """The keys of the timers up to a time, by namespace, in the order of their registration. All of these timers
        are in memory then."""
        queue = self.backend.timers(TIMERS)
        timers = queue.domain(self.domain)
        while queue.may_be_due(self.domain, upto_ms) and timers.next_in_files is not None:
            if timers.next_in_files > upto_ms:
                break
            queue.bring(self.domain, upto_ms)
        timers.end_firing()
        return timers.due_keys(upto_ms, 1 << 62)[0]

    def emit(self, keys: list[pa.Array], results: list[pa.Array], windows: Sequence[Any]) -> None:
        """Emit results. ``windows``: the columns of their windows."""
        names = [*names_of(self.keys, self.calls), *WINDOW_COLUMNS[: len(windows)]]
        columns = pa.RecordBatch.from_arrays([*keys, *results, *map(pa.array, windows)], names)
        for part in ColumnBatch(columns).parts():
            self.output.collect(part, None)

    def snapshot_state(self) -> None:
        self.write_back()

    @abstractmethod
    def write_back(self) -> None:
        """Write the rows that have changed."""

    @property
    @abstractmethod
    def unwritten_bytes(self) -> int:
        """About how many bytes the rows take that are not written."""

    @property
    @abstractmethod
    def cached_bytes(self) -> int:
        """About how many bytes of memory what is kept takes."""

    @abstractmethod
    def release(self) -> None:
        """Drop what was not used since the last call, and has not changed since it was written."""

    def dispose(self) -> None:
        self.rows.leave()


class SliceOperator(KeptOperator):
    """Tumbling, hopping and cumulating windows."""

    def __init__(
        self, keys: Sequence[str], calls: Sequence[AggregateCall], schema: pa.Schema, window: WindowAssigner
    ) -> None:
        super().__init__(keys, calls, schema)
        self._times, self._slices = WindowTimes(window), Slices(window)
        self._by_event = window.time is not None
        self.domain = TimeDomain.EVENT_TIME if self._by_event else TimeDomain.PROCESSING_TIME
        #: namespace -> slice
        self.open_slices: dict[Any, Slice] = {}
        #: the time up to which all windows have fired, and that of the next window that fires
        self._fired_ms, self._next_ms = MIN_TIMESTAMP_MS, MAX_WATERMARK_MS
        #: whether there may be slices that lie in state only
        self._cold = True
        self._began = False
        #: the slices of which there were rows in state when the operator began
        self._stored = dict[Any, None]()
        self._all_keys = KeyIds(self.types)

    def begin_epoch(self) -> None:
        if self._began:
            return
        self._began = True
        if self._by_event:
            self._fired_ms = self.context.epoch.watermark_ms
        self._cold = self.rows.any
        if self._cold:
            self._stored = dict.fromkeys(self.bring_timers(MAX_WATERMARK_MS))
            if not self._slices.single:
                # the windows of a slice fire before its timer does
                for namespace in self._stored:
                    self._slice(namespace)

    def save(self) -> Any:
        return None if self._by_event or self._fired_ms == MIN_TIMESTAMP_MS else self._fired_ms

    def restore(self, saved: Any) -> None:
        if saved is not None:
            self._fired_ms = saved

    # ------------------------------------------------------------------------------------------------ rows

    def process_batch(self, values: Any, timestamps: list[int] | None, input_index: int = 0) -> None:
        batch: ColumnBatch = values
        if not len(batch):
            return
        self.backend.make_room(len(batch))
        local = self._times.local_ms(batch.columns, self.context.epoch.processing_time_ms, self.where)
        for start, columns in self._split(batch.columns, local):
            found = self._open(start)
            if found is None:
                self.late.inc(columns.num_rows)
            elif found is not _NO_WINDOW:
                self.add(found, columns, None)

    def _split(self, columns: pa.RecordBatch, local: Ints) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of each slice, in their order. ``local``: their times."""
        width = self._slices.width
        first, last = (self._slices.start(int(one)) for one in (local.min(), local.max()))
        if first == last:
            yield first, columns
            return
        columns = columns.select(self._used)
        if last - first <= _FEW_SLICES * width:
            for start in range(first, last + 1, width):
                rows = np.flatnonzero((local >= start) & (local < start + width))
                if len(rows):
                    yield start, _rows(columns, rows)
            return
        starts = self._slices.starts(local)
        order, found = np.argsort(starts, kind="stable"), np.unique(starts)
        for start, rows in zip(found.tolist(), np.split(order, np.searchsorted(starts[order], found[1:])), strict=True):
            yield start, _rows(columns, rows)

    def _open(self, start: int) -> Slice | None:
        """The slice that begins there; None if its windows have fired."""
        namespace = (start, start + self._slices.width)
        found = self.open_slices.get(namespace)
        if found is not None:
            return found
        windows = self._slices.windows(start)
        if not windows:
            return _NO_WINDOW
        if self._by_event and self._times.timer_ms(windows[-1][1] - 1) <= self.context.epoch.watermark_ms:
            return None
        return self._slice(namespace)

    def _slice(self, namespace: Any) -> Slice:
        timed = [(self._times.timer_ms(one[1] - 1), one) for one in reversed(self._slices.windows(namespace[0]))]
        # of a tumbling window whose state is there the timer has not fired
        pending = [one for one in timed if one[0] > self._fired_ms or self._slices.single]
        self._next_ms = min(self._next_ms, pending[-1][0])
        return self.begin_slice(namespace, pending, timed[0][0])

    def begin_slice(self, namespace: Any, pending: list[tuple[int, tuple[int, int]]], last_ms: int) -> Slice:
        """A slice that is not in memory yet."""
        made = self.open_slices[namespace] = Slice(
            namespace, pending, last_ms, not self._cold or (namespace is not None and namespace not in self._stored)
        )
        made.begin(self._all_keys, self.accumulators())
        return made

    def add(self, found: Slice, columns: pa.RecordBatch, signs: Ints | None) -> None:
        """Add rows to a slice."""
        before = found.ids.count
        slots = found.ids.of([columns.column(name) for name in self.keys], columns.num_rows)
        found.used = True
        if found.ids.count > before:
            found.grow()
            if not found.complete:
                self._load(found, np.arange(before, found.ids.count))
        found.held.add(slots, columns, signs)
        found.dirty[slots] = True
        found.unwritten = min(found.unwritten + len(slots), found.ids.count)

    def _load(self, found: Slice, slots: Ints) -> None:
        there, _ = self.rows.load(found.held, slots, {found.namespace: found.ids.keys(slots)})
        found.timed[slots[there]] = True

    def complete(self, found: Slice) -> None:
        """Bring all keys of a slice into memory."""
        if found.complete:
            return
        keys = self.bring_timers(found.last_ms).get(found.namespace, [])
        before = found.ids.count
        found.first = found.ids.of_keys(keys)
        found.grow()
        self._load(found, np.arange(before, found.ids.count))
        found.complete = True

    # ------------------------------------------------------------------------------------------------ time

    def process_watermark(self, watermark_ms: int) -> None:
        if self._by_event:
            self.fire(watermark_ms)
        self.output.emit_watermark(watermark_ms)

    def advance_processing_time(self, time_ms: int) -> None:
        if not self._by_event:
            self.fire(time_ms)

    def fire(self, upto_ms: int) -> None:
        """Fire the windows that are due."""
        if self._cold and self._slices.single and self.backend.may_be_due(self.domain, upto_ms):
            for namespace in self.bring_timers(upto_ms):
                if namespace not in self.open_slices:
                    self._slice(namespace)
        if upto_ms >= self._next_ms:
            due = set()
            for found in self.open_slices.values():
                while found.pending and found.pending[-1][0] <= upto_ms:
                    due.add(found.pending.pop()[1])
            for window in sorted(due, key=lambda window: (window[1], window[0])):
                self._fire(window)
            self._drop(upto_ms)
            following = [found.pending[-1][0] for found in self.open_slices.values() if found.pending]
            self._next_ms = min(following, default=MAX_WATERMARK_MS)
        self._fired_ms = max(upto_ms, self._fired_ms)

    def _fire(self, window: tuple[int, int]) -> None:
        width = self._slices.width
        found = [
            one for start in self._slices.of_window(window) if (one := self.open_slices.get((start, start + width)))
        ]
        for one in found:
            self.complete(one)
        held, ids, order = found[0].held, found[0].ids, found[0].order()
        if len(found) > 1:
            held, ids, parts = self.accumulators(), SomeKeys(ids.all), []
            for one in found:
                order = one.order()
                parts.append((ids.of_others(one.ids, order), one.held, order))
            held.grow(ids.count)
            # texts and sums of floats are as in Flink, which merges hopping windows from their end
            for part in reversed(parts) if self._slices.backwards else parts:
                held.merge(*part, earlier=self._slices.backwards)
            order = np.arange(ids.count)
        if len(order):
            bounds = [np.full(len(order), at) for at in (*window, window[1] - 1)]
            self.emit(ids.columns(order), held.results(order), bounds)

    def _drop(self, upto_ms: int) -> None:
        """Forget the slices whose last window has fired."""
        for found in [one for one in self.open_slices.values() if one.last_ms <= upto_ms]:
            del self.open_slices[found.namespace]
            if self._all_keys.count > _SLICES_OF_KEYS * max(ROOM, found.ids.count):
                # most of the keys do not come any more: slices from here on get a table of their own
                self._all_keys = KeyIds(self.types)
        if self.backend.may_be_due(self.domain, upto_ms):
            for _, namespace, keys in list(self.backend.timers(TIMERS).pop_due_runs(self.domain, upto_ms)):
                self.rows.remove(namespace, keys)

    # ------------------------------------------------------------------------------------------------ state

    def write_back(self) -> None:
        for found in self.open_slices.values():
            if not found.unwritten:
                continue
            dirty = np.flatnonzero(found.dirty[: found.ids.count])
            keys = found.ids.keys(dirty)
            self.rows.put(found.namespace, keys, found.held.stored(dirty), [])
            untimed = [key for key, timed in zip(keys, found.timed[dirty].tolist()) if not timed]
            self.backend.timers(TIMERS).register_all(self.domain, found.last_ms, untimed, found.namespace)
            found.timed[dirty], found.dirty[dirty], found.unwritten = True, False, 0

    @property
    def unwritten_bytes(self) -> int:
        # not what rows of them would take: most slices have fired before the barrier, and are never written
        return sum(found.nbytes for found in self.open_slices.values() if found.unwritten)

    @property
    def cached_bytes(self) -> int:
        return self._all_keys.nbytes + sum(found.nbytes for found in self.open_slices.values())

    def release(self) -> None:
        self._all_keys = KeyIds(self.types)
        for namespace, found in list(self.open_slices.items()):
            if not found.used and not found.unwritten and found.ids.count:
                self.open_slices[namespace] = empty = Slice(namespace, found.pending, found.last_ms, False)
                empty.begin(self._all_keys, self.accumulators())
            found.used = False


#: Stands for the slice of a time that no window holds.
_NO_WINDOW = Slice(None, [], 0, True)


class FinalAggregateOperator(SliceOperator):
    """GROUP BY without a window in BATCH mode: one slice, which ends with the input."""

    def __init__(
        self, keys: Sequence[str], calls: Sequence[AggregateCall], schema: pa.Schema, retracting: bool
    ) -> None:
        KeptOperator.__init__(self, keys, calls, schema, retracting)
        self.open_slices = {}
        self._all_keys = KeyIds(self.types)

    def open(self) -> None:
        self._cold = self.rows.any
        self.begin_slice(None, [], MAX_WATERMARK_MS)

    def begin_epoch(self) -> None:
        """There is nothing to begin."""

    def save(self) -> Any:
        return None

    def process_batch(self, values: Any, timestamps: list[int] | None, input_index: int = 0) -> None:
        batch: ColumnBatch = values
        if len(batch):
            self.backend.make_room(len(batch))
            self.add(self.open_slices[None], batch.columns, signs_of(batch))

    def process_watermark(self, watermark_ms: int) -> None:
        if watermark_ms == MAX_WATERMARK_MS:
            found = self.open_slices[None]
            self.complete(found)
            if not self.keys and not found.ids.count and self.context.parallelism == 1:
                # the results over no rows
                found.ids.of([], 1)
                found.grow()
                order = np.arange(1)
            else:
                order = found.order()
                order = order[found.held.exist(order)]
            self.emit(found.ids.columns(order), found.held.results(order), ())
            self._drop(watermark_ms)
        self.output.emit_watermark(watermark_ms)

    def advance_processing_time(self, time_ms: int) -> None:
        """Time does not matter."""


def _rows(columns: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    begin, end = int(rows[0]), int(rows[-1]) + 1
    if end - begin == len(rows):
        return columns.slice(begin, end - begin)
    return columns.take(pa.array(rows))
