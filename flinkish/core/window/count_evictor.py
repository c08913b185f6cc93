"""An evictor that keeps the last elements of a window. Semantics: Flink's ``CountEvictor``."""

from __future__ import annotations

from flinkish.core.window.assigner import checked_count
from flinkish.core.window.evictor import OneSidedEvictor, TimestampedValue
from flinkish.core.window.window import Window


class CountEvictor(OneSidedEvictor[Window]):
    """Keeps the last ``max_count`` elements, in the order of their arrival.

    Raises:
        ProgramError: the number is not more than 0.
    """

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._max_count = checked_count("the number of elements that CountEvictor keeps", max_count)

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """The evictor that keeps ``max_count`` elements; with ``do_evict_after`` the window function sees all of
        them."""
        return CountEvictor(max_count, do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: -self._max_count]

    def __repr__(self) -> str:
        return f"CountEvictor({self._max_count})"
