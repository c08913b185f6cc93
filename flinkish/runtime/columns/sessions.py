"""GROUP BY with SESSION windows: rows of a key that are less than a gap apart are one window, which fires when nothing
can be added to it any more.

A batch is cut into stretches of rows of one key without a gap in numpy; what is left is a step in Python for each
stretch. All open sessions are in memory. Of those that end together, the one that began first fires first, and then
the order of the keys is that of their hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import pyarrow as pa

from flinkish.core.column_batch import ColumnBatch
from flinkish.core.time import MAX_WATERMARK_MS, TimeDomain
from flinkish.runtime.columns.aggregate import ROW_BYTES
from flinkish.runtime.columns.described import AggregateCall, WindowAssigner
from flinkish.runtime.columns.keys import ROOM, Ints, KeyIds
from flinkish.runtime.columns.window_times import WindowTimes
from flinkish.runtime.columns.windows import KeptOperator
from flinkish.runtime.exchange.column_keys import raw_key_hashes
from flinkish.runtime.operators.window.contents import TIMERS

#: About how many bytes an open session takes besides its accumulators.
_SESSION_BYTES = 300


class Session:
    """An open session of a key. ``key``: the id of the key; ``stored``: the namespace of its row and timer; ``into``:
    the session that it was merged into."""

    __slots__ = ("end", "into", "key", "slot", "start", "stored")

    def __init__(self, key: int, start: int, end: int, slot: int) -> None:
        self.key, self.start, self.end, self.slot = key, start, end, slot
        self.stored: tuple[int, int] | None = None
        self.into: Session | None = None


class SessionOperator(KeptOperator):
    """Session windows."""

    def __init__(
        self, keys: Sequence[str], calls: Sequence[AggregateCall], schema: pa.Schema, window: WindowAssigner
    ) -> None:
        super().__init__(keys, calls, schema)
        self._times, self._gap, self._by_event = WindowTimes(window), window.size_ms, window.time is not None
        self.domain = TimeDomain.EVENT_TIME if self._by_event else TimeDomain.PROCESSING_TIME
        self._began = False
        self._ids, self._held = KeyIds(self.types), self.accumulators()
        self._sessions: dict[int, list[Session]] = {}
        #: (time at which it fires, end, number, session); entries of sessions that have another end are stale
        self._due: list[tuple[int, int, int, Session]] = []
        self._numbered = self._slots = 0
        self._free: list[int] = []
        #: sessions that have changed since they were written, and what is stored of those that are no more
        self._dirty: dict[Session, None] = {}
        self._gone: list[tuple[tuple[int, int], int]] = []

    def begin_epoch(self) -> None:
        if self._began:
            return
        self._began = True
        if self.rows.any:
            stored: dict[Any, list[Any]] = self.bring_timers(MAX_WATERMARK_MS)
            keys = [key for of_namespace in stored.values() for key in of_namespace]
            ids = iter(self._ids.of_keys(keys).tolist())
            opened = [self._begun(next(ids), *space) for space, of_space in stored.items() for _ in of_space]
            self.rows.load(self._held, np.array([one.slot for one in opened], np.int64), stored)
            for session in opened:
                session.stored = (session.start, session.end)
            self._dirty.clear()

    # ------------------------------------------------------------------------------------------------ rows

    def process_batch(self, values: Any, timestamps: list[int] | None, input_index: int = 0) -> None:
        batch: ColumnBatch = values
        if not len(batch):
            return
        self.backend.make_room(len(batch))
        columns = batch.columns
        times = self._times.local_ms(columns, self.context.epoch.processing_time_ms, self.where)
        ids = self._ids.of([columns.column(name) for name in self.keys], len(batch))
        order, begins = self._stretches(ids, times)
        slots = np.empty(len(batch), np.int64)
        ends = np.append(begins[1:], len(order))
        found = [
            self._session(*stretch)
            for stretch in zip(
                ids[order[begins]].tolist(),
                times[order[begins]].tolist(),
                (times[order[ends - 1]] + self._gap).tolist(),
                strict=True,
            )
        ]
        # a later stretch may have merged the session of an earlier one into its own
        of_stretch = [self._slot_of(session) for session in found]
        slots[order] = np.repeat(np.array(of_stretch, np.int64), ends - begins)
        taken = np.flatnonzero(slots >= 0)
        if len(taken) < len(slots):
            self.late.inc(len(slots) - len(taken))
            columns, slots = columns.take(pa.array(taken)), slots[taken]
        self._held.add(slots, columns, None)

    def _stretches(self, ids: Ints, times: Ints) -> tuple[Ints, Ints]:
        """The rows by key and time, and where in them a stretch begins. Rows that are late on their own depend on what
        came before them: those of their keys stay in their order, each as a stretch."""
        order = np.lexsort((times, ids))
        alone = np.zeros(len(ids), bool)
        if self._by_event:
            late_ms = self._times.latest_ms(self.context.epoch.watermark_ms) - self._gap + 1
            late = times <= late_ms
            if late.any():
                of_keys = np.zeros(self._ids.count, bool)
                of_keys[ids[late]] = True
                alone = of_keys[ids]
                order = np.concatenate([np.flatnonzero(alone), order[~alone[order]]])
        of_key, at = ids[order], times[order]
        starts = np.ones(len(order), bool)
        starts[1:] = (of_key[1:] != of_key[:-1]) | (at[1:] - at[:-1] > self._gap) | alone[order][1:]
        return order, np.flatnonzero(starts)

    def _session(self, key: int, start: int, end: int) -> Session | None:
        """The session of a stretch of rows, merged with those that it touches; None: the rows are late."""
        of_key = self._sessions.get(key, [])
        joined = [one for one in of_key if one.start <= end and start <= one.end]
        if not joined:
            if self._by_event and self._times.timer_ms(end - 1) <= self.context.epoch.watermark_ms:
                return None
            return self._begun(key, start, end)
        first, before = joined[0], (joined[0].start, joined[0].end)
        for other in joined[1:]:
            self._held.merge(np.array([first.slot]), self._held, np.array([other.slot]))
            self._end(other)
            self._held.clear(np.array([other.slot]))
            other.into = first
        first.start = min(start, *(one.start for one in joined))
        first.end = max(end, *(one.end for one in joined))
        if (first.start, first.end) != before:
            self._push(first)
        self._dirty[first] = None
        return first

    @staticmethod
    def _slot_of(session: Session | None) -> int:
        while session is not None and session.into is not None:
            session = session.into
        return -1 if session is None else session.slot

    def _begun(self, key: int, start: int, end: int) -> Session:
        if self._free:
            slot = self._free.pop()
        else:
            slot, self._slots = self._slots, self._slots + 1
            self._held.grow(self._slots)
        made = Session(key, start, end, slot)
        self._sessions.setdefault(key, []).append(made)
        self._push(made)
        self._dirty[made] = None
        return made

    def _push(self, session: Session) -> None:
        self._numbered += 1
        heappush(self._due, (self._times.timer_ms(session.end - 1), session.end, self._numbered, session))

    def _end(self, session: Session) -> None:
        """Forget a session, whose slot is free again once it is cleared."""
        of_key = self._sessions[session.key]
        of_key.remove(session)
        if not of_key:
            del self._sessions[session.key]
        self._dirty.pop(session, None)
        if session.stored is not None:
            self._gone.append((session.stored, session.key))
        self._free.append(session.slot)

    # ------------------------------------------------------------------------------------------------ time

    def process_watermark(self, watermark_ms: int) -> None:
        if self._by_event:
            self._fire(watermark_ms)
        self.output.emit_watermark(watermark_ms)

    def advance_processing_time(self, time_ms: int) -> None:
        if not self._by_event:
            self._fire(time_ms)

    def _fire(self, upto_ms: int) -> None:
        fired: dict[Session, None] = {}
        while self._due and self._due[0][0] <= upto_ms:
            _, end, _, session = heappop(self._due)
            if session.end == end and session in self._sessions.get(session.key, ()):
                fired[session] = None
        if not fired:
            return
        found = list(fired)
        ids, starts, ends, slots = (
            np.array([getattr(one, name) for one in found], np.int64) for name in ("key", "start", "end", "slot")
        )
        keys = self._ids.columns(ids)
        hashes = raw_key_hashes(pa.RecordBatch.from_arrays(keys, self.keys), self.keys) if keys else ids
        order = np.lexsort((hashes, starts, ends))
        bounds = (starts[order], ends[order], ends[order] - 1)
        self.emit([key.take(pa.array(order)) for key in keys], self._held.results(slots[order]), bounds)
        for session in found:
            self._end(session)
        self._held.clear(slots)

    # ------------------------------------------------------------------------------------------------ state

    def write_back(self) -> None:
        queue, changed = self.backend.timers(TIMERS), list(self._dirty)
        moved = [one for one in changed if one.stored not in (None, (one.start, one.end))]
        gone = [*self._gone, *((one.stored, one.key) for one in moved if one.stored is not None)]
        keys = self._ids.keys(np.array([key for _, key in gone], np.int64))
        spaces: dict[Any, list[Any]] = {}
        for (namespace, _), key in zip(gone, keys, strict=True):
            spaces.setdefault(namespace, []).append(key)
        self.backend.fetch_all(spaces)
        for (namespace, _), key in zip(gone, keys, strict=True):
            queue.delete(self.domain, self._times.timer_ms(namespace[1] - 1), key, namespace)
            self.rows.remove(namespace, [key])
        keys = self._ids.keys(np.array([one.key for one in changed], np.int64))
        places = [(one.start, one.end) for one in changed]
        self.rows.put_each(places, keys, self._held.stored(np.array([one.slot for one in changed], np.int64)))
        for session, key, namespace in zip(changed, keys, places, strict=True):
            if session.stored != namespace:
                session.stored = namespace
                queue.register(self.domain, self._times.timer_ms(session.end - 1), key, namespace)
        self._dirty, self._gone = {}, []
        if self._ids.count > 4 * len(self._sessions) + ROOM:
            self._forget_keys()

    def _forget_keys(self) -> None:
        """Keep the keys of open sessions only, and no stale entry of the heap."""
        kept = np.array(list(self._sessions), np.int64)
        columns, self._ids = self._ids.columns(kept), KeyIds(self.types)
        fresh = self._ids.of(columns, len(kept)).tolist()
        self._sessions = dict(zip(fresh, self._sessions.values(), strict=True))
        for key, of_key in self._sessions.items():
            for session in of_key:
                session.key = key
        self._due = [
            (self._times.timer_ms(one.end - 1), one.end, number, one)
            for number, one in enumerate(one for of_key in self._sessions.values() for one in of_key)
        ]
        heapify(self._due)
        self._numbered = len(self._due)

    @property
    def unwritten_bytes(self) -> int:
        return ROW_BYTES * len(self._dirty)

    @property
    def cached_bytes(self) -> int:
        return self._ids.nbytes + self._held.nbytes + _SESSION_BYTES * len(self._due)

    def release(self) -> None:
        """Open sessions stay in memory."""
