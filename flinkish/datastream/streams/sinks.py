"""Adds sinks to streams. The writers of a sink run in an operator; the job graph numbers its committers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flinkish.common.arguments import kind_of
from flinkish.core.sink import DataFrameSink, Sink, SupportsPreprocessing
from flinkish.datastream.streams.data_stream_sink import DataStreamSink
from flinkish.errors import ArgumentTypeError
from flinkish.runtime.operators.source_and_sink import SinkWriterFactory

if TYPE_CHECKING:
    from flinkish.datastream.streams.data_stream import DataStream


def add_sink(stream: DataStream, sink: Sink | Callable[..., None], name: str | None = None) -> DataStreamSink:
    """Add a sink to a stream.

    Args:
        stream: the stream whose records are written.
        sink: a sink, or a function of (Spark DataFrame, epoch).
        name: the name of the sink in plans; None: the default name of the sink.

    Raises:
        ArgumentTypeError: ``sink`` is neither a sink nor such a function.
        TypeMismatchError: the sink writes tables, and the type of the stream has no columns.
    """
    sink = sink if isinstance(sink, Sink) else _function_sink(sink)
    transformer = sink.get_transformer() if isinstance(sink, SupportsPreprocessing) else None
    if transformer is not None:
        stream = transformer.apply(stream)
    sink = sink.with_input_type(stream._type)
    shown = f"Sink: {name or sink.default_name}"
    if isinstance(sink, DataFrameSink):
        sink.check_type(stream._type, f"sink '{shown}'")
    factory = SinkWriterFactory(sink, stream._type, f"sink '{shown}'")
    return DataStreamSink(stream._add_node(shown, factory, stream._type, sink=sink))


def _function_sink(function: Callable[..., None]) -> Sink:
    if not callable(function) or isinstance(function, type):
        raise ArgumentTypeError(
            f"the sink is {kind_of(function)}",
            where="DataStream.sink_to() or add_sink()",
            expected="a sink or a function of (DataFrame, epoch)",
            hint="builders give their sink when build() is called",
        )
    from flinkish.connectors.frame_sinks import FunctionSink

    return FunctionSink(function)
