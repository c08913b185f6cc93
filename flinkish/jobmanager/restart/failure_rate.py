"""Failure rate: the job is restarted without limit, unless too many failures come within one interval."""

from __future__ import annotations

from collections import deque

from flinkish.errors import ConfigurationError, FlinkishError
from flinkish.jobmanager.restart.strategy import seconds
from flinkish.runtime.phases import Clock


class FailureRate:
    """Flink's FailureRateRestartBackoffTimeStrategy: with more than ``max_failures`` failures within an interval the
    job fails. Failures that are exactly ``interval_ms`` apart lie in one interval.

    Raises:
        ConfigurationError: a number of failures or an interval below 1, or a negative delay.
    """

    limit: int | None = None

    def __init__(self, clock: Clock, max_failures: int, interval_ms: int, delay_ms: int) -> None:
        if max_failures < 1 or interval_ms < 1 or delay_ms < 0:
            raise ConfigurationError(
                f"max-failures-per-interval {max_failures}, interval {interval_ms} ms, delay {delay_ms} ms",
                where="restart-strategy.failure-rate",
                expected="at least 1 failure, an interval of at least 1 ms, a delay of at least 0 ms",
            )
        self._clock = clock
        self._max_failures = max_failures
        self._interval_ms = interval_ms
        self._delay_ms = delay_ms
        #: times of the last failures, at most one more than an interval may have
        self._failures_ms: deque[int] = deque(maxlen=max_failures + 1)

    def delay_after(self, failure: FlinkishError) -> int | None:
        """The delay before the restart; None: there are too many failures in the interval that ends now."""
        now_ms = self._clock.now_ms()
        self._failures_ms.append(now_ms)
        too_many = len(self._failures_ms) > self._max_failures and now_ms - self._failures_ms[0] <= self._interval_ms
        return None if too_many else self._delay_ms

    def describe(self) -> str:
        """The strategy and its limits, as text for people."""
        return f"failure-rate: at most {self._max_failures} failures in {seconds(self._interval_ms)}"
