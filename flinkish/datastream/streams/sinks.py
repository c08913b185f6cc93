"""Adds sinks to streams: the writing half is an operator, the committing half is numbered by the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import kind_of
from flinkish.core.sink import DataFrameSink, Sink, SupportsPreprocessing, WriterSink
from flinkish.datastream.streams.data_stream_sink import DataStreamSink
from flinkish.errors import ArgumentTypeError
from flinkish.runtime.operators.sink_writer import SinkWriterFactory

if TYPE_CHECKING:
    from flinkish.datastream.streams.data_stream import DataStream


def add_sink(stream: DataStream, sink: Sink | Callable[[Any, int], None], name: str | None = None) -> DataStreamSink:
    """Put a sink behind a stream.

    Raises:
        TypeError: it is neither a sink nor a function of (DataFrame, epoch).
        TypeMismatchError: the sink writes tables, and the stream's type is none.
    """
    sink = sink if isinstance(sink, Sink) else _function_sink(sink)
    transformer = sink.get_transformer() if isinstance(sink, SupportsPreprocessing) else None
    if transformer is not None:
        stream = transformer.apply(stream)
    shown = f"Sink: {name or sink.default_name}"
    if isinstance(sink, DataFrameSink):
        sink.check_type(stream._type, f"sink '{shown}'")
    factory = SinkWriterFactory(sink if isinstance(sink, WriterSink) else None, stream._type, f"sink '{shown}'")
    return DataStreamSink(stream._add_node(shown, factory, stream._type, sink=sink))


def _function_sink(function: Callable[[Any, int], None]) -> Sink:
    if not callable(function) or isinstance(function, type):
        raise ArgumentTypeError(
            f"the sink is {kind_of(function)}",
            where="DataStream.sink_to() or add_sink()",
            expected="a sink or a function of (DataFrame, epoch)",
            hint="builders give their sink when build() is called",
        )
    from flinkish.connectors.frame_sinks import FunctionSink

    return FunctionSink(function)
