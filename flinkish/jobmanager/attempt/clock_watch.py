"""Detects that the machine's clock was set back, by comparing it with the monotonic clock, which cannot be set.

Rule: a job never waits for a time of the clock that it has seen before. Spark waits for the time of the next epoch by
the machine's clock: if that is set back by an hour, the job would be silent for an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from flinkish.runtime.clock import Clock, SystemClock

#: Clocks are corrected all the time; a step back by less than this, in milliseconds, is no jump.
TOLERATED_MS = 1_000


def _elapsed_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ClockWatch:
    """Finds out by how much the machine's clock was set back.

    Args:
        clock: the clock that may be set; by default the machine's.
        elapsed_ms: returns the milliseconds since some fixed moment; never goes back.
    """

    def __init__(self, clock: Clock | None = None, elapsed_ms: Callable[[], int] = _elapsed_ms) -> None:
        self._clock = clock or SystemClock()
        self._elapsed_ms = elapsed_ms
        self._offset_ms = self._now_ms()

    def set_back_ms(self) -> int:
        """How many milliseconds the clock is behind its most advanced setting since the last jump that was reported; 0
        if less than `TOLERATED_MS`."""
        now_ms = self._now_ms()
        if now_ms > self._offset_ms - TOLERATED_MS:
            # small steps back add up to a jump; after a step forward, steps back are measured from the new setting
            self._offset_ms = max(self._offset_ms, now_ms)
            return 0
        back_ms, self._offset_ms = self._offset_ms - now_ms, now_ms
        return back_ms

    def _now_ms(self) -> int:
        return self._clock.now_ms() - self._elapsed_ms()
