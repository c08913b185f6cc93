"""The steps that an input gate tells a task to take, one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple


class Records(NamedTuple):
    """A step: process these records, which lie between two watermarks."""

    input_index: int
    values: list[Any]
    timestamps: list[int] | None


class WatermarkStep(NamedTuple):
    """A step: the combined watermark has risen."""

    watermark_ms: int


class StatusStep(NamedTuple):
    """A step: all inputs have become idle, or one has become active."""

    idle: bool


Step = Records | WatermarkStep | StatusStep
