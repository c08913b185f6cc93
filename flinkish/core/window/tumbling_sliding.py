"""Tumbling and sliding windows of a fixed size, by timestamp and by processing time.

Semantics: Flink's assigners of the same names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from flinkish.common.time import Duration, Time
from flinkish.core.window.assigner import (
    TimeWindowAssigner,
    WindowAssigner,
    check_sliding,
    check_tumbling,
    in_milliseconds,
)
from flinkish.core.window.window import TimeWindow

S = TypeVar("S", bound="_SlidingWindows")
T = TypeVar("T", bound="_TumblingWindows")


class _SlidingWindows(TimeWindowAssigner):
    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        check_sliding(type(self).__name__, size, slide, offset)
        self._size = size
        self._slide = slide
        self._offset = offset

    @classmethod
    def of(cls: type[S], size: Time | Duration, slide: Time | Duration, offset: Time | Duration | None = None) -> S:
        """The assigner of windows of ``size`` that begin every ``slide``, shifted by ``offset``.

        Raises:
            ProgramError: unless ``abs(offset) < slide`` and ``size > 0``.
        """
        return cls(*in_milliseconds(f"{cls.__name__}.of()", size=size, slide=slide, offset=offset or Time(0)))

    @property
    def size_ms(self) -> int:
        """The length of a window in ms."""
        return self._size

    @property
    def slide_ms(self) -> int:
        """The time between the starts of two successive windows, in ms."""
        return self._slide

    @property
    def offset_ms(self) -> int:
        """The start of windows modulo the slide, in ms."""
        return self._offset

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time_ms = self._time_of(timestamp, context)
        last = TimeWindow.get_window_start_with_offset(time_ms, self._offset, self._slide)
        return [TimeWindow(start, start + self._size) for start in range(last, time_ms - self._size, -self._slide)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._slide}, {self._offset})"


class SlidingEventTimeWindows(_SlidingWindows):
    """A window of ``size`` begins every ``slide`` ms, at ``offset`` (mod slide). Windows overlap where the slide is
    smaller than the size; where it is greater, some elements belong to no window.

    Example: the sum of the last ten minutes, every minute::

        ds.key_by(lambda v: v[0]).window(SlidingEventTimeWindows.of(Time.minutes(10), Time.minutes(1))).sum(1)
    """

    _by_timestamp = True


class SlidingProcessingTimeWindows(_SlidingWindows):
    """A window of ``size`` begins every ``slide`` ms, at ``offset`` (mod slide); an element belongs to those that hold
    its epoch's processing time."""

    _by_timestamp = False


class _TumblingWindows(TimeWindowAssigner):
    def __init__(self, size: int, offset: int = 0) -> None:
        check_tumbling(type(self).__name__, size, offset)
        self._size = size
        self._offset = offset

    @classmethod
    def of(cls: type[T], size: Time | Duration, offset: Time | Duration | None = None) -> T:
        """The assigner of windows of ``size``, shifted by ``offset`` (``Time.hours(-8)`` for days that begin at
        midnight in UTC+8).

        Raises:
            ProgramError: unless ``abs(offset) < size``.
        """
        return cls(*in_milliseconds(f"{cls.__name__}.of()", size=size, offset=offset or Time(0)))

    @property
    def size_ms(self) -> int:
        """The length of a window in ms."""
        return self._size

    @property
    def offset_ms(self) -> int:
        """The start of windows modulo the size, in ms."""
        return self._offset

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time_ms = self._time_of(timestamp, context)
        start = TimeWindow.get_window_start_with_offset(time_ms, self._offset, self._size)
        return [TimeWindow(start, start + self._size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._offset})"


class TumblingEventTimeWindows(_TumblingWindows):
    """Each element belongs to the one window ``[start, start + size)`` with ``start = offset (mod size)``; in ms.

    Example::

        ds.key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(Time.minutes(1))).reduce(lambda a, b: a + b)
    """

    _by_timestamp = True


class TumblingProcessingTimeWindows(_TumblingWindows):
    """Each element belongs to the window ``[start, start + size)`` that holds its epoch's processing time; in ms."""

    _by_timestamp = False
