"""The metrics that user functions register, at PyFlink's module path ``pyflink.metrics.metricbase``."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.core.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

supply_names(__name__)
