"""TimeCharacteristic, a setting of PyFlink 1.x."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeCharacteristic"]


class TimeCharacteristic(Enum):
    """The notion of time that a whole program is based on. Deprecated in Flink, where each operator chooses the time
    that it uses."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2
