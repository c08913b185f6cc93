"""Wall-clock time as a parameter, so that tests need not wait, and whether the machine's clock was set back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A source of the current time, in milliseconds since 1970-01-01T00:00:00Z."""

    def now_ms(self) -> int:
        """The current time."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """The current time."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that only moves when it is told to.

    >>> clock = ManualClock(5); clock.advance(10); clock.now_ms()
    15
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The current time."""
        return self._now_ms

    def advance(self, by_ms: int) -> None:
        """Move the clock forward."""
        self._now_ms += by_ms

    def set(self, now_ms: int) -> None:
        """Set the clock to this time."""
        self._now_ms = now_ms


#: Clocks are corrected all the time; a step back by less than this, in milliseconds, is no jump.
TOLERATED_MS = 1_000


def _elapsed_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ClockWatch:
    """Finds out by how much the machine's clock was set back, by comparing it with the monotonic clock, which cannot be
    set.

    A job never waits for a time of the clock that it has seen before. Spark waits for the time of the next epoch by the
    machine's clock: if that is set back by an hour, the job would be silent for an hour.

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
