"""What an input gate gives a task to do, one step after the other."""

from __future__ import annotations

from typing import Any, NamedTuple


class Records(NamedTuple):
    """A step: records between two watermarks."""

    input_index: int
    values: list[Any]
    timestamps: list[int] | None


class WatermarkStep(NamedTuple):
    """A step: the combined watermark rose."""

    watermark_ms: int


class StatusStep(NamedTuple):
    """A step: all inputs became idle, or one became active."""

    idle: bool


Step = Records | WatermarkStep | StatusStep
