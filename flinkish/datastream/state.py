"""Re-exports keyed, operator and broadcast state and their descriptors at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.core.checkpointed_function import OperatorStateStore
from flinkish.core.state import (
    IN,
    OUT,
    AggregatingState,
    AggregatingStateDescriptor,
    AppendingState,
    BroadcastState,
    K,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MergingState,
    ReadOnlyBroadcastState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    StateTtlConfig,
    T,
    V,
    ValueState,
    ValueStateDescriptor,
)

__all__ = [
    "IN",
    "K",
    "OUT",
    "T",
    "V",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

supply_names(__name__, "common")
