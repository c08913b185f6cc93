"""Evictors, which remove elements of a window before or after its evaluation: their contract, and those that come with
Flink.

Semantics: Flink's ``Evictor``, ``CountEvictor``, ``DeltaEvictor`` and ``TimeEvictor``; PyFlink has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.core.window.assigner import checked_count
from flinkish.core.window.trigger import checked_interval
from flinkish.core.window.window import W, Window
from flinkish.errors import ArgumentTypeError

if TYPE_CHECKING:
    from flinkish.core.metrics import MetricGroup


class TimestampedValue(NamedTuple):
    """An element of a window with its timestamp in ms (-9223372036854775808 if it has none)."""

    value: Any
    timestamp: int

    def has_timestamp(self) -> bool:
        """Whether the element has a timestamp."""
        return self.timestamp > MIN_TIMESTAMP_MS


class Evictor(ABC, Generic[W]):
    """Removes elements from a window that fires. Until then all elements of the window are kept, also with ``reduce``
    and ``aggregate``.

    Example: each element is evaluated only once::

        class Once(Evictor):
            def evict_before(self, elements, size, window, evictor_context):
                pass
            def evict_after(self, elements, size, window, evictor_context):
                elements.clear()
    """

    class EvictorContext(ABC):
        """The context of an evictor: time and metrics."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The processing time of the epoch, in ms."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """The operator's metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """The operator's watermark in ms."""

    @abstractmethod
    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Remove elements, from the list ``elements``, before the window function; ``size`` is their number."""

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Remove elements, from the list ``elements``, after the window function."""


class OneSidedEvictor(Evictor[W]):
    """Base of evictors that work either before the window function or after it."""

    def __init__(self, do_evict_after: bool = False) -> None:
        self._do_evict_after = do_evict_after

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        if not self._do_evict_after:
            self.evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        if self._do_evict_after:
            self.evict(elements)

    @abstractmethod
    def evict(self, elements: list[TimestampedValue]) -> None:
        """Remove elements from the list ``elements``."""


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


class DeltaEvictor(OneSidedEvictor[Window]):
    """Keeps elements for which ``delta_function(element, last element)`` is less than the threshold.

    Raises:
        TypeError: the function cannot be called.
    """

    def __init__(
        self, threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after)
        if not callable(delta_function):
            raise ArgumentTypeError(
                f"the delta function is {delta_function!r}",
                where="DeltaEvictor.of()",
                expected="a function of two elements",
                hint="write lambda first, last: ...",
            )
        self._threshold = threshold
        self._delta_function = delta_function

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False) -> DeltaEvictor:
        """The evictor with that threshold; with ``do_evict_after`` the window function sees all elements."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def evict(self, elements: list[TimestampedValue]) -> None:
        if not elements:
            return
        delta, last = self._delta_function, elements[-1].value
        elements[:] = [element for element in elements if delta(element.value, last) < self._threshold]

    def __repr__(self) -> str:
        return f"DeltaEvictor({self._threshold})"


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
