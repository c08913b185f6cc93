"""What triggers see of the window operator."""

from __future__ import annotations

from flinkish.core.metrics import MetricGroup
from flinkish.core.state import State, StateDescriptor
from flinkish.core.time_domain import TimeDomain
from flinkish.core.window.trigger import Trigger
from flinkish.runtime.operators.window.window_scope import WindowScope


class ScopedTriggerContext(Trigger.TriggerContext):
    """Timers and state of the scope's key and window."""

    def __init__(self, scope: WindowScope) -> None:
        self._scope = scope

    def get_current_processing_time(self) -> int:
        return self._scope.processing_time_ms

    def get_metric_group(self) -> MetricGroup:
        return self._scope.context.metrics

    def get_current_watermark(self) -> int:
        return self._scope.watermark_ms

    def register_processing_time_timer(self, time: int) -> None:
        self._scope.timers.register(TimeDomain.PROCESSING_TIME, time, self._scope.key, self._scope.namespace)

    def register_event_time_timer(self, time: int) -> None:
        self._scope.timers.register(TimeDomain.EVENT_TIME, time, self._scope.key, self._scope.namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        self._scope.timers.delete(TimeDomain.PROCESSING_TIME, time, self._scope.key, self._scope.namespace)

    def delete_event_time_timer(self, time: int) -> None:
        self._scope.timers.delete(TimeDomain.EVENT_TIME, time, self._scope.key, self._scope.namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> State:
        return self._scope.backend.partitioned_state(state_descriptor, self._scope.namespace)
