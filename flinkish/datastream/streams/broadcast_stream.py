"""BroadcastStream: a stream whose records go to all subtasks of the next operator, with its broadcast states.

Rule upheld here: only an operator on a stream connected with the broadcast stream can use the broadcast states, through
one function for both streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import check_instance, kind_of
from flinkish.common.typeinfo.types import declared_type
from flinkish.core.broadcast_functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from flinkish.core.state import MapStateDescriptor
from flinkish.datastream.streams.connected_streams import check_connected
from flinkish.datastream.streams.data_stream import DataStream, DeclaredType
from flinkish.datastream.streams.keyed_stream import KeyedStream
from flinkish.errors import ArgumentTypeError, ProgramError
from flinkish.graph.stream_graph import Tap
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.operators.broadcast import BroadcastProcessFactory, KeyedBroadcastProcessFactory

if TYPE_CHECKING:
    from flinkish.datastream.stream_execution_environment import StreamExecutionEnvironment


class BroadcastStream:
    """A broadcast stream with descriptors of broadcast states, as `DataStream.broadcast` gives it. Its only use is to
    be passed to `DataStream.connect`.

    Example::

        rules_state = MapStateDescriptor("rules", Types.STRING(), Types.INT())
        transactions.key_by(lambda t: t.account).connect(rules.broadcast(rules_state)).process(Alerts())
    """

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor]) -> None:
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)
        names: set[str] = set()
        for descriptor in self.broadcast_state_descriptors:
            check_instance(
                descriptor,
                MapStateDescriptor,
                "broadcast_state_descriptor should be MapStateDescriptor, not",
                "broadcast(...)",
                "broadcast state is a map: use a MapStateDescriptor with one key for a single value",
            )
            if descriptor.name in names:
                raise ProgramError(
                    f"two broadcast states are named {descriptor.name!r}",
                    where="broadcast(...)",
                    expected="a name of its own for each state",
                    hint="rename one of the MapStateDescriptors",
                )
            if descriptor.ttl_config is not None:
                raise ProgramError(
                    f"broadcast state {descriptor.name!r} has a time-to-live",
                    where="broadcast(...)",
                    expected="a descriptor without it: in Flink, too, broadcast state does not expire",
                    hint="keep the time in the value, and remove what is old in process_broadcast_element",
                )
            names.add(descriptor.name)

    @property
    def _env(self) -> StreamExecutionEnvironment:
        return self.input_stream._env


class BroadcastConnectedStream:
    """A stream, keyed or not, connected with a broadcast stream; `DataStream.connect` gives it."""

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        check_connected(non_broadcast_stream, broadcast_stream.input_stream)
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Call a function for each record and each broadcast element, which gives any number of results.

        Args:
            func: a KeyedBroadcastProcessFunction on a keyed stream, which also has keyed state and timers; a
                BroadcastProcessFunction on any other stream.
            output_type: the type of the results; None: any Python object.

        Raises:
            ArgumentTypeError: the function is of the wrong kind.
        """
        stream = self.non_broadcast_stream
        keyed = isinstance(stream, KeyedStream)
        where = f"BroadcastConnectedStream.process() on a {'' if keyed else 'non-'}keyed stream"
        if isinstance(func, BroadcastProcessFunction) and keyed:
            raise ArgumentTypeError(
                "BroadcastProcessFunction should be applied to non-keyed DataStream, and this one is keyed",
                where=where,
                expected="a KeyedBroadcastProcessFunction",
                hint="derive the function from it, or leave out key_by()",
            )
        if isinstance(func, KeyedBroadcastProcessFunction) and not keyed:
            raise ArgumentTypeError(
                "KeyedBroadcastProcessFunction should be applied to keyed DataStream, and this one is not keyed",
                where=where,
                expected="a BroadcastProcessFunction",
                hint="call key_by() before connect(), or derive the function from BroadcastProcessFunction",
            )
        declared = declared_type(output_type)
        descriptors = tuple(self.broadcast_state_descriptors)
        name = "Keyed Co-Process-Broadcast" if keyed else "Co-Process-Broadcast"
        converter = declared.batch_converter(f"results of '{name}'")
        settings: dict[str, Any] = {}
        factory: OperatorFactory
        if isinstance(func, KeyedBroadcastProcessFunction) and isinstance(stream, KeyedStream):
            factory = KeyedBroadcastProcessFactory(func, descriptors, converter)
            settings = {"key_selectors": (stream._key_selector,), "key_type": stream._key_type}
        elif isinstance(func, BroadcastProcessFunction):
            factory = BroadcastProcessFactory(func, descriptors, converter)
        else:
            kind = "KeyedBroadcastProcessFunction" if keyed else "BroadcastProcessFunction"
            raise ArgumentTypeError(
                "The input must be a BroadcastProcessFunction or KeyedBroadcastProcessFunction, not " + kind_of(func),
                where=where,
                expected=f"a {kind}",
                hint=f"derive the function from {kind}",
            )
        inputs = [stream._taps, self.broadcast_stream.input_stream._taps]
        node = stream._env._add_node(name, factory, declared, inputs, **settings)
        return DataStream(stream._env, [Tap(node)], declared, [node])
