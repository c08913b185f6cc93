"""Session windows by timestamp or by processing time, with a gap that is fixed or depends on the element, and what they
have in common: their merging, and the checks of their gap.

Semantics: Flink's session windows of the same names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from flinkish.common.arguments import kind_of
from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.core.window.assigner import (
    MergingWindowAssigner,
    TimeWindowAssigner,
    WindowAssigner,
    check_milliseconds,
)
from flinkish.core.window.window import TimeWindow
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ProgramError

D = TypeVar("D", bound="_DynamicSessionWindows")
F = TypeVar("F", bound="_FixedSessionWindows")


class SessionWindowTimeGapExtractor(ABC):
    """Determines for each element the gap after which its session ends.

    Example: elements are (user, gap in seconds)::

        class Gap(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return element[1] * 1000
    """

    @abstractmethod
    def extract(self, element: Any) -> int:
        """The gap of an element in ms, more than 0."""


class SessionWindows(TimeWindowAssigner, MergingWindowAssigner[Any, TimeWindow]):
    """Base of session windows: the window of an element lasts from its time on until its gap is over, and windows that
    overlap or touch are merged."""

    @abstractmethod
    def _gap_of(self, element: Any) -> int:
        """The gap of an element, in ms."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        time_ms = self._time_of(timestamp, context)
        return [TimeWindow(time_ms, time_ms + self._gap_of(element))]

    def ends_ms(self, values: list[Any], timestamps: list[int]) -> list[int]:
        """The ends (exclusive, in ms) of the windows of many elements, for the engine."""
        return [timestamp_ms + self._gap_of(value) for timestamp_ms, value in zip(timestamps, values)]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


def checked_gap(name: str, gap_ms: int) -> int:
    """Return the fixed gap of an assigner, in ms. Raises ProgramError unless it is more than 0."""
    check_milliseconds(name, gap_ms)
    if gap_ms <= 0:
        raise ArgumentValueError(
            f"{name} with a gap of {gap_ms} ms",
            where=f"{name}.with_gap()",
            expected="a gap of more than 0 ms",
            hint="such as Time.minutes(30)",
        )
    return gap_ms


def checked_extractor(extractor: Any) -> SessionWindowTimeGapExtractor:
    """Return the extractor of an assigner. Raises ArgumentTypeError if it has no method ``extract``."""
    if not callable(getattr(extractor, "extract", None)):
        raise ArgumentTypeError(
            f"the gap extractor is {kind_of(extractor)}",
            where="with_dynamic_gap()",
            expected="a SessionWindowTimeGapExtractor",
            hint="derive it from there; extract(element) gives milliseconds",
        )
    return extractor  # type: ignore[no-any-return]


def dynamic_gap(extractor: SessionWindowTimeGapExtractor, element: Any) -> int:
    """The gap of an element, in ms. Raises ProgramError unless it is an int of more than 0."""
    gap_ms = extractor.extract(element)
    if not isinstance(gap_ms, int) or gap_ms <= 0:
        raise ProgramError(
            f"{type(extractor).__name__} gave the gap {gap_ms!r} for {element!r:.200}",
            where="session windows with a dynamic gap",
            hint="give a gap for every element, or filter the others before",
            expected="a gap of more than 0 ms, as an int",
        )
    return gap_ms


class _DynamicSessionWindows(SessionWindows):
    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._extractor = checked_extractor(session_window_time_gap_extractor)

    @classmethod
    def with_dynamic_gap(cls: type[D], extractor: SessionWindowTimeGapExtractor) -> D:
        """The assigner of sessions with the gaps that the extractor gives."""
        return cls(extractor)

    def _gap_of(self, element: Any) -> int:
        return dynamic_gap(self._extractor, element)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._extractor).__name__})"


class DynamicEventTimeSessionWindows(_DynamicSessionWindows):
    """The window of an element lasts until its timestamp and its own gap are over; sessions that overlap or touch are
    one.

    Raises:
        TypeError: the extractor is not a SessionWindowTimeGapExtractor.
    """

    _by_timestamp = True


class DynamicProcessingTimeSessionWindows(_DynamicSessionWindows):
    """The window of an element lasts until its processing time and its own gap are over; sessions that overlap or touch
    are one.

    Raises:
        TypeError: the extractor is not a SessionWindowTimeGapExtractor.
    """

    _by_timestamp = False


class _FixedSessionWindows(SessionWindows):
    def __init__(self, session_gap: int) -> None:
        self._gap_ms = checked_gap(type(self).__name__, session_gap)

    @classmethod
    def with_gap(cls: type[F], size: Time | Duration) -> F:
        """The assigner of sessions that end when no element arrives for that time."""
        return cls(milliseconds_of(size, "the gap", f"{cls.__name__}.with_gap()"))

    def _gap_of(self, element: Any) -> int:
        return self._gap_ms

    def ends_ms(self, values: list[Any], timestamps: list[int]) -> list[int]:
        return [timestamp_ms + self._gap_ms for timestamp_ms in timestamps]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._gap_ms})"


class EventTimeSessionWindows(_FixedSessionWindows):
    """The window of an element lasts until its timestamp and the gap are over; sessions that overlap or touch are one.

    Example: the number of actions of each user in sessions that end after a pause of half an hour::

        ds.key_by(lambda v: v[0]).window(EventTimeSessionWindows.with_gap(Time.minutes(30))).aggregate(Count())

    Raises:
        ProgramError: the gap is not more than 0 ms.
    """

    _by_timestamp = True

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """The assigner of sessions with a gap of its own for each element."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedSessionWindows):
    """The window of an element lasts until its processing time and the gap are over; sessions that overlap or touch are
    one.

    Raises:
        ProgramError: the gap is not more than 0 ms.
    """

    _by_timestamp = False

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """The assigner of sessions with a gap of its own for each element."""
        return DynamicProcessingTimeSessionWindows(extractor)
