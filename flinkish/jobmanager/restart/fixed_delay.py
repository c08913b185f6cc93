"""Fixed delay: a fixed number of restarts in the whole life of the driver, each after the same delay."""

from __future__ import annotations

from flinkish.errors import ConfigurationError, FlinkishError
from flinkish.jobmanager.restart.strategy import seconds


class FixedDelay:
    """Flink's FixedDelayRestartBackoffTimeStrategy: at most ``attempts`` restarts, each after ``delay_ms``.

    Raises:
        ConfigurationError: a negative number of restarts, or a negative delay.
    """

    def __init__(self, attempts: int, delay_ms: int) -> None:
        if attempts < 0 or delay_ms < 0:
            raise ConfigurationError(
                f"attempts {attempts}, delay {delay_ms} ms",
                where="restart-strategy.fixed-delay",
                expected="both at least 0",
            )
        self.limit: int | None = attempts
        self._attempts = attempts
        self._delay_ms = delay_ms
        self._failures = 0

    def delay_after(self, failure: FlinkishError) -> int | None:
        """The delay before the restart; None: there were ``attempts`` restarts already."""
        self._failures += 1
        return self._delay_ms if self._failures <= self._attempts else None

    def describe(self) -> str:
        """The strategy and its limits, as text for people."""
        return f"fixed-delay: {self._attempts} restarts, {seconds(self._delay_ms)} apart"
