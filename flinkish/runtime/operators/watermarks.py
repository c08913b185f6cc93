"""Assigns timestamps and emits watermarks (Flink's TimestampsAndWatermarksOperator), deterministically: those of the
kind "bounded out-of-orderness", and those of the program's own generators.

Flink emits the generator's watermark every 200 ms of wall time. Here it depends on the records alone, so that a replay
and a backfill give the same results as the live stream. A watermark is emitted

* before a record that is late by it: lateness is exact, whatever the size of batches and epochs. In jobs with windows
  that merge, also before a record right ahead of it: that would still merge with a window that the watermark ends;
* whenever it enters the next ``interval_ms`` of event time, in jobs whose user code can see single watermarks;
* at the end of each batch. In wide jobs whose user code cannot see single watermarks, this waits until so many records
  have come since the last one that each receiver can have some of them, or until the end of the split or epoch.

The functions behind the operator in its chain see the first two kinds only. The third kind depends on how records are
cut into batches and epochs: it is for the tasks behind the chain.

There is one generator per source split (in a source task) or per subtask. It goes on from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from flinkish.common.arguments import check_made
from flinkish.common.watermark_strategy import (
    AssignersOfProgram,
    WatermarkContext,
    WatermarkGenerator,
    WatermarkOutput,
)
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import ProgramError, TypeMismatchError
from flinkish.runtime.job.operator import OperatorFactoryBase, StreamOperator

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Event times in ms.
Times: TypeAlias = "npt.NDArray[np.int64]"

#: (value, previous timestamp) -> timestamp, both in ms
ExtractTimestamp = Callable[[Any, int], int]


@dataclass(frozen=True)
class WatermarkAlignment:
    """Watermark alignment: a source whose watermark is more than ``max_drift_ms`` ahead of the lowest one of its
    ``group`` is held back (runtime/sources/alignment.py)."""

    group: str
    max_drift_ms: int


class TimestampsAndWatermarksOperator(StreamOperator):
    """Assigns timestamps and emits watermarks of the kind "bounded out-of-orderness", deterministically.

    Args:
        extract_timestamp: the timestamp assigner, or what makes it; None: records keep their timestamps.
        out_of_orderness_ms: how far a record may be behind the greatest timestamp without being late; None: there are
            no watermarks.
        interval_ms: a watermark is emitted whenever it enters the next multiple of this; None or 0: it is not.
        before_next: a watermark is also emitted before a record that is one millisecond ahead of it.
        every_records: a watermark is emitted at the end of a batch only if so many records have come since the last
            such one.
    """

    keeps_positions = True

    def __init__(
        self,
        extract_timestamp: ExtractTimestamp | AssignersOfProgram | None,
        out_of_orderness_ms: int | None,
        interval_ms: int | None,
        before_next: bool = False,
        every_records: int = 0,
    ) -> None:
        self._made_by = extract_timestamp if isinstance(extract_timestamp, AssignersOfProgram) else None
        self._extract = None if isinstance(extract_timestamp, AssignersOfProgram) else extract_timestamp
        self._every_records = every_records
        #: the number of records since the last watermark at the end of a batch
        self._records = 0
        self._before_next = before_next
        self._delay_ms = None if out_of_orderness_ms is None else out_of_orderness_ms + 1
        self._interval_ms = interval_ms
        #: the generators of the other splits: the greatest timestamp, and the last watermark that functions have seen
        self._by_split: dict[str, tuple[int, int]] = {}
        self._split = ""
        self._max_ms = MIN_TIMESTAMP_MS
        #: the last watermark that functions of the chain have seen, and the last one at all
        self._emitted_ms = self._sent_ms = MIN_TIMESTAMP_MS

    def open(self) -> None:
        """Make the program's own timestamp assigner, if the strategy makes one per subtask."""
        if self._made_by is not None:
            self._extract = self._made_by.extractor(WatermarkContext(self.context.metrics))

    def begin_epoch(self) -> None:
        """Forget the source splits of the last epoch: what is known of those that go on is restored."""
        self._by_split = {}
        self._split = ""

    def begin_split(self, split: str, seen_ms: int) -> None:
        """Change to the generator of this split."""
        self._by_split[self._split] = self._max_ms, self._emitted_ms
        self._split = split
        self._max_ms, emitted_ms = self._by_split.get(split, (MIN_TIMESTAMP_MS, MIN_TIMESTAMP_MS))
        self._emitted_ms = self._sent_ms = max(emitted_ms, seen_ms)

    def save_split(self, split: str) -> Any:
        """The greatest timestamp of the split so far."""
        max_ms = self._max_ms if split == self._split else self._by_split[split][0]
        return None if max_ms == MIN_TIMESTAMP_MS else max_ms

    def restore_split(self, split: str, saved: Any, seen_ms: int) -> None:
        """Set the state of the split's generator."""
        self._by_split[split] = saved, seen_ms

    def watermarks_of_splits(self) -> dict[str, int]:
        """The watermark that each split has reached in the running epoch, as far as it has one."""
        if self._delay_ms is None:
            return {}
        highest = {**{split: made[0] for split, made in self._by_split.items()}, self._split: self._max_ms}
        return {split: max_ms - self._delay_ms for split, max_ms in highest.items() if max_ms != MIN_TIMESTAMP_MS}

    def save(self) -> Any:
        """The state of the subtask's generator: the greatest timestamp so far, and the last watermark that functions
        have seen."""
        return None if self._max_ms == MIN_TIMESTAMP_MS else (self._max_ms, self._emitted_ms)

    def restore(self, saved: Any) -> None:
        """Set the state of the subtask's generator. Earlier versions have stored the greatest timestamp alone."""
        if isinstance(saved, int):
            self._max_ms = saved
            saved = saved, self._watermark()
        self._max_ms, self._emitted_ms = (MIN_TIMESTAMP_MS, MIN_TIMESTAMP_MS) if saved is None else saved
        self._sent_ms = self._emitted_ms

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        """Assign timestamps, and emit the records with the watermarks between them."""
        assigned = self._assign(values, timestamps)
        if self._delay_ms is None or assigned is None:
            self.output.collect(values, assigned)
            return
        times_ms = self._as_times(assigned)
        self._emit_between(values, assigned, times_ms, times_ms)

    def _emit_between(self, values: Any, timestamps: list[int] | None, times_ms: Times, marks_ms: Times) -> None:
        """Emit records, of which these are the event times, with the watermarks between them. ``marks_ms``: the
        greatest so far, less the out-of-orderness, is the watermark."""
        start = 0
        for end, max_ms in self._stretches(times_ms, marks_ms):
            self._max_ms = max_ms
            if end > start:
                self.output.collect(values[start:end], None if timestamps is None else timestamps[start:end])
            if end < len(values):
                self._emit_watermark()
            start = end
        if self._interval_ms and self._emitted_ms // self._interval_ms != self._watermark() // self._interval_ms:
            # the last record has entered the next interval
            self._emit_watermark()
        self._records += len(values)
        if self._records >= self._every_records:
            self._catch_up()
            self._records = 0

    def end_split(self) -> None:
        """At the end of a split, emit its watermark."""
        self._catch_up()

    def split_ended(self) -> None:
        """Emit the watermark of all records of the split: what the next one has may be late by it."""
        self._emit_watermark()

    def snapshot_state(self) -> None:
        """At the end of the epoch, emit the watermark."""
        self._catch_up()

    def _assign(self, values: list[Any], timestamps: list[int] | None) -> list[int] | None:
        extract = self._extract
        if extract is None:
            return timestamps
        previous = timestamps if timestamps is not None else [MIN_TIMESTAMP_MS] * len(values)
        arriving = iter(values)
        assigned = list(map(extract, arriving, previous))
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

    def _as_times(self, timestamps: list[int]) -> Times:
        import numpy as np

        try:
            return np.array(timestamps, np.int64)
        except OverflowError:
            raise self._out_of_range(timestamps) from None

    def _stretches(self, times_ms: Times, marks_ms: Times) -> list[tuple[int, int]]:
        """The stretches of a batch between which watermarks are emitted, as (end of the stretch, greatest mark up to
        there). The first stretch is empty if an earlier watermark must still be emitted before the first record."""
        import numpy as np

        highest_ms = np.maximum.accumulate(np.concatenate(([self._max_ms], marks_ms)))
        delay_ms = min(self._delay_ms or 0, MAX_WATERMARK_MS)
        # the watermark before each record, and behind the last one
        watermarks_ms = np.maximum(highest_ms, MIN_TIMESTAMP_MS + delay_ms) - delay_ms
        behind = np.flatnonzero(times_ms <= watermarks_ms[:-1] + int(self._before_next))
        # one watermark before all records that are late by it
        emitted_ms = np.concatenate(([self._emitted_ms], watermarks_ms[behind]))
        ends = {len(times_ms), *behind[emitted_ms[1:] > emitted_ms[:-1]].tolist()}
        if self._interval_ms:
            # what functions have seen of earlier splits of the stream may be ahead of this one
            slots = np.maximum(watermarks_ms[:-1], self._emitted_ms) // self._interval_ms
            ends.update((np.flatnonzero(slots[1:] != slots[:-1]) + 1).tolist())
        found = sorted(ends)
        return list(zip(found, highest_ms[found].tolist()))

    def _watermark(self) -> int:
        return MIN_TIMESTAMP_MS if self._delay_ms is None else max(self._max_ms - self._delay_ms, MIN_TIMESTAMP_MS)

    def _emit_watermark(self) -> None:
        """Emit the watermark where the records alone decide on that."""
        watermark_ms = self._watermark()
        if watermark_ms > self._emitted_ms:
            self._emitted_ms = self._sent_ms = watermark_ms
            self.output.emit_watermark(watermark_ms)

    def _catch_up(self) -> None:
        """Emit the watermark at the end of a batch, a split or an epoch."""
        watermark_ms = self._watermark()
        if watermark_ms > self._sent_ms:
            self._sent_ms = watermark_ms
            self.output.emit_interim_watermark(watermark_ms)

    def process_watermark(self, watermark_ms: int) -> None:
        """Drop watermarks from upstream, which are replaced by this operator's own, except the last one (Flink does the
        same)."""
        if watermark_ms == MAX_WATERMARK_MS:
            self._emitted_ms = self._sent_ms = watermark_ms
            self.output.emit_watermark(watermark_ms)

    def process_status(self, idle: bool) -> None:
        """Drop the idleness of upstream, too, as Flink does: whether this stream is idle is what its own watermark
        strategy says."""


@dataclass(frozen=True)
class TimestampsAndWatermarksFactory(OperatorFactoryBase):
    """Makes the operator of a WatermarkStrategy.

    ``out_of_orderness_ms``, ``interval_ms``, ``before_next`` and ``every_records`` are as for
    `TimestampsAndWatermarksOperator`. ``idle_timeout_ms`` None: there is no idleness detection.
    """

    extract_timestamp: ExtractTimestamp | AssignersOfProgram | None
    out_of_orderness_ms: int | None
    idle_timeout_ms: int | None = None
    interval_ms: int | None = None
    before_next: bool = False
    every_records: int = 0
    #: the watermark alignment of the source; None: it is not aligned with others
    alignment: WatermarkAlignment | None = None
    #: makes the program's own generator of each split; takes precedence over ``out_of_orderness_ms``
    make_generator: Callable[[WatermarkContext], WatermarkGenerator] | None = None
    forwards_records: bool = True

    @property
    def makes_watermarks(self) -> bool:
        """Whether the operator emits watermarks other than the last one, at the end of the input."""
        return self.out_of_orderness_ms is not None or self.make_generator is not None

    @property
    def reads_timestamps(self) -> bool:  # type: ignore[override]
        """Timestamp assigners are given the former timestamps."""
        return self.extract_timestamp is not None or self.makes_watermarks

    @property
    def uses_processing_time(self) -> bool:  # type: ignore[override]
        """Idleness is measured in processing time, so epochs must go on without data."""
        return self.idle_timeout_ms is not None

    def create(self) -> TimestampsAndWatermarksOperator:
        """A fresh operator."""
        if self.make_generator is not None:
            # imported here, since that module imports this one

            return GeneratedWatermarksOperator(
                self.extract_timestamp, self.make_generator, self.interval_ms, self.before_next
            )
        return TimestampsAndWatermarksOperator(
            self.extract_timestamp, self.out_of_orderness_ms, self.interval_ms, self.before_next, self.every_records
        )


class _Emitted(WatermarkOutput):
    """Receives what a generator emits: its highest watermark so far, and whether it says that its split is idle.
    ``used``: whether the generator has seen a record."""

    def __init__(self, watermark_ms: int | None = None) -> None:
        self.watermark_ms = MIN_TIMESTAMP_MS if watermark_ms is None else watermark_ms
        self.used = watermark_ms is not None
        self.idle = False

    def emit_watermark(self, timestamp: int) -> None:
        if timestamp.__class__ is not int or not MIN_TIMESTAMP_MS <= timestamp <= MAX_WATERMARK_MS:
            raise TypeMismatchError(
                f"a watermark generator emitted {timestamp!r}", expected="an int: milliseconds since the epoch"
            )
        # MAX is the end of the input, which a generator does not know
        self.watermark_ms = max(self.watermark_ms, min(timestamp, MAX_WATERMARK_MS - 1))
        self.idle = False

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False


class GeneratedWatermarksOperator(TimestampsAndWatermarksOperator):
    """Assigns timestamps and emits the watermarks of the program's own generators (Java Flink's `WatermarkGenerator`),
    deterministically.

    A generator is called after each record (``on_event`` and ``on_periodic_emit``), so what it does depends on the
    records of its split alone. Its watermark is emitted when other watermarks are: before a record that is late by it,
    at the end of each batch, and, in jobs whose user code can see single watermarks, when it enters the next
    ``interval_ms``. In such jobs a watermark that ``on_event`` emits follows right behind its record.

    Args:
        make_generator: makes the generator of each split, given the context of the operator.
        interval_ms: see `TimestampsAndWatermarksOperator`, as for the other arguments.
    """

    def __init__(
        self,
        extract_timestamp: ExtractTimestamp | AssignersOfProgram | None,
        make_generator: Callable[[WatermarkContext], WatermarkGenerator],
        interval_ms: int | None,
        before_next: bool,
    ) -> None:
        super().__init__(extract_timestamp, None, interval_ms, before_next)
        self._make = make_generator
        #: the generators of the other splits, and the last watermark of each that functions have seen
        self._by_generator: dict[str, tuple[WatermarkGenerator, _Emitted, int]] = {}
        #: made by `open`
        self._generator: WatermarkGenerator
        self._emitted = _Emitted()
        #: the status of the split that was emitted last, whether it is idle; None: none was emitted yet
        self._told_idle: bool | None = None

    def _new(self) -> tuple[WatermarkGenerator, _Emitted]:
        generator = self._make(WatermarkContext(self.context.metrics))
        check_made(generator, WatermarkGenerator, self._make, "create_watermark_generator()")
        return generator, _Emitted()

    def open(self) -> None:
        super().open()
        self._generator, self._emitted = self._new()

    def begin_epoch(self) -> None:
        super().begin_epoch()
        self._by_generator = {}

    def begin_split(self, split: str, seen_ms: int) -> None:
        self._by_generator[self._split] = self._generator, self._emitted, self._emitted_ms
        self._split = split
        known = self._by_generator.get(split)
        self._generator, self._emitted, emitted_ms = known or (*self._new(), MIN_TIMESTAMP_MS)
        self._emitted_ms = self._sent_ms = max(emitted_ms, seen_ms)
        self._told_idle = None

    def save_split(self, split: str) -> Any:
        current = self._generator, self._emitted, self._emitted_ms
        generator, emitted, _ = current if split == self._split else self._by_generator[split]
        return (generator, emitted.watermark_ms) if emitted.used else None

    def restore_split(self, split: str, saved: Any, seen_ms: int) -> None:
        generator, watermark_ms = saved
        if generator is None:
            generator, _ = self._new()
        self._by_generator[split] = generator, _Emitted(watermark_ms), seen_ms

    def watermarks_of_splits(self) -> dict[str, int]:
        current = {**{split: made[1] for split, made in self._by_generator.items()}, self._split: self._emitted}
        return {
            split: emitted.watermark_ms
            for split, emitted in current.items()
            if emitted.watermark_ms != MIN_TIMESTAMP_MS
        }

    def save(self) -> Any:
        return (self._generator, self._emitted.watermark_ms, self._emitted_ms) if self._emitted.used else None

    def restore(self, saved: Any) -> None:
        if saved is None:
            self._generator, self._emitted = self._new()
            self._emitted_ms = MIN_TIMESTAMP_MS
        else:
            # earlier versions have not stored what functions have seen
            self._generator, watermark_ms, *seen = saved
            self._emitted, self._emitted_ms = _Emitted(watermark_ms), seen[0] if seen else watermark_ms
        self._sent_ms, self._told_idle = self._emitted_ms, None

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        assigned = self._assign(values, timestamps)
        stamps = [MIN_TIMESTAMP_MS] * len(values) if assigned is None else assigned
        self._emitted.used = True
        start, pending_ms = 0, self._emitted.watermark_ms
        arriving = iter(values)
        for position, (value, timestamp) in enumerate(zip(arriving, stamps, strict=True)):
            if self._must_emit_before(timestamp, pending_ms):
                self._hand_on(values, assigned, start, position)
                start = position
                self._emit(pending_ms)
            if self._told_idle is not False:
                # the receivers may know it as idle from an earlier epoch
                self._tell_idle(False)
            before_ms = self._emitted.watermark_ms
            self._generator.on_event(value, timestamp, self._emitted)
            punctuated = self._emitted.watermark_ms > before_ms
            self._generator.on_periodic_emit(self._emitted)
            entered = self._enters_interval(pending_ms, self._emitted.watermark_ms)
            pending_ms = self._emitted.watermark_ms
            if self._emitted.idle or self._interval_ms and (punctuated or entered):
                self._hand_on(values, assigned, start, position + 1)
                start = position + 1
                self._end_of_stretch()
        self._hand_on(values, assigned, start, len(values))
        self._catch_up()

    def _must_emit_before(self, timestamp: int, pending_ms: int) -> bool:
        """Whether a watermark must be emitted before a record: with it the record is late, or could merge with a window
        that the watermark ends."""
        return pending_ms > self._emitted_ms and timestamp <= pending_ms + (1 if self._before_next else 0)

    def _enters_interval(self, before_ms: int, after_ms: int) -> bool:
        interval_ms = self._interval_ms
        return bool(interval_ms) and before_ms // (interval_ms or 1) != after_ms // (interval_ms or 1)

    def _hand_on(self, values: list[Any], timestamps: list[int] | None, start: int, end: int) -> None:
        if start < end:
            self.output.collect(values[start:end], None if timestamps is None else timestamps[start:end])

    def _emit(self, watermark_ms: int) -> None:
        if watermark_ms > self._emitted_ms:
            self._emitted_ms = self._sent_ms = watermark_ms
            self.output.emit_watermark(watermark_ms)

    def _watermark(self) -> int:
        return self._emitted.watermark_ms

    def _end_of_stretch(self) -> None:
        """Emit the generator's watermark and status, as far as they have changed."""
        self._emit(self._emitted.watermark_ms)
        if self._emitted.idle != self._told_idle:
            self._tell_idle(self._emitted.idle)

    def _tell_idle(self, idle: bool) -> None:
        self._emitted.idle = self._told_idle = idle
        self.output.emit_status(idle)
