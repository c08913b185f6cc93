"""TimeDomain: whether a timer is in event time or in processing time."""

from __future__ import annotations

from enum import Enum


class TimeDomain(Enum):
    """The domain of a firing timer."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
