"""What decides whether a job that has failed is started again."""

from __future__ import annotations

from typing import Protocol

from flinkish.errors import FlinkishError


class RestartStrategy(Protocol):
    """Flink's RestartBackoffTimeStrategy. It is asked about failures that may pass only (`decision.Restarts`)."""

    def delay_after(self, failure: FlinkishError) -> int | None:
        """Milliseconds until the restart; None: the job has failed for good. Called once per failure."""

    @property
    def limit(self) -> int | None:
        """How many restarts there can be at most; None: they are not counted."""

    def describe(self) -> str:
        """The strategy and its limits, for people."""


class NoRestart:
    """Each failure is final."""

    limit: int | None = 0

    def delay_after(self, failure: FlinkishError) -> int | None:
        """None."""
        return None

    def describe(self) -> str:
        """The strategy, for people."""
        return "none"
