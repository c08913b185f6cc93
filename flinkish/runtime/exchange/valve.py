"""The combined watermark of what feeds an operator (Flink's StatusWatermarkValve), which is called its inputs here.

The combined watermark is the minimum over the active inputs; an idle input does not hold it back. It never goes back.
If all inputs are idle, the operator is idle, and the combined watermark rises to the highest watermark of an input.

An input may become active again behind the combined watermark. A task upstream then does not hold it back until it has
caught up (in Flink's valve such an input is not *aligned*); a split of a source does hold it back, from where it is (as
in Flink's WatermarkOutputMultiplexer, which combines the splits of a source).

The inputs of ``connect`` are combined by other rules than the tasks that feed one of them, and so are sources that are
united. `WatermarkValves` has a valve for each of these groups.

An input that has ended (watermark MAX) does not count until all have ended, as a split that has ended does not in
Flink. An ended input of ``connect`` counts: if the other one is idle, time is at its end, as in Flink. Since MAX means
END_OF_INPUT here, and the idle input may continue, the combined watermark is then the one before it.

Rule: every change of an input is passed to `_index`, which keeps the inputs that hold the combined watermark back in a
heap: a subtask may have hundreds of inputs, and checking each of them for each watermark of each would take quadratic
time. An entry that is outdated stays in the heap until it is the lowest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS


@dataclass(slots=True)
class _Input:
    watermark_ms: int
    idle: bool
    aligned: bool
    #: holds the combined watermark back even when it resumes behind it
    always_aligned: bool
    #: counts in nothing but the end, which waits for it
    awaited: bool

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

    def __init__(self, combined_ms: int = MIN_TIMESTAMP_MS, ended_count: bool = False) -> None:
        self._inputs: dict[Hashable, _Input] = {}
        #: whether inputs that have ended count, as those of ``connect`` do
        self._ended_count = ended_count
        #: number of inputs that have not ended, of these that are not idle, and of these for which only the end waits
        self._going = self._active = self._awaited = 0
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
        awaited: bool = False,
    ) -> None:
        """Add an input, or replace the one of that name. One that is added behind the combined watermark does not make
        it go back, but holds it back there. ``aligned`` is False for one that was idle and has not caught up since.
        ``awaited``: it counts in nothing but the end, which does not come before its own."""
        idle = idle or awaited
        before = self._inputs.get(name)
        if before is not None:
            self._unindex(before)
            before.aligned = False
        aligned = always_aligned or not idle and (aligned or watermark_ms >= self.combined_ms)
        entry = _Input(watermark_ms, idle, aligned, always_aligned, awaited)
        self._inputs[name] = entry
        self._index(entry)

    def _unindex(self, entry: _Input) -> None:
        """Take an input out of the counts; called before it changes."""
        self._going -= not entry.ended
        self._active -= entry.active
        self._awaited -= entry.awaited and not entry.ended

    def _index(self, entry: _Input) -> None:
        """Count an input and put it into the heap if it holds back; called after it has changed."""
        if entry.watermark_ms == MAX_WATERMARK_MS:
            return
        self._going += 1
        self._awaited += entry.awaited
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
        """Whether every input that counts is idle, and there is at least one."""
        return self._going > self._awaited and self._active == 0 and not self._at_end

    @property
    def _at_end(self) -> bool:
        """Whether only inputs that have ended are left to say what time it is."""
        return self._ended_count and self._active == 0 and self._going < len(self._inputs)

    @property
    def watermarks_ms(self) -> dict[Group, int]:
        """The combined watermarks of groups of inputs (`WatermarkValves`), of which there are none."""
        return {}

    @property
    def unaligned(self) -> list[Any]:
        """The inputs that are idle, or have been and have not caught up since: the fact that ``add`` must be told when
        the next epoch adds them again."""
        return [name for name, one in self._inputs.items() if not (one.aligned or one.awaited or one.ended)]

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

    def follows_order(self, names: Collection[Hashable]) -> bool:
        """Whether the combined watermark is the lowest watermark of any input as long as none becomes idle or ends,
        given that the inputs that are not among ``names`` send nothing."""
        return all(self._inputs[name].holds_back for name in names)

    def lowest_ms(self, except_for: Collection[Hashable] = ()) -> int:
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
        if self._at_end:
            return MAX_WATERMARK_MS - 1
        if not self._active:
            return max(entry.watermark_ms for entry in self._inputs.values() if not entry.ended)
        waiting = self._lowest_first
        while waiting:
            watermark_ms, _, entry = waiting[0]
            if entry.watermark_ms == watermark_ms and entry.holds_back:
                return watermark_ms
            heapq.heappop(waiting)
        return self.combined_ms


#: A group of inputs: () is the operator, ``(0,)`` its first input, and ``(0, "3")`` one of the sources united in it.
Group = tuple[Hashable, ...]


class WatermarkValves:
    """The valves of an operator whose inputs are combined in groups: the combined watermark of a group is that of one
    input of the group above it. It has the methods of a `WatermarkValve`.

    The inputs of ``connect`` are combined last (Flink's IndexedCombinedWatermarkStatus): one that resumes behind holds
    the combined watermark back at once.

    Args:
        combined_ms: the combined watermark.
        group_of: the group of each input, by its name.
        connected: whether the groups right below the operator are inputs of ``connect``.
        known_ms: the combined watermarks of the groups that were known before (`watermarks_ms`).
        unaligned: those of these groups that were not aligned (`unaligned`).
    """

    def __init__(
        self,
        combined_ms: int,
        group_of: Callable[[Any], Group],
        connected: bool,
        known_ms: Mapping[Group, int] | None = None,
        unaligned: Collection[Any] = (),
    ) -> None:
        self._known_ms = known_ms or {}
        self._unaligned = unaligned
        self._find_group = group_of
        self._group_of: dict[Hashable, Group] = {}
        self._connected = connected
        self._root = WatermarkValve(combined_ms, ended_count=connected)
        self._valves: dict[Group, WatermarkValve] = {(): self._root}

    def add(
        self,
        name: Hashable,
        watermark_ms: int = MIN_TIMESTAMP_MS,
        idle: bool = False,
        *,
        aligned: bool = True,
        always_aligned: bool = False,
        awaited: bool = False,
    ) -> None:
        """Add an input to its group; what it changes there is passed on by `refresh`."""
        group = self._group_of[name] = self._find_group(name)
        for length in range(1, len(group) + 1):
            if group[:length] not in self._valves:
                known_ms = self._known_ms.get(group[:length], MIN_TIMESTAMP_MS)
                self._valves[group[:length]] = WatermarkValve(known_ms)
        valve = self._valves[group]
        valve.add(name, watermark_ms, idle, aligned=aligned, always_aligned=always_aligned, awaited=awaited)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._group_of

    @property
    def combined_ms(self) -> int:
        """The combined watermark of the operator."""
        return self._root.combined_ms

    @property
    def idle(self) -> bool:
        """Whether the operator is idle."""
        return self._root.idle

    @property
    def watermarks_ms(self) -> dict[Group, int]:
        """The combined watermark of each group below the operator."""
        return {group: valve.combined_ms for group, valve in self._valves.items() if group}

    @property
    def unaligned(self) -> list[Any]:
        """The inputs and the groups that are not aligned, as for a `WatermarkValve`."""
        return [name for valve in self._valves.values() for name in valve.unaligned]

    def names(self) -> list[Any]:
        """The names of all inputs of all groups."""
        return list(self._group_of)

    def idle_of(self, name: Hashable) -> bool:
        """Whether this input is idle."""
        return self._valves[self._group_of[name]].idle_of(name)

    def watermark_of(self, name: Hashable) -> int:
        """The last watermark of this input."""
        return self._valves[self._group_of[name]].watermark_of(name)

    def follows_order(self, names: Collection[Hashable]) -> bool:
        """As for a `WatermarkValve`. The watermark of a group may be ahead of its inputs, if one of them has resumed
        behind; then the order does not give the combined watermark."""
        for group, valve in self._valves.items():
            lowest_ms = valve.lowest_ms()
            if not group or valve.idle or lowest_ms == valve.combined_ms == MAX_WATERMARK_MS:
                continue
            if lowest_ms == MAX_WATERMARK_MS or valve.combined_ms > max(lowest_ms, self.combined_ms):
                return False
            if not self._valves[group[:-1]].holds_back(group):
                return False
        return all(self._valves[self._group_of[name]].holds_back(name) for name in names)

    def lowest_ms(self, except_for: Collection[Hashable] = ()) -> int:
        """The lowest watermark of the other inputs that hold their group back; MAX_WATERMARK_MS if there are none."""
        names = {*except_for, *self._valves}
        return min(valve.lowest_ms(names) for valve in self._valves.values())

    def advance_all(self, watermarks_ms: Mapping[Any, int]) -> None:
        """As for a `WatermarkValve`."""
        by_group: dict[Group, dict[Any, int]] = {group: {} for group in self._valves}
        for name, watermark_ms in watermarks_ms.items():
            by_group[self._group_of[name]][name] = watermark_ms
        for group in self._lowest_first():
            valve = self._valves[group]
            valve.advance_all(by_group[group])
            if group:
                valve.refresh()
                by_group[group[:-1]][group] = valve.combined_ms

    def advance(self, name: Hashable, watermark_ms: int) -> bool:
        """Advance the watermark of an input, which becomes active by it; returns whether the operator's one rises."""
        group = self._group_of[name]
        return self._pass_on(group, self._valves[group].advance(name, watermark_ms))

    def set_idle(self, name: Hashable, idle: bool) -> bool:
        """Set an input idle or active; returns whether the operator's watermark rises."""
        group = self._group_of[name]
        return self._pass_on(group, self._valves[group].set_idle(name, idle))

    def refresh(self) -> bool:
        """Compute all combined watermarks anew; returns whether the operator's one rises."""
        for group in self._lowest_first():
            valve = self._valves[group]
            rose = valve.refresh()
            if group:
                aligned, always_aligned = group not in self._unaligned, self._connected and len(group) == 1
                above = self._valves[group[:-1]]
                above.add(group, valve.combined_ms, valve.idle, aligned=aligned, always_aligned=always_aligned)
        return rose

    def raise_to(self, watermark_ms: int) -> bool:
        """Set the operator's watermark to a minimum that is known; returns whether it rises."""
        return self._root.raise_to(watermark_ms)

    def _lowest_first(self) -> list[Group]:
        return sorted(self._valves, key=len, reverse=True)

    def _pass_on(self, group: Group, rose: bool) -> bool:
        """Pass the watermark and the status of a group on to the groups above it, in Flink's order: a group becomes
        active before its watermark rises, and its watermark rises before it becomes idle."""
        while group:
            valve, above = self._valves[group], self._valves[group[:-1]]
            rose = rose and above.advance(group, valve.combined_ms)
            if valve.idle is not above.idle_of(group):
                rose = above.set_idle(group, valve.idle) or rose
            group = group[:-1]
        return rose
