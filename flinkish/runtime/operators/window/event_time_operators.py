"""Faster window operators for event-time windows with the default trigger: one for tumbling and sliding windows, and
one for sessions.

Rule: state, timers and output, with their order, are exactly those of the general operators (property tests compare
them). This is possible since no watermark rises within a batch; each class says what else it rests on.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import runs_ours
from flinkish.common.detach import all_detached, cannot_change, detached
from flinkish.core.functions import opens
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, TimeDomain
from flinkish.core.window.sessions import DynamicEventTimeSessionWindows, EventTimeSessionWindows
from flinkish.core.window.trigger import EventTimeTrigger
from flinkish.core.window.tumbling_sliding import SlidingEventTimeWindows, TumblingEventTimeWindows
from flinkish.core.window.window import TimeWindow
from flinkish.runtime.exchange.keys import keys_of
from flinkish.runtime.operators.window.contents import merge_namespaces
from flinkish.runtime.operators.window.merging_window_operator import MergingWindowOperator
from flinkish.runtime.operators.window.window_operator import WindowOperator
from flinkish.runtime.state.state_rows import VOID_NAMESPACE

if TYPE_CHECKING:
    from flinkish.runtime.operators.window.factory import WindowOperatorFactory


#: Parallel lists: the keys of elements, and their values.
_Elements = tuple[list[Any], list[Any]]


class _Pane:
    """A stretch of time (end exclusive) in which no window begins or ends: its elements are in the same windows."""

    __slots__ = ("end_ms", "fired", "first_ms", "in_no_other", "unfired")

    def __init__(self, first_ms: int, end_ms: int) -> None:
        self.first_ms = first_ms
        self.end_ms = end_ms
        #: the windows of the pane that have fired, the last one first, and whether there are no other windows
        self.fired: list[TimeWindow] = []
        self.in_no_other = False
        #: for each window of the pane that has not fired, its elements of this batch
        self.unfired: list[_Elements] = []


def _is_plain(factory: WindowOperatorFactory, *assigners: type) -> bool:
    """Whether it is one of these assigners with the default trigger, both as flinkish has them, without an evictor; and
    the fold cannot hold state handles, since the current key is not set for each element."""
    of_ours = isinstance(factory.assigner, assigners) and isinstance(factory.trigger, EventTimeTrigger)
    of_ours = of_ours and runs_ours(factory.assigner) and runs_ours(factory.trigger)
    return of_ours and factory.evictor is None and not opens(factory.window_logic.fold)


class AlignedEventTimeOperator(WindowOperator):
    """The window operator for tumbling and sliding event-time windows with the default trigger: it adds whole batches
    to windows instead of single elements. Tumbling windows are treated as sliding ones whose slide is their size.

    This gives the results of the general operator since all elements of one window in a batch are late or none is, and
    since EventTimeTrigger only registers one timer for an element of a window that has not fired yet. Elements of
    windows that have fired (which fire again within the allowed lateness, or are late) are processed as by the general
    operator, in their order; nothing else can emit while a batch is processed.
    """

    def __init__(self, factory: WindowOperatorFactory) -> None:
        super().__init__(factory)
        assigner = factory.assigner
        assert isinstance(assigner, (TumblingEventTimeWindows, SlidingEventTimeWindows))
        self._size_ms = assigner.size_ms
        self._slide_ms = assigner.slide_ms if isinstance(assigner, SlidingEventTimeWindows) else assigner.size_ms
        self._offset_ms = assigner.offset_ms

    @staticmethod
    def handles(factory: WindowOperatorFactory) -> bool:
        """Whether this operator may be used."""
        return _is_plain(factory, TumblingEventTimeWindows, SlidingEventTimeWindows)

    # --- elements -----------------------------------------------------------------------------------------------

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        if not timestamps or min(timestamps) <= MIN_TIMESTAMP_MS:
            super().process_batch(values, timestamps, input_index)  # to raise the assigner's error
            return
        self.enter_group(self.context.epoch.watermark_ms)
        keys = keys_of(self.key_selector, values)
        unfired: dict[int, _Elements] = {}
        # the windows of an element must not share it if adding another one may change it
        can_change = self.contents.folds and self._slide_ms < self._size_ms and not cannot_change(values)
        for pane, begin, end in self._stretches(timestamps, unfired):
            shared = can_change and len(pane.fired) + len(pane.unfired) > 1
            # if the slide is greater than the size, an element may be in no window at all
            if pane.fired or pane.in_no_other:
                for position in range(begin, end):
                    value = detached(values[position]) if shared else values[position]
                    element = value, timestamps[position], keys[position]
                    self.process_element(*element, pane.fired, pane.in_no_other)
            for window_keys, window_values in pane.unfired:
                if end - begin == 1:
                    window_keys.append(keys[begin])
                    window_values.append(detached(values[begin]) if shared else values[begin])
                else:
                    window_keys += keys[begin:end]
                    window_values += all_detached(values[begin:end]) if shared else values[begin:end]
        self.results.flush()
        for start, (window_keys, window_values) in unfired.items():
            self._fold(start, window_keys, window_values)

    def _stretches(self, timestamps: list[int], unfired: dict[int, _Elements]) -> Iterator[tuple[_Pane, int, int]]:
        """(pane, begin, end) of each run of neighbouring elements in the same pane. The windows of the panes that have
        not fired are added to ``unfired``: start -> elements."""
        panes: dict[int, _Pane] = {}
        begin, pane = 0, self._pane(timestamps[0], panes, unfired)
        first_ms, end_ms = pane.first_ms, pane.end_ms
        if min(timestamps) < first_ms or max(timestamps) >= end_ms:
            for position, timestamp_ms in enumerate(timestamps):
                if not first_ms <= timestamp_ms < end_ms:
                    yield pane, begin, position
                    begin, pane = position, self._pane(timestamp_ms, panes, unfired)
                    first_ms, end_ms = pane.first_ms, pane.end_ms
        yield pane, begin, len(timestamps)

    def _pane(self, timestamp_ms: int, panes: dict[int, _Pane], unfired: dict[int, _Elements]) -> _Pane:
        """The pane that contains a timestamp; made if it is not yet in ``panes`` (start -> pane)."""
        start_ms = timestamp_ms - (timestamp_ms - self._offset_ms) % self._slide_ms
        end_ms = timestamp_ms - (timestamp_ms - self._offset_ms - self._size_ms) % self._slide_ms
        first_ms = max(start_ms, end_ms)
        pane = panes.get(first_ms)
        if pane is None:
            pane = panes[first_ms] = _Pane(first_ms, min(start_ms, end_ms) + self._slide_ms)
            for start in range(start_ms, timestamp_ms - self._size_ms, -self._slide_ms):
                if start + self._size_ms - 1 <= self.scope.watermark_ms:
                    pane.fired.append(TimeWindow(start, start + self._size_ms))
                else:
                    pane.unfired.append(unfired.setdefault(start, ([], [])))
            pane.in_no_other = not pane.unfired
        return pane

    def _fold(self, start_ms: int, keys: list[Any], values: list[Any]) -> None:
        """Add elements to a window that has not fired, and register its timers for keys that are new in it."""
        scope = self.scope
        window = TimeWindow(start_ms, start_ms + self._size_ms)
        namespace = (window.start, window.end)
        arriving = iter(keys)
        scope.backend.prefetch(keys, namespace)
        try:
            new_keys = self.contents.add_all(scope.table.namespace(namespace), arriving, values)
        except BaseException:
            # the error names the current key: the last key that the loop has taken
            scope.backend.loans.enter(keys[len(keys) - length_hint(arriving) - 1])
            raise
        scope.table.mark_grown(namespace, keys)
        if not new_keys:
            return
        scope.timers.register_all(TimeDomain.EVENT_TIME, window.max_timestamp(), new_keys, namespace)
        cleanup_ms = self.time.cleanup_ms(window)
        if window.max_timestamp() < cleanup_ms < MAX_WATERMARK_MS:
            scope.timers.register_all(TimeDomain.EVENT_TIME, cleanup_ms, new_keys, namespace)

    # --- time ---------------------------------------------------------------------------------------------------

    def fire_event_timers(self, watermark_ms: int) -> None:
        for timer_ms, namespace, keys in self.scope.timers.pop_due_runs(TimeDomain.EVENT_TIME, watermark_ms):
            window = TimeWindow(*namespace)
            self.scope.backend.prefetch(keys, namespace)
            fires, ends = timer_ms == window.max_timestamp(), timer_ms == self.time.cleanup_ms(window)
            if self.evaluator is None:
                if fires:
                    self._emit_all(window, namespace, keys)
            else:
                self._evaluate_all(window, namespace, keys, fires, ends)
            if ends:
                self.scope.table.remove_all(namespace, keys)

    def _emit_all(self, window: TimeWindow, namespace: tuple[int, int], keys: list[Any]) -> None:
        stored = self.scope.table.existing(namespace) or {}
        contents = self.contents.read_all([stored[key] for key in keys if key in stored])
        self.results.emit([value for value in contents if value is not None], window.max_timestamp())

    def _evaluate_all(
        self, window: TimeWindow, namespace: tuple[int, int], keys: list[Any], fires: bool, ends: bool
    ) -> None:
        assert self.evaluator is not None
        stored = self.scope.table.existing(namespace) or {}
        read = self.contents.last if ends and self._slide_ms >= self._size_ms else self.contents.read
        as_elements, evaluate = self.contents.as_elements, self.evaluator.evaluate
        clears, timestamp_ms = ends and self.evaluator.clears, window.max_timestamp()
        for key in keys:
            self.scope.enter(key, window, namespace)
            if fires and key in stored:
                contents = read(stored[key])
                if contents is not None:
                    self.results.emit(evaluate(key, window, as_elements(contents)), timestamp_ms)
            if clears:
                self.evaluator.clear()


_UNCHANGED = -1


class _Session:
    """An open session of a key, as the elements of a batch change it."""

    __slots__ = ("before", "end_ms", "grown", "since", "start_ms", "state", "stored")

    def __init__(self, start_ms: int, end_ms: int, state: tuple[int, int], stored: dict[Any, Any], since: int) -> None:
        self.start_ms = start_ms
        self.end_ms = end_ms
        #: the namespace of its contents (the state window), and the stored values in it by key
        self.state = state
        self.stored = stored
        #: position in the batch of the element that gave it this start and end; `_UNCHANGED`: it had them before
        self.since = since
        #: whether elements of the batch were added to it
        self.grown = False
        #: its window before the batch; None: it is new
        self.before: tuple[int, int] | None = (start_ms, end_ms) if since == _UNCHANGED else None


class SessionEventTimeOperator(MergingWindowOperator):
    """The window operator for event-time sessions with the default trigger: it looks up the open sessions of a key once
    per batch, and registers timers for the sessions as they are at the end of the batch.

    This gives the results of the general operator since EventTimeTrigger only registers one timer for a window whose
    end is ahead of the watermark, and deletes it when the window merges. A batch with an element whose own window is
    over already (it is late, or makes a session fire again) is processed as a whole by the general operator.
    """

    assigner: EventTimeSessionWindows | DynamicEventTimeSessionWindows

    @staticmethod
    def handles(factory: WindowOperatorFactory) -> bool:
        """Whether this operator may be used."""
        return _is_plain(factory, EventTimeSessionWindows, DynamicEventTimeSessionWindows)

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        if not timestamps or min(timestamps) <= MIN_TIMESTAMP_MS:
            super().process_batch(values, timestamps, input_index)  # to raise the assigner's error
            return
        ends = self.assigner.ends_ms(values, timestamps)
        if min(ends) - 1 <= self.context.epoch.watermark_ms:
            super().process_batch(values, timestamps, input_index)
            return
        self.enter_group(self.context.epoch.watermark_ms)
        keys = keys_of(self.key_selector, values)
        backend = self.scope.backend
        backend.prefetch(keys)
        if backend.in_files:
            self.fetch_open(keys, zip(keys, zip(timestamps, ends, strict=True), strict=True))
        add, gone = self.contents.add, list[tuple[Any, tuple[int, int]]]()
        sessions: dict[Any, list[_Session]] = {}
        lent, settle = backend.loans.open, backend.loans.settle
        arriving = iter(values)
        for place, (key, value, start_ms, end_ms) in enumerate(zip(keys, arriving, timestamps, ends, strict=True)):
            if lent:
                settle()
            backend.current_key = key
            of_key = sessions.get(key)
            if of_key is None:
                of_key = sessions[key] = self._opened_before(key)
            joined = [session for session in of_key if session.start_ms <= end_ms and start_ms <= session.end_ms]
            if not joined:
                session = self._new(key, start_ms, end_ms, place)
                of_key.append(session)
            else:
                session = joined[0] if len(joined) == 1 else self._merged(key, joined, of_key, gone)
                if start_ms < session.start_ms or end_ms > session.end_ms or len(joined) > 1:
                    session.start_ms = min(start_ms, session.start_ms)
                    session.end_ms = max(end_ms, joined[-1].end_ms)
                    session.since = place
            add(session.stored, key, value)
            session.grown = True
        self._settle(sessions, gone)

    def fire_event_timers(self, watermark_ms: int) -> None:
        table = self._open_windows
        for timer_ms, key, namespace in self._due(TimeDomain.EVENT_TIME, watermark_ms):
            table.fetch(VOID_NAMESPACE, (key,))
            opened = table.namespace(VOID_NAMESPACE).get(key, ())
            for window, state in opened:
                if window == namespace:
                    self._fire(timer_ms, key, window, state)
                    if timer_ms == self.time.cleanup_ms(self.scope.window):
                        self._close(key, window, state, opened)
                    break

    def _fire(self, timer_ms: int, key: Any, window: tuple[int, int], state: tuple[int, int]) -> None:
        self.scope.enter(key, TimeWindow(*window), window)
        self.scope.table.fetch(state, (key,))
        stored = self.scope.table.existing(state)
        if timer_ms == window[1] - 1 and stored and key in stored:
            self.evaluate(stored[key])

    def _close(self, key: Any, window: tuple[int, int], state: tuple[int, int], opened: tuple[Any, ...]) -> None:
        """Remove a session that is over. The default trigger has no state to clear."""
        self.scope.table.remove(state, key)
        if self.evaluator is not None:
            self.evaluator.clear()
        table = self._open_windows
        if len(opened) == 1:
            table.remove(VOID_NAMESPACE, key)
        else:
            table.namespace(VOID_NAMESPACE)[key] = tuple(pair for pair in opened if pair[0] != window)
            table.mark(VOID_NAMESPACE, key)

    # --- sessions of a batch ------------------------------------------------------------------------------------

    def _opened_before(self, key: Any) -> list[_Session]:
        opened = self._open_windows.namespace(VOID_NAMESPACE).get(key, ())
        table = self.scope.table
        return [
            _Session(start_ms, end_ms, state, table.namespace(state), _UNCHANGED)
            for (start_ms, end_ms), state in opened
        ]

    def _new(self, key: Any, start_ms: int, end_ms: int, place: int) -> _Session:
        state = (start_ms, end_ms)
        self.scope.table.fetch(state, (key,))
        return _Session(start_ms, end_ms, state, self.scope.table.namespace(state), place)

    def _merged(
        self, key: Any, joined: list[_Session], of_key: list[_Session], gone: list[tuple[Any, tuple[int, int]]]
    ) -> _Session:
        """Merge the sessions that an element joins into the first of them, which is returned."""
        joined.sort(key=lambda session: session.start_ms)
        first, *others = joined
        for session in others:
            of_key.remove(session)
            if session.before is not None:
                gone.append((key, session.before))
        sources = [session.state for session in others]
        merge_namespaces(self.scope.table, key, first.state, sources, self.contents.merge)
        return first

    def _settle(self, sessions: dict[Any, list[_Session]], gone: list[tuple[Any, tuple[int, int]]]) -> None:
        """At the end of a batch, store the open sessions, delete the timers of windows that are gone (``gone``: key and
        window) and register those of new windows, in the order in which the windows came to be."""
        open_windows, changed_keys = self._open_windows.namespace(VOID_NAMESPACE), []
        changed: list[tuple[int, Any, _Session]] = []
        mark_grown = self.scope.table.mark_grown
        for key, of_key in sessions.items():
            for session in of_key:
                if session.grown:
                    mark_grown(session.state, (key,))
            of_batch = [(session.since, key, session) for session in of_key if session.since != _UNCHANGED]
            if of_batch:
                changed += of_batch
                changed_keys.append(key)
                open_windows[key] = tuple(((session.start_ms, session.end_ms), session.state) for session in of_key)
        self._open_windows.mark_all(VOID_NAMESPACE, changed_keys)
        gone += [(key, session.before) for _, key, session in changed if session.before is not None]
        timers = self.scope.timers
        for key, window in gone:
            for timer_ms in self._timers_of(window):
                timers.delete(TimeDomain.EVENT_TIME, timer_ms, key, window)
        changed.sort(key=lambda change: change[0])
        for _, key, session in changed:
            window = (session.start_ms, session.end_ms)
            for timer_ms in self._timers_of(window):
                timers.register(TimeDomain.EVENT_TIME, timer_ms, key, window)

    def _timers_of(self, window: tuple[int, int]) -> tuple[int, ...]:
        """The timers of a window: when it fires and, if that is later, when it is cleaned up."""
        fire_ms = window[1] - 1
        cleanup_ms = fire_ms + self.factory.allowed_lateness_ms
        return (fire_ms, cleanup_ms) if fire_ms < cleanup_ms < MAX_WATERMARK_MS else (fire_ms,)
