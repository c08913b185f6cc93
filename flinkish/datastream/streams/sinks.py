"""Adds sinks to streams, and gives the program their settings (``DataStreamSink``). The writers of a sink run in an
operator; the job graph numbers its committers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flinkish.common.arguments import kind_of
from flinkish.core.sink import DataFrameSink, Sink, SupportsPreprocessing
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.operator_stream import OperatorSettings
from flinkish.errors import ArgumentTypeError
from flinkish.graph.stream_graph import ChainingStrategy, StreamNode
from flinkish.runtime.operators.source_and_sink import SinkWriterFactory

if TYPE_CHECKING:
    from flinkish.datastream.streams.data_stream import DataStream


class DataStreamSink:
    """A sink of the program, as ``sink_to``, ``add_sink`` and ``print`` give it. Its methods change the settings of the
    sink's operator and return this object."""

    def __init__(self, node: StreamNode) -> None:
        self._settings = OperatorSettings([node])

    def name(self, name: str) -> DataStreamSink:
        """Name the sink; plans show it with ``Sink: `` before it."""
        self._settings.set_name(name)
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Give the sink an identity that later versions of the program can be matched with. A uid used twice raises
        DuplicateUidError when the job is submitted."""
        self._settings.set_uid(uid)
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """Take over the identity of a sink of an earlier job: 32 hexadecimal digits, which win over ``uid``."""
        self._settings.set_uid_hash(uid_hash)
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Set the number of subtasks that write. Raises ArgumentValueError below 1, except for -1, which means the
        parallelism of the environment."""
        self._settings.set_parallelism(parallelism)
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """Set a longer text that plans show."""
        self._settings.set_description(description)
        return self

    def disable_chaining(self) -> DataStreamSink:
        """Run the sink in a task of its own."""
        self._settings.set_chaining(ChainingStrategy.NEVER)
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> DataStreamSink:
        """Put the sink into a slot sharing group. Operators of different groups never share a task."""
        self._settings.set_slot_sharing_group(slot_sharing_group)
        return self


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
