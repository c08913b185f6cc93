"""Amounts of time and points in time: immutable values of whole nanoseconds or milliseconds; none reads a clock.

``Time`` is for windows, TTL and async timeouts, ``Duration`` for watermarks and checkpoints, as in PyFlink. Where
PyFlink takes a ``Time``, a ``Duration`` will do as well, as in Java since Flink 2 (`milliseconds_of`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from flinkish.common.arguments import check_instance

__all__ = ["Duration", "Instant", "Time"]

_NANOS_PER_MILLI = 1_000_000
_NANOS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, order=True)
class Duration:
    """An exact amount of time in nanoseconds.

    >>> Duration.of_seconds(2).to_millis()
    2000
    """

    nanos: int

    @staticmethod
    def of_days(days: int) -> Duration:
        return Duration.of_hours(days * 24)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        return Duration.of_minutes(hours * 60)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        return Duration.of_seconds(minutes * 60)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        return Duration(seconds * _NANOS_PER_SECOND)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        return Duration(millis * _NANOS_PER_MILLI)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        return Duration(nanos)

    @staticmethod
    def of_timedelta(delta: timedelta) -> Duration:
        return Duration(delta // timedelta(microseconds=1) * 1_000)

    def to_millis(self) -> int:
        """The amount in whole milliseconds, rounded down: -1 ns gives -1 ms."""
        return self.nanos // _NANOS_PER_MILLI

    def to_nanos(self) -> int:
        return self.nanos

    def to_timedelta(self) -> timedelta:
        """The amount as a ``timedelta``, rounded down to whole microseconds."""
        return timedelta(microseconds=self.nanos // 1_000)

    def __str__(self) -> str:
        if self.nanos % _NANOS_PER_MILLI:
            return f"{self.nanos} ns"
        millis = self.to_millis()
        return f"{millis} ms" if millis % 1_000 else f"{millis // 1_000} s"


@dataclass(frozen=True, order=True, repr=False)
class Instant:
    """A point in time: ``seconds`` since 1970-01-01T00:00:00Z (may be negative) plus ``nanos``, 0 to 999,999,999.

    >>> Instant.of_epoch_milli(-1)
    Instant<-1, 999000000>
    """

    seconds: int
    nanos: int

    def to_epoch_milli(self) -> int:
        """Milliseconds since the epoch, rounded towards the past (``java.time.Instant.toEpochMilli``)."""
        return self.seconds * 1_000 + self.nanos // _NANOS_PER_MILLI

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        seconds, millis = divmod(epoch_milli, 1_000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"


class Time:
    """A time interval in milliseconds, for windows and TTL.

    >>> str(Time.seconds(5))
    '5000 ms'
    """

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def to_milliseconds(self) -> int:
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        return Time(seconds * 1_000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        return Time.seconds(minutes * 60)

    @staticmethod
    def hours(hours: int) -> Time:
        return Time.minutes(hours * 60)

    @staticmethod
    def days(days: int) -> Time:
        return Time.hours(days * 24)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash(self._milliseconds)

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"

    def __repr__(self) -> str:
        return f"Time({self._milliseconds})"


def milliseconds_of(time: Time | Duration, what: str, where: str) -> int:
    """The length of a time that the program has given, in whole milliseconds. ``what`` names it in the error.

    Raises:
        ArgumentTypeError: it is neither a Time nor a Duration.
    """
    if isinstance(time, Time):
        return time.to_milliseconds()
    check_instance(time, (Time, Duration), f"{what} is", where, "such as Time.seconds(10) or Duration.of_seconds(10)")
    return time.to_millis()
