"""The contexts that a `CheckpointedFunction` is given, and its handles to the operator state of its subtask."""

from __future__ import annotations

from typing import Any
from weakref import ref

from flinkish.common.detach import SHARED, all_detached
from flinkish.core.checkpointed_function import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OperatorStateStore,
)
from flinkish.core.functions import KeyedStateStore
from flinkish.core.state import BroadcastState, ListState, ListStateDescriptor, MapStateDescriptor, StateDescriptor
from flinkish.errors import StateAccessError
from flinkish.runtime.job.context import StreamingRuntimeContext
from flinkish.runtime.job.operator import OperatorContext
from flinkish.runtime.state.operator_state import BroadcastHandle, BroadcastStates, OperatorState
from flinkish.runtime.state.state_rows import BROADCAST_STATE_KIND, LIST_STATE_KIND, UNION_STATE_KIND


class OperatorListHandle(ListState[Any]):
    """The handle of a list state in operator state. An element that was read is the state's until the barrier, and for
    as long as somebody keeps it: what is changed in it in place is written at the barrier."""

    def __init__(self, state: OperatorState, kind: str, name: str) -> None:
        self._state = state
        self._kind = kind
        self._name = name

    def get(self) -> list[Any]:
        lend = self._state.lend
        return [
            element if element.__class__ in SHARED else lend(self._kind, self._name, index, element)
            for index, element in enumerate(self._state.elements(self._kind, self._name))
        ]

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: list[Any]) -> None:
        there = self._state.elements(self._kind, self._name)
        self._state.set_list(self._kind, self._name, there, all_detached(values))

    def update(self, values: list[Any]) -> None:
        self._state.set_list(self._kind, self._name, [], all_detached(values))

    def clear(self) -> None:
        """Remove all elements."""
        self._state.set_list(self._kind, self._name, [], ())


class RuntimeOperatorStateStore(OperatorStateStore):
    """Gives a function access to the operator state of one operator in one subtask. ``where`` names the operator in
    errors."""

    def __init__(self, state: OperatorState, where: str) -> None:
        self._state = state
        self._where = where

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        self._declare(state_descriptor, ListStateDescriptor, LIST_STATE_KIND)
        return OperatorListHandle(self._state, LIST_STATE_KIND, state_descriptor.name)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        self._declare(state_descriptor, ListStateDescriptor, UNION_STATE_KIND)
        return OperatorListHandle(self._state, UNION_STATE_KIND, state_descriptor.name)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        self._declare(state_descriptor, MapStateDescriptor, BROADCAST_STATE_KIND)
        states = BroadcastStates(self._state, (), self._where)
        states.writable = True
        return BroadcastHandle(states, self._state, state_descriptor)

    def _declare(self, descriptor: StateDescriptor, expected: type[StateDescriptor], kind: str) -> None:
        if not isinstance(descriptor, expected):
            raise StateAccessError(
                f"a {type(descriptor).__name__} was given", where=self._where, expected=f"a {expected.__name__}"
            )
        if descriptor.ttl_config is not None:
            raise StateAccessError(
                f"operator state {descriptor.name!r} was given a time-to-live",
                where=self._where,
                expected="a descriptor without one: only keyed state expires",
            )
        known = self._state.kind_of(descriptor.name)
        if known not in (None, kind):
            raise StateAccessError(
                f"operator state {descriptor.name!r} is declared with two kinds: {known} and {kind}",
                where=self._where,
                expected="one kind per state name",
                hint="give the new state a name of its own",
            )
        self._state.declare(kind, descriptor)


class InitializationContext(FunctionInitializationContext):
    """The context of ``initialize_state`` of one operator in one subtask."""

    def __init__(self, context: OperatorContext, where: str) -> None:
        self._context = context
        self._where = where
        context.state_stores.append(ref(self))

    def is_restored(self) -> bool:
        return self._context.epoch.restored

    def get_restored_checkpoint_id(self) -> int | None:
        return self._context.epoch.restored_epoch

    def get_operator_state_store(self) -> OperatorStateStore:
        return RuntimeOperatorStateStore(self._context.operator_state, self._where)

    def get_keyed_state_store(self) -> KeyedStateStore:
        return StreamingRuntimeContext(self._context)


class SnapshotContext(FunctionSnapshotContext):
    """The context of ``snapshot_state`` at the barrier of an epoch: the epoch is the checkpoint id, and its processing
    time the timestamp."""

    def __init__(self, context: OperatorContext) -> None:
        self._epoch = context.epoch

    def get_checkpoint_id(self) -> int:
        return self._epoch.epoch

    def get_checkpoint_timestamp(self) -> int:
        return self._epoch.processing_time_ms
