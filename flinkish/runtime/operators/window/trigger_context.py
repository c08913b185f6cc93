"""The contexts that triggers get from the window operator."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import add
from typing import Any

from flinkish.core.metrics import MetricGroup
from flinkish.core.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
)
from flinkish.core.time_domain import TimeDomain
from flinkish.core.window.trigger import Trigger
from flinkish.errors import StateAccessError
from flinkish.runtime.operators.window.window_scope import WindowScope
from flinkish.runtime.state.merge_namespaces import merge_namespaces


class ScopedTriggerContext(Trigger.TriggerContext):
    """The context of a trigger: time, timers and state of the scope's key and window."""

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
        return self._scope.handles.state(state_descriptor, self._scope.namespace)


class ScopedOnMergeContext(ScopedTriggerContext, Trigger.OnMergeContext):
    """The context of ``Trigger.on_merge``: the scope's window is the result of the merge."""

    #: namespaces of the windows that were merged into the scope's window, without that window itself
    merged: Sequence[Hashable] = ()

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        scope, name, kind = self._scope, state_descriptor.name, state_descriptor.kind
        merge = _merge_of(state_descriptor)
        if merge is None or state_descriptor.ttl_config is not None:
            raise StateAccessError(
                f"on_merge merges the {kind} state {name!r}"
                + (" which expires" if state_descriptor.ttl_config is not None else ""),
                where=scope.backend.where,
                expected="list, reducing or aggregating state without a time-to-live",
            )
        # what the trigger has changed in the state that is merged
        scope.backend.loans.settle()
        merge_namespaces(scope.backend.table(name, kind), scope.key, scope.namespace, self.merged, merge)


def _merge_of(descriptor: StateDescriptor) -> Callable[[Any, Any], Any] | None:
    """The function that merges two values of a state; None if states of this kind cannot be merged."""
    if isinstance(descriptor, ListStateDescriptor):
        return add
    if isinstance(descriptor, ReducingStateDescriptor):
        return descriptor.get_reduce_function().reduce
    if isinstance(descriptor, AggregatingStateDescriptor):
        return descriptor.get_agg_function().merge
    return None
