"""The kinds of windows, and PyFlink's hash functions and serializers of them.

Rule: each window is an immutable value: equal windows are the same window, in every process.

Semantics: Flink's ``TimeWindow``, ``GlobalWindow`` and PyFlink's ``CountWindow``.

The serializers are here because PyFlink programs with their own assigners name them. The engine does not use them: it
writes windows as namespaces of the state (`flinkish.runtime.operators.window.contents`).
"""

from __future__ import annotations

import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import total_ordering
from io import BytesIO
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from flinkish.common.serializer import TypeSerializer
from flinkish.core.time import MAX_WATERMARK_MS

if TYPE_CHECKING:
    from flinkish.core.window.assigner import MergingWindowAssigner


_LONG = (1 << 64) - 1


def long_to_int_with_bit_mixing(x: int) -> int:
    """A hash of a 64-bit number: each bit of it influences about half of the bits of the result.

    >>> long_to_int_with_bit_mixing(-7046029254386353131)
    2065550767

    As Flink's other hash functions, it gives a signed 32-bit number.
    """
    mixed = x & _LONG
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _LONG
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _LONG
    return _signed(mixed ^ (mixed >> 31))


def mod_inverse(x: int) -> int:
    """The number that gives 1 modulo 2**32 when it is multiplied with ``x``.

    >>> mod_inverse(3)
    -1431655765

    Raises:
        ValueError: ``x`` is even, and so has no inverse.
    """
    return _signed(pow(x, -1, 1 << 32))


def _signed(x: int) -> int:
    return (x + (1 << 31)) % (1 << 32) - (1 << 31)


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
        return (type(self), (self.start, self.end))

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


@total_ordering
class CountWindow(Window):
    """The ``id``-th window of a key, which is bounded by a number of elements and has no end in time."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
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
        return (type(self), (self.id,))

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


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Writes a TimeWindow as its start and end: two big-endian 64-bit numbers.

    >>> TimeWindowSerializer().from_bytes(TimeWindowSerializer().to_bytes(TimeWindow(0, 10)))
    TimeWindow(start=0, end=10)
    """

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Writes a CountWindow as its id: a big-endian 64-bit number."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        return CountWindow(*struct.unpack(">q", stream.read(8)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Writes the GlobalWindow as one zero byte."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        stream.write(b"\0")

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        stream.read(1)
        return GlobalWindow.get()


class PickledWindowSerializer(TypeSerializer[Window]):
    """Writes any window with pickle."""

    def serialize(self, element: Window, stream: BytesIO) -> None:
        pickle.dump(element, stream, protocol=5)

    def deserialize(self, stream: BytesIO) -> Window:
        window = pickle.load(stream)
        assert isinstance(window, Window)
        return window
