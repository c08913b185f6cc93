"""The restart strategies, the one of them that a configuration asks for, and the decision whether a failed job is
restarted: first by the class of the failure, then by the strategy.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Protocol

from flinkish.common.configuration import Configuration
from flinkish.common.options import restart
from flinkish.errors import ConfigurationError, FlinkishError, escaped
from flinkish.jobmanager.job.settings import checkpoint_interval_ms
from flinkish.runtime.phases import Clock, ElapsedClock


class RestartStrategy(Protocol):
    """Decides when a failed job is restarted (Flink's RestartBackoffTimeStrategy). It is only asked about failures that
    may go away by themselves (`Restarts`)."""

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


class ExponentialDelay:
    """Flink's ExponentialDelayRestartBackoffTimeStrategy (since 1.19).

    The n-th restart waits ``initial * multiplier ** (n - 1)``, plus or minus a random part of at most ``jitter_factor``
    of it, but neither less than ``initial`` nor more than ``max``. When ``reset_threshold_ms`` have passed since the
    last restart, counting begins anew; with one failure more than ``attempts_before_reset`` before that, the job fails
    (None: without limit).

    Each restart waits longer than the one before, until the job has run well for a while.

    Raises:
        ConfigurationError: times below 1 ms, an initial backoff above the highest, a multiplier of 1 or less, a jitter
            factor that is not from 0 to 1, or less than 1 attempt.
    """

    #: the number of restarts is only limited until counting begins anew
    limit: int | None = None

    def __init__(
        self,
        clock: Clock,
        random: Random,
        *,
        initial_ms: int,
        max_ms: int,
        multiplier: float,
        reset_threshold_ms: int,
        jitter_factor: float,
        attempts_before_reset: int | None,
    ) -> None:
        self._clock = clock
        self._random = random
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._multiplier = multiplier
        self._reset_threshold_ms = reset_threshold_ms
        self._jitter_factor = jitter_factor
        self._allowed = attempts_before_reset
        self._check()
        self._restarts = 0
        #: time of the restart after the last failure, which may still be to come
        self._restarted_ms: int | None = None

    def _check(self) -> None:
        wrong = [
            text
            for right, text in (
                (1 <= self._initial_ms <= self._max_ms, "1 ms <= initial-backoff <= max-backoff"),
                (self._multiplier > 1, "backoff-multiplier > 1"),
                (self._reset_threshold_ms >= 1, "reset-backoff-threshold >= 1 ms"),
                (0 <= self._jitter_factor <= 1, "0 <= jitter-factor <= 1"),
                (self._allowed is None or self._allowed >= 1, "attempts-before-reset-backoff >= 1"),
            )
            if not right
        ]
        if wrong:
            raise ConfigurationError(
                "the settings do not fit together",
                where="restart-strategy.exponential-delay",
                expected=" and ".join(wrong),
            )

    def delay_after(self, failure: FlinkishError) -> int | None:
        """The delay before the restart; None: there were as many restarts as are allowed."""
        now_ms = self._clock.now_ms()
        if self._restarted_ms is None or now_ms - self._restarted_ms >= self._reset_threshold_ms:
            self._restarts = 0
        delay_ms = self._delay_ms()
        self._restarted_ms = now_ms + delay_ms
        self._restarts += 1
        return delay_ms if self._allowed is None or self._restarts <= self._allowed else None

    def _delay_ms(self) -> int:
        try:
            base_ms = int(self._initial_ms * self._multiplier**self._restarts)
        except OverflowError:
            return self._max_ms
        spread = int(base_ms * self._jitter_factor)
        jittered = base_ms + (self._random.randint(-spread, spread) if spread else 0)
        return max(self._initial_ms, min(jittered, self._max_ms))

    def describe(self) -> str:
        """The strategy and its limits, as text for people."""
        limit = "without end" if self._allowed is None else f"at most {self._allowed} restarts"
        return (
            f"exponential-delay: {seconds(self._initial_ms)} to {seconds(self._max_ms)}, {limit}, "
            f"counted anew after {seconds(self._reset_threshold_ms)} without failure"
        )


class FailureRate:
    """Flink's FailureRateRestartBackoffTimeStrategy: with more than ``max_failures`` failures within an interval the
    job fails. Failures that are exactly ``interval_ms`` apart lie in one interval.

    Otherwise the job is restarted without limit.

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


class FixedDelay:
    """Flink's FixedDelayRestartBackoffTimeStrategy: at most ``attempts`` restarts, each after ``delay_ms``.

    The number holds for the whole life of the driver.

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


#: The most characters of a failure that is shown in one line.
_LINE = 400


class Restarts:
    """Decides about the restarts of one job in one driver, and counts them.

    Rule: a failure that cannot go away by itself is never retried, whatever the strategy; nor is one that only another
    driver can recover from. The error of a job that is not restarted says why.
    """

    def __init__(self, strategy: RestartStrategy) -> None:
        self._strategy = strategy
        #: number of restarts so far
        self.made = 0

    def delay_after(self, failure: FlinkishError) -> int | None:
        """Milliseconds until the restart; None: the failure is final, and its hint now says why."""
        refusal = _refusal(failure)
        if refusal is None:
            delay_ms = self._strategy.delay_after(failure)
            if delay_ms is not None:
                self.made += 1
                return delay_ms
            refusal = f"the restart strategy allows no more ({self._strategy.describe()})"
        # without a restart strategy there is no need to say why the job is not restarted
        if self.made or self._strategy.limit != 0:
            told = f"not started again, after {_times(self.made)}: {refusal}"
            failure.hint = "; ".join(part for part in (failure.hint, told) if part)
        return None

    def describe(self) -> str:
        """The restart strategy and its limits, as text for people."""
        return self._strategy.describe()

    def line(self, error: str, delay_ms: int) -> str:
        """One line about a failure, with its ``error``, that is followed by a restart; to be called after
        `delay_after`."""
        limit = self._strategy.limit
        count = f"restart {self.made}" + (f" of {limit}" if limit is not None else "")
        strategy = self._strategy.describe().partition(":")[0]
        return f"failed: {error}; restarting in {seconds(delay_ms)} ({count}, restart-strategy {strategy})"


def _refusal(failure: FlinkishError) -> str | None:
    if not failure.retryable:
        return f"{type(failure).__name__} does not go away by itself"
    if failure.needs_new_driver:
        return "only a new driver can go on; its supervisor may start one"
    return None


def _times(count: int) -> str:
    return f"{count} restart{'s'[: count != 1]}"


def one_line(failure: FlinkishError) -> str:
    """A failure in one line, without its traceback and its hint.

    >>> one_line(FlinkishError("the disk is full", where="epoch 3", hint="make room"))
    'FlinkishError: the disk is full [epoch 3]'
    """
    where = f" [{failure.where}]" if failure.where else ""
    text = escaped(" ".join(f"{failure.what}{where}".split()))
    if len(text) > _LINE:
        text = text[: _LINE - 3] + "..."
    return f"{type(failure).__name__}: {text}"


_NONE = ("none", "off", "disable")


def from_configuration(
    configuration: Configuration, clock: Clock | None = None, random: Random | None = None
) -> RestartStrategy:
    """The strategy of ``restart-strategy.type``; without that key exponential-delay if checkpoints are taken
    (`checkpoint_interval_ms`), and otherwise none, as in Flink.

    Raises:
        ConfigurationError: a setting of the strategy is out of range.
    """
    kind = configuration.get(restart.TYPE)
    if kind is None:
        kind = "none" if checkpoint_interval_ms(configuration) is None else "exponential-delay"
    clock = clock or ElapsedClock()
    if kind in _NONE:
        return NoRestart()
    if kind == "fixed-delay":
        delay = configuration.get(restart.FIXED_DELAY_DELAY)
        return FixedDelay(configuration.get(restart.FIXED_DELAY_ATTEMPTS), delay.to_millis())
    if kind == "failure-rate":
        return FailureRate(
            clock,
            configuration.get(restart.FAILURE_RATE_MAX_FAILURES_PER_INTERVAL),
            configuration.get(restart.FAILURE_RATE_FAILURE_RATE_INTERVAL).to_millis(),
            configuration.get(restart.FAILURE_RATE_DELAY).to_millis(),
        )
    return ExponentialDelay(
        clock,
        random or Random(),
        initial_ms=configuration.get(restart.EXPONENTIAL_DELAY_INITIAL_BACKOFF).to_millis(),
        max_ms=configuration.get(restart.EXPONENTIAL_DELAY_MAX_BACKOFF).to_millis(),
        multiplier=configuration.get(restart.EXPONENTIAL_DELAY_BACKOFF_MULTIPLIER),
        reset_threshold_ms=configuration.get(restart.EXPONENTIAL_DELAY_RESET_BACKOFF_THRESHOLD).to_millis(),
        jitter_factor=configuration.get(restart.EXPONENTIAL_DELAY_JITTER_FACTOR),
        attempts_before_reset=configuration.get(restart.EXPONENTIAL_DELAY_ATTEMPTS_BEFORE_RESET_BACKOFF),
    )
