"""Join records of two keyed streams whose timestamps are close to each other. Semantics: Flink's
``IntervalJoinOperator``.

Records come as (0, left record) and (1, right record), by key. A pair is joined when
``left time + lower bound <= right time <= left time + upper bound``. A record with a timestamp less than the watermark
is late: it meets nobody, and goes to the side output of its stream, if there is one. Every other record meets all that
it should: each is kept until all that could meet it would be late. (Flink forgets it one millisecond earlier.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

from flinkish.common.typeinfo import Types
from flinkish.core.join_functions import ProcessJoinFunction
from flinkish.core.metrics import Counter
from flinkish.core.output_tag import OutputTag
from flinkish.core.state import MapState, MapStateDescriptor
from flinkish.core.time_domain import TimeDomain
from flinkish.core.time_limits import MIN_TIMESTAMP_MS
from flinkish.errors import ProgramError
from flinkish.runtime.list_keys import keys_of
from flinkish.runtime.operator import OperatorContext, OperatorFactoryBase, Output
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.side_outputs import Converter, emit

#: The buffers: timestamp -> records. Also the namespaces of the timers that empty them.
BUFFERS = ("left-buffer", "right-buffer")
TIMERS = "interval-join"


class _Context(ProcessJoinFunction.Context):
    """One object for all pairs."""

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
        self.sides.append((output_tag, value))


class IntervalJoinOperator(UserFunctionOperator):
    """See the module."""

    function: ProcessJoinFunction
    late_records_dropped: Counter

    def __init__(self, factory: IntervalJoinFactory) -> None:
        super().__init__(factory.function, "process_element", factory.converter)
        #: how far the records of the other stream may lie behind one of the left and of the right stream
        self._bounds = (
            (factory.lower_ms, factory.upper_ms),
            (-factory.upper_ms, -factory.lower_ms),
        )
        self._late_tags = factory.late_tag_ids
        self._pair = _Context()

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.late_records_dropped = context.exact_counter("numLateRecordsDropped")

    def open(self) -> None:
        anything = Types.PICKLED_BYTE_ARRAY()
        states = [
            self.keyed_state.partitioned_state(MapStateDescriptor(name, Types.LONG(), anything)) for name in BUFFERS
        ]
        self._buffers = cast("list[MapState[int, list[Any]]]", states)
        super().open()

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        backend, watermark_ms = self.keyed_state, self.context.epoch.watermark_ms
        keys = keys_of(self.context.key_selectors[0], values)
        backend.prefetch(keys)
        results: list[Any] = []
        times: list[int] = []
        late: tuple[list[Any], list[Any]] = ([], [])
        # of a call that failed and was undone
        self._pair.sides.clear()
        for (side, value), timestamp_ms, key in zip(values, timestamps or repeat(MIN_TIMESTAMP_MS), keys, strict=False):
            if timestamp_ms <= MIN_TIMESTAMP_MS:
                raise self._no_timestamp(value)
            if timestamp_ms < watermark_ms:
                late[side].append((value, timestamp_ms))
                continue
            backend.current_key = key
            self._keep(side, value, timestamp_ms, key)
            for other_ms, others in self._matches(side, timestamp_ms):
                self._pair.left_ms, self._pair.right_ms = (other_ms, timestamp_ms) if side else (timestamp_ms, other_ms)
                for other in others:
                    self._join(*((other, value) if side else (value, other)), results)
                times.extend(repeat(self._pair.get_timestamp(), len(results) - len(times)))
        emit(results, times, self.output, self.converter)
        self._emit_late(late)

    def _keep(self, side: int, value: Any, timestamp_ms: int, key: Any) -> None:
        buffer = self._buffers[side]
        buffer.put(timestamp_ms, [*(buffer.get(timestamp_ms) or ()), value])
        forget_ms = timestamp_ms + self._kept_ms(side)
        self.keyed_state.timers(TIMERS).register(TimeDomain.EVENT_TIME, forget_ms, key, BUFFERS[side])

    def _kept_ms(self, side: int) -> int:
        """For how long a record of a stream is kept: until the watermark is behind the last one that can meet it."""
        return max(0, self._bounds[side][1]) + 1

    def _matches(self, side: int, timestamp_ms: int) -> Iterable[tuple[int, list[Any]]]:
        """(timestamp, records) of the other stream that meet one of this stream, in the order of time."""
        lower_ms, upper_ms = (timestamp_ms + bound for bound in self._bounds[side])
        items = self._buffers[1 - side].items()
        return sorted((item for item in items if lower_ms <= item[0] <= upper_ms), key=lambda item: item[0])

    def _join(self, left: Any, right: Any, results: list[Any]) -> None:
        found: Any = self.call(left, right, self._pair)
        if found:
            results.extend(found)
        if self._pair.sides:
            results.extend(side for side in self._pair.sides if self.output.has_side(side[0].tag_id))
            self._pair.sides.clear()

    def _emit_late(self, late: tuple[list[Any], list[Any]]) -> None:
        for tag_id, records in zip(self._late_tags, late, strict=True):
            if records and tag_id is None:
                self.late_records_dropped.inc(len(records))
            elif records and tag_id is not None:
                values, timestamps = zip(*records, strict=True)
                self.output.collect_side(tag_id, list(values), list(timestamps))

    def process_watermark(self, watermark_ms: int) -> None:
        backend = self.keyed_state
        due_ms, _ = backend.next_timer_ms()
        if due_ms is not None and due_ms <= watermark_ms:
            for timer_ms, key, namespace in backend.due(TIMERS, TimeDomain.EVENT_TIME, watermark_ms):
                backend.current_key = key
                side = BUFFERS.index(cast("str", namespace))
                self._buffers[side].remove(timer_ms - self._kept_ms(side))
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
    """``lower_ms`` and ``upper_ms``: how far (inclusive) a right record lies behind a left one. ``late_tag_ids``: where
    late records of the left and of the right stream go; None: they are dropped and counted."""

    function: ProcessJoinFunction | Callable[..., Any]
    lower_ms: int
    upper_ms: int
    late_tag_ids: tuple[str | None, str | None] = (None, None)
    converter: Converter | None = None
    keyed: bool = True

    def create(self) -> IntervalJoinOperator:
        return IntervalJoinOperator(self)
