"""``join`` and ``co_group`` of two streams in windows, and ``interval_join`` of two keyed streams: builders that
finally add one operator over the union of both streams.

Semantics: Flink's ``JoinedStreams`` and ``CoGroupedStreams``, and its ``KeyedStream.IntervalJoin`` and
``IntervalJoined``. For windows, the records of both streams are tagged as (0, record) and (1, record), merged by a
union and partitioned by key. Triggers, evictors and side outputs for late data see them in this form, as Flink's see a
``TaggedUnion``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from flinkish.common.arguments import check_instance, check_methods_take
from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.types import declared_type
from flinkish.core.co_functions import CoGroupFunction, FlatJoinFunction, JoinFunction, ProcessJoinFunction
from flinkish.core.functions import KeySelector, OutputTag
from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.evictor import Evictor
from flinkish.core.window.trigger import Trigger
from flinkish.datastream.streams.data_stream import (
    TAG_HINT,
    DataStream,
    DeclaredType,
    check_environment,
    refuse_checkpointed,
)
from flinkish.datastream.streams.key_function import KeyFunction, key_function
from flinkish.datastream.streams.keyed_stream import KeyedStream
from flinkish.datastream.streams.windowed_stream import WindowedStream
from flinkish.errors import ProgramError
from flinkish.graph.stream_graph import Tap
from flinkish.runtime.exchange.keys import EitherKeySelector
from flinkish.runtime.operators.functions import MapFactory
from flinkish.runtime.operators.interval_join import IntervalJoinFactory
from flinkish.runtime.operators.window.factory import CoGroupWindowFunction, JoinWindowFunction

W = TypeVar("W", bound="_WithWindow")


def by_common_key(
    first: DataStream, second: DataStream, first_key: KeyFunction, second_key: KeyFunction, key_type: Any = None
) -> KeyedStream:
    """The records of both streams as (0, record) and (1, record), partitioned by key."""
    check_environment(first, second, "a join")
    both = _tagged(first, 0).union(_tagged(second, 1))
    return both.key_by(EitherKeySelector(first_key, second_key), key_type)


def _tagged(stream: DataStream, side: int) -> DataStream:
    stream = stream._origin if isinstance(stream, KeyedStream) else stream
    # the parallelism of the operator before it, as in Flink
    alone = len(stream._taps) == 1 and stream._taps[0].partitioner is None
    parallelism = stream._taps[0].node.parallelism if alone else None
    pickled = Types.PICKLED_BYTE_ARRAY()
    node = stream._add_node("Map", MapFactory(partial(_tag, side)), pickled, parallelism=parallelism)
    return DataStream(stream._env, [Tap(node)], pickled, [node])


def _tag(side: int, value: Any) -> tuple[int, Any]:
    return side, value


class _WithWindow:
    """Two streams with their keys and windows. The method ``apply`` of the subclasses adds the window operator."""

    def __init__(self, keyed: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        self._windowed = WindowedStream(keyed, window_assigner)

    def trigger(self: W, trigger: Trigger[Any, Any]) -> W:
        """Set when windows are evaluated; the default is the assigner's own trigger."""
        self._windowed.trigger(trigger)
        return self

    def evictor(self: W, evictor: Evictor[Any]) -> W:
        """Set an evictor, which removes elements from a window before or after it is evaluated. It sees them as (0,
        record) and (1, record)."""
        self._windowed.evictor(evictor)
        return self

    def allowed_lateness(self: W, time_ms: int) -> W:
        """Set how long after its end, in ms of event time, a window still takes late records and is evaluated again."""
        self._windowed.allowed_lateness(time_ms)
        return self

    def side_output_late_data(self: W, output_tag: OutputTag) -> W:
        """Send records that come too late for any window to a side output, as (0, record) or (1, record); without it
        they are counted and dropped."""
        self._windowed.side_output_late_data(output_tag)
        return self


class JoinWithWindow(_WithWindow):
    """Two streams that are joined in windows; the last call is `apply`."""

    def apply(
        self,
        function: JoinFunction | FlatJoinFunction | Callable[[Any, Any], Any],
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Call a function for each pair of records of both streams with the same key in the same window. A
        FlatJoinFunction gives any number of results, any other function gives one."""
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
    """Two streams whose records are grouped in windows; the last call is `apply`."""

    def apply(
        self,
        function: CoGroupFunction | Callable[[list[Any], list[Any]], Any],
        output_type: DeclaredType = None,
    ) -> DataStream:
        """Call a function for each key and window with the list of the records of each stream. It gives any number of
        results."""
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
    """Two streams with their keys; the next call is `window`."""

    def __init__(self, keyed: KeyedStream, with_window: type[W]) -> None:
        self._keyed = keyed
        self._with_window = with_window

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> W:
        """Set the windows in which records of both streams meet."""
        return self._with_window(self._keyed, window_assigner)


class Where(Generic[W]):
    """Two streams, with the key of the first one; the next call is `equal_to`."""

    def __init__(
        self, streams: _TwoStreams[W], key_selector: KeySelector | KeyFunction, key_type: TypeInformation | None
    ) -> None:
        self._streams = streams
        self._key = key_function(key_selector, key_type)
        self._key_type = key_type

    def equal_to(self, key_selector: KeySelector | KeyFunction) -> EqualTo[W]:
        """Set the key selector of the second stream."""
        first, second = self._streams.first, self._streams.second
        keyed = by_common_key(first, second, self._key, key_function(key_selector, self._key_type), self._key_type)
        return EqualTo(keyed, self._streams.with_window)


class _TwoStreams(Generic[W]):
    """Two streams without keys yet; the next call is `where`."""

    with_window: type[W]

    def __init__(self, first: DataStream, second: DataStream) -> None:
        check_instance(second, DataStream, "the other stream is", "join() or co_group()", "hand over the stream itself")
        self.first = first
        self.second = second

    def where(self, key_selector: KeySelector | KeyFunction, key_type: TypeInformation | None = None) -> Where[W]:
        """Set the key selector of the first stream, and the type of the keys of both streams."""
        return Where(self, key_selector, key_type)


class JoinedStreams(_TwoStreams[JoinWithWindow]):
    """Two streams that are to be joined, as ``DataStream.join`` gives them. Records without a partner in their window
    give no result.

    Example::

        orders.join(payments).where(lambda o: o[0]).equal_to(lambda p: p[0]).window(
            TumblingEventTimeWindows.of(Time.minutes(1))
        ).apply(lambda order, payment: (order, payment))
    """

    with_window = JoinWithWindow


class CoGroupedStreams(_TwoStreams[CoGroupWithWindow]):
    """Two streams whose records are to be grouped, as ``DataStream.co_group`` gives them. Unlike in a join, the
    function is also called for keys that only one of the streams has in a window.

    Example::

        orders.co_group(payments).where(lambda o: o[0]).equal_to(lambda p: p[0]).window(
            TumblingEventTimeWindows.of(Time.minutes(1))
        ).apply(lambda orders, payments: [(len(orders), len(payments))])
    """

    with_window = CoGroupWithWindow


class IntervalJoin:
    """Two keyed streams that are to be joined, as ``KeyedStream.interval_join`` gives them; the next call is `between`.

    Example: payments up to ten minutes after their order::

        orders.key_by(lambda o: o[0]).interval_join(payments.key_by(lambda p: p[0])).between(
            Time.minutes(0), Time.minutes(10)
        ).process(Together())
    """

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        check_instance(
            right,
            KeyedStream,
            "the other stream of an interval join is",
            "KeyedStream.interval_join()",
            "call key_by() on it, too",
        )
        self._left = left
        self._right = right

    def in_event_time(self) -> IntervalJoin:
        """Join by event time, which is the default and the only possibility."""
        return self

    def in_processing_time(self) -> IntervalJoin:
        """Raises ProgramError: as in Flink, interval joins work in event time only."""
        raise ProgramError(
            "Time-bounded stream joins are only supported in event time",
            where="IntervalJoin.in_processing_time()",
            expected="streams with timestamps",
            hint="call assign_timestamps_and_watermarks(...) on both streams, and leave out in_processing_time()",
        )

    def between(self, lower_bound: Time | Duration, upper_bound: Time | Duration) -> IntervalJoined:
        """Set the bounds. A right record is joined with a left record of the same key if its timestamp is at least
        ``lower_bound`` and at most ``upper_bound`` later than that of the left record. The bounds may be negative."""
        where = "IntervalJoin.between()"
        lower_ms = milliseconds_of(lower_bound, "the lower bound", where)
        return IntervalJoined(self._left, self._right, lower_ms, milliseconds_of(upper_bound, "the upper bound", where))


class IntervalJoined:
    """Two keyed streams with the bounds of their interval join; the last call is `process`."""

    def __init__(self, left: KeyedStream, right: KeyedStream, lower_ms: int, upper_ms: int) -> None:
        self._left = left
        self._right = right
        self._bounds_ms = (lower_ms, upper_ms)
        self._exclusive = [False, False]
        self._late_tags: list[OutputTag | None] = [None, None]

    def lower_bound_exclusive(self) -> IntervalJoined:
        """Exclude the lower bound: records that are exactly so far apart are not joined."""
        self._exclusive[0] = True
        return self

    def upper_bound_exclusive(self) -> IntervalJoined:
        """Exclude the upper bound: records that are exactly so far apart are not joined."""
        self._exclusive[1] = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Send late records of the left stream to a side output; without it they are counted and dropped."""
        return self._late(0, output_tag)

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Send late records of the right stream to a side output; without it they are counted and dropped."""
        return self._late(1, output_tag)

    def process(self, process_join_function: ProcessJoinFunction, output_type: DeclaredType = None) -> DataStream:
        """Call a function for each pair of records within the bounds.

        Args:
            process_join_function: the function; it gives any number of results.
            output_type: the type of the results; None: any Python object.

        Raises:
            ArgumentTypeError: the function is not a ProcessJoinFunction.
            ProgramError: the lower bound is above the upper one, or exclusive bounds leave nothing between them.
        """
        check_instance(
            process_join_function,
            ProcessJoinFunction,
            "the function is",
            "IntervalJoined.process()",
            "derive it from ProcessJoinFunction",
        )
        check_methods_take(process_join_function, ProcessJoinFunction, "IntervalJoined.process()")
        lower_ms = self._bounds_ms[0] + self._exclusive[0]
        upper_ms = self._bounds_ms[1] - self._exclusive[1]
        if lower_ms > upper_ms:
            raise ProgramError(
                f"an interval join between {self._bounds_ms[0]} ms and {self._bounds_ms[1]} ms",
                where=f"lower bound exclusive: {self._exclusive[0]}, upper bound exclusive: {self._exclusive[1]}",
                expected="lower bound <= upper bound",
                hint="between(lower, upper) says how much later a right record is than a left one",
            )
        left, right = self._left, self._right
        both = by_common_key(left, right, left._key_selector, right._key_selector, left._key_type)
        declared = declared_type(output_type)
        factory = IntervalJoinFactory(
            process_join_function,
            lower_ms,
            upper_ms,
            (_tag_id(self._late_tags[0]), _tag_id(self._late_tags[1])),
            declared.batch_converter("results of 'Interval Join'"),
        )
        return both._add_operator("Interval Join", factory, declared)

    def _late(self, side: int, output_tag: Any) -> IntervalJoined:
        check_instance(output_tag, OutputTag, "the output tag is", "an interval join's side output", TAG_HINT)
        self._late_tags[side] = output_tag
        return self


def _tag_id(output_tag: OutputTag | None) -> str | None:
    return None if output_tag is None else output_tag.tag_id
