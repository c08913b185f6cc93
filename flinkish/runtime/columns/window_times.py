"""The time of windows: which slices and windows there are in local time, and when they fire."""

from __future__ import annotations

import datetime
from math import gcd
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from flinkish.core.column_batch import epoch_ms
from flinkish.core.time import MAX_WATERMARK_MS
from flinkish.errors import ProgramError
from flinkish.runtime.columns.described import WindowAssigner
from flinkish.runtime.columns.expand import local_ms
from flinkish.runtime.columns.keys import Ints

_HOUR_MS = 3_600_000


class WindowTimes:
    """Time of the windows: local time, and what it means as a timer (Flink's ``TimeWindowUtil``)."""

    def __init__(self, window: WindowAssigner) -> None:
        self._column = window.time
        self._name = None if window.zone in (None, "UTC") else window.zone
        self._zone = None if self._name is None else ZoneInfo(self._name)

    def local_ms(self, columns: pa.RecordBatch, now_ms: int, where: str) -> Ints:
        """The local time of each row."""
        if self._column is None:
            moments = pa.array([now_ms], pa.int64())
            return np.repeat(self._local(moments), columns.num_rows)
        column = columns.column(self._column)
        if column.null_count:
            raise ProgramError(
                f"the event time {self._column!r} of a row is NULL",
                where=where,
                expected="a time in each row of a table with windows",
                hint=f"filter such rows out: WHERE {self._column} IS NOT NULL",
            )
        return self._local(column if pa.types.is_integer(column.type) else pa.array(epoch_ms(column)))

    def _local(self, moments: pa.Array) -> Ints:
        if self._name is None:
            return moments.to_numpy()  # type: ignore[no-any-return]
        return local_ms(moments.cast(pa.timestamp("ms", self._name)), self._name)

    def latest_ms(self, moment_ms: int) -> int:
        """A local time at least as late as all whose timers have fired at a moment."""
        if self._name is None or abs(moment_ms) >= MAX_WATERMARK_MS // 2:
            return moment_ms
        return int(self._local(pa.array([moment_ms], pa.int64()))[0]) + _HOUR_MS

    def timer_ms(self, local_ms: int) -> int:
        """The moment at which it is so late: of two in the hour that a zone has twice, the later one."""
        if self._zone is None or local_ms >= MAX_WATERMARK_MS:
            return local_ms
        first, later = self._moment(local_ms), self._moment(local_ms + _HOUR_MS)
        if first == later:
            # the zone leaves this hour out
            return first - first % _HOUR_MS
        return first + _HOUR_MS if later - first > _HOUR_MS else first

    def _moment(self, local_ms: int) -> int:
        seconds, ms = divmod(local_ms, 1_000)
        local = datetime.datetime(1970, 1, 1, tzinfo=self._zone) + datetime.timedelta(seconds=seconds)
        return int(local.timestamp()) * 1_000 + ms


class Slices:
    """Which slices and windows there are, in local time."""

    def __init__(self, window: WindowAssigner) -> None:
        self._kind, self._size, self._offset = window.kind, window.size_ms, window.offset_ms
        self._step = window.step_ms or window.size_ms
        self.width = gcd(self._size, self._step)
        self.single = self.width == self._size and self._step == self._size
        #: whether the slices of a window are merged from the last to the first one
        self.backwards = window.kind == "HOP"

    def start(self, local: int) -> int:
        """The start of the slice of a time."""
        return local - (local - self._offset) % self.width

    def starts(self, local: Ints) -> Ints:
        """The start of the slice of each time."""
        return local - (local - self._offset) % self.width

    def windows(self, start: int) -> list[tuple[int, int]]:
        """The windows of a slice, in the order of their ends; of a time between hopping windows there are none."""
        if self._kind == "CUMULATE":
            first = start - (start - self._offset) % self._size
            ends = range(first + self._step, first + self._size + 1, self._step)
            return [(first, end) for end in ends if end >= start + self.width]
        last = start - (start - self._offset) % self._step
        starts = range(last, start + self.width - self._size - 1, -self._step)
        return [(one, one + self._size) for one in reversed(starts)]

    def of_window(self, window: tuple[int, int]) -> range:
        """The starts of the slices of a window."""
        return range(window[0], window[1], self.width)
