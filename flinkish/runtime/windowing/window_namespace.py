"""The form of a window as the namespace of state and timers.

Windows of flinkish become plain tuples, told apart by their length: compact, hashed by C code, and readable in a
savepoint without this package. A window of a user's own class is used as it is, so it must be hashable and picklable.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from flinkish.core.window.window import CountWindow, GlobalWindow, TimeWindow, Window


def namespace_of(window: Window) -> Hashable:
    """The namespace of a window.

    >>> namespace_of(TimeWindow(0, 10)), namespace_of(CountWindow(3)), namespace_of(GlobalWindow.get())
    ((0, 10), (3,), ())
    """
    kind = type(window)
    if kind is TimeWindow:
        return (window.start, window.end)  # type: ignore[attr-defined]
    if kind is CountWindow:
        return (window.id,)  # type: ignore[attr-defined]
    if kind is GlobalWindow:
        return ()
    return window


def window_of(namespace: Any) -> Window:
    """The inverse of :func:`namespace_of`.

    >>> window_of((0, 10))
    TimeWindow(start=0, end=10)
    """
    if type(namespace) is not tuple:
        return namespace  # type: ignore[no-any-return]
    if len(namespace) == 2:
        return TimeWindow(*namespace)
    return CountWindow(*namespace) if namespace else GlobalWindow.get()
