"""The combined watermark of an operator with several inputs (Flink's StatusWatermarkValve).

It is the minimum over the inputs that are active; an idle one does not hold it back. It never goes back. When all are
idle, the operator is idle.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from flinkish.core.time_limits import MIN_TIMESTAMP_MS


@dataclass
class _Input:
    watermark_ms: int
    idle: bool


class WatermarkValve:
    """Watermarks per input, and their minimum.

    >>> valve = WatermarkValve(); valve.add("a"); valve.add("b")
    >>> valve.advance("a", 10), valve.advance("b", 7), valve.combined_ms
    (False, True, 7)
    """

    def __init__(self, combined_ms: int = MIN_TIMESTAMP_MS) -> None:
        self._inputs: dict[Hashable, _Input] = {}
        self.combined_ms = combined_ms

    def add(self, name: Hashable, watermark_ms: int = MIN_TIMESTAMP_MS, idle: bool = False) -> None:
        """Another input. One that is added late never lets the combined watermark go back."""
        self._inputs[name] = _Input(watermark_ms, idle)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._inputs

    @property
    def idle(self) -> bool:
        """Whether every input is idle (and there is one)."""
        return bool(self._inputs) and all(entry.idle for entry in self._inputs.values())

    def names(self) -> list[Any]:
        """All inputs."""
        return list(self._inputs)

    def idle_of(self, name: Hashable) -> bool:
        """Whether one input is idle."""
        return self._inputs[name].idle

    def watermark_of(self, name: Hashable) -> int:
        """The last watermark of one input."""
        return self._inputs[name].watermark_ms

    def advance(self, name: Hashable, watermark_ms: int) -> bool:
        """An input's watermark; True when the combined one rises. A watermark makes its input active."""
        entry = self._inputs[name]
        entry.idle = False
        if watermark_ms <= entry.watermark_ms:
            return self.refresh()
        was_lowest = entry.watermark_ms <= self.combined_ms
        entry.watermark_ms = watermark_ms
        return self.refresh() if was_lowest or watermark_ms > self.combined_ms else False

    def set_idle(self, name: Hashable, idle: bool) -> bool:
        """An input becomes idle or active; True when the combined watermark rises."""
        self._inputs[name].idle = idle
        return self.refresh()

    def refresh(self) -> bool:
        """Recompute; True when the combined watermark rises."""
        active = [entry.watermark_ms for entry in self._inputs.values() if not entry.idle]
        if not active:
            # Flink: when the last input turns idle, everything up to the highest watermark is flushed
            active = [max((entry.watermark_ms for entry in self._inputs.values()), default=self.combined_ms)]
        lowest = min(active)
        if lowest > self.combined_ms:
            self.combined_ms = lowest
            return True
        return False
