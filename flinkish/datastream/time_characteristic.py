"""TimeCharacteristic, of PyFlink 1.x."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeCharacteristic"]


class TimeCharacteristic(Enum):
    """The time that a whole program is based on. Deprecated in Flink: each operator says which time it uses."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2
