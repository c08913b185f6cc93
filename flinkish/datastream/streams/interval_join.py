"""``interval_join`` of two keyed streams: builders that finally add one operator over the union of both streams.

Semantics: Flink's ``KeyedStream.IntervalJoin`` and ``IntervalJoined``.
"""

from __future__ import annotations

from typing import Any

from flinkish.common.arguments import check_instance, check_methods_take
from flinkish.common.time import Duration, Time, milliseconds_of
from flinkish.common.typeinfo.types import declared_type
from flinkish.core.join_functions import ProcessJoinFunction
from flinkish.core.output_tag import OutputTag
from flinkish.datastream.streams.data_stream import TAG_HINT, DataStream, DeclaredType
from flinkish.datastream.streams.joined_streams import by_common_key
from flinkish.datastream.streams.keyed_stream import KeyedStream
from flinkish.errors import ProgramError
from flinkish.runtime.operators.interval_join import IntervalJoinFactory


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
