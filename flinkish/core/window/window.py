"""The kinds of windows. Each is an immutable value: equal windows are the same window, in every process.

Semantics: Flink's ``TimeWindow``, ``GlobalWindow`` and PyFlink's ``CountWindow``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import total_ordering
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from flinkish.core.time_limits import MAX_WATERMARK_MS

if TYPE_CHECKING:
    from flinkish.core.window.merging_assigner import MergingWindowAssigner

W = TypeVar("W", bound="Window")


class Window(ABC):
    """A finite bucket of elements. Subclasses must be hashable and picklable: they are namespaces of the state."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """The largest timestamp (ms) that still belongs to this window; it is the timestamp of the window's results."""


_start_and_end = attrgetter("start", "end")


@total_ordering
class TimeWindow(Window):
    """The interval from ``start`` (inclusive) to ``end`` (exclusive), in milliseconds. Ordered by start, then by end.

    >>> TimeWindow(0, 60_000).max_timestamp()
    59999
    """

    __slots__ = ("start", "end")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the windows overlap or touch.

        >>> TimeWindow(0, 5).intersects(TimeWindow(5, 10)), TimeWindow(0, 5).intersects(TimeWindow(6, 10))
        (True, False)
        """
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """The start of the aligned window that ``timestamp`` falls into, also for negative timestamps.

        >>> TimeWindow.get_window_start_with_offset(-1, 0, 10), TimeWindow.get_window_start_with_offset(14, 5, 10)
        (-10, 5)
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]) -> None:
        """Merge the windows that overlap or touch, directly or through others between them."""
        ordered = sorted(windows, key=_start_and_end)
        begin, end_ms = 0, ordered[0].end if ordered else 0
        for place, window in enumerate(ordered):
            if window.start > end_ms:
                TimeWindow._merged(ordered[begin:place], end_ms, callback)
                begin, end_ms = place, window.end
            elif window.end > end_ms:
                end_ms = window.end
        TimeWindow._merged(ordered[begin:], end_ms, callback)

    @staticmethod
    def _merged(
        together: list[TimeWindow], end_ms: int, callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        """Merge windows that overlap or touch, given in order; the same window may be among them twice."""
        if len(together) > 1 and (distinct := list(dict.fromkeys(together)))[1:]:
            callback.merge(distinct, TimeWindow(distinct[0].start, end_ms))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, TimeWindow) and self.start == other.start and self.end == other.end

    def __lt__(self, other: Any) -> bool:
        if not isinstance(other, TimeWindow):
            return NotImplemented
        return (self.start, self.end) < (other.start, other.end)

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __reduce__(self) -> tuple[Any, ...]:
        return (TimeWindow, (self.start, self.end))

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


@total_ordering
class CountWindow(Window):
    """The ``id``-th window of a key, which is bounded by a number of elements and has no end in time."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:  # noqa: A002 - PyFlink's name
        self.id = id

    def max_timestamp(self) -> int:
        return MAX_WATERMARK_MS

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, CountWindow) and self.id == other.id

    def __lt__(self, other: Any) -> bool:
        if not isinstance(other, CountWindow):
            return NotImplemented
        return self.id < other.id

    def __hash__(self) -> int:
        return hash(("CountWindow", self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        return (CountWindow, (self.id,))

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The one window that holds all elements.

    >>> GlobalWindow.get() == GlobalWindow()
    True
    """

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """The global window."""
        return _GLOBAL_WINDOW

    def max_timestamp(self) -> int:
        return MAX_WATERMARK_MS

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, GlobalWindow)

    def __lt__(self, other: GlobalWindow) -> bool:
        return False

    def __hash__(self) -> int:
        return hash("GlobalWindow")

    def __reduce__(self) -> tuple[Any, ...]:
        return (GlobalWindow, ())

    def __repr__(self) -> str:
        return "GlobalWindow"


_GLOBAL_WINDOW = GlobalWindow()
