"""Re-exports the source and the sinks of Amazon Kinesis at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.connectors.kinesis.client import KinesisDeserializationSchema
from flinkish.connectors.kinesis.sink import (
    KinesisFirehoseSink,
    KinesisFirehoseSinkBuilder,
    KinesisStreamsSink,
    KinesisStreamsSinkBuilder,
    PartitionKeyGenerator,
)
from flinkish.connectors.kinesis.source import FlinkKinesisConsumer, KinesisShardAssigner, WatermarkTracker

__all__ = [
    "FlinkKinesisConsumer",
    "KinesisDeserializationSchema",
    "KinesisFirehoseSink",
    "KinesisFirehoseSinkBuilder",
    "KinesisShardAssigner",
    "KinesisStreamsSink",
    "KinesisStreamsSinkBuilder",
    "PartitionKeyGenerator",
    "WatermarkTracker",
]

supply_names(__name__, "datastream.functions", "datastream.connectors.base", "common")
