"""Wall-clock time as a parameter, so that tests need not wait."""

from __future__ import annotations

import time
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
