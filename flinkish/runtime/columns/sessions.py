"""GROUP BY with SESSION windows: rows of a key that are less than a gap apart are one window, which fires when nothing
can be added to it any more.

A batch is cut into stretches of rows of one key without a gap in numpy; what is left is a step in Python for each
stretch. All open sessions are in memory. Of those that end together, the one that began first fires first, and then
the order of the keys is that of their hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import pyarrow as pa

from flinkish.core.column_batch import ColumnBatch
from flinkish.core.time import TimeDomain
from flinkish.runtime.columns.calls import Accumulators
from flinkish.runtime.columns.column_table import CHANGED, FILED, STORED, UNFILED, RowsOfNamespace, picked
from flinkish.runtime.columns.described import AggregateCall, WindowAssigner
from flinkish.runtime.columns.keys import ROOM, Ints, KeyIds, columns_of_keys
from flinkish.runtime.columns.window_times import WindowTimes
from flinkish.runtime.columns.windows import WindowedOperator
from flinkish.runtime.exchange.column_keys import keys_of_columns, raw_key_hashes
from flinkish.runtime.stored.column_pickles import Column

#: About how many bytes an open session takes besides its accumulators.
_SESSION_BYTES = 300


class Session:
    """An open session of a key. ``key``: the id of the key; ``into``: the session that it was merged into."""

    __slots__ = ("end", "into", "key", "slot", "start")

    def __init__(self, key: int, start: int, end: int, slot: int) -> None:
        self.key, self.start, self.end, self.slot = key, start, end, slot
        self.into: Session | None = None


class Sessions(RowsOfNamespace):
    """The aggregates of sessions, each of which has a slot of its own, and its bounds as the namespace."""

    def __init__(self, ids: KeyIds, held: Accumulators) -> None:
        super().__init__(None, ids, held)
        self.sessions: list[Session] = []

    @property
    def count(self) -> int:
        return len(self.sessions)

    def namespaces(self, slots: Ints) -> list[Any]:
        return [(one.start, one.end) for one in map(self.sessions.__getitem__, slots.tolist())]

    def keys(self, slots: Ints) -> list[pa.Array]:
        return self.ids.columns(np.array([self.sessions[slot].key for slot in slots.tolist()], np.int64))

    def place(self, session: Session) -> None:
        """Give a session its slot."""
        self.sessions[session.slot : session.slot + 1] = [session]
        self.grow()


class SessionOperator(WindowedOperator):
    """Session windows."""

    def __init__(
        self, keys: Sequence[str], calls: Sequence[AggregateCall], schema: pa.Schema, window: WindowAssigner
    ) -> None:
        super().__init__(keys, calls, schema)
        self._times, self._gap, self._by_event = WindowTimes(window), window.size_ms, window.time is not None
        self.domain = TimeDomain.EVENT_TIME if self._by_event else TimeDomain.PROCESSING_TIME
        self._rows = Sessions(KeyIds(self.types), self.accumulators())
        self._sessions: dict[int, list[Session]] = {}
        #: (time at which it fires, end, number, session); entries of sessions that have another end are stale
        self._due: list[tuple[int, int, int, Session]] = []
        self._numbered = 0
        self._free: list[int] = []
        #: the time of the timer that was registered last
        self._woken_ms: int | None = None

    @property
    def kept(self) -> Iterable[RowsOfNamespace]:
        return (self._rows,)

    def bring(self) -> None:
        inline, removed = self.table.take_over()
        newer = {(namespace, key) for namespace, (keys, *_) in inline.items() for key in keys}
        for namespace, keys in removed.items():
            newer.update((namespace, key) for key in keys)
            columns = columns_of_keys(keys, self.types)
            self.table.drop([namespace], columns, np.full(len(keys), STORED | FILED, np.uint8))
        filed = self.table.scan()
        groups = zip(filed.namespaces, keys_of_columns(filed.keys, len(filed.namespaces)))
        at = np.array([place for place, group in enumerate(groups) if group not in newer], np.int64)
        if len(at):
            keys, values = ([picked(column, at) for column in columns] for columns in (filed.keys, filed.values))
            self._put([filed.namespaces[place] for place in at.tolist()], keys, values, STORED | FILED)
        for namespace, (keys, rows, _) in inline.items():
            columns = self.table.columns_of(rows)
            self._put([namespace] * len(rows), columns_of_keys(keys, self.types), columns, self.table.inline_marks)

    def _put(self, namespaces: list[Any], keys: list[pa.Array], values: Sequence[Column], marks: int) -> None:
        """Begin with sessions that were stored."""
        ids = self._rows.ids.of(keys, len(namespaces)).tolist()
        of_sessions = zip(ids, namespaces, strict=True)
        slots = np.array([self._begun(key, *namespace).slot for key, namespace in of_sessions], np.int64)
        self._rows.held.load(slots, values)
        self._rows.marks[slots] = marks

    # ------------------------------------------------------------------------------------------------ rows

    def process_batch(self, values: Any, timestamps: list[int] | None, input_index: int = 0) -> None:
        batch: ColumnBatch = values
        if not len(batch):
            return
        self.backend.make_room(len(batch))
        columns = batch.columns
        times = self._times.local_ms(columns, self.context.epoch.processing_time_ms, self.where)
        ids = self._rows.ids.of([columns.column(name) for name in self.keys], len(batch))
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
        self._rows.held.add(slots, columns, None)

    def _stretches(self, ids: Ints, times: Ints) -> tuple[Ints, Ints]:
        """The rows by key and time, and where in them a stretch begins. Rows that are late on their own depend on what
        came before them: those of their keys stay in their order, each as a stretch."""
        order = np.lexsort((times, ids))
        alone = np.zeros(len(ids), bool)
        if self._by_event:
            late_ms = self._times.latest_ms(self.context.epoch.watermark_ms) - self._gap + 1
            late = times <= late_ms
            if late.any():
                of_keys = np.zeros(self._rows.ids.count, bool)
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
            self._rows.held.merge(np.array([first.slot]), self._rows.held, np.array([other.slot]))
            self._leave(np.array([other.slot]))
            self._end(other)
            self._rows.held.clear(np.array([other.slot]))
            other.into = first
        after = min(start, *(one.start for one in joined)), max(end, *(one.end for one in joined))
        if after != before:
            self._leave(np.array([first.slot]))
            first.start, first.end = after
            self._push(first)
        self._rows.marks[first.slot] |= UNFILED | CHANGED
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
            slot = self._rows.count
        made = Session(key, start, end, slot)
        self._rows.place(made)
        self._sessions.setdefault(key, []).append(made)
        self._push(made)
        self._rows.marks[slot] |= UNFILED | CHANGED
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
        self._free.append(session.slot)

    def _leave(self, slots: Ints) -> None:
        """The rows of these sessions are no more: they have ended, or have other bounds."""
        stored = slots[self._rows.marks[slots] & (STORED | FILED) != 0]
        if len(stored):
            self.table.drop(self._rows.namespaces(stored), self._rows.keys(stored), self._rows.marks[stored])
        self._rows.marks[slots] = 0

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
        self.end_timers(upto_ms)
        if not fired:
            return
        found = list(fired)
        ids, starts, ends, slots = (
            np.array([getattr(one, name) for one in found], np.int64) for name in ("key", "start", "end", "slot")
        )
        keys = self._rows.ids.columns(ids)
        hashes = raw_key_hashes(pa.RecordBatch.from_arrays(keys, self.keys), self.keys) if keys else ids
        order = np.lexsort((hashes, starts, ends))
        bounds = (starts[order], ends[order], ends[order] - 1)
        self.emit([key.take(pa.array(order)) for key in keys], self._rows.held.results(slots[order]), bounds)
        self._leave(slots)
        for session in found:
            self._end(session)
        self._rows.held.clear(slots)

    # ------------------------------------------------------------------------------------------------ state

    def snapshot_state(self) -> None:
        if self._rows.ids.count > 4 * len(self._sessions) + ROOM:
            self._forget_keys()
        while self._due and self._due[0][3] not in self._sessions.get(self._due[0][3].key, ()):
            heappop(self._due)
        if self._due and self._due[0][0] != self._woken_ms:
            self._woken_ms, _, _, session = self._due[0]
            key = self._rows.ids.keys(np.array([session.key]))[0]
            self.wake(self._woken_ms, key, (session.start, session.end))

    def _forget_keys(self) -> None:
        """Keep the keys of open sessions only, and no stale entry of the heap."""
        kept = np.array(list(self._sessions), np.int64)
        columns, self._rows.ids = self._rows.ids.columns(kept), KeyIds(self.types)
        fresh = self._rows.ids.of(columns, len(kept)).tolist()
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
    def cached_bytes(self) -> int:
        return self._rows.nbytes + _SESSION_BYTES * len(self._due)

    def release(self) -> None:
        """Open sessions stay in memory."""
