"""Emits the watermarks of the program's own generators (Java Flink's `WatermarkGenerator`).

A generator is called after each record (``on_event`` and ``on_periodic_emit``), so what it does depends on the records
of its split alone. Its watermark is emitted when other watermarks are: before a record that is late by it, at the end
of each batch, and, in jobs whose user code can see single watermarks, when it enters the next ``interval_ms``. In such
jobs a watermark that ``on_event`` emits follows right behind its record.

In a source task each split has a generator, elsewhere each subtask has one. It goes on from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.common.arguments import check_made
from flinkish.common.watermark_strategy import (
    AssignersOfProgram,
    WatermarkContext,
    WatermarkGenerator,
    WatermarkOutput,
)
from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import TypeMismatchError
from flinkish.runtime.operators.timestamps_and_watermarks import ExtractTimestamp, TimestampsAndWatermarksOperator


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
        self.watermark_ms = max(self.watermark_ms, timestamp)
        self.idle = False

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False


class GeneratedWatermarksOperator(TimestampsAndWatermarksOperator):
    """Assigns timestamps and emits the watermarks of the program's own generators, deterministically.

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
