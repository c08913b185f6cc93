"""What user functions may do with time."""

from __future__ import annotations

from abc import ABC, abstractmethod


class TimerService(ABC):
    """Time, and timers of the current key. All times are milliseconds since the epoch.

    A timer is identified by (key, time domain, timestamp): registering it twice fires it once, as in Flink.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """The epoch's own timestamp: the same when the epoch is replayed (docs/semantics.md)."""

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
        """Forget the timer; nothing happens if there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget the timer; nothing happens if there is none."""
