"""The functions that users write, at PyFlink's module path."""

from __future__ import annotations

from flinkish.core.functions import (
    AggregateFunction,
    AllWindowFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeyedStateStore,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    WindowFunction,
)
from flinkish.core.join_functions import CoGroupFunction, FlatJoinFunction, JoinFunction, ProcessJoinFunction
from flinkish.core.sink import Sink as SinkFunction
from flinkish.core.source import Source as SourceFunction
from flinkish.core.timer_service import TimerService

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "CoGroupFunction",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "Function",
    "JoinFunction",
    "KeySelector",
    "KeyedProcessFunction",
    "KeyedStateStore",
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
