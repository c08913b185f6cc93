"""The common parts of session windows: their merging, and their gap, which is fixed or depends on the element.

Semantics: Flink's session windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from flinkish.common.arguments import kind_of
from flinkish.core.window.assigner import check_milliseconds
from flinkish.core.window.merging_assigner import MergingWindowAssigner
from flinkish.core.window.serializers import TimeWindowSerializer
from flinkish.core.window.window import TimeWindow
from flinkish.errors import ArgumentTypeError, ArgumentValueError, ProgramError


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


class SessionWindows(MergingWindowAssigner[Any, TimeWindow]):
    """Base of session windows: windows that overlap or touch are merged."""

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()


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
