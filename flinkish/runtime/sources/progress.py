"""The progress of a source between two epochs, what an epoch reads, which is the difference of two of these, and the
position of a source in a savepoint.

Rule: all that a replay must know is in the offsets, which are in the query's log before the epoch runs. Nothing is
computed again from the present state of a cluster, a directory or a broker.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from flinkish.core.source import SourcePosition, SourceSplit, SplitRange
from flinkish.errors import CorruptStateError, SavepointError
from flinkish.runtime.sources.split_list import SegmentStore, SplitList, from_json, to_json
from flinkish.storage.sealed import json_as

#: The name under which `SourceShare.states` has what is known of a stream of splits that one subtask reads one after
#: the other. No split has this name.
STREAM = ""


class OpenSplit(NamedTuple):
    """A split that is assigned and has not ended.

    Args:
        number: its index in the list of splits.
        subtask: the subtask that reads it.
        position: the position that is read next.
    """

    number: int
    subtask: int
    position: int


@dataclass(frozen=True)
class SourceProgress:
    """The progress of a source at the end of an epoch.

    Args:
        splits: all splits that are known.
        next: index of the first split that has not been assigned.
        open: the splits that are assigned and have not ended.
        begun: the subtasks to which this epoch has assigned the splits before ``next``, in order.
        complete: whether no other split will ever be found.
        stops: (number, position) of the splits whose end in this epoch is not the one in the list.
        held: (subtask, split) of the streams with records that this epoch does not read, so that they do not run ahead
            of others, or since it has no room for a new split; the split is "" if the subtask is the stream.
        state: the further state of the enumerator (`SplitEnumerator.snapshot_state`).
    """

    splits: SplitList = SplitList()
    next: int = 0
    open: tuple[OpenSplit, ...] = ()
    begun: tuple[int, ...] = ()
    complete: bool = False
    stops: tuple[tuple[int, int], ...] = ()
    held: tuple[tuple[int, str], ...] = ()
    state: Any = None

    def ended_subtasks(self, parallelism: int) -> frozenset[int]:
        """The subtasks that will never have anything more to read."""
        if not self.all_assigned:
            return frozenset()
        return frozenset(range(parallelism)).difference(split.subtask for split in self.open)

    @property
    def all_assigned(self) -> bool:
        """Whether all splits are assigned and no other one will be found."""
        return self.complete and self.next == len(self.splits)

    @property
    def oldest_open(self) -> int:
        """The index of the first split that has not ended; all splits before it have."""
        return min((split.number for split in self.open), default=self.next)

    def positions(self, store: SegmentStore, first: int = 0) -> dict[str, int]:
        """Split -> its position, for the splits from index ``first`` on that have begun, also for those that have
        ended. A split that was read as a whole has no position."""
        reached: dict[int, int | None] = {one.number: one.position for one in self.open if one.number >= first}
        splits, stops = self.splits.at(range(first, self.next), store), dict(self.stops)
        for number in range(first, self.next):
            if number not in reached:
                reached[number] = stops.get(number, splits[number].end)
        return {splits[number].id: position for number, position in reached.items() if position is not None}

    def with_findings_of(self, given_up: SourceProgress) -> SourceProgress:
        """This progress, with the splits that a plan of the next epoch had found, which was given up. They are not
        looked for again: another look may find other ones, such as later offsets of Kafka or no page any more."""
        return replace(self, splits=given_up.splits, complete=given_up.complete, state=given_up.state)

    def encode(self) -> dict[str, Any]:
        """Encode the progress for the offset. The keys are in order, since Spark compares offsets as texts."""
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
        """The inverse of `encode`.

        Raises:
            CorruptStateError: the value is not an encoded progress.
        """
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
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptStateError(
                f"the position of a source cannot be read: {error!r} in {str(value)[:200]}",
                where=where,
                hint="restore the query's log from a copy, or start the job from its last checkpoint or savepoint",
            ) from error


@dataclass(frozen=True)
class SourceShare:
    """The share of one subtask of a source in one epoch.

    Args:
        vertex, subtask: the subtask that reads.
        time_ms: the epoch's processing time.
        ranges: the ranges of splits to be read, in this order unless they are read side by side.
        ends: whether the subtask ends with this epoch: nothing will ever follow.
        ended: whether the subtask has ended in an earlier epoch.
        held: splits with records that are not read in this epoch; "" stands for all splits of the subtask.
        together: whether the ranges are read side by side; None means as the source always does.
        apart: whether a stage begins whose splits are read side by side: the splits have watermarks of their own from
            now on, and the watermark of the subtask does not count any more.
        backlog: in the first subtask, the estimated number of records that are there and that the epoch leaves.
        backlog_splits: the same in splits that are not read to their ends, if they are read one after the other.
        states: what the tasks knew of the splits of the ranges before the epoch (`TaskReport.split_states`).
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
    backlog: int = 0
    states: Mapping[str, Any] = field(default_factory=dict)
    backlog_splits: int = 0


def ranges_between(
    start: SourceProgress, end: SourceProgress, store: SegmentStore, parallelism: int
) -> list[list[SplitRange]]:
    """The ranges that each subtask reads between two progresses of the source: first the splits that it continues, then
    those that it begins."""
    found: list[list[SplitRange]] = [[] for _ in range(parallelism)]
    if start == end:
        return found
    going = [one.number for one in start.open]
    splits = end.splits.at([*going, *range(start.next, end.next)], store)
    after, stops = {split.number: split for split in end.open}, dict(end.stops)

    def add(index: int, subtask: int, position: int) -> None:
        split, still = splits[index], after.get(index)
        if still is None:
            found[subtask].append(SplitRange(split, position, stops.get(index, split.end), ends=True))
        elif still.position > position:
            found[subtask].append(SplitRange(split, position, still.position))

    for one in start.open:
        add(one.number, one.subtask, one.position)
    for index, subtask in zip(range(start.next, end.next), end.begun, strict=True):
        add(index, subtask, splits[index].start)
    return found


#: The most splits that `shown_position` leaves: of those that have ended, and of the others.
ENDED_SHOWN, SPLITS_SHOWN = 10, 1_000


#: Stores the ids of the splits of a segment, unless that is done already; returns the name of their file.
StoreIds = Callable[[str, Callable[[], list[str]]], str]


@dataclass(frozen=True)
class _ReferringPosition(SourcePosition):
    """A position that refers to files: their names, the number of splits in each, and of those that have ended."""

    ended_in: list[tuple[str, int, int]] = field(default_factory=list)


def encode_position(
    progress: SourceProgress,
    store: SegmentStore,
    known: Mapping[str, str] | None = None,
    store_ids: StoreIds | None = None,
) -> str:
    """Encode the progress of a source as its position in a savepoint: self-contained, and independent of the number of
    subtasks.

        {"complete": true, "ended": [id, ...], "known": {...},
         "splits": [[id, position, end, info], ...], "state": ...}

    With ``store_ids`` the position is for a checkpoint, which has the files of the checkpoints before it beside it: the
    ids of the splits in segments are in such files, and the position refers to these, with the number of splits in
    each, and of those that have ended:

        {"ended_in": [["<segment>-<token>", 1000, 998], ...], "ended": those in no file, ...}

    All splits in the files have ended, but for those that ``splits`` names.

    Rule: what `SourcePosition` reads is what was written here, once `with_ended` has put the files' content in.
    """
    positions = {one.number: one.position for one in progress.open}
    numbers = sorted({*positions, *range(progress.next, len(progress.splits))})
    files, first = [], 0
    for segment, count in progress.splits.segments if store_ids is not None else ():
        assert store_ids is not None
        going = bisect_left(numbers, first + count) - bisect_left(numbers, first)
        files.append((store_ids(segment, partial(_ids_in, segment, store)), count, count - going))
        first += count
    in_position = [*numbers[: bisect_left(numbers, first)], *range(first, len(progress.splits))]
    ended, splits = [], []
    for index, split in progress.splits.at(in_position, store).items():
        if index < progress.next and index not in positions:
            ended.append(split.id)
        else:
            splits.append([split.id, positions.get(index, split.start), split.end, split.info])
    found = {"complete": progress.complete, "ended": ended, "known": dict(known or {}), "splits": splits}
    if files:
        found["ended_in"] = files
    return json.dumps(found if progress.state is None else {**found, "state": progress.state})


def _ids_in(segment: str, store: SegmentStore) -> list[str]:
    return [entry[0] for entry in store.read(segment)]


def _files_of(position: str) -> list[tuple[str, int, int]]:
    # most positions refer to none; those of Spark's own sources are other texts
    if '"ended_in"' not in position:
        return []
    try:
        return json_as(_ReferringPosition, position).ended_in
    except ValueError:
        return []


def files_of(position: str) -> list[str]:
    """The names of the files to which a position refers."""
    return [name for name, _, _ in _files_of(position)]


def with_ended(position: str, read: Callable[[str], list[str]]) -> str:
    """A position with the splits that have ended according to the files that it refers to. ``read`` gives the ids of
    the splits in a file.

    Raises:
        ValueError: a file has other splits.
    """
    files = _files_of(position)
    if not files:
        return position
    content = json.loads(position)
    going, ended = {split[0] for split in content["splits"]}, []
    for name, count, ended_count in files:
        ids = read(name)
        over = [split for split in ids if split not in going]
        if (len(ids), len(over)) != (count, ended_count):
            found = f"{len(ids)} splits, {len(over)} of which have ended, and not {count} and {ended_count}"
            raise ValueError(f"the file {name} has {found}")
        ended += over
    del content["ended_in"]
    return json.dumps({**content, "ended": [*ended, *content["ended"]]})


def shown_position(position: str) -> str:
    """A position for people to look at: of a source with thousands of splits only the newest that have ended, and the
    first that have not, with the numbers of both as ``ended_count`` and ``splits_count``."""
    try:
        found = SourcePosition.decode(position, "")
    except SavepointError:
        # it is an offset of Spark
        return position
    count = len(found.ended) + sum(ended for _, _, ended in _files_of(position))
    if count <= ENDED_SHOWN and len(found.splits) <= SPLITS_SHOWN:
        return position
    counts = {"ended_count": count, "splits_count": len(found.splits)}
    shown = {"ended": found.ended[-ENDED_SHOWN:], "splits": found.splits[:SPLITS_SHOWN]}
    return json.dumps({**vars(found), **shown, **counts})


def known_in(position: str | None) -> dict[str, str]:
    """The ``known`` part of a position in a savepoint; {} if there is none."""
    try:
        return SourcePosition.decode(position, "").known if position else {}
    except SavepointError:
        # the position may be an offset of Spark; a text that is no position at all is refused where it is used
        return {}


def decode_position(text: str, uid: str, store: SegmentStore) -> SourceProgress:
    """The progress from which a source continues, given its position in a savepoint. No split is assigned, since the
    source may have another parallelism now.

    Raises:
        SavepointError: the text is not a position.
    """
    found = SourcePosition.decode(text, f"source uid {uid}")
    splits = [SourceSplit(*split) for split in found.splits]
    ended = [SourceSplit(name) for name in found.ended]
    known = SplitList().with_splits([*ended, *splits], 0, frozenset(), store)
    return SourceProgress(known, next=len(ended), complete=found.complete, state=found.state)
