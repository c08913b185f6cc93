"""The context that evictors get from the window operator."""

from __future__ import annotations

from flinkish.core.metrics import MetricGroup
from flinkish.core.window.evictor import Evictor
from flinkish.runtime.operators.window.window_scope import WindowScope


class ScopedEvictorContext(Evictor.EvictorContext):
    """The context of an evictor: the scope's time and the operator's metrics."""

    def __init__(self, scope: WindowScope) -> None:
        self._scope = scope

    def get_current_processing_time(self) -> int:
        return self._scope.processing_time_ms

    def get_metric_group(self) -> MetricGroup:
        return self._scope.context.metrics

    def get_current_watermark(self) -> int:
        return self._scope.watermark_ms
