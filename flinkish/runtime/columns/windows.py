"""GROUP BY with a window: the aggregates of each key and window, emitted once, when time has reached the window's end.

Rows are added to *slices*, stretches of time in which no window begins or ends: a tumbling window is one slice, a
hopping or cumulating one is merged from several when it fires. Windows fire in the order of their ends, and the keys of
one in the order in which they first came. Rows all of whose windows have fired are dropped, and counted.

The state of a slice is, by key, in the namespace (start, end) in local time. It has one timer, for its last window, by
which the task knows that it waits for that time. Slices are in memory as long as there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flinkish.core.column_batch import ColumnBatch
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, TimeDomain
from flinkish.runtime.columns.aggregate import names_of, signs_of
from flinkish.runtime.columns.calls import Accumulators
from flinkish.runtime.columns.column_table import FILED, STORED, ColumnOperator, ColumnTable, RowsOfNamespace
from flinkish.runtime.columns.described import AggregateCall, WindowAssigner
from flinkish.runtime.columns.keys import ROOM, Ints, KeyIds, SomeKeys, columns_of_keys
from flinkish.runtime.columns.window_times import Slices, WindowTimes
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.operators.window.contents import TIMERS
from flinkish.runtime.stored.column_pickles import Column

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


class Slice(RowsOfNamespace):
    """The aggregates of the keys of a slice, which are in memory or in files, all of them."""

    def __init__(
        self,
        namespace: Any,
        pending: list[tuple[int, tuple[int, int]]],
        last_ms: int,
        keys: KeyIds,
        held: Accumulators,
        loaded: bool,
    ) -> None:
        self.some_keys = SomeKeys(keys)
        super().__init__(namespace, self.some_keys, held, in_order=True)
        #: its windows that have not fired, and when they do, the next one last
        self.pending = pending
        #: when its last window fires
        self.last_ms = last_ms
        self.loaded = loaded
        #: whether it has its timer
        self.timed = not loaded
        #: the number of the batch that used it last
        self.used = 0


class WindowedOperator(ColumnOperator):
    """The base of the operators with windows."""

    domain = TimeDomain.EVENT_TIME
    bounded = True

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
        self.table = ColumnTable(self, self.context, self.accumulators())
        self.backend = self.table.backend
        self.late = self.context.exact_counter("numLateRecordsDropped")

    @property
    def where(self) -> str:
        """Names the operator in errors."""
        return f"operator '{self.context.name}' (uid {self.context.uid})"

    def wake(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Register a timer, by which the task knows when windows fire."""
        self.backend.timers(TIMERS).register(self.domain, time_ms, key, namespace)

    def end_timers(self, upto_ms: int) -> None:
        """Remove the timers up to a time."""
        if self.backend.may_be_due(self.domain, upto_ms):
            for _ in self.backend.timers(TIMERS).pop_due(self.domain, upto_ms):
                pass

    def emit(self, keys: list[pa.Array], results: list[pa.Array], windows: Sequence[Any]) -> None:
        """Emit results. ``windows``: the columns of their windows."""
        names = [*names_of(self.keys, self.calls), *WINDOW_COLUMNS[: len(windows)]]
        columns = pa.RecordBatch.from_arrays([*keys, *results, *map(pa.array, windows)], names)
        for part in ColumnBatch(columns).parts():
            self.output.collect(part, None)


class SliceOperator(WindowedOperator):
    """Tumbling, hopping and cumulating windows."""

    def __init__(
        self, keys: Sequence[str], calls: Sequence[AggregateCall], schema: pa.Schema, window: WindowAssigner
    ) -> None:
        super().__init__(keys, calls, schema)
        self._times, self._slices = WindowTimes(window), Slices(window)
        self._by_event = window.time is not None
        self.domain = TimeDomain.EVENT_TIME if self._by_event else TimeDomain.PROCESSING_TIME
        #: the time up to which all windows have fired, and that of the next window that fires
        self._fired_ms, self._next_ms = MIN_TIMESTAMP_MS, MAX_WATERMARK_MS
        self._begin()

    def _begin(self) -> None:
        #: namespace -> slice
        self.open_slices: dict[Any, Slice] = {}
        self._all_keys = KeyIds(self.types)
        #: the number of the batch
        self._turn = 0

    @property
    def kept(self) -> Iterable[RowsOfNamespace]:
        return self.open_slices.values()

    def bring(self) -> None:
        """Begin with the slices that were stored: those that lie in no file, and as many others as have room."""
        if self._by_event:
            self._fired_ms = self.context.epoch.watermark_ms
        inline, removed = self.table.take_over()
        for namespace, keys in removed.items():
            columns = columns_of_keys(keys, self.types)
            self.table.drop([namespace], columns, np.full(len(keys), STORED | FILED, np.uint8))
        filed = dict(self.table.scan().parts()) if self.table.may_be_whole else {}
        found = filed or self.table.namespaces_in_files()
        in_files = [namespace for namespace in found if namespace not in removed]
        for namespace in dict.fromkeys([*in_files, *inline]):
            self.open_slice(namespace, namespace not in in_files)
        for namespace in in_files if filed else ():
            self._put(self.open_slices[namespace], filed[namespace].keys, filed[namespace].values, STORED | FILED)
            self.open_slices[namespace].loaded = True
        self._load([one for one in in_files if one in inline and not filed])
        for namespace, (keys, rows, _) in inline.items():
            columns = columns_of_keys(keys, self.types)
            self._put(self.open_slices[namespace], columns, self.table.columns_of(rows), self.table.inline_marks)

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
        self._turn += 1
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
        return self.open_slice(namespace)

    def open_slice(self, namespace: Any, loaded: bool = True) -> Slice:
        """A slice that is not open yet."""
        timed = [(self._times.timer_ms(one[1] - 1), one) for one in reversed(self._slices.windows(namespace[0]))]
        # of a tumbling window whose state is there the timer has not fired
        pending = [one for one in timed if one[0] > self._fired_ms or self._slices.single]
        self._next_ms = min(self._next_ms, pending[-1][0])
        return self._made(namespace, pending, timed[0][0], loaded)

    def _made(self, namespace: Any, pending: list[tuple[int, tuple[int, int]]], last_ms: int, loaded: bool) -> Slice:
        made = Slice(namespace, pending, last_ms, self._all_keys, self.accumulators(), loaded)
        self.open_slices[namespace] = made
        return made

    def add(self, found: Slice, columns: pa.RecordBatch, signs: Ints | None) -> None:
        """Add rows to a slice."""
        self.use([found])
        before = found.count
        slots = found.ids.of([columns.column(name) for name in self.keys], columns.num_rows)
        if found.count > before:
            found.grow()
        found.held.add(slots, columns, signs)
        found.change(slots)

    def use(self, slices: list[Slice]) -> None:
        """Bring slices to memory."""
        for found in slices:
            found.used = self._turn
        if missing := [found.namespace for found in slices if not found.loaded]:
            self._load(missing)

    def _load(self, namespaces: Iterable[Any]) -> None:
        wanted = set(namespaces)
        for namespace, rows in self.table.scan(wanted).parts() if wanted else ():
            self._put(self.open_slices[namespace], rows.keys, rows.values, STORED | FILED)
        for namespace in wanted:
            self.open_slices[namespace].loaded = True

    def _put(self, found: Slice, keys: list[pa.Array], values: list[Column], marks: int) -> None:
        slots = found.ids.of(keys, 1)
        found.grow()
        # the form in files may be an earlier one
        found.held.clear(slots)
        found.held.load(slots, values)
        found.marks[slots] = marks

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
        self.use(found)
        held, ids = found[0].held, found[0].some_keys
        if len(found) > 1:
            held, ids, parts = self.accumulators(), SomeKeys(ids.all), []
            for one in found:
                order = np.arange(one.count)
                parts.append((ids.of_others(one.some_keys, order), one.held, order))
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
            slots = found.marked(STORED | FILED)
            self.table.drop([found.namespace], found.keys(slots), found.marks[slots])
            if self._all_keys.count > _SLICES_OF_KEYS * max(ROOM, found.ids.count):
                # most of the keys do not come any more: slices from here on get a table of their own
                self._all_keys = KeyIds(self.types)
        self.end_timers(upto_ms)

    # ------------------------------------------------------------------------------------------------ state

    def snapshot_state(self) -> None:
        for found in self.open_slices.values():
            if not found.timed and found.count:
                self.wake(found.last_ms, found.ids.keys(np.zeros(1, np.int64))[0], found.namespace)
                found.timed = True

    @property
    def cached_bytes(self) -> int:
        return self._all_keys.nbytes + sum(found.nbytes for found in self.open_slices.values())

    def release(self) -> None:
        self._all_keys = KeyIds(self.types)
        for found in list(self.open_slices.values()):
            # what the last batch has used is needed by the next one
            if found.count and found.used < self._turn and not len(found.marked(self.table.pinned)):
                self._made(found.namespace, found.pending, found.last_ms, False).timed = found.timed


#: Stands for the slice of a time that no window holds.
_NO_WINDOW = Slice(None, [], 0, KeyIds([]), Accumulators((), pa.schema([]), False), True)


class FinalAggregateOperator(SliceOperator):
    """GROUP BY without a window in BATCH mode: one slice, which ends with the input."""

    bounded = False

    def __init__(
        self, keys: Sequence[str], calls: Sequence[AggregateCall], schema: pa.Schema, retracting: bool
    ) -> None:
        WindowedOperator.__init__(self, keys, calls, schema, retracting)
        self._by_event = False
        self._begin()

    def bring(self) -> None:
        super().bring()
        if not self.open_slices:
            self.open_slice(None)

    def open_slice(self, namespace: Any, loaded: bool = True) -> Slice:
        return self._made(namespace, [], MAX_WATERMARK_MS, loaded)

    def save(self) -> Any:
        return None

    def process_batch(self, values: Any, timestamps: list[int] | None, input_index: int = 0) -> None:
        batch: ColumnBatch = values
        if len(batch):
            self.backend.make_room(len(batch))
            self._turn += 1
            self.add(self.open_slices[None], batch.columns, signs_of(batch))

    def process_watermark(self, watermark_ms: int) -> None:
        if watermark_ms == MAX_WATERMARK_MS:
            found = self.open_slices[None]
            self.use([found])
            if not self.keys and not found.ids.count and self.context.parallelism == 1:
                # the results over no rows
                found.ids.of([], 1)
                found.grow()
                order = np.arange(1)
            else:
                order = np.arange(found.count)
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
