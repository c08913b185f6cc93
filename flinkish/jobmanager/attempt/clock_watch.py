"""Notices that the machine's clock was set back, by one that cannot be set.

Rule: a job never waits for a time that it has seen before. Spark waits for the time of the next epoch by the machine's
clock: set back by an hour, it would be silent for an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from flinkish.runtime.clock import Clock, SystemClock

#: Clocks are corrected all the time; less than this is no jump.
TOLERATED_MS = 1_000


def _elapsed_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ClockWatch:
    """
    Args:
        clock: the one that may be set.
        elapsed_ms: milliseconds since some moment; never goes back.
    """

    def __init__(self, clock: Clock | None = None, elapsed_ms: Callable[[], int] = _elapsed_ms) -> None:
        self._clock = clock or SystemClock()
        self._elapsed_ms = elapsed_ms
        self._offset_ms = self._now_ms()

    def set_back_ms(self) -> int:
        """By how much the clock was set back since the last time that this was not 0; 0 if by a second at most."""
        now_ms = self._now_ms()
        if now_ms > self._offset_ms - TOLERATED_MS:
            # small steps back add up to a jump, but what it was set forward is its own time from now on
            self._offset_ms = max(self._offset_ms, now_ms)
            return 0
        back_ms, self._offset_ms = self._offset_ms - now_ms, now_ms
        return back_ms

    def _now_ms(self) -> int:
        return self._clock.now_ms() - self._elapsed_ms()
