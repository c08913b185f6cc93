"""The open windows of a key, and where the contents of each are kept, with the semantics of Flink's
``MergingWindowSet``.

When windows merge, not all contents need to move: the result keeps the *state window* of one of them, which is the
namespace in which its contents were put when it was opened. Only the contents of the others are merged into that. The
set, window -> state window, is itself stored in keyed state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flinkish.core.window.merging_assigner import MergingWindowAssigner
from flinkish.core.window.window import Window

#: (merge result, the windows that were merged, the state window of the result, the state windows that are given up)
MergeFunction = Callable[[Window, list[Window], Window, list[Window]], None]


class _Merges(MergingWindowAssigner.MergeCallback[Any]):
    """Collects the merges that an assigner asks for, in order."""

    def __init__(self) -> None:
        self.found: list[tuple[Window, list[Window]]] = []

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self.found.append((merge_result, list(dict.fromkeys(to_be_merged))))


class MergingWindowSet:
    """The open windows of one key. ``pairs`` are (window, state window), as the method `pairs` has returned them."""

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
