"""Where a source stands between two epochs, and what an epoch reads, which is the difference of two such places.

Rule: all that a replay must know is in the offsets, which are in the query's log before the epoch runs: nothing is
computed again from what a cluster, a directory or a broker looks like now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flinkish.core.source import SourceSplit, SplitRange
from flinkish.errors import CorruptStateError
from flinkish.runtime.sources.split_list import SegmentStore, SplitList, from_json, to_json


class OpenSplit(NamedTuple):
    """A split that has been begun and has not ended.

    Args:
        number: its place in the list of splits.
        subtask: who reads it.
        position: what is read next.
    """

    number: int
    subtask: int
    position: int


@dataclass(frozen=True)
class SourceProgress:
    """Where a source stands at the end of an epoch.

    Args:
        splits: all splits that are known.
        next: index of the first one that has not been assigned.
        open: those that are assigned and have not ended.
        begun: the subtasks to which this epoch has assigned the splits before ``next``, in order.
        complete: no other split will ever be found.
        stops: (number, position) of the splits that this epoch reads to another end than the list has.
        held: (subtask, split) of the streams with records that this epoch does not read, so that they do not run ahead
            of others; the split is "" where the subtask is the stream.
        state: what the enumerator keeps besides.
    """

    splits: SplitList = SplitList()
    next: int = 0
    open: tuple[OpenSplit, ...] = ()
    begun: tuple[int, ...] = ()
    complete: bool = False
    stops: tuple[tuple[int, int], ...] = ()
    held: tuple[tuple[int, str], ...] = ()
    state: Any = None

    def ended(self, subtask: int) -> bool:
        """Whether the subtask has nothing more to read, ever."""
        return self.all_assigned and all(split.subtask != subtask for split in self.open)

    @property
    def all_assigned(self) -> bool:
        """Whether every split that there will ever be has been assigned."""
        return self.complete and self.next == len(self.splits)

    @property
    def oldest_open(self) -> int:
        """Index of the first split that has not ended: all before it have."""
        return min((split.number for split in self.open), default=self.next)

    def ended_before(self, begun: int) -> list[int]:
        """Indices of the splits before ``begun`` that have ended."""
        going = {split.number for split in self.open}
        return [index for index in range(begun) if index not in going]

    def encode(self) -> dict[str, Any]:
        """The form in the offset; keys in order, since Spark compares the text."""
        found = {
            "begun": list(self.begun),
            "complete": self.complete,
            "next": self.next,
            "open": [list(split) for split in self.open],
            "segments": [list(segment) for segment in self.splits.segments],
            "stops": [list(stop) for stop in self.stops],
            "tail": [to_json(split) for split in self.splits.tail],
        }
        if self.held:
            found["held"] = [list(stream) for stream in self.held]
        if self.state is not None:
            found["state"] = self.state
        return dict(sorted(found.items()))

    @staticmethod
    def decode(value: dict[str, Any], where: str) -> SourceProgress:
        """The inverse of `encode`. CorruptStateError when it is something else."""
        try:
            segments = tuple((str(name), int(count)) for name, count in value["segments"])
            tail = tuple(from_json(entry) for entry in value["tail"])
            return SourceProgress(
                SplitList(segments, tail),
                int(value["next"]),
                tuple(OpenSplit(*split) for split in value["open"]),
                tuple(value["begun"]),
                bool(value["complete"]),
                tuple((int(number), int(position)) for number, position in value["stops"]),
                tuple((int(subtask), str(split)) for subtask, split in value.get("held", ())),
                value.get("state"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptStateError(
                f"the position of a source cannot be read: {error!r} in {str(value)[:200]}",
                where=where,
                hint="restore the query's log from a copy, or start the job from its last checkpoint or savepoint",
            ) from error


@dataclass(frozen=True)
class SourceShare:
    """What one subtask of a source does in one epoch.

    Args:
        vertex, subtask: who reads.
        time_ms: the epoch's processing time.
        ranges: what is read, in this order unless they are read side by side.
        ends: nothing will ever follow; told in the epoch in which it becomes so.
        ended: it has become so in an earlier epoch.
        held: splits with records that are not read in this epoch; "": all of the subtask's.
        together: the ranges are read side by side; None: as the source always does.
        apart: the splits have watermarks of their own from now on, and that of the subtask counts no more: a stage has
            begun whose splits are read side by side.
    """

    vertex: int
    subtask: int
    time_ms: int
    ranges: tuple[SplitRange, ...] = ()
    ends: bool = False
    ended: bool = False
    held: tuple[str, ...] = ()
    together: bool | None = None
    apart: bool = False


def ranges_between(
    start: SourceProgress, end: SourceProgress, store: SegmentStore, parallelism: int
) -> list[list[SplitRange]]:
    """What each subtask reads between two positions of the source: the splits that it goes on with first, then those
    that it begins."""
    splits: Sequence[SourceSplit] = end.splits.splits(store) if start != end else ()
    after, stops = {split.number: split for split in end.open}, dict(end.stops)
    found: list[list[SplitRange]] = [[] for _ in range(parallelism)]

    def add(index: int, subtask: int, position: int) -> None:
        split, still = splits[index], after.get(index)
        if still is None:
            found[subtask].append(SplitRange(split, position, stops.get(index, split.end), ends=True))
        elif still.position > position:
            found[subtask].append(SplitRange(split, position, still.position))

    if start != end:
        for split in start.open:
            add(split.number, split.subtask, split.position)
        for index, subtask in zip(range(start.next, end.next), end.begun, strict=True):
            add(index, subtask, splits[index].start)
    return found
