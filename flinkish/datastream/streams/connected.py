"""Two streams, possibly of different types, whose records are processed by one function: two connected streams, or a
stream with a broadcast stream, whose records go to all subtasks.

Rule upheld here: connected streams are keyed if both streams are, by keys of one type. If only one of them is keyed,
the function runs without keys, and gets the records of the keyed stream as in PyFlink: as ``Row(key, value)``.

Rule upheld here: only an operator on a stream connected with the broadcast stream can use the broadcast states, through
one function for both streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import check_instance, kind_of
from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.types import declared_type
from flinkish.core.co_functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from flinkish.core.functions import KeySelector
from flinkish.core.state import MapStateDescriptor
from flinkish.datastream.streams.data_stream import DataStream, DeclaredType, check_environment
from flinkish.datastream.streams.key_function import KeyFunction
from flinkish.datastream.streams.keyed_stream import KeyedStream, _can_use_state
from flinkish.errors import ArgumentTypeError, ProgramError
from flinkish.graph.stream_graph import Tap
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.job.outputs import Converter
from flinkish.runtime.operators.broadcast import BroadcastProcessFactory, KeyedBroadcastProcessFactory
from flinkish.runtime.operators.functions import CoFlatMapFactory, CoMapFactory, CoProcessFactory
from flinkish.runtime.operators.keyed_process import KeyedCoProcessFactory

if TYPE_CHECKING:
    from flinkish.datastream.stream_execution_environment import StreamExecutionEnvironment


class ConnectedStreams:
    """Two connected streams, as `DataStream.connect` gives them.

    Example::

        class Matches(KeyedCoProcessFunction):
            def open(self, runtime_context):
                self.order = runtime_context.get_state(ValueStateDescriptor("order", Types.STRING()))
            def process_element1(self, order, ctx):
                self.order.update(order.text)
            def process_element2(self, payment, ctx):
                yield self.order.value(), payment.amount

        orders.connect(payments).key_by(lambda o: o.id, lambda p: p.order_id).process(Matches())
    """

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        check_connected(stream1, stream2)
        self.stream1 = stream1
        self.stream2 = stream2
        self._keyed: tuple[KeyedStream, KeyedStream] | None = None
        if isinstance(stream1, KeyedStream) and isinstance(stream2, KeyedStream):
            _check_key_types(stream1._key_type, stream2._key_type)
            self._keyed = stream1, stream2

    def key_by(
        self,
        key_selector1: KeySelector | KeyFunction,
        key_selector2: KeySelector | KeyFunction,
        key_type: TypeInformation | None = None,
    ) -> ConnectedStreams:
        """Partition both streams by key, each with a key selector of its own. Records of both streams with equal keys
        meet in one subtask and share keyed state. ``key_type`` is the type of the keys of both."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: CoMapFunction, output_type: DeclaredType = None) -> DataStream:
        """Call a function for each record, which gives at most one result. On keyed streams it can use keyed state."""
        check_instance(func, CoMapFunction, "The input function must be a CoMapFunction, not", _place("map"), _TWO_HINT)
        keyed = self._keyed is not None and _can_use_state(func)
        return self._transform("Co-Map", lambda converter: CoMapFactory(func, keyed, converter), output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: DeclaredType = None) -> DataStream:
        """Call a function for each record, which gives any number of results. On keyed streams it can use keyed
        state."""
        check_instance(
            func, CoFlatMapFunction, "The input must be a CoFlatMapFunction, not", _place("flat_map"), _TWO_HINT
        )
        keyed = self._keyed is not None and _can_use_state(func)
        return self._transform("Co-Flat Map", lambda converter: CoFlatMapFactory(func, keyed, converter), output_type)

    def process(self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: DeclaredType = None) -> DataStream:
        """Call a function for each record, which gives any number of results and has access to time and side outputs;
        on keyed streams also to keyed state and timers.

        Raises:
            ArgumentTypeError: the function is neither a CoProcessFunction nor a KeyedCoProcessFunction.
            ProgramError: a KeyedCoProcessFunction is applied to streams that are not both keyed.
        """
        if self._keyed and isinstance(func, (CoProcessFunction, KeyedCoProcessFunction)):
            return self._transform(
                "Keyed Co-Process", lambda converter: KeyedCoProcessFactory(func, converter), output_type
            )
        if isinstance(func, KeyedCoProcessFunction):
            raise ProgramError(
                "A KeyedCoProcessFunction can only be applied on keyed streams.",
                where=" and ".join(
                    f"input {number}, which is {'' if isinstance(stream, KeyedStream) else 'not '}keyed"
                    for number, stream in enumerate((self.stream1, self.stream2), 1)
                ),
                expected="two keyed streams, or a CoProcessFunction",
                hint="call connect(...).key_by(selector1, selector2) before process()",
            )
        check_instance(
            func,
            CoProcessFunction,
            "The input must be a CoProcessFunction or KeyedCoProcessFunction, not",
            _place("process"),
            _TWO_HINT,
        )
        return self._transform("Co-Process", lambda converter: CoProcessFactory(func, converter), output_type)

    def _transform(
        self, name: str, make: Callable[[Converter | None], OperatorFactory], output_type: DeclaredType
    ) -> DataStream:
        declared = declared_type(output_type)
        factory = make(declared.batch_converter(f"results of '{name}'"))
        settings: dict[str, Any] = {}
        if self._keyed is not None and factory.keyed:
            settings["key_selectors"] = tuple(stream._key_selector for stream in self._keyed)
            settings["key_type"] = self._keyed[0]._key_type
        inputs = [stream._taps for stream in self._keyed or map(_as_handed_over, (self.stream1, self.stream2))]
        node = self.stream1._env._add_node(name, factory, declared, inputs, **settings)
        return DataStream(self.stream1._env, [Tap(node)], declared, [node])


#: the hint for a function that does not take two inputs
_TWO_HINT = "connected streams take functions of two inputs: derive the class from it; plain functions will not do"


def _place(method: str) -> str:
    return f"ConnectedStreams.{method}()"


def _as_handed_over(stream: DataStream) -> DataStream:
    """The stream as a function without keys gets it: a keyed stream becomes a stream of ``Row(key, value)``."""
    return stream._rows() if isinstance(stream, KeyedStream) else stream


def _check_key_types(first: TypeInformation, second: TypeInformation) -> None:
    if first != second:
        raise ProgramError(
            f"Key types if input KeyedStreams don't match: {first!r} and {second!r}.",
            where="connect of two keyed streams",
            expected="keys of one type: only equal keys meet in one subtask",
            hint="give both key_by calls the same key_type, or connect the streams first and call "
            "key_by(selector1, selector2, key_type)",
        )


def check_connected(stream1: Any, stream2: Any) -> None:
    """Raises ArgumentTypeError if the second argument is not a DataStream, ProgramError if the streams belong to
    different environments."""
    where = stream1._place("connect")
    check_instance(
        stream2,
        DataStream,
        "what connect takes is",
        where,
        "broadcast(descriptor) makes a BroadcastStream of a stream",
        "a DataStream or a BroadcastStream",
    )
    check_environment(stream1, stream2, where)


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
