"""The RuntimeContext that user functions are given in ``open``."""

from __future__ import annotations

from typing import Any, cast
from weakref import ref

from flinkish.common.accumulators import Accumulator
from flinkish.core.functions import DistributedCache, RuntimeContext
from flinkish.core.metrics import MetricGroup
from flinkish.core.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from flinkish.errors import StateAccessError
from flinkish.runtime.operator import OperatorContext
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.ttl import HandleCache


class StreamingRuntimeContext(RuntimeContext):
    """The `RuntimeContext` of one operator in one subtask, which gives user code access to the operator's context."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._handles = None if context.keyed_state is None else HandleCache(context.keyed_state)
        context.state_stores.append(ref(self))
        if isinstance(context.keyed_state, KeyedStateBackend):
            # state expires by the time of the operator that owns it
            context.keyed_state.epoch = context.epoch

    def get_task_name(self) -> str:
        return self._context.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._context.subtask

    def get_attempt_number(self) -> int:
        return self._context.attempt

    def get_task_name_with_subtasks(self) -> str:
        context = self._context
        return f"{context.task_name} ({context.subtask + 1}/{context.parallelism})"

    def request_commit(self) -> None:
        self._context.epoch.commit_requested = True

    def get_distributed_cache(self) -> DistributedCache:
        return DistributedCache(self._context.cached_files)

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._context.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self._context.metrics

    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        self._context.accumulators.add(name, accumulator)

    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None:
        return self._context.accumulators.get(name)

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return cast("ValueState[Any]", self._state(state_descriptor, ValueStateDescriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return cast("ListState[Any]", self._state(state_descriptor, ListStateDescriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return cast("MapState[Any, Any]", self._state(state_descriptor, MapStateDescriptor))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return cast("ReducingState[Any]", self._state(state_descriptor, ReducingStateDescriptor))

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        return cast("AggregatingState[Any, Any]", self._state(state_descriptor, AggregatingStateDescriptor))

    def _state(self, descriptor: StateDescriptor, expected: type[StateDescriptor]) -> State:
        if self._handles is None:
            raise StateAccessError(
                "This state is only accessible by functions executed on a KeyedStream.",
                where=self._where,
                expected="a keyed stream before the operator",
                hint="call key_by() before this operator",
            )
        if not isinstance(descriptor, expected):
            raise StateAccessError(
                f"a {type(descriptor).__name__} was given",
                where=self._where,
                expected=f"a {expected.__name__}",
                hint="each kind of state has a descriptor and a get_..._state of its own",
            )
        return self._handles.state(descriptor)

    @property
    def _where(self) -> str:
        return f"operator '{self._context.name}' (uid {self._context.uid})"
