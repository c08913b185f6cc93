"""What decides whether a job that has failed is started again."""

from __future__ import annotations

from typing import Protocol

from flinkish.errors import FlinkishError


class RestartStrategy(Protocol):
    """Flink's RestartBackoffTimeStrategy."""

    def delay_after(self, failure: FlinkishError) -> int | None:
        """Milliseconds until the restart; None: the job has failed for good. Called once per failure."""


class NoRestart:
    """Each failure is final."""

    def delay_after(self, failure: FlinkishError) -> int | None:
        """None."""
        return None
