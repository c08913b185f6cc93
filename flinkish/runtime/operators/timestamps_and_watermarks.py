"""Assigns timestamps and makes watermarks (Flink's TimestampsAndWatermarksOperator), deterministically.

Flink emits the generator's watermark every 200 ms of wall time. Here it depends on the records alone, so that a replay
and a backfill give what the live stream gave. A watermark is emitted

* before a record that lies behind it: lateness is exact, whatever the size of batches and epochs. In jobs with windows
  that merge also before a record right ahead of it: it would still merge with a window that the watermark ends;
* whenever it enters the next ``interval_ms`` of event time, in jobs whose user code can see single watermarks;
* at the end of each batch.

Generators are per source split (in a source task) or per subtask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from flinkish.common.watermark_strategy import WatermarkGenerator
from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import ProgramError
from flinkish.runtime.operator import OperatorFactoryBase, StreamOperator

#: (value, previous timestamp) -> timestamp, both in ms
ExtractTimestamp = Callable[[Any, int], int]


@dataclass(frozen=True)
class WatermarkAlignment:
    """Sources of one ``group`` whose watermarks stay within ``max_drift_ms`` (runtime/sources/alignment.py)."""

    group: str
    max_drift_ms: int


class TimestampsAndWatermarksOperator(StreamOperator):
    """``out_of_orderness_ms`` None: timestamps only, no watermarks. ``before_next``: also before a record that is one
    millisecond ahead of it."""

    def __init__(
        self,
        extract_timestamp: ExtractTimestamp | None,
        out_of_orderness_ms: int | None,
        interval_ms: int | None,
        before_next: bool = False,
    ) -> None:
        self._extract = extract_timestamp
        self._before_next = before_next
        self._delay_ms = None if out_of_orderness_ms is None else out_of_orderness_ms + 1
        self._interval_ms = interval_ms
        self._max_by_split: dict[str, int] = {}
        self._split = ""
        self._max_ms = MIN_TIMESTAMP_MS
        self._emitted_ms = MIN_TIMESTAMP_MS

    def begin_epoch(self) -> None:
        """Generators of source splits start afresh in each epoch; receivers remember their watermarks."""
        self._max_by_split = {}
        self._split = ""

    def begin_split(self, split: str) -> None:
        """Change to the generator of that split."""
        self._max_by_split[self._split] = self._max_ms
        self._split = split
        self._max_ms = self._max_by_split.get(split, MIN_TIMESTAMP_MS)
        self._emitted_ms = self._watermark()

    def watermarks_of_splits(self) -> dict[str, int]:
        """The watermark that each split has reached in the running epoch, as far as it has one."""
        if self._delay_ms is None:
            return {}
        highest = {**self._max_by_split, self._split: self._max_ms}
        return {split: max_ms - self._delay_ms for split, max_ms in highest.items() if max_ms != MIN_TIMESTAMP_MS}

    def save(self) -> Any:
        """The generator of the subtask."""
        return None if self._max_ms == MIN_TIMESTAMP_MS else self._max_ms

    def restore(self, saved: Any) -> None:
        """Go on with the generator of the subtask."""
        self._max_ms = MIN_TIMESTAMP_MS if saved is None else saved
        self._emitted_ms = self._watermark()

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Assign, and emit the records with the watermarks between them."""
        assigned = self._assign(values, timestamps)
        if self._delay_ms is None or assigned is None:
            self.output.collect(values, assigned)
            return
        start = 0
        for end in self._cuts(assigned):
            self._emit_records(values, assigned, start, end)
            start = end
        self._emit_records(values, assigned, start, len(values))
        self._emit_watermark()

    def _assign(self, values: list[Any], timestamps: list[int] | None) -> list[int] | None:
        extract = self._extract
        if extract is None:
            return timestamps
        previous = timestamps if timestamps is not None else [MIN_TIMESTAMP_MS] * len(values)
        assigned = list(map(extract, values, previous))
        if len(assigned) != len(values):
            raise ProgramError(
                "the timestamp assigner raised StopIteration",
                where=f"operator '{self.context.name}' (uid {self.context.uid})",
                expected="an int: milliseconds since the epoch",
            )
        if not set(map(type, assigned)) <= {int}:
            assigned = [self._as_int(timestamp, value) for timestamp, value in zip(assigned, values)]
        return assigned

    def _as_int(self, timestamp: Any, value: Any) -> int:
        try:
            if timestamp == int(timestamp):
                return int(timestamp)
        except (TypeError, ValueError):
            pass
        raise ProgramError(
            f"the timestamp assigner returned {timestamp!r} for {value!r:.200}",
            where=f"operator '{self.context.name}' (uid {self.context.uid})",
            expected="an int: milliseconds since the epoch",
        )

    def _cuts(self, timestamps: list[int]) -> list[int]:
        """Positions before which a watermark must be emitted."""
        delay = self._delay_ms or 0
        highest = list(accumulate(timestamps, max, initial=self._max_ms))
        ahead_ms = 1 if self._before_next else 0
        behind = [i for i, timestamp in enumerate(timestamps) if timestamp <= highest[i] - delay + ahead_ms]
        if not behind and self._interval_ms is None:
            return []
        cuts = set()
        emitted = self._emitted_ms
        for position in behind:
            if highest[position] - delay > emitted:
                emitted = highest[position] - delay
                cuts.add(position)
        if self._interval_ms:
            cuts.update(self._interval_cuts(highest, delay, self._interval_ms))
        return sorted(cuts)

    @staticmethod
    def _interval_cuts(highest: list[int], delay: int, interval_ms: int) -> list[int]:
        slots = [(value - delay) // interval_ms for value in highest]
        return [i for i in range(1, len(slots) - 1) if slots[i] != slots[i - 1] and highest[i] != MIN_TIMESTAMP_MS]

    def _emit_records(self, values: list[Any], timestamps: list[int], start: int, end: int) -> None:
        """Records of one stretch, after the watermark that holds before them."""
        if start >= end:
            return
        if start > 0:
            self._emit_watermark()
            values, timestamps = values[start:end], timestamps[start:end]
        elif end < len(values):
            values, timestamps = values[:end], timestamps[:end]
        self._max_ms = max(self._max_ms, max(timestamps))
        self.output.collect(values, timestamps)

    def _watermark(self) -> int:
        if self._max_ms == MIN_TIMESTAMP_MS or self._delay_ms is None:
            return MIN_TIMESTAMP_MS
        return self._max_ms - self._delay_ms

    def _emit_watermark(self) -> None:
        watermark_ms = self._watermark()
        if watermark_ms > self._emitted_ms:
            self._emitted_ms = watermark_ms
            self.output.emit_watermark(watermark_ms)

    def process_watermark(self, watermark_ms: int) -> None:
        """Watermarks from before are replaced, but for the last one (Flink does the same)."""
        if watermark_ms == MAX_WATERMARK_MS:
            self.output.emit_watermark(watermark_ms)


@dataclass(frozen=True)
class TimestampsAndWatermarksFactory(OperatorFactoryBase):
    """From a WatermarkStrategy. ``interval_ms`` None: no stamps at event-time intervals. ``before_next``: as the
    operator's."""

    extract_timestamp: ExtractTimestamp | None
    out_of_orderness_ms: int | None
    idle_timeout_ms: int | None = None
    interval_ms: int | None = None
    before_next: bool = False
    #: of the source whose watermarks these are; None: it is not aligned with others
    alignment: WatermarkAlignment | None = None
    #: makes the program's own generator of each split; goes before ``out_of_orderness_ms``
    make_generator: Callable[[], WatermarkGenerator] | None = None

    @property
    def makes_watermarks(self) -> bool:
        """Whether there are watermarks before the last one."""
        return self.out_of_orderness_ms is not None or self.make_generator is not None

    @property
    def uses_processing_time(self) -> bool:  # type: ignore[override]
        """Idleness is measured in processing time, so epochs must go on without data."""
        return self.idle_timeout_ms is not None

    def create(self) -> TimestampsAndWatermarksOperator:
        """A fresh operator."""
        if self.make_generator is not None:
            # it is built upon this module
            from flinkish.runtime.operators.generated_watermarks import GeneratedWatermarksOperator

            return GeneratedWatermarksOperator(
                self.extract_timestamp, self.make_generator, self.interval_ms, self.before_next
            )
        return TimestampsAndWatermarksOperator(
            self.extract_timestamp, self.out_of_orderness_ms, self.interval_ms, self.before_next
        )
