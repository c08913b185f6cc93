"""Makes the restart strategy that a configuration asks for."""

from __future__ import annotations

from random import Random

from flinkish.common.configuration import Configuration
from flinkish.common.options import restart
from flinkish.jobmanager.job.settings import checkpoint_interval_ms
from flinkish.jobmanager.restart.exponential_delay import ExponentialDelay
from flinkish.jobmanager.restart.failure_rate import FailureRate
from flinkish.jobmanager.restart.fixed_delay import FixedDelay
from flinkish.jobmanager.restart.strategy import NoRestart, RestartStrategy
from flinkish.runtime.phases import Clock, SystemClock

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
    clock = clock or SystemClock()
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
