"""Restart strategies as objects of Flink's 1.x API, and the configuration that each stands for.

Rule upheld here: the configuration keys under ``restart-strategy.`` are the one source; an object of this module only
writes them (:meth:`RestartStrategyConfiguration.to_configuration`). PyFlink 2.x keeps the classes but nothing reads
them; here they work.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from datetime import timedelta

from flinkish.common.configuration import Configuration
from flinkish.common.options import restart
from flinkish.common.time import Duration
from flinkish.errors import ArgumentTypeError

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]


class RestartStrategyConfiguration(abc.ABC):
    """Describes whether, when and how often a failed job is restarted."""

    @abc.abstractmethod
    def get_description(self) -> str:
        """One line that describes the strategy."""

    @abc.abstractmethod
    def to_configuration(self) -> Configuration:
        """The configuration that selects this strategy."""


@dataclass(frozen=True)
class _NoRestart(RestartStrategyConfiguration):
    def get_description(self) -> str:
        return "Restart deactivated."

    def to_configuration(self) -> Configuration:
        return Configuration().set(restart.TYPE, "none")


@dataclass(frozen=True)
class _Fallback(RestartStrategyConfiguration):
    def get_description(self) -> str:
        return "Cluster level default restart strategy"

    def to_configuration(self) -> Configuration:
        return Configuration()


class _FixedDelay(RestartStrategyConfiguration):
    """At most ``restart_attempts`` restarts, each after a delay (in milliseconds, or a timedelta)."""

    def __init__(self, restart_attempts: int, delay_between_attempts_interval: int | timedelta) -> None:
        self._restart_attempts = restart_attempts
        self._delay = _interval(delay_between_attempts_interval, "delay_between_attempts_interval")

    def get_restart_attempts(self) -> int:
        return self._restart_attempts

    def get_delay_between_attempts_interval(self) -> timedelta:
        return self._delay.to_timedelta()

    def get_description(self) -> str:
        return f"Restart with fixed delay ({self._delay}). #{self._restart_attempts} restart attempts."

    def to_configuration(self) -> Configuration:
        configuration = Configuration().set(restart.TYPE, "fixed-delay")
        configuration.set(restart.FIXED_DELAY_ATTEMPTS, self._restart_attempts)
        return configuration.set(restart.FIXED_DELAY_DELAY, self._delay)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FixedDelay) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._restart_attempts, self._delay))


class _FailureRate(RestartStrategyConfiguration):
    """Restarts unless an interval (milliseconds or timedelta) sees more than ``max_failure_rate`` failures."""

    def __init__(
        self,
        max_failure_rate: int,
        failure_interval: int | timedelta,
        delay_between_attempts_interval: int | timedelta,
    ) -> None:
        self._max_failure_rate = max_failure_rate
        self._failure_interval = _interval(failure_interval, "failure_interval")
        self._delay = _interval(delay_between_attempts_interval, "delay_between_attempts_interval")

    def get_max_failure_rate(self) -> int:
        return self._max_failure_rate

    def get_failure_interval(self) -> timedelta:
        return self._failure_interval.to_timedelta()

    def get_delay_between_attempts_interval(self) -> timedelta:
        return self._delay.to_timedelta()

    def get_description(self) -> str:
        return (
            f"Failure rate restart with maximum of {self._max_failure_rate} failures within interval"
            f" {self._failure_interval} and fixed delay {self._delay}."
        )

    def to_configuration(self) -> Configuration:
        configuration = Configuration().set(restart.TYPE, "failure-rate")
        configuration.set(restart.FAILURE_RATE_MAX_FAILURES_PER_INTERVAL, self._max_failure_rate)
        configuration.set(restart.FAILURE_RATE_FAILURE_RATE_INTERVAL, self._failure_interval)
        return configuration.set(restart.FAILURE_RATE_DELAY, self._delay)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FailureRate) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._max_failure_rate, self._failure_interval, self._delay))


class RestartStrategies:
    """Creates the restart strategies for ``StreamExecutionEnvironment.set_restart_strategy``.

    >>> RestartStrategies.fixed_delay_restart(3, 10_000).to_configuration().to_dict()["restart-strategy.type"]
    'fixed-delay'
    """

    NoRestartStrategyConfiguration = _NoRestart
    FallbackRestartStrategyConfiguration = _Fallback
    FixedDelayRestartStrategyConfiguration = _FixedDelay
    FailureRateRestartStrategyConfiguration = _FailureRate

    @staticmethod
    def no_restart() -> _NoRestart:
        return _NoRestart()

    @staticmethod
    def fall_back_restart() -> _Fallback:
        return _Fallback()

    @staticmethod
    def fixed_delay_restart(restart_attempts: int, delay_between_attempts: int | timedelta) -> _FixedDelay:
        """At most ``restart_attempts`` restarts, each after the delay (in milliseconds, or a timedelta)."""
        return _FixedDelay(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | timedelta, delay_interval: int | timedelta
    ) -> _FailureRate:
        """Restarts, after the delay, unless there are more than ``failure_rate`` failures in an interval.

        Both times are in milliseconds, or timedeltas.
        """
        return _FailureRate(failure_rate, failure_interval, delay_interval)


def strategy_of(configuration: Configuration) -> RestartStrategyConfiguration:
    """The strategy that a configuration selects; a fallback strategy if it selects none of `RestartStrategies`."""
    chosen, get = configuration.get(restart.TYPE), configuration.get
    if chosen in ("none", "off", "disable"):
        return _NoRestart()
    if chosen == "fixed-delay":
        return _FixedDelay(get(restart.FIXED_DELAY_ATTEMPTS), get(restart.FIXED_DELAY_DELAY).to_timedelta())
    if chosen == "failure-rate":
        intervals = (restart.FAILURE_RATE_FAILURE_RATE_INTERVAL, restart.FAILURE_RATE_DELAY)
        return _FailureRate(
            get(restart.FAILURE_RATE_MAX_FAILURES_PER_INTERVAL), *(get(key).to_timedelta() for key in intervals)
        )
    return _Fallback()


def _interval(value: int | timedelta, name: str) -> Duration:
    if isinstance(value, timedelta):
        return Duration.of_timedelta(value)
    if isinstance(value, int):
        return Duration.of_millis(value)
    raise ArgumentTypeError(
        f"The parameter '{name}' only supports integer and datetime.timedelta, not {type(value).__name__}.",
        where="RestartStrategies",
        expected="milliseconds or a timedelta",
        hint="such as 10_000 or timedelta(seconds=10)",
    )
