"""Re-exports the streams at PyFlink's module path; they are defined in ``flinkish.datastream.streams``."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.datastream.streams.connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from flinkish.datastream.streams.data_stream import DataStream
from flinkish.datastream.streams.joins import CoGroupedStreams, IntervalJoin, IntervalJoined, JoinedStreams
from flinkish.datastream.streams.keyed_stream import KeyedStream
from flinkish.datastream.streams.results import CachedDataStream, CloseableIterator
from flinkish.datastream.streams.sinks import DataStreamSink
from flinkish.datastream.streams.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "CoGroupedStreams",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "IntervalJoin",
    "IntervalJoined",
    "JoinedStreams",
    "KeyedStream",
    "WindowedStream",
]

supply_names(
    __name__,
    "datastream.functions",
    "datastream.state",
    "datastream.window",
    "datastream.connectors.base",
    "common",
    "common.typeinfo",
    "common.watermark_strategy",
    "datastream.utils",
    "datastream",
)
