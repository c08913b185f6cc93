"""The names that ported programs import are at PyFlink's module paths."""

from __future__ import annotations

import importlib

import pytest

NAMES = {
    "flinkish.datastream": "StreamExecutionEnvironment DataStream KeyedStream WindowedStream DataStreamSink "
    "MapFunction FlatMapFunction ReduceFunction FilterFunction ProcessFunction KeyedProcessFunction WindowFunction "
    "ProcessWindowFunction AggregateFunction RuntimeContext TimerService CheckpointingMode CheckpointConfig "
    "ExternalizedCheckpointRetention RuntimeExecutionMode Window TimeWindow CountWindow GlobalWindow WindowAssigner "
    "MergingWindowAssigner TriggerResult Trigger TimeDomain KeySelector Partitioner SourceFunction SinkFunction "
    "OutputTag",
    "flinkish.datastream.data_stream": "DataStream KeyedStream WindowedStream AllWindowedStream DataStreamSink "
    "CloseableIterator",
    "flinkish.datastream.stream_execution_environment": "StreamExecutionEnvironment",
    "flinkish.datastream.functions": "MapFunction KeyedProcessFunction RuntimeContext KeySelector Partitioner "
    "AllWindowFunction ProcessAllWindowFunction",
    "flinkish.datastream.state": "ValueStateDescriptor ListStateDescriptor MapStateDescriptor ReducingStateDescriptor "
    "AggregatingStateDescriptor StateTtlConfig ValueState MapState",
    "flinkish.datastream.window": "Window TimeWindow CountWindow GlobalWindow WindowAssigner MergingWindowAssigner "
    "TumblingProcessingTimeWindows TumblingEventTimeWindows SlidingProcessingTimeWindows SlidingEventTimeWindows "
    "ProcessingTimeSessionWindows EventTimeSessionWindows DynamicProcessingTimeSessionWindows "
    "DynamicEventTimeSessionWindows GlobalWindows CountTumblingWindowAssigner CountSlidingWindowAssigner "
    "TriggerResult Trigger EventTimeTrigger ProcessingTimeTrigger ContinuousEventTimeTrigger "
    "ContinuousProcessingTimeTrigger NeverTrigger PurgingTrigger CountTrigger TimeWindowSerializer "
    "CountWindowSerializer GlobalWindowSerializer SessionWindowTimeGapExtractor "
    "Evictor CountEvictor TimeEvictor DeltaEvictor TimestampedValue",
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
