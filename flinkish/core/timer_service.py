"""TimerService: access of user functions to time and timers."""

from __future__ import annotations

from abc import ABC, abstractmethod


class TimerService(ABC):
    """Access to the current time, and to the timers of the current key. All times are milliseconds since the epoch.

    A timer is identified by (key, time domain, timestamp): registering it twice fires it once, as in Flink.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """The timestamp of the epoch, which is the same when the epoch is replayed (docs/semantics.md)."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's watermark; ``-9223372036854775808`` before the first one."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` once processing time passes ``timestamp``."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call ``on_timer`` once the watermark passes ``timestamp``."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the timer; nothing happens if there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the timer; nothing happens if there is none."""
