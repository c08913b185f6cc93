"""The fast way for tumbling event-time windows under the default trigger: batches instead of elements.

The rule: state, timers and output, with their order, are exactly those of the general operator (a property test
compares the two). What makes it possible: no watermark rises within a batch, so all elements of one window share one
answer to "is it late?", and EventTimeTrigger does nothing for an element of a window that has not fired yet but
register one timer. Elements of windows that have fired (refired within the allowed lateness, or late) take the general
way, in their order; nothing else can emit while a batch is processed.
"""

from __future__ import annotations

from itertools import compress, groupby
from operator import itemgetter, length_hint
from typing import TYPE_CHECKING, Any

from flinkish.core.functions import Function
from flinkish.core.time_domain import TimeDomain
from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.core.window.event_time_trigger import EventTimeTrigger
from flinkish.core.window.tumbling_event_time import TumblingEventTimeWindows
from flinkish.core.window.window import TimeWindow
from flinkish.runtime.list_keys import keys_of
from flinkish.runtime.operators.window.window_operator import WindowOperator

if TYPE_CHECKING:
    from flinkish.runtime.operators.window.window_operator_factory import WindowOperatorFactory

_timestamp_and_namespace = itemgetter(0, 2)


class TumblingEventTimeOperator(WindowOperator):
    """See the module."""

    def __init__(self, factory: WindowOperatorFactory) -> None:
        super().__init__(factory)
        assert isinstance(factory.assigner, TumblingEventTimeWindows)
        self._size_ms = factory.assigner.size_ms
        self._offset_ms = factory.assigner.offset_ms

    @staticmethod
    def handles(factory: WindowOperatorFactory) -> bool:
        """Whether the fast way is right: for exactly these classes, not for subclasses of users, and for folds that
        cannot hold state handles, since it does not set the current key for each element."""
        fold = factory.window_logic.fold
        return (
            type(factory.assigner) is TumblingEventTimeWindows
            and type(factory.trigger) is EventTimeTrigger
            and not (isinstance(fold, Function) and type(fold).open is not Function.open)
        )

    def _start_ms(self, timestamp_ms: int) -> int:
        return timestamp_ms - (timestamp_ms - self._offset_ms) % self._size_ms

    # --- elements -----------------------------------------------------------------------------------------------

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        earliest_ms = min(timestamps) if timestamps else MIN_TIMESTAMP_MS
        if not timestamps or earliest_ms <= MIN_TIMESTAMP_MS:
            super().process_batch(values, timestamps, input_index)  # to raise the assigner's error
            return
        self.enter_group(self.context.epoch.watermark_ms)
        keys = keys_of(self.key_selector, values)
        # the window that holds the next millisecond after the watermark is the first that has not fired
        unfired_ms = self._start_ms(self.scope.watermark_ms + 1)
        if earliest_ms < unfired_ms:
            for value, timestamp_ms, key in zip(values, timestamps, keys, strict=True):
                if timestamp_ms < unfired_ms:
                    self.process_element(value, timestamp_ms, key)
            self.results.flush()
            unfired = [timestamp_ms >= unfired_ms for timestamp_ms in timestamps]
            keys, values = list(compress(keys, unfired)), list(compress(values, unfired))
            timestamps = list(compress(timestamps, unfired))
        if timestamps:
            self._add_to_unfired_windows(keys, values, timestamps)

    def _add_to_unfired_windows(self, keys: list[Any], values: list[Any], timestamps: list[int]) -> None:
        start_ms = self._start_ms(min(timestamps))
        if max(timestamps) < start_ms + self._size_ms:
            self._fold(start_ms, keys, values)
            return
        for start_ms, (window_keys, window_values) in self._by_window(keys, values, timestamps).items():
            self._fold(start_ms, window_keys, window_values)

    def _by_window(
        self, keys: list[Any], values: list[Any], timestamps: list[int]
    ) -> dict[int, tuple[list[Any], list[Any]]]:
        size_ms = self._size_ms
        windows: dict[int, tuple[list[Any], list[Any]]] = {}
        start_ms = end_ms = 0  # no timestamp is in this empty window
        for timestamp_ms, key, value in zip(timestamps, keys, values, strict=True):
            # neighbours mostly share a window: a comparison is cheaper than a division and a lookup
            if not start_ms <= timestamp_ms < end_ms:
                start_ms = self._start_ms(timestamp_ms)
                end_ms = start_ms + size_ms
                window = windows.get(start_ms)
                if window is None:
                    window = windows[start_ms] = ([], [])
                add_key, add_value = window[0].append, window[1].append
            add_key(key)
            add_value(value)
        return windows

    def _fold(self, start_ms: int, keys: list[Any], values: list[Any]) -> None:
        """Add elements to a window that has not fired."""
        scope = self.scope
        window = TimeWindow(start_ms, start_ms + self._size_ms)
        namespace = (window.start, window.end)
        remaining = iter(keys)
        scope.backend.prefetch(keys, namespace)
        try:
            new_keys = self.contents.add_all(scope.table.namespace(namespace), remaining, values)
        except BaseException:
            # the error names the current key: the last one that the loop took
            scope.backend.current_key = keys[len(keys) - length_hint(remaining) - 1]
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
        due = self.scope.timers.pop_due(TimeDomain.EVENT_TIME, watermark_ms)
        for (timer_ms, namespace), run in groupby(due, _timestamp_and_namespace):
            window = TimeWindow(*namespace)
            keys = [key for _, key, _ in run]
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
        for key in keys:
            self.scope.enter(key, window, namespace)
            if fires and key in stored:
                self.evaluate(stored[key])
            if ends:
                self.evaluator.clear()
