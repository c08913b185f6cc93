"""Re-exports the base classes of user functions at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.core.async_function import AsyncFunction, AsyncRetryPredicate, AsyncRetryStrategy
from flinkish.core.checkpointed_function import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from flinkish.core.co_functions import (
    IN1,
    IN2,
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FlatJoinFunction,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedStateFunction,
    ProcessJoinFunction,
)
from flinkish.core.functions import (
    IN,
    KEY,
    OUT,
    W2,
    AggregateFunction,
    AllWindowFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeyedStateStore,
    KeySelector,
    MapBatchesFunction,
    MapFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    WindowFunction,
)
from flinkish.core.sink import Sink as SinkFunction
from flinkish.core.source import Source as SourceFunction
from flinkish.core.time import TimerService
from flinkish.core.window.window import W

__all__ = [
    "IN1",
    "IN2",
    "IN",
    "KEY",
    "OUT",
    "W",
    "W2",
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "JoinFunction",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateFunction",
    "KeyedStateStore",
    "MapBatchesFunction",
    "MapFunction",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimerService",
    "WindowFunction",
]

supply_names(__name__, "datastream.state", "metrics", "datastream.time_domain")
