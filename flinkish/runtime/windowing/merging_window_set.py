"""Which windows of a key are open, and where the contents of each are kept. Semantics: Flink's ``MergingWindowSet``.

When windows merge, their contents need not move: the result goes on with the *state window* of one of them, which is
the namespace that the contents were put into when that window was opened. Only the contents of the others are added
there. The set, window -> state window, is itself in keyed state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flinkish.core.window.merging_assigner import MergingWindowAssigner
from flinkish.core.window.window import Window

#: (merge result, the windows that became it, the result's state window, the state windows that go)
MergeFunction = Callable[[Window, list[Window], Window, list[Window]], None]


class _Merges(MergingWindowAssigner.MergeCallback[Any]):
    """Remembers what an assigner wants merged, in its order."""

    def __init__(self) -> None:
        self.found: list[tuple[Window, list[Window]]] = []

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self.found.append((merge_result, list(dict.fromkeys(to_be_merged))))


class MergingWindowSet:
    """The open windows of one key. ``pairs``: (window, state window), as `pairs` gave them."""

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], pairs: Iterable[tuple[Window, Window]] = ()) -> None:
        self._assigner = assigner
        self._state_windows = dict(pairs)

    def pairs(self) -> list[tuple[Window, Window]]:
        """(window, state window) of all open windows."""
        return list(self._state_windows.items())

    def state_window(self, window: Window) -> Window | None:
        """Where the contents of the window are; None: it is not open."""
        return self._state_windows.get(window)

    def retire(self, window: Window) -> None:
        """The window is over."""
        self._state_windows.pop(window, None)

    def add(self, new_window: Window, merge: MergeFunction) -> Window:
        """Open a window for an element, and merge what the assigner wants merged. Gives the window that the element
        belongs to now; ``merge`` is called for each merge of windows that had been open."""
        merges = _Merges()
        self._assigner.merge_windows([*self._state_windows, new_window], merges)
        actual = new_window
        for result, merged in merges.found:
            if new_window in merged:
                actual = result
            # a window that is new has no contents
            open_before = [window for window in merged if window in self._state_windows]
            if not open_before:
                continue
            state_windows = [self._state_windows.pop(window) for window in open_before]
            self._state_windows[result] = state_windows[0]
            if open_before != [result]:
                merge(result, open_before, state_windows[0], state_windows[1:])
        self._state_windows.setdefault(actual, actual)
        return actual
