"""``join`` and ``co_group`` of two streams in windows: builders that end in one window operator over their union.

Semantics: Flink's ``JoinedStreams`` and ``CoGroupedStreams``. The records of both streams are tagged, (0, record) and
(1, record), brought together by a union and partitioned by key; triggers, evictors and side outputs for late data see
them in this form, as Flink's see a ``TaggedUnion``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from flinkish.common.arguments import check_instance
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.core.functions import KeySelector
from flinkish.core.join_functions import CoGroupFunction, FlatJoinFunction, JoinFunction
from flinkish.core.output_tag import OutputTag
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.evictor import Evictor
from flinkish.core.window.trigger import Trigger
from flinkish.datastream.streams.data_stream import (
    DataStream,
    DeclaredType,
    check_environment,
    refuse_checkpointed,
)
from flinkish.datastream.streams.key_function import KeyFunction, key_function
from flinkish.datastream.streams.keyed_stream import KeyedStream
from flinkish.datastream.streams.windowed_stream import WindowedStream
from flinkish.graph.stream_graph import Tap
from flinkish.runtime.operators.map import MapFactory
from flinkish.runtime.operators.window.co_group_functions import CoGroupWindowFunction, JoinWindowFunction

W = TypeVar("W", bound="_WithWindow")


def by_common_key(
    first: DataStream, second: DataStream, first_key: KeyFunction, second_key: KeyFunction, key_type: Any = None
) -> KeyedStream:
    """The records of both streams as (0, record) and (1, record), by key."""
    check_environment(first, second, "a join")
    both = _tagged(first, 0).union(_tagged(second, 1))
    return both.key_by(partial(_key, first_key, second_key), key_type)


def _tagged(stream: DataStream, side: int) -> DataStream:
    stream = stream._origin if isinstance(stream, KeyedStream) else stream
    # one to one with the operator before it, as in Flink
    alone = len(stream._taps) == 1 and stream._taps[0].partitioner is None
    parallelism = stream._taps[0].node.parallelism if alone else None
    pickled = Types.PICKLED_BYTE_ARRAY()
    node = stream._add_node("Map", MapFactory(partial(_tag, side)), pickled, parallelism=parallelism)
    return DataStream(stream._env, [Tap(node)], pickled, [node])


def _tag(side: int, value: Any) -> tuple[int, Any]:
    return side, value


def _key(first_key: KeyFunction, second_key: KeyFunction, tagged: tuple[int, Any]) -> Any:
    return second_key(tagged[1]) if tagged[0] else first_key(tagged[1])


class _WithWindow:
    """Two streams with keys and windows; ``apply`` of the subclasses adds the operator."""

    def __init__(self, keyed: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        self._windowed = WindowedStream(keyed, window_assigner)

    def trigger(self: W, trigger: Trigger[Any, Any]) -> W:
        """When windows are evaluated; without it by the assigner's own trigger."""
        self._windowed.trigger(trigger)
        return self

    def evictor(self: W, evictor: Evictor[Any]) -> W:
        """What removes elements, (0, record) or (1, record), from a window before or after it is evaluated."""
        self._windowed.evictor(evictor)
        return self

    def allowed_lateness(self: W, time_ms: int) -> W:
        """How long after its end (ms of event time) a window still takes late records and is evaluated again."""
        self._windowed.allowed_lateness(time_ms)
        return self

    def side_output_late_data(self: W, output_tag: OutputTag) -> W:
        """Where (0, record) or (1, record) goes that comes too late for any window; without it they are counted."""
        self._windowed.side_output_late_data(output_tag)
        return self


class JoinWithWindow(_WithWindow):
    """Two streams that are joined in windows."""

    def apply(
        self,
        function: JoinFunction | FlatJoinFunction | Callable[[Any, Any], Any],
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Call a function for each pair of records of the same key and window."""
        if not callable(function):
            check_instance(
                function,
                (JoinFunction, FlatJoinFunction),
                "the join function is",
                "join(...).where(...).equal_to(...).window(...).apply()",
                "write lambda first, second: ...",
            )
        refuse_checkpointed(function)
        return self._windowed.apply(JoinWindowFunction(function), output_type)


class CoGroupWithWindow(_WithWindow):
    """Two streams whose records are grouped in windows."""

    def apply(
        self,
        function: CoGroupFunction | Callable[[list[Any], list[Any]], Any],
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Call a function for each key and window with the records of both streams."""
        if not callable(function):
            check_instance(
                function,
                CoGroupFunction,
                "the function is",
                "co_group(...).where(...).equal_to(...).window(...).apply()",
                "write lambda first, second: [...]",
            )
        refuse_checkpointed(function)
        return self._windowed.apply(CoGroupWindowFunction(function), output_type)


class EqualTo(Generic[W]):
    """Two streams with keys: `window` comes next."""

    def __init__(self, keyed: KeyedStream, with_window: type[W]) -> None:
        self._keyed = keyed
        self._with_window = with_window

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> W:
        """The windows in which records of both streams meet."""
        return self._with_window(self._keyed, window_assigner)


class Where(Generic[W]):
    """Two streams, and the key of the first one: `equal_to` comes next."""

    def __init__(
        self, streams: _TwoStreams[W], key_selector: KeySelector | KeyFunction, key_type: TypeInformation | None
    ) -> None:
        self._streams = streams
        self._key = key_function(key_selector, key_type)
        self._key_type = key_type

    def equal_to(self, key_selector: KeySelector | KeyFunction) -> EqualTo[W]:
        """The key of the second stream's records."""
        first, second = self._streams.first, self._streams.second
        keyed = by_common_key(first, second, self._key, key_function(key_selector, self._key_type), self._key_type)
        return EqualTo(keyed, self._streams.with_window)


class _TwoStreams(Generic[W]):
    """Two streams: `where` comes next."""

    with_window: type[W]

    def __init__(self, first: DataStream, second: DataStream) -> None:
        check_instance(second, DataStream, "the other stream is", "join() or co_group()", "hand over the stream itself")
        self.first = first
        self.second = second

    def where(self, key_selector: KeySelector | KeyFunction, key_type: TypeInformation | None = None) -> Where[W]:
        """The key of the first stream's records."""
        return Where(self, key_selector, key_type)


class JoinedStreams(_TwoStreams[JoinWithWindow]):
    """What ``DataStream.join`` gives.

    Example::

        orders.join(payments).where(lambda o: o[0]).equal_to(lambda p: p[0]).window(
            TumblingEventTimeWindows.of(Time.minutes(1))
        ).apply(lambda order, payment: (order, payment))
    """

    with_window = JoinWithWindow


class CoGroupedStreams(_TwoStreams[CoGroupWithWindow]):
    """What ``DataStream.co_group`` gives. Unlike in a join a key that only one of the streams has counts."""

    with_window = CoGroupWithWindow
