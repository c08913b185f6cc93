"""The window operator for windows that merge: sessions, and the windows of users' merging assigners.

Semantics, step by step: Flink's ``WindowOperator`` with its ``MergingWindowSet``. The window of a new element is added
to the open windows of its key, which may merge some of them: the trigger merges its state, the trigger's state and the
timers of the windows that are gone are deleted, and their contents are added to those of the result. Then the element
is added to the window that it belongs to now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.core.window.assigner import MergingWindowAssigner
from flinkish.core.window.window import Window
from flinkish.errors import ProgramError
from flinkish.runtime.job.operator import OperatorContext, Output
from flinkish.runtime.operators.window.contents import merge_namespaces, namespace_of, window_of
from flinkish.runtime.operators.window.window_operator import ScopedOnMergeContext, WindowOperator
from flinkish.runtime.state.state_rows import VOID_NAMESPACE
from flinkish.runtime.state.state_table import StateTable

if TYPE_CHECKING:
    from flinkish.runtime.operators.window.factory import WindowOperatorFactory


#: (merge result, the windows that were merged, the state window of the result, the state windows that are given up)
MergeFunction = Callable[[Window, list[Window], Window, list[Window]], None]


class _Merges(MergingWindowAssigner.MergeCallback[Any]):
    """Collects the merges that an assigner asks for, in order."""

    def __init__(self) -> None:
        self.found: list[tuple[Window, list[Window]]] = []

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self.found.append((merge_result, list(dict.fromkeys(to_be_merged))))


class MergingWindowSet:
    """The open windows of one key, and where the contents of each are kept, with the semantics of Flink's
    ``MergingWindowSet``. ``pairs`` are (window, state window), as the method `pairs` has returned them.

    When windows merge, not all contents need to move: the result keeps the *state window* of one of them, which is the
    namespace in which its contents were put when it was opened. Only the contents of the others are merged into that.
    The set, window -> state window, is itself stored in keyed state.
    """

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], pairs: Iterable[tuple[Window, Window]] = ()) -> None:
        self._assigner = assigner
        self._state_windows = dict(pairs)

    def pairs(self) -> list[tuple[Window, Window]]:
        """All open windows, as (window, state window)."""
        return list(self._state_windows.items())

    def state_window(self, window: Window) -> Window | None:
        """The window in whose namespace the contents of ``window`` are kept; None if it is not open."""
        return self._state_windows.get(window)

    def retire(self, window: Window) -> None:
        """Remove a window that is over."""
        self._state_windows.pop(window, None)

    def add(self, new_window: Window, merge: MergeFunction) -> Window:
        """Open a window for an element, and merge the windows that the assigner wants merged. Returns the window that
        the element belongs to now; ``merge`` is called for each merge that concerns windows that had been open."""
        merges = _Merges()
        self._assigner.merge_windows([*self._state_windows, new_window], merges)
        actual = new_window
        for result, merged in merges.found:
            if new_window in merged:
                actual = result
            # a new window has no contents
            open_before = [window for window in merged if window in self._state_windows]
            if not open_before:
                continue
            state_windows = [self._state_windows.pop(window) for window in open_before]
            self._state_windows[result] = state_windows[0]
            if open_before != [result]:
                merge(result, open_before, state_windows[0], state_windows[1:])
        self._state_windows.setdefault(actual, actual)
        return actual


#: Name of the state with the open windows of a key: a tuple of (window, state window), each as a namespace.
OPEN_WINDOWS = "__merging_windows__"


class MergingWindowOperator(WindowOperator):
    """The window operator for a `MergingWindowAssigner`."""

    merging = True
    assigner: MergingWindowAssigner[Any, Any]

    def __init__(self, factory: WindowOperatorFactory) -> None:
        super().__init__(factory)
        assert isinstance(factory.assigner, MergingWindowAssigner)
        #: the open windows of keys that a batch or watermark has read; `write_back` writes those that have changed
        self._sets: dict[Any, MergingWindowSet] = {}
        if not self.trigger.can_merge():
            raise ProgramError(
                f"{self.assigner} with {self.trigger}, which cannot merge",
                expected="a trigger whose can_merge() is True",
                hint="a merging window assigner cannot be used with a trigger that does not support merging",
            )

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.merge_context = ScopedOnMergeContext(self.scope)

    def enter_group(self, watermark_ms: int) -> None:
        super().enter_group(watermark_ms)
        self._open_windows: StateTable = self.scope.backend.table(OPEN_WINDOWS, "value")

    # --- elements -----------------------------------------------------------------------------------------------

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        super().process_batch(values, timestamps, input_index)
        self.write_back()

    def fetch_windows(self, keys: list[Any], windows: list[Collection[Window]]) -> None:
        pairs = zip(keys, windows, strict=True)
        new = [(key, namespace_of(window)) for key, of_element in pairs for window in of_element]
        self.fetch_open(keys, new)

    def fetch_due(self, by_namespace: dict[Hashable, list[Any]]) -> None:
        self.write_back()
        keys = [key for of_window in by_namespace.values() for key in of_window]
        self._open_windows.fetch(VOID_NAMESPACE, keys)
        self.fetch_open(keys, ())

    def fetch_open(self, keys: Iterable[Any], new: Iterable[tuple[Any, Hashable]]) -> None:
        """Bring the state of windows into memory: that of the open windows of ``keys``, with their contents, which are
        in the namespaces of the state windows, and that of the windows ``new``, each as (key, namespace)."""
        by_namespace: dict[Hashable, list[Any]] = {}
        open_windows = self._open_windows.namespace(VOID_NAMESPACE)
        for key in dict.fromkeys(keys):
            for window, state_window in open_windows.get(key, ()):
                by_namespace.setdefault(window, []).append(key)
                if state_window != window:
                    by_namespace.setdefault(state_window, []).append(key)
        for key, window in new:
            by_namespace.setdefault(window, []).append(key)
        self.scope.backend.fetch_all(by_namespace)

    def process_element(
        self, value: Any, timestamp_ms: int, key: Any, windows: Collection[Window], skipped: bool = True
    ) -> None:
        scope = self.scope
        scope.backend.loans.enter(key)
        open_windows = self._read(key)
        for window in windows:
            scope.key = key
            actual = open_windows.add(window, self._merge)
            if self.time.is_window_late(actual, scope.watermark_ms):
                open_windows.retire(actual)
                continue
            skipped = False
            self._enter(open_windows, key, actual)
            self.add_to_window(value, timestamp_ms)
        if skipped:
            self.skip(value, timestamp_ms)

    def _merge(
        self, result: Window, merged: list[Window], state_window: Window, merged_state_windows: list[Window]
    ) -> None:
        """Merge windows of the scope's key into ``result``, which may be one of them."""
        scope, key = self.scope, self.scope.key
        self._check_end(result)
        gone = [window for window in merged if window != result]
        self.merge_context.merged = [namespace_of(window) for window in gone]
        scope.enter(key, result, namespace_of(result))
        self.trigger.on_merge(result, self.merge_context)
        for window in gone:
            scope.enter(key, window, namespace_of(window))
            self.trigger.clear(window, self.trigger_context)
            cleanup_ms = self.time.cleanup_ms(window)
            if cleanup_ms < MAX_WATERMARK_MS:
                scope.timers.delete(self.cleanup_domain, cleanup_ms, key, scope.namespace)
        sources = [namespace_of(window) for window in merged_state_windows]
        merge_namespaces(scope.table, key, namespace_of(state_window), sources, self.contents.merge)

    def _check_end(self, result: Window) -> None:
        scope = self.scope
        if self.assigner.is_event_time():
            over = self.time.is_window_late(result, scope.watermark_ms)
        else:
            over = result.max_timestamp() <= scope.processing_time_ms
        if over:
            raise ProgramError(
                f"{self.assigner} has merged windows into {result}, which is over already (the watermark is "
                f"{scope.watermark_ms}, processing time {scope.processing_time_ms})",
                where=f"operator '{scope.context.name}' (uid {scope.context.uid})",
                expected="a merge that ends no earlier than the windows in it",
            )

    # --- time ---------------------------------------------------------------------------------------------------

    def fire_event_timers(self, watermark_ms: int) -> None:
        super().fire_event_timers(watermark_ms)
        self.write_back()

    def advance_processing_time(self, time_ms: int) -> None:
        super().advance_processing_time(time_ms)
        self.write_back()

    def enter_timer(self, key: Any, namespace: Hashable) -> bool:
        return self._enter(self._read(key), key, window_of(namespace))

    def remove_window(self) -> None:
        super().remove_window()
        self._read(self.scope.key).retire(self.scope.window)

    # --- open windows -------------------------------------------------------------------------------------------

    def _enter(self, open_windows: MergingWindowSet, key: Any, window: Window) -> bool:
        """Set the scope to a window of a key and to its contents. Returns False if that window is not open."""
        state_window = open_windows.state_window(window)
        if state_window is None:
            return False
        self.scope.enter(key, window, namespace_of(window))
        self.scope.contents_namespace = namespace_of(state_window)
        return True

    def _read(self, key: Any) -> MergingWindowSet:
        """The open windows of a key, read from state if they are not in memory yet."""
        found = self._sets.get(key)
        if found is None:
            self._open_windows.fetch(VOID_NAMESPACE, (key,))
            stored = self._open_windows.namespace(VOID_NAMESPACE).get(key, ())
            pairs = [(window_of(window), window_of(state_window)) for window, state_window in stored]
            found = self._sets[key] = MergingWindowSet(self.assigner, pairs)
        return found

    def write_back(self) -> None:
        if not self._sets:
            return
        table, sets = self._open_windows, self._sets
        self._sets = {}
        table.fetch(VOID_NAMESPACE, sets)
        values = table.namespace(VOID_NAMESPACE)
        for key, open_windows in sets.items():
            pairs = tuple((namespace_of(window), namespace_of(state)) for window, state in open_windows.pairs())
            if not pairs:
                table.remove(VOID_NAMESPACE, key)
            elif values.get(key) != pairs:
                table.mark(VOID_NAMESPACE, key)
                values[key] = pairs

    def drop_unwritten(self) -> None:
        self._sets = {}
