"""The interval join: joins records of two keyed streams whose timestamps are close to each other. Semantics: Flink's
``IntervalJoinOperator``.

Records come as (0, left record) and (1, right record), by key. A pair is joined if
``left time + lower bound <= right time <= left time + upper bound``. A record with a timestamp less than the watermark
is late: it is joined with no record, and goes to the side output of its stream, if there is one. Every other record is
joined with all records that it should be: a record is kept until all that could be joined with it would be late (Flink
removes it one millisecond earlier), and up to a second more, which adds no pairs, since the bounds are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

from flinkish.common.detach import detached
from flinkish.common.typeinfo import Types
from flinkish.core.co_functions import ProcessJoinFunction
from flinkish.core.functions import OutputTag
from flinkish.core.metrics import Counter
from flinkish.core.state import MapStateDescriptor
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, TimeDomain
from flinkish.errors import ProgramError
from flinkish.runtime.exchange.keys import keys_of
from flinkish.runtime.job.operator import OperatorContext, OperatorFactoryBase, Output
from flinkish.runtime.job.outputs import Converter, emit
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.state.map_table import MapTable
from flinkish.runtime.state.state_rows import VOID_NAMESPACE

#: Names of the map states that buffer records: timestamp -> records. Also the namespaces of the timers that empty them.
BUFFERS = ("left-buffer", "right-buffer")
TIMERS = "interval-join"

#: Buffers are emptied at multiples of this many ms of event time, so that many records share a timer.
_SHARED_TIMER_MS = 1_000


class _Context(ProcessJoinFunction.Context):
    """The context of the join function: one object for all pairs."""

    def __init__(self) -> None:
        self.left_ms = self.right_ms = MIN_TIMESTAMP_MS
        self.sides: list[tuple[OutputTag, Any]] = []

    def get_left_timestamp(self) -> int:
        return self.left_ms

    def get_right_timestamp(self) -> int:
        return self.right_ms

    def get_timestamp(self) -> int:
        return max(self.left_ms, self.right_ms)

    def output(self, output_tag: OutputTag, value: Any) -> None:
        self.sides.append((output_tag, detached(value)))


class IntervalJoinOperator(UserFunctionOperator):
    """Joins records of two keyed streams by the interval between their timestamps; each result has the greater
    timestamp of its pair."""

    function: ProcessJoinFunction
    late_records_dropped: Counter

    def __init__(self, factory: IntervalJoinFactory) -> None:
        super().__init__(factory.function, "process_element", factory.converter)
        #: for a record of the left and of the right stream, in ms: the least and the greatest value of
        #: (timestamp of a record of the other stream - its own timestamp) at which the two are joined
        self._bounds = (
            (factory.lower_ms, factory.upper_ms),
            (-factory.upper_ms, -factory.lower_ms),
        )
        #: for a record of each stream, the ms from its timestamp on for which it is kept at least
        self._kept_ms = tuple(max(0, above_ms) + 1 for _, above_ms in self._bounds)
        self._late_tags = factory.late_tag_ids
        self._pair = _Context()

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.late_records_dropped = context.exact_counter("numLateRecordsDropped")

    def open(self) -> None:
        for name in BUFFERS:
            self.keyed_state.partitioned_state(MapStateDescriptor(name, Types.LONG(), Types.PICKLED_BYTE_ARRAY()))
        super().open()

    def _buffers(self) -> tuple[MapTable, MapTable]:
        left, right = (self.keyed_state.table(name, "map") for name in BUFFERS)
        return cast("tuple[MapTable, MapTable]", (left, right))

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        backend, watermark_ms, pair = self.keyed_state, self.context.epoch.watermark_ms, self._pair
        join, shared, hand_over = self.call, self.shared, self.handed_over
        keys = keys_of(self.context.key_selectors[0], values)
        backend.prefetch(keys)
        buffers = self._buffers()
        results: list[Any] = []
        times: list[int] = []
        late: tuple[list[Any], list[Any]] = ([], [])
        kept: tuple[dict[int, dict[Any, None]], ...] = ({}, {})
        lent, settle = backend.loans.open, backend.loans.settle
        # they may hold side outputs of a call that failed and was undone
        self._pair.sides.clear()
        arriving, stamps = iter(values), timestamps or repeat(MIN_TIMESTAMP_MS)
        for (side, value), timestamp_ms, key in zip(arriving, stamps, keys, strict=False):
            if timestamp_ms <= MIN_TIMESTAMP_MS:
                raise self._no_timestamp(value)
            if timestamp_ms < watermark_ms:
                late[side].append((value, timestamp_ms))
                continue
            if lent:
                settle()
            backend.current_key = key
            mine = buffers[side]
            same = mine.entry(VOID_NAMESPACE, key, timestamp_ms)
            mine.put(VOID_NAMESPACE, key, {timestamp_ms: [value] if same is None else [*same[1], value]})
            kept[side].setdefault(self._forget_ms(side, timestamp_ms), {})[key] = None
            below_ms, above_ms = self._bounds[side]
            value_cannot_change = detached(value) is value
            for other_ms, others in buffers[1 - side].between(
                VOID_NAMESPACE, key, timestamp_ms + below_ms, timestamp_ms + above_ms
            ):
                pair.left_ms, pair.right_ms = (other_ms, timestamp_ms) if side else (timestamp_ms, other_ms)
                for other in others:
                    # either is in other pairs, too
                    mine_now, other_now = value if value_cannot_change else detached(value), detached(other)
                    iterable: Any = join(other_now, mine_now, pair) if side else join(mine_now, other_now, pair)
                    if iterable:
                        for result in iterable:
                            if type(result) not in shared:
                                result = hand_over(result)
                            results.append(result)
                    if pair.sides:
                        results.extend(one for one in pair.sides if self.output.has_side(one[0].tag_id))
                        pair.sides.clear()
                times.extend(repeat(max(other_ms, timestamp_ms), len(results) - len(times)))
        timers = backend.timers(TIMERS)
        for name, by_time in zip(BUFFERS, kept, strict=True):
            for forget_ms, of_keys in by_time.items():
                timers.register_all(TimeDomain.EVENT_TIME, forget_ms, of_keys, name)
        emit(results, times, self.output, self.converter)
        self._emit_late(late)

    def _forget_ms(self, side: int, timestamp_ms: int) -> int:
        """The watermark at which a record of a stream is removed: it is greater than the timestamps of all records that
        can be joined with it, and rounded up, so that records of a key share a timer."""
        last_ms = timestamp_ms + self._kept_ms[side] + _SHARED_TIMER_MS - 1
        return min(last_ms - last_ms % _SHARED_TIMER_MS, MAX_WATERMARK_MS)

    def _emit_late(self, late: tuple[list[Any], list[Any]]) -> None:
        for tag_id, records in zip(self._late_tags, late, strict=True):
            if records and tag_id is None:
                self.late_records_dropped.inc(len(records))
            elif records and tag_id is not None:
                values, timestamps = zip(*records, strict=True)
                self.output.collect_side(tag_id, list(values), list(timestamps))

    def process_watermark(self, watermark_ms: int) -> None:
        backend = self.keyed_state
        if backend.may_be_due(TimeDomain.EVENT_TIME, watermark_ms):
            buffers = self._buffers()
            for timer_ms, key, namespace in backend.due(TIMERS, TimeDomain.EVENT_TIME, watermark_ms):
                side = BUFFERS.index(cast("str", namespace))
                buffers[side].discard_until(VOID_NAMESPACE, key, timer_ms - self._kept_ms[side])
        self.output.emit_watermark(watermark_ms)

    def _no_timestamp(self, value: Any) -> ProgramError:
        return ProgramError(
            f"the record {value!r:.200} of an interval join has no timestamp (Long.MIN_VALUE)",
            where=self.where,
            expected="records with event-time timestamps in both streams",
            hint="did you forget to call assign_timestamps_and_watermarks(...) with a timestamp assigner?",
        )


@dataclass
class IntervalJoinFactory(OperatorFactoryBase):
    """Makes the operator of an interval join.

    Args:
        lower_ms: the least value, inclusive, of (right timestamp - left timestamp) in ms at which a pair is joined.
        upper_ms: the greatest such value, inclusive.
        late_tag_ids: side outputs of the late records of the left and of the right stream; None: they are dropped and
            counted in ``numLateRecordsDropped``.
        converter: converts the results of a batch to the declared type of the main output.
    """

    function: ProcessJoinFunction | Callable[..., Any]
    lower_ms: int
    upper_ms: int
    late_tag_ids: tuple[str | None, str | None] = (None, None)
    converter: Converter | None = None
    keyed: bool = True

    def create(self) -> IntervalJoinOperator:
        return IntervalJoinOperator(self)
