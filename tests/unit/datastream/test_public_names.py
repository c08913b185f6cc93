"""The names that ported programs import are at PyFlink's module paths."""

from __future__ import annotations

import importlib

import pytest

NAMES = {
    "flinkish.datastream": "StreamExecutionEnvironment DataStream KeyedStream WindowedStream DataStreamSink "
    "MapFunction FlatMapFunction ReduceFunction FilterFunction ProcessFunction KeyedProcessFunction WindowFunction "
    "ConnectedStreams BroadcastStream BroadcastConnectedStream CoMapFunction CoFlatMapFunction CoProcessFunction "
    "KeyedCoProcessFunction BroadcastProcessFunction KeyedBroadcastProcessFunction "
    "ProcessWindowFunction AggregateFunction RuntimeContext TimerService CheckpointingMode CheckpointConfig "
    "ExternalizedCheckpointRetention RuntimeExecutionMode Window TimeWindow CountWindow GlobalWindow WindowAssigner "
    "TriggerResult Trigger TimeDomain KeySelector Partitioner SourceFunction SinkFunction OutputTag",
    "flinkish.datastream.data_stream": "DataStream KeyedStream WindowedStream DataStreamSink CloseableIterator "
    "ConnectedStreams BroadcastStream BroadcastConnectedStream",
    "flinkish.datastream.stream_execution_environment": "StreamExecutionEnvironment",
    "flinkish.datastream.functions": "MapFunction KeyedProcessFunction RuntimeContext KeySelector Partitioner "
    "CoMapFunction CoFlatMapFunction CoProcessFunction KeyedCoProcessFunction BaseBroadcastProcessFunction "
    "BroadcastProcessFunction KeyedBroadcastProcessFunction KeyedStateFunction",
    "flinkish.datastream.state": "ValueStateDescriptor ListStateDescriptor MapStateDescriptor ReducingStateDescriptor "
    "AggregatingStateDescriptor StateTtlConfig ValueState MapState ReadOnlyBroadcastState BroadcastState",
    "flinkish.datastream.window": "TumblingEventTimeWindows TumblingProcessingTimeWindows EventTimeTrigger "
    "ProcessingTimeTrigger CountTrigger PurgingTrigger TimeWindow Trigger TriggerResult WindowAssigner "
    "TimeWindowSerializer CountWindowSerializer GlobalWindowSerializer",
    "flinkish.datastream.output_tag": "OutputTag",
    "flinkish.datastream.time_domain": "TimeDomain",
    "flinkish.datastream.timerservice": "TimerService",
    "flinkish.datastream.execution_mode": "RuntimeExecutionMode",
    "flinkish.datastream.checkpoint_config": "CheckpointConfig",
    "flinkish.datastream.checkpointing_mode": "CheckpointingMode",
    "flinkish.datastream.externalized_checkpoint_retention": "ExternalizedCheckpointRetention",
    "flinkish.metrics": "MetricGroup Metric Counter Meter Distribution",
    "flinkish.metrics.metricbase": "MetricGroup Metric Counter Meter Distribution",
}


@pytest.mark.parametrize("module", NAMES)
def test_a_module_has_its_names(module: str) -> None:
    imported = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if name not in imported.__all__] == []
    assert [name for name in imported.__all__ if not hasattr(imported, name)] == []
