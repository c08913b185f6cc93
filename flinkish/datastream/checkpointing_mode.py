"""The guarantee that checkpoints give."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """How often a record may affect state if the job fails and recovers. The mode has no effect here: state is
    exactly-once in either mode."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
