"""flinkish.metrics: the metrics of PyFlink's ``pyflink.metrics``."""

from __future__ import annotations

from flinkish.metrics.metricbase import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
