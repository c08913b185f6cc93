"""The contract of evictors, which remove elements of a window before or after its evaluation. Semantics: Flink's
``Evictor``; PyFlink has none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.core.window.window import W

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
