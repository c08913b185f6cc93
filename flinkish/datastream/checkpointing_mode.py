"""What a checkpoint guarantees."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """How often a record may have an effect on state after a failure. All state here is EXACTLY_ONCE in either mode."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
