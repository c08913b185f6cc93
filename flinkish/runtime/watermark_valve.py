"""The combined watermark of an operator with several inputs (Flink's StatusWatermarkValve).

The combined watermark is the minimum over the active inputs; an idle input does not hold it back. It never goes back.
If all inputs are idle, the operator is idle, and the combined watermark rises to the highest watermark of an input.

An input may become active again behind the combined watermark. A task upstream then does not hold it back until it has
caught up (in Flink's valve such an input is not *aligned*); a split of a source does hold it back, from where it is (as
in Flink's WatermarkOutputMultiplexer, which combines the splits of a source).

An input that has ended (watermark MAX) does not count until all have ended. In Flink, one ended and one idle input make
the watermark MAX, but here MAX means END_OF_INPUT, and the idle input may continue.

Rule: every change of an input is passed to `_index`, which keeps the inputs that hold the combined watermark back in a
heap: a subtask may have hundreds of inputs, and checking each of them for each watermark of each would take quadratic
time. An entry that is outdated stays in the heap until it is the lowest.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS


@dataclass(slots=True)
class _Input:
    watermark_ms: int
    idle: bool
    aligned: bool
    #: holds the combined watermark back even when it resumes behind it
    always_aligned: bool

    @property
    def ended(self) -> bool:
        return self.watermark_ms == MAX_WATERMARK_MS

    @property
    def active(self) -> bool:
        return not (self.idle or self.ended)

    @property
    def holds_back(self) -> bool:
        return self.aligned and self.active


class WatermarkValve:
    """Keeps the watermark of each input, and computes the combined watermark.

    >>> valve = WatermarkValve(); valve.add("a"); valve.add("b")
    >>> valve.advance("a", 10), valve.advance("b", 7), valve.combined_ms
    (False, True, 7)
    """

    def __init__(self, combined_ms: int = MIN_TIMESTAMP_MS) -> None:
        self._inputs: dict[Hashable, _Input] = {}
        #: number of inputs that have not ended, and number of these that are not idle
        self._going = self._active = 0
        #: a heap of (watermark, number, input) with an entry for each input that holds back, and with outdated entries
        self._lowest_first: list[tuple[int, int, _Input]] = []
        self._pushed = 0
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
        """Add an input, or replace the one of that name. An input that is added late never makes the combined watermark
        go back. ``aligned`` is False for an input that was idle before and lags behind."""
        before = self._inputs.get(name)
        if before is not None:
            self._unindex(before)
            before.aligned = False
        entry = _Input(watermark_ms, idle, always_aligned or aligned and not idle, always_aligned)
        self._inputs[name] = entry
        self._index(entry)

    def _unindex(self, entry: _Input) -> None:
        """Take an input out of the counts; called before it changes."""
        self._going -= not entry.ended
        self._active -= entry.active

    def _index(self, entry: _Input) -> None:
        """Count an input and put it into the heap if it holds back; called after it has changed."""
        if entry.watermark_ms == MAX_WATERMARK_MS:
            return
        self._going += 1
        if entry.idle:
            return
        self._active += 1
        if entry.aligned:
            self._pushed += 1
            heapq.heappush(self._lowest_first, (entry.watermark_ms, self._pushed, entry))

    def __contains__(self, name: Hashable) -> bool:
        return name in self._inputs

    @property
    def idle(self) -> bool:
        """Whether every input that has not ended is idle, and there is at least one."""
        return self._going > 0 and self._active == 0

    def names(self) -> list[Any]:
        """The names of all inputs."""
        return list(self._inputs)

    def idle_of(self, name: Hashable) -> bool:
        """Whether this input is idle."""
        return self._inputs[name].idle

    def watermark_of(self, name: Hashable) -> int:
        """The last watermark of this input."""
        return self._inputs[name].watermark_ms

    def holds_back(self, name: Hashable) -> bool:
        """Whether the combined watermark cannot rise above the watermark of this input."""
        return self._inputs[name].holds_back

    def lowest_ms(self, except_for: Collection[Hashable]) -> int:
        """The lowest watermark of the other inputs that hold back; MAX_WATERMARK_MS if there are none."""
        others = (entry for name, entry in self._inputs.items() if name not in except_for)
        return min((entry.watermark_ms for entry in others if entry.holds_back), default=MAX_WATERMARK_MS)

    def advance_all(self, watermarks_ms: Mapping[Any, int]) -> None:
        """Set the watermarks of inputs that hold back and still do after it, when the combined watermark is up to date
        already."""
        for name, watermark_ms in watermarks_ms.items():
            self._inputs[name].watermark_ms = watermark_ms
        holding = (entry for entry in self._inputs.values() if entry.holds_back)
        self._lowest_first = [(entry.watermark_ms, number, entry) for number, entry in enumerate(holding)]
        heapq.heapify(self._lowest_first)
        self._pushed = len(self._lowest_first)

    def advance(self, name: Hashable, watermark_ms: int) -> bool:
        """Advance the watermark of an input, which becomes active by it; returns whether the combined one rises."""
        entry = self._inputs[name]
        before_ms = entry.watermark_ms
        if entry.aligned and not entry.idle and before_ms < watermark_ms < MAX_WATERMARK_MS:
            # nearly all calls: an input that counts advances, and counts as before
            entry.watermark_ms = watermark_ms
            self._pushed += 1
            waiting = self._lowest_first
            if waiting and waiting[0][2] is entry:
                heapq.heapreplace(waiting, (watermark_ms, self._pushed, entry))
            else:
                heapq.heappush(waiting, (watermark_ms, self._pushed, entry))
            if before_ms > self.combined_ms:
                return False
            lowest_ms, _, lowest = waiting[0]
            if lowest.watermark_ms == lowest_ms <= self.combined_ms and lowest.holds_back:
                return False
            return self.refresh()
        held_back = entry.aligned and before_ms <= self.combined_ms
        resumed = entry.idle
        self._unindex(entry)
        entry.idle = False
        entry.watermark_ms = max(watermark_ms, entry.watermark_ms)
        if not entry.aligned and entry.watermark_ms >= self.combined_ms:
            entry.aligned = resumed = True
        self._index(entry)
        # the minimum can only have changed if this input was at the minimum, if the set of inputs that count has
        # changed, or at the end
        return self.refresh() if held_back or resumed or entry.ended else False

    def set_idle(self, name: Hashable, idle: bool) -> bool:
        """Set an input idle or active; returns whether the combined watermark rises."""
        entry = self._inputs[name]
        if idle is not entry.idle:
            self._unindex(entry)
            entry.idle = idle
            entry.aligned = entry.always_aligned or not idle and entry.watermark_ms >= self.combined_ms
            self._index(entry)
        return self.refresh()

    def refresh(self) -> bool:
        """Compute the combined watermark anew; returns whether it rises."""
        return self.raise_to(self._lowest())

    def raise_to(self, watermark_ms: int) -> bool:
        """Set the combined watermark to a minimum that is known; returns whether it rises."""
        if watermark_ms > self.combined_ms:
            self.combined_ms = watermark_ms
            return True
        return False

    def _lowest(self) -> int:
        if not self._going:
            return MAX_WATERMARK_MS if self._inputs else self.combined_ms
        if not self._active:
            return max(entry.watermark_ms for entry in self._inputs.values() if not entry.ended)
        waiting = self._lowest_first
        while waiting:
            watermark_ms, _, entry = waiting[0]
            if entry.watermark_ms == watermark_ms and entry.holds_back:
                return watermark_ms
            heapq.heappop(waiting)
        return self.combined_ms
