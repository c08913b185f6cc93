"""The two ends of time, as in Flink (``Long.MIN_VALUE`` and ``Long.MAX_VALUE``, in milliseconds)."""

from __future__ import annotations

from typing import Final

#: The marker for no timestamp, and for no watermark yet.
MIN_TIMESTAMP_MS: Final[int] = -(2**63)

#: The watermark after which no element will ever come (END_OF_INPUT).
MAX_WATERMARK_MS: Final[int] = 2**63 - 1
