"""Makes test harnesses for the operators of streams, and so for user functions of all kinds.

The operator is the one that the DataStream API makes, with the checks and conversions that it has in a program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.typeinfo import TypeInformation
from flinkish.core.co_functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from flinkish.core.functions import KeyedProcessFunction, KeySelector, ProcessFunction
from flinkish.core.state import MapStateDescriptor
from flinkish.datastream import DataStream, StreamExecutionEnvironment
from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import StreamNode
from flinkish.runtime.operators.broadcast import BroadcastProcessFactory, KeyedBroadcastProcessFactory
from flinkish.testing.operator_harness import (
    BroadcastOperatorTestHarness,
    KeyedBroadcastOperatorTestHarness,
    KeyedOneInputStreamOperatorTestHarness,
    KeyedTwoInputStreamOperatorTestHarness,
    OneInputStreamOperatorTestHarness,
    StreamOperatorTestHarness,
    TwoInputStreamOperatorTestHarness,
)

KeyFunction = KeySelector | Callable[[Any], Any]

_BY_INPUTS: dict[tuple[int, bool], type[StreamOperatorTestHarness]] = {
    (1, False): OneInputStreamOperatorTestHarness,
    (1, True): KeyedOneInputStreamOperatorTestHarness,
    (2, False): TwoInputStreamOperatorTestHarness,
    (2, True): KeyedTwoInputStreamOperatorTestHarness,
}


def harness_of(stream: DataStream, **options: Any) -> Any:
    """A harness for the operator that emits a stream: a window, an aggregation, asynchronous calls, a function.

    The class of the harness follows from the operator's inputs. ``options``: as for `StreamOperatorTestHarness`.

    Example::

        windows = stream.key_by(key).window(TumblingEventTimeWindows.of(Time.seconds(1))).reduce(add)
        with harness_of(windows) as harness:
            harness.process_element(("a", 1), 10)
            harness.process_watermark(999)

    Raises:
        ProgramError: the stream is a source, or has no operator of its own (a union, a side output).
    """
    operators = stream._operators
    if not operators or not operators[-1].taps:
        raise ProgramError(
            "the stream has no operator of its own that could be tested alone",
            expected="the result of an operation with a function, a window or an aggregation",
            hint="test sources, unions and whole programs with ProgramTestHarness",
        )
    node = operators[-1]
    return _class_of(node)._of(node.factory, node.key_selectors, **options)


def _class_of(node: StreamNode) -> type[StreamOperatorTestHarness]:
    if isinstance(node.factory, KeyedBroadcastProcessFactory):
        return KeyedBroadcastOperatorTestHarness
    if isinstance(node.factory, BroadcastProcessFactory):
        return BroadcastOperatorTestHarness
    return _BY_INPUTS[len(node.taps), node.keyed]


def _two_streams() -> tuple[DataStream, DataStream]:
    env = StreamExecutionEnvironment(Configuration())
    return env.from_collection([]), env.from_collection([])


class ProcessFunctionTestHarnesses:
    """Makes harnesses for process functions, with the names that these methods have in Flink.

    ``output_type``: as for ``process``; ``options``: as for `StreamOperatorTestHarness`.

    Example::

        function, key = Alert(), lambda click: click.user
        with ProcessFunctionTestHarnesses.for_keyed_process_function(function, key) as harness:
            harness.process_element(click, 10)
            harness.process_watermark(5_000)
            assert harness.extract_output_values() == ["alert"]
    """

    @staticmethod
    def for_process_function(
        function: ProcessFunction, output_type: TypeInformation | None = None, **options: Any
    ) -> OneInputStreamOperatorTestHarness:
        """A harness for a ProcessFunction."""
        stream, _ = _two_streams()
        harness: OneInputStreamOperatorTestHarness = harness_of(stream.process(function, output_type), **options)
        return harness

    @staticmethod
    def for_keyed_process_function(
        function: KeyedProcessFunction,
        key_selector: KeyFunction,
        key_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
        **options: Any,
    ) -> KeyedOneInputStreamOperatorTestHarness:
        """A harness for a KeyedProcessFunction."""
        keyed = _two_streams()[0].key_by(key_selector, key_type)
        harness: KeyedOneInputStreamOperatorTestHarness = harness_of(keyed.process(function, output_type), **options)
        return harness

    @staticmethod
    def for_co_process_function(
        function: CoProcessFunction, output_type: TypeInformation | None = None, **options: Any
    ) -> TwoInputStreamOperatorTestHarness:
        """A harness for a CoProcessFunction."""
        first, second = _two_streams()
        results = first.connect(second).process(function, output_type)
        harness: TwoInputStreamOperatorTestHarness = harness_of(results, **options)
        return harness

    @staticmethod
    def for_keyed_co_process_function(
        function: KeyedCoProcessFunction | CoProcessFunction,
        key_selector1: KeyFunction,
        key_selector2: KeyFunction,
        key_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
        **options: Any,
    ) -> KeyedTwoInputStreamOperatorTestHarness:
        """A harness for a KeyedCoProcessFunction, or for a CoProcessFunction on keyed streams."""
        first, second = _two_streams()
        both = first.key_by(key_selector1, key_type).connect(second.key_by(key_selector2, key_type))
        harness: KeyedTwoInputStreamOperatorTestHarness = harness_of(both.process(function, output_type), **options)
        return harness

    @staticmethod
    def for_broadcast_process_function(
        function: BroadcastProcessFunction[Any, Any, Any],
        *descriptors: MapStateDescriptor,
        output_type: TypeInformation | None = None,
        **options: Any,
    ) -> BroadcastOperatorTestHarness:
        """A harness for a BroadcastProcessFunction. ``descriptors``: those of its broadcast states."""
        stream, rules = _two_streams()
        results = stream.connect(rules.broadcast(*descriptors)).process(function, output_type)
        harness: BroadcastOperatorTestHarness = harness_of(results, **options)
        return harness

    @staticmethod
    def for_keyed_broadcast_process_function(
        function: KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        key_selector: KeyFunction,
        *descriptors: MapStateDescriptor,
        key_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
        **options: Any,
    ) -> KeyedBroadcastOperatorTestHarness:
        """A harness for a KeyedBroadcastProcessFunction. ``descriptors``: those of its broadcast states."""
        stream, rules = _two_streams()
        keyed = stream.key_by(key_selector, key_type)
        results = keyed.connect(rules.broadcast(*descriptors)).process(function, output_type)
        harness: KeyedBroadcastOperatorTestHarness = harness_of(results, **options)
        return harness
