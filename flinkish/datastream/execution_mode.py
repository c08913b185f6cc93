"""How a job treats time and results."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """STREAMING: results as records come. BATCH: bounded sources, final results only. AUTOMATIC: BATCH if all sources
    are bounded."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
