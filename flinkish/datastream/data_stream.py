"""Re-exports the streams at PyFlink's module path; they are defined in ``flinkish.datastream.streams``."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.datastream.streams.broadcast_stream import BroadcastConnectedStream, BroadcastStream
from flinkish.datastream.streams.cached_data_stream import CachedDataStream
from flinkish.datastream.streams.closeable_iterator import CloseableIterator
from flinkish.datastream.streams.connected_streams import ConnectedStreams
from flinkish.datastream.streams.data_stream import DataStream
from flinkish.datastream.streams.data_stream_sink import DataStreamSink
from flinkish.datastream.streams.interval_join import IntervalJoin, IntervalJoined
from flinkish.datastream.streams.joined_streams import CoGroupedStreams, JoinedStreams
from flinkish.datastream.streams.keyed_stream import KeyedStream
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
