"""The contract of restart strategies, the strategy that never restarts, and durations as text for people."""

from __future__ import annotations

from typing import Protocol

from flinkish.errors import FlinkishError


class RestartStrategy(Protocol):
    """Decides when a failed job is restarted (Flink's RestartBackoffTimeStrategy). It is only asked about failures that
    may go away by themselves (`decision.Restarts`)."""

    def delay_after(self, failure: FlinkishError) -> int | None:
        """Milliseconds until the restart; None: the job has failed for good. Called once per failure."""

    @property
    def limit(self) -> int | None:
        """The most restarts that the strategy allows; None: their number is not limited."""

    def describe(self) -> str:
        """The strategy and its limits, as text for people."""


class NoRestart:
    """The strategy that never restarts: each failure is final."""

    limit: int | None = 0

    def delay_after(self, failure: FlinkishError) -> int | None:
        """None: there is no restart."""
        return None

    def describe(self) -> str:
        """The strategy, as text for people."""
        return "none"


def seconds(duration_ms: int) -> str:
    """A duration in seconds, without trailing zeros.

    >>> seconds(1500), seconds(60_000), seconds(7)
    ('1.5 s', '60 s', '0.007 s')
    """
    return f"{duration_ms / 1000:.3f}".rstrip("0").rstrip(".") + " s"
