"""The streams, at PyFlink's module path. Each is defined in a module of its own in ``flinkish.datastream.streams``."""

from __future__ import annotations

from flinkish.datastream.streams.cached_data_stream import CachedDataStream
from flinkish.datastream.streams.closeable_iterator import CloseableIterator
from flinkish.datastream.streams.data_stream import DataStream
from flinkish.datastream.streams.data_stream_sink import DataStreamSink
from flinkish.datastream.streams.keyed_stream import KeyedStream
from flinkish.datastream.streams.windowed_stream import WindowedStream

__all__ = ["CachedDataStream", "CloseableIterator", "DataStream", "DataStreamSink", "KeyedStream", "WindowedStream"]
