"""Exponential delay: each restart waits longer than the one before, until the job has run well for a while."""

from __future__ import annotations

from random import Random

from flinkish.errors import ConfigurationError, FlinkishError
from flinkish.jobmanager.restart.strategy import seconds
from flinkish.runtime.phases import Clock


class ExponentialDelay:
    """Flink's ExponentialDelayRestartBackoffTimeStrategy (since 1.19).

    The n-th restart waits ``initial * multiplier ** (n - 1)``, plus or minus a random part of at most ``jitter_factor``
    of it, but neither less than ``initial`` nor more than ``max``. When ``reset_threshold_ms`` have passed since the
    last restart, counting begins anew; with one failure more than ``attempts_before_reset`` before that, the job fails
    (None: without limit).

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
