"""Metrics that user functions register, with the names of ``pyflink.metrics``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from flinkish.common.arguments import check_at_least
from flinkish.core.time import MIN_TIMESTAMP_MS


class Metric(ABC):
    """Base of all metrics."""


class Counter(Metric):
    """A number that goes up and down.

    >>> c = Counter(); c.inc(); c.inc(4); c.dec(); c.get_count()
    4
    """

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add ``n``."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract ``n``."""
        self._count -= n

    def get_count(self) -> int:
        """The current count."""
        return self._count


class Meter(Metric):
    """Counts events. Reported at the end of each epoch are their count, and as ``<name>.rate`` their number per second
    of processing time over the time span."""

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        check_at_least(
            time_span_in_seconds, 1, "the time span of a meter", "MetricGroup.meter()", "60 s is the default", "s"
        )
        self.time_span_in_seconds = time_span_in_seconds
        self._count = 0
        #: (processing time in ms, count) of the reports within the time span, and of the last one before it
        self._reported: deque[tuple[int, int]] = deque([(MIN_TIMESTAMP_MS, 0)])

    def mark_event(self, value: int = 1) -> None:
        """Count ``value`` events."""
        self._count += value

    def get_count(self) -> int:
        """The number of events so far."""
        return self._count

    def _report_rate(self, now_ms: int) -> float:
        """The events per second over the time span that ends with the epoch of this processing time. As in Flink, the
        span counts in full from the beginning."""
        begin_ms = now_ms - self.time_span_in_seconds * 1_000
        while len(self._reported) > 1 and self._reported[1][0] <= begin_ms:
            self._reported.popleft()
        self._reported.append((now_ms, self._count))
        return (self._count - self._reported[0][1]) / self.time_span_in_seconds


class Distribution(Metric):
    """The count, sum, minimum and maximum of the values that are reported."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.min: int | None = None
        self.max: int | None = None

    def update(self, value: int) -> None:
        """Report one value."""
        self.count += 1
        self.sum += value
        self.min = value if self.min is None else min(self.min, value)
        self.max = value if self.max is None else max(self.max, value)


class MetricGroup(ABC):
    """A named container of metrics and of further groups."""

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A child group; with ``extra``, a group within it (``name.extra``), such as for a key and its value."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """Register a counter (or get the one of that name)."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """Register a function that is called at the end of each epoch."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Register a meter (or get the one of that name), whose rate is that over the last ``time_span_in_seconds``.
        Raises ArgumentValueError for a time span below 1."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Register a distribution (or get the one of that name)."""
