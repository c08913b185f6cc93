"""Time as user functions see it: ``TimerService`` gives them access to time and timers, and ``TimeDomain`` says whether
a timer is in event time or in processing time. The two ends of time are Flink's ``Long.MIN_VALUE`` and
``Long.MAX_VALUE``, in milliseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Final


class TimeDomain(Enum):
    """The domain of a firing timer."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


#: The marker for no timestamp, and for no watermark yet.
MIN_TIMESTAMP_MS: Final[int] = -(2**63)

#: The watermark after which no element will ever come (END_OF_INPUT).
MAX_WATERMARK_MS: Final[int] = 2**63 - 1


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
