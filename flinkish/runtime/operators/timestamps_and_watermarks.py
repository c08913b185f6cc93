"""Assigns timestamps and makes watermarks (Flink's TimestampsAndWatermarksOperator), deterministically.

Flink emits the generator's watermark every 200 ms of wall time. Here it depends on the records alone, so that a replay
and a backfill give what the live stream gave. A watermark is emitted

* before a record that lies behind it: lateness is exact, whatever the size of batches and epochs. In jobs with windows
  that merge also before a record right ahead of it: it would still merge with a window that the watermark ends;
* whenever it enters the next ``interval_ms`` of event time, in jobs whose user code can see single watermarks;
* at the end of each batch; in wide jobs whose user code cannot see single watermarks only when so many records have
  come since the last one that each receiver can have some of them, and at the end of a split or epoch.

Generators are per source split (in a source task) or per subtask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    millisecond ahead of it. ``every_records``: at the end of a batch only if so many have come since."""

    def __init__(
        self,
        extract_timestamp: ExtractTimestamp | None,
        out_of_orderness_ms: int | None,
        interval_ms: int | None,
        before_next: bool = False,
        every_records: int = 0,
    ) -> None:
        self._extract = extract_timestamp
        self._every_records = every_records
        #: since the last watermark at the end of a batch
        self._records = 0
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
        for end, max_ms in self._stretches(assigned):
            self._max_ms = max_ms
            if end > start:
                self.output.collect(values[start:end], assigned[start:end])
            if end < len(values):
                self._emit_watermark()
            start = end
        self._records += len(values)
        if self._records >= self._every_records:
            self._emit_watermark()
            self._records = 0

    def end_split(self) -> None:
        """What comes next is of another split."""
        self._emit_watermark()

    def snapshot_state(self) -> None:
        """The end of the epoch."""
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

    def _out_of_range(self, timestamps: list[int]) -> ProgramError:
        wrong = next(time_ms for time_ms in timestamps if not MIN_TIMESTAMP_MS <= time_ms <= MAX_WATERMARK_MS)
        return ProgramError(
            f"a record has the timestamp {wrong}",
            where=f"operator '{self.context.name}' (uid {self.context.uid})",
            expected="milliseconds since the epoch, as a number of 64 bits",
        )

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

    def _stretches(self, timestamps: list[int]) -> list[tuple[int, int]]:
        """The stretches of a batch between which watermarks are emitted: where each ends, and the highest timestamp
        up to there. The first one is empty where the watermark of before is still to be emitted."""
        import numpy as np

        try:
            times_ms = np.array([self._max_ms, *timestamps], np.int64)
        except OverflowError:
            raise self._out_of_range(timestamps) from None
        highest_ms = np.maximum.accumulate(times_ms)
        delay_ms = min(self._delay_ms or 0, MAX_WATERMARK_MS)
        # before each record, and behind the last one
        watermarks_ms = np.maximum(highest_ms, MIN_TIMESTAMP_MS + delay_ms) - delay_ms
        behind = np.flatnonzero(times_ms[1:] <= watermarks_ms[:-1] + int(self._before_next))
        # one watermark before all records that lie behind it
        emitted_ms = np.concatenate(([self._emitted_ms], watermarks_ms[behind]))
        ends = {len(timestamps), *behind[emitted_ms[1:] > emitted_ms[:-1]].tolist()}
        if self._interval_ms:
            slots = watermarks_ms[:-1] // self._interval_ms
            ends.update((np.flatnonzero(slots[1:] != slots[:-1]) + 1).tolist())
        found = sorted(ends)
        return list(zip(found, highest_ms[found].tolist()))

    def _watermark(self) -> int:
        return MIN_TIMESTAMP_MS if self._delay_ms is None else max(self._max_ms - self._delay_ms, MIN_TIMESTAMP_MS)

    def _emit_watermark(self) -> None:
        watermark_ms = self._watermark()
        if watermark_ms > self._emitted_ms:
            self._emitted_ms = watermark_ms
            self.output.emit_watermark(watermark_ms)

    def process_watermark(self, watermark_ms: int) -> None:
        """Watermarks from before are replaced, but for the last one (Flink does the same)."""
        if watermark_ms == MAX_WATERMARK_MS:
            self._emitted_ms = watermark_ms
            self.output.emit_watermark(watermark_ms)


@dataclass(frozen=True)
class TimestampsAndWatermarksFactory(OperatorFactoryBase):
    """From a WatermarkStrategy. ``interval_ms`` None: no stamps at event-time intervals. ``before_next``,
    ``every_records``: as the operator's."""

    extract_timestamp: ExtractTimestamp | None
    out_of_orderness_ms: int | None
    idle_timeout_ms: int | None = None
    interval_ms: int | None = None
    before_next: bool = False
    every_records: int = 0
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
            self.extract_timestamp, self.out_of_orderness_ms, self.interval_ms, self.before_next, self.every_records
        )
