"""The runtime mode of a job, which decides when results are emitted."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """The runtime mode of a job. STREAMING emits results as records come; BATCH needs bounded sources and emits final
    results only; AUTOMATIC is BATCH if all sources are bounded, else STREAMING."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
