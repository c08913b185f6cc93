"""Plans what the next epoch reads of one source: assigns splits to subtasks, and decides how far each split is read.

Rule: the plan depends on the splits, their positions and the limits, never on the cluster. A subtask reads one split
after the other, as Flink's file source does, or all of its splits side by side, as Flink's Kafka source does.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flinkish.common.arguments import abbreviated, check_made
from flinkish.core.source import SourceLimits, SourceSplit, SplitEnumerator, SplitSource, UnitCost
from flinkish.errors import ProgramError, TypeMismatchError
from flinkish.runtime.sources.alignment import UNLIMITED, SourceStream
from flinkish.runtime.sources.progress import OpenSplit, SourceProgress
from flinkish.runtime.sources.split_list import SegmentStore

#: The number of splits behind the one that a subtask begins which the enumerator is to expect.
_AHEAD = 64


@dataclass
class _Budget:
    """The number of records and of bytes that one subtask, or the whole source, may still read in the epoch."""

    records: float
    bytes: float
    #: whether nothing was read yet: in each epoch something is read, however large a single record is
    untouched: bool = True

    def units(self, cost_records: float, cost_bytes: float) -> int:
        """The number of positions that fit; at least one while nothing was read, but none if no records are left."""
        if self.records <= 0:
            return 0
        by_records = self.records / cost_records if cost_records > 0 else math.inf
        by_bytes = self.bytes / cost_bytes if cost_bytes > 0 else math.inf
        return max(int(min(by_records, by_bytes, 2.0**62)), 1 if self.untouched else 0)

    def take(self, units: float, cost_records: float, cost_bytes: float) -> None:
        """Subtract the cost of ``units`` positions that are read."""
        self.records -= units * cost_records
        self.bytes -= units * cost_bytes
        self.untouched = False


class EpochPlanner:
    """Plans the epochs of one source.

    Args:
        source: the source, as the program defines it.
        enumerator: the enumerator of the query.
        parallelism: parallelism of the source's vertex.
        limits: how much one epoch may read.
        store: store of the segments of the list of splits.
    """

    def __init__(
        self,
        source: SplitSource,
        enumerator: SplitEnumerator,
        parallelism: int,
        limits: SourceLimits,
        store: SegmentStore,
    ) -> None:
        self._source = source
        self._enumerator = enumerator
        self._parallelism = parallelism
        self._whole = self._limits = limits
        self._store = store
        #: all splits known when the last epoch was planned, and their ids; read anew if the next progress has others
        self._splits: list[SourceSplit] = []
        self._ids: set[str] = set()
        self._turn = 0
        #: (split, position) of the splits that end in this epoch, but not where the list of splits says
        self._stops: list[tuple[int, int]] = []
        #: stream -> how many records it may read in this epoch; a stream that is missing may read any number
        self._allowed: Mapping[str, float] = {}
        self._held: list[tuple[int, str]] = []
        #: stream -> estimated number of records that the epoch planned last reads of it
        self.records: dict[str, float] = {}
        #: estimated number of records that are there and that the epoch planned last leaves, of splits that are read
        #: side by side and whose ends are known
        self.backlog = 0.0
        #: the number of splits that have more than the epoch planned last reads, if they are read one after the other
        self.backlog_splits = 0

    def discover(self, start: SourceProgress, epoch: int) -> None:
        """Look for new splits. To be called before each `next`, with the same progress and epoch."""
        if len(self._splits) != len(start.splits):
            self._splits = start.splits.splits(self._store)
            self._ids = {split.id for split in self._splits}
        if not start.complete:
            self._enumerator.splits_ended(start.oldest_open, epoch)
            found = self._found(self._enumerator.discover(self._ids))
            self._splits.extend(found)
            self._ids.update(split.id for split in found)

    def _found(self, found: Any) -> list[SourceSplit]:
        """The splits that an enumerator has found.

        Raises:
            TypeMismatchError: these are no splits.
            ProgramError: a split is known already, or was found twice, or its id has another meaning.
        """
        check_made(found, Iterable, self._enumerator, "discover")
        splits, ids = list(found), set(self._ids)
        for split in splits:
            if not isinstance(split, SourceSplit):
                raise TypeMismatchError(
                    f"discover() of {type(self._enumerator).__name__} gave {abbreviated(split)}",
                    where=type(self._source).__name__,
                    expected="instances of SourceSplit",
                )
            if not split.id or split.id[0] in "*?":
                raise ProgramError(
                    f"discover() of {type(self._enumerator).__name__} gave a split with the id {split.id!r}",
                    where=type(self._source).__name__,
                    expected="an id that is not empty and does not begin with * or ?",
                )
            if split.id in ids:
                raise ProgramError(
                    f"discover() of {type(self._enumerator).__name__} gave the split {split.id!r} again",
                    where=type(self._source).__name__,
                    expected="new splits, each with an id of its own",
                    hint="leave out those whose id is in `known`",
                )
            ids.add(split.id)
        return splits

    def _end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        """The enumerator's `SplitEnumerator.end_of`, checked."""
        found: Any = self._enumerator.end_of(split, position)
        if isinstance(found, tuple) and len(found) == 2 and (found[0] is None or hasattr(found[0], "__index__")):
            return found
        raise TypeMismatchError(
            f"end_of() of {type(self._enumerator).__name__} returned {abbreviated(found)} for the split {split.id!r}",
            where=type(self._source).__name__,
            expected="(end, whether that is the end of the split): a whole number or None, and a bool",
        )

    def _cost(self, split: SourceSplit, position: int) -> UnitCost:
        """The enumerator's `SplitEnumerator.cost`, checked."""
        found: Any = self._enumerator.cost(split, position)
        if isinstance(found, tuple) and len(found) == 2:
            return UnitCost(*found)
        check_made(found, UnitCost, self._enumerator, "cost")
        return found  # type: ignore[no-any-return]

    def streams(self, start: SourceProgress) -> list[SourceStream]:
        """The streams of the source that have not ended. To be called after `discover`."""
        if not self._together(start):
            busy = {one.subtask for one in start.open}
            waiting = len(self._splits) > start.next
            return [SourceStream(str(n), True) for n in range(self._parallelism) if waiting or n in busy]
        found = []
        for one in self._assign_all(start)[0]:
            split = self._splits[one.number]
            end, last = self._end_of(split, one.position)
            readable = end is None or end > one.position
            if readable or not last:
                found.append(SourceStream(split.id, readable))
        return found

    def next(
        self,
        start: SourceProgress,
        epoch: int,
        allowed: Mapping[str, float] | None = None,
        most: int | None = None,
    ) -> SourceProgress:
        """Plan the epoch that follows ``start``; returns the progress of the source at its end. `is_news` says whether
        such an epoch has anything to read or to report.

        Args:
            start: the progress of the source, with which `discover` was called.
            epoch: number of the epoch, by which splits take turns if the limits are too small for all of them.
            allowed: stream -> how many records it may read; 0 if it is held back.
            most: how many records the epoch may read, if that is less than the limits say.
        """
        self._turn, self._stops, self._held, self.records = epoch, [], [], {}
        self.backlog, self.backlog_splits = 0.0, 0
        self._allowed = allowed or {}
        self._limits = (
            self._whole if most is None else replace(self._whole, max_records=min(most, self._whole.max_records))
        )
        if self._together(start):
            open_splits, begun = self._assign_all(start)
            after, assigned = self._read_side_by_side(open_splits, start.next), len(self._splits)
        else:
            after, begun = self._read_one_after_the_other(start)
            assigned = start.next + len(begun)
        splits = start.splits
        if len(self._splits) > len(splits) or len(splits.tail) and start.next < assigned:
            splits = splits.with_splits(self._splits, start.next, {one.number for one in start.open}, self._store)
        complete = start.complete or self._enumerator.complete
        stops, held = tuple(sorted(self._stops)), tuple(self._held)
        state = self._enumerator.snapshot_state()
        return SourceProgress(splits, assigned, tuple(after), tuple(begun), complete, stops, held, state)

    def _together(self, start: SourceProgress) -> bool:
        """Whether the splits are read side by side now. All splits that have not ended belong to one stage, which
        decides that."""
        if self._source.stages == 1 or not self._splits:
            return self._source.side_by_side
        return self._source.stage_of(self._splits[min(start.oldest_open, len(self._splits) - 1)].id)[1]

    def _may_read(self, stream: str) -> float:
        return self._allowed.get(stream, UNLIMITED)

    def _is_read(self, stream: str, records: float) -> None:
        self.records[stream] = self.records.get(stream, 0) + records

    def _ends(self, one: OpenSplit, end: int | None) -> None:
        """Note that a split ends at ``end`` if the list of splits says otherwise, as for a split that had no end when
        it was found, or that the program has made longer or shorter since."""
        if end is not None and end != self._splits[one.number].end:
            self._stops.append((one.number, max(end, one.position)))

    # ------------------------------------------------------------------ side by side

    def _assign_all(self, start: SourceProgress) -> tuple[list[OpenSplit], list[int]]:
        """Assign all known splits: a split that is read side by side is open as soon as it is known."""
        open_splits, begun = list(start.open), []
        for index in range(start.next, len(self._splits)):
            split = self._splits[index]
            owner = self._source.subtask_of(split.id, self._parallelism)
            begun.append(index % self._parallelism if owner is None else owner)
            open_splits.append(OpenSplit(index, begun[-1], split.start))
        return open_splits, begun

    def _read_side_by_side(self, open_splits: Sequence[OpenSplit], first: int) -> list[OpenSplit]:
        """Read from each split in proportion to what it has, so that none runs ahead of the others; returns the splits
        that are open afterwards. A split from number ``first`` on, which the receivers do not know, is told to them
        also if the epoch has no room for it: its first records must not be late."""
        ends = [self._end_of(self._splits[one.number], one.position) for one in open_splits]
        costs = [self._cost(self._splits[one.number], one.position) for one in open_splits]
        whole = _Budget(self._limits.max_records, self._limits.max_bytes)
        available = [
            whole.units(*cost) if end is None else end - one.position
            for one, (end, _), cost in zip(open_splits, ends, costs)
        ]
        names = [self._splits[one.number].id for one in open_splits]
        held = {name for name, units in zip(names, available) if units and not self._may_read(name)}
        available = [_at_most(self._may_read(name), units, cost) for name, units, cost in zip(names, available, costs)]
        records = sum(units * cost.records for units, cost in zip(available, costs))
        size = sum(units * cost.bytes for units, cost in zip(available, costs))
        share = min(1.0, _ratio(self._limits.max_records, records), _ratio(self._limits.max_bytes, size))
        unknown = {one.number for one, amount in zip(open_splits, available) if amount and one.number >= first}
        units = [math.floor(amount * share) for amount in available]
        if share < 1.0:
            self._hand_out_rest(units, available, costs)
        after = []
        for one, name, (end, last), amount, cost in zip(open_splits, names, ends, units, costs):
            if end is not None:
                self.backlog += max(end - one.position - (0 if name in held else amount), 0) * cost.records
            if name in held or not amount and one.number in unknown:
                self._held.append((one.subtask, name))
                after.append(one)
                continue
            self._is_read(name, amount * cost.records)
            position = one.position + amount
            if end is not None and amount and position < end:
                position = self._enumerator.cut(self._splits[one.number], one.position, position)
            if last and (end is None or position >= end):
                self._ends(one, end)
            else:
                after.append(one._replace(position=position))
        return after

    def _hand_out_rest(self, units: list[int], available: Sequence[int], costs: Sequence[tuple[float, float]]) -> None:
        """Give what rounding down has left to the splits in turns; an epoch reads at least one record."""
        budget = _Budget(self._limits.max_records, self._limits.max_bytes)
        for amount, cost in zip(units, costs):
            if amount:
                budget.take(amount, *cost)
        for step in range(len(units)):
            index = (step + self._turn) % len(units)
            if units[index] < available[index] and budget.units(*costs[index]):
                units[index] += 1
                budget.take(1, *costs[index])

    # ------------------------------------------------------------------ one after the other

    def _read_one_after_the_other(self, start: SourceProgress) -> tuple[list[OpenSplit], list[int]]:
        """Let the subtask that has used the least of its budget read next, so that small files spread evenly; returns
        the splits that are open afterwards, and the subtasks to which new splits were assigned."""
        current: list[OpenSplit | None] = [None] * self._parallelism
        for one in start.open:
            current[one.subtask] = one
        waiting = iter(range(start.next, len(self._splits)))
        expected = start.next + max(self._parallelism, _AHEAD)
        self._enumerator.expect(
            [*(self._splits[one.number] for one in start.open), *self._splits[start.next : expected]]
        )
        begun: list[int] = []
        self._held = [(n, "") for n in range(self._parallelism) if not self._may_read(str(n))]
        budgets = self._budgets(current, len(self._splits) - start.next)
        whole = {subtask: replace(budget) for subtask, budget in budgets.items()}
        turns = [(0.0, subtask) for subtask in budgets]
        heapq.heapify(turns)
        while turns:
            _, subtask = heapq.heappop(turns)
            going = current[subtask]
            if going is None:
                number = next(waiting, None)
                if number is None:
                    continue
                if number + _AHEAD // 2 > expected:
                    self._enumerator.expect(self._splits[expected : number + _AHEAD])
                    expected = number + _AHEAD
                begun.append(subtask)
                going = OpenSplit(number, subtask, self._splits[number].start)
            before = budgets[subtask].records
            current[subtask], goes_on = self._read_on(going, budgets[subtask])
            self._is_read(str(subtask), before - budgets[subtask].records)
            if goes_on:
                left, most = budgets[subtask], whole[subtask]
                used = 1 - min(_ratio(left.records, most.records), _ratio(left.bytes, most.bytes))
                heapq.heappush(turns, (used, subtask))
        unfinished = sum(one is not None for one in current)
        self.backlog_splits += unfinished + len(self._splits) - start.next - len(begun)
        return [one for one in current if one is not None], begun

    def _budgets(self, current: Sequence[OpenSplit | None], waiting: int) -> dict[int, _Budget]:
        """The epoch's limits, divided among the subtasks that have something to read."""
        held = {subtask for subtask, _ in self._held}
        busy = [subtask for subtask, one in enumerate(current) if one is not None and subtask not in held]
        free = [subtask for subtask, one in enumerate(current) if one is None and subtask not in held]
        working = [*busy, *free[:waiting]]
        if not working:
            return {}
        records, more = divmod(self._limits.max_records, len(working))
        size = self._limits.max_bytes / len(working)
        shares = [records + ((place + self._turn) % len(working) < more) for place in range(len(working))]
        # if the limit is smaller than the number of subtasks, some have to wait
        return {
            subtask: _Budget(min(share, self._may_read(str(subtask))), size)
            for subtask, share in zip(working, shares)
            if share
        }

    def _read_on(self, one: OpenSplit, budget: _Budget) -> tuple[OpenSplit | None, bool]:
        """Read on in a split; returns it at its new position (None if it has ended), and whether the subtask may read
        another split in this epoch."""
        split = self._splits[one.number]
        end, last = self._end_of(split, one.position)
        cost = self._cost(split, one.position)
        fitting = budget.units(*cost)
        if end is None:
            # such a split is read only as a whole, and the cost is that of the whole
            if not fitting:
                return one, False
            budget.take(1, *cost)
            return None, budget.records >= 1 and budget.bytes >= 1
        if one.position + fitting < end:
            if not fitting:
                return one, False
            stop = self._enumerator.cut(split, one.position, one.position + fitting)
            budget.take(stop - one.position, *cost)
            return one._replace(position=stop), False
        if end > one.position:
            budget.take(end - one.position, *cost)
        if not last:
            # all that is there is read
            self.backlog_splits -= 1
            return one._replace(position=end), False
        self._ends(one, end)
        return None, budget.untouched or budget.records >= 1 and budget.bytes >= 1


def _at_most(records: float, units: int, cost: UnitCost) -> int:
    """The number of units, limited to those that hold about this number of records."""
    if records == UNLIMITED or cost.records <= 0:
        return units if records else 0
    return min(units, max(1, int(records / cost.records))) if records else 0


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.inf


def is_news(start: SourceProgress, end: SourceProgress) -> bool:
    """Whether an epoch between the two has anything to read or to report."""
    before, after = (replace(one, begun=(), stops=(), held=(), state=None) for one in (start, end))
    return before != after or bool(end.begun)
