"""The combined watermark of an operator with several inputs (Flink's StatusWatermarkValve).

It is the minimum over the inputs that are active; an idle one does not hold it back. It never goes back. When all are
idle, the operator is idle, and everything up to the highest watermark is flushed.

An input that becomes active again behind the combined watermark: a task upstream does not hold it back until it has
caught up (Flink's valve: such an input is not *aligned*); a split of a source does, from where it is (Flink's
WatermarkOutputMultiplexer, which combines the splits of a source).

An input that has ended (watermark MAX) counts for nothing until all have: in Flink, one ended and one idle input make
the watermark MAX, but here that says END_OF_INPUT, and the idle one may go on.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS


@dataclass
class _Input:
    watermark_ms: int
    idle: bool
    aligned: bool
    #: holds the combined watermark back even when it resumes behind it
    always_aligned: bool

    @property
    def ended(self) -> bool:
        return self.watermark_ms == MAX_WATERMARK_MS


class WatermarkValve:
    """Watermarks per input, and their minimum.

    >>> valve = WatermarkValve(); valve.add("a"); valve.add("b")
    >>> valve.advance("a", 10), valve.advance("b", 7), valve.combined_ms
    (False, True, 7)
    """

    def __init__(self, combined_ms: int = MIN_TIMESTAMP_MS) -> None:
        self._inputs: dict[Hashable, _Input] = {}
        self.combined_ms = combined_ms

    def add(
        self,
        name: Hashable,
        watermark_ms: int = MIN_TIMESTAMP_MS,
        idle: bool = False,
        *,
        aligned: bool = True,
        always_aligned: bool = False,
    ) -> None:
        """Another input. One that is added late never lets the combined watermark go back. ``aligned`` False: it was
        idle before and lags behind."""
        self._inputs[name] = _Input(watermark_ms, idle, always_aligned or aligned and not idle, always_aligned)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._inputs

    @property
    def idle(self) -> bool:
        """Whether every input that has not ended is idle (and there is one)."""
        going = [entry for entry in self._inputs.values() if not entry.ended]
        return bool(going) and all(entry.idle for entry in going)

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
        held_back = entry.aligned and entry.watermark_ms <= self.combined_ms
        resumed = entry.idle
        entry.idle = False
        entry.watermark_ms = max(watermark_ms, entry.watermark_ms)
        if not entry.aligned and entry.watermark_ms >= self.combined_ms:
            entry.aligned = resumed = True
        # the minimum can only have changed with the input that made it, with the set of those that count, or at the end
        return self.refresh() if held_back or resumed or entry.ended else False

    def set_idle(self, name: Hashable, idle: bool) -> bool:
        """An input becomes idle or active; True when the combined watermark rises."""
        entry = self._inputs[name]
        if idle is not entry.idle:
            entry.idle = idle
            entry.aligned = entry.always_aligned or not idle and entry.watermark_ms >= self.combined_ms
        return self.refresh()

    def refresh(self) -> bool:
        """Recompute; True when the combined watermark rises."""
        lowest = self._lowest()
        if lowest > self.combined_ms:
            self.combined_ms = lowest
            return True
        return False

    def _lowest(self) -> int:
        going = [entry for entry in self._inputs.values() if not entry.ended]
        if not going:
            return MAX_WATERMARK_MS if self._inputs else self.combined_ms
        active = [entry for entry in going if not entry.idle]
        if not active:
            return max(entry.watermark_ms for entry in going)
        return min((entry.watermark_ms for entry in active if entry.aligned), default=self.combined_ms)
