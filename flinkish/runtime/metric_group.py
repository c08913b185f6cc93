"""The metrics of one operator, collected by scoped name. This module only collects them; tasks report the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flinkish.core.metrics import Counter, Distribution, Meter, Metric, MetricGroup
from flinkish.errors import ProgramError

M = TypeVar("M", bound=Metric)


class TaskMetricGroup(MetricGroup):
    """A group whose values can be read at the end of each epoch.

    >>> g = TaskMetricGroup(); g.add_group("shop", "4").counter("sold").inc(3); g.snapshot()
    {'shop.4.sold': 3}
    """

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._gauges: dict[str, Callable[[], int]] = {}
        self._groups: dict[str, TaskMetricGroup] = {}

    def add_group(self, name: str, extra: str | None = None) -> TaskMetricGroup:
        group = self._groups.setdefault(name, TaskMetricGroup())
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        return self._metric(name, Counter())

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        if name in self._metrics:
            raise self._in_use(name)
        self._gauges[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        return self._metric(name, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        return self._metric(name, Distribution())

    def snapshot(self, now_ms: int | None = None) -> dict[str, float]:
        """The current values, as scoped name (``group.name``) -> value. A distribution gives ``name.count`` and
        ``name.sum``, and if it has values also ``name.min`` and ``name.max``. With the processing time of the epoch
        that ends, a meter gives its count and ``name.rate``. Gauges are called, and their errors propagate."""
        values: dict[str, float] = {}
        for name, metric in self._metrics.items():
            if isinstance(metric, (Counter, Meter)):
                values[name] = metric.get_count()
                if isinstance(metric, Meter) and now_ms is not None:
                    values[f"{name}.rate"] = metric._report_rate(now_ms)
            elif isinstance(metric, Distribution):
                parts = {"count": metric.count, "sum": metric.sum, "min": metric.min, "max": metric.max}
                values |= {f"{name}.{part}": value for part, value in parts.items() if value is not None}
        values |= {name: gauge() for name, gauge in self._gauges.items()}
        for group_name, group in self._groups.items():
            values |= {f"{group_name}.{name}": value for name, value in group.snapshot(now_ms).items()}
        return values

    def _metric(self, name: str, fresh: M) -> M:
        metric = self._metrics.setdefault(name, fresh)
        if name in self._gauges or not isinstance(metric, type(fresh)):
            raise self._in_use(name)
        return metric

    def _in_use(self, name: str) -> ProgramError:
        return ProgramError(
            f"metric {name!r} is registered twice with different kinds", hint="give each metric a name of its own"
        )
