"""The position of a source in a savepoint: self-contained, and independent of the number of subtasks.

    {"complete": true, "ended": [id, ...], "known": {...}, "splits": [[id, position, end, info], ...], "state": ...}

In a checkpoint, which has the files of the checkpoints before it beside it, the ids of the splits in segments are in
such files, and the position refers to these, with the number of splits in each, and of those that have ended:

    {"ended_in": [["<segment>-<token>", 1000, 998], ...], "ended": those in no file, ...}

All splits in the files have ended, but for those that ``splits`` names.

Rule upheld here: what `SourcePosition` reads is what was written here, once `with_ended` has put the files' content in.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from flinkish.core.source import SourcePosition, SourceSplit
from flinkish.errors import SavepointError
from flinkish.runtime.sources.progress import SourceProgress
from flinkish.runtime.sources.split_list import SegmentStore, SplitList
from flinkish.storage.sealed import json_as

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
    """Encode the progress of a source for a savepoint; with ``store_ids`` for a checkpoint, whose position refers to
    files."""
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
