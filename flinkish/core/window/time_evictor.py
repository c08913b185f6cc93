"""An evictor that keeps the latest elements of a window. Semantics: Flink's ``TimeEvictor``."""

from __future__ import annotations

from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.core.window.evictor import OneSidedEvictor, TimestampedValue
from flinkish.core.window.trigger import checked_interval
from flinkish.core.window.window import Window


class TimeEvictor(OneSidedEvictor[Window]):
    """Keeps elements whose timestamp is less than ``window_size`` ms behind the greatest one; all, if they have none.

    Raises:
        ProgramError: the size is not more than 0 ms.
    """

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._window_size = checked_interval("TimeEvictor", window_size)

    @staticmethod
    def of(window_size: Time | Duration, do_evict_after: bool = False) -> TimeEvictor:
        """The evictor that keeps elements of that time; with ``do_evict_after`` the window function sees all
        elements."""
        return TimeEvictor(milliseconds_of(window_size, "the window size", "TimeEvictor.of()"), do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        if not elements or not elements[0].has_timestamp():
            return
        last_evicted_ms = max(element.timestamp for element in elements) - self._window_size
        elements[:] = [element for element in elements if element.timestamp > last_evicted_ms]

    def __repr__(self) -> str:
        return f"TimeEvictor({self._window_size})"
