"""The position of a source in a savepoint: self-contained, and independent of the number of subtasks.

    {"complete": true, "ended": [id, ...], "known": {...}, "splits": [[id, position, end, info], ...], "state": ...}

Rule upheld here: what `SourcePosition` reads is what was written here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from flinkish.core.source import SourcePosition, SourceSplit
from flinkish.errors import SavepointError
from flinkish.runtime.sources.progress import SourceProgress
from flinkish.runtime.sources.split_list import SegmentStore, SplitList

#: The most splits that `shown_position` leaves: of those that have ended, and of the others.
ENDED_SHOWN, SPLITS_SHOWN = 10, 1_000


def encode_position(progress: SourceProgress, store: SegmentStore, known: Mapping[str, str] | None = None) -> str:
    """Encode the progress of a source for a savepoint."""
    positions = {one.number: one.position for one in progress.open}
    ended, going = [], []
    for index, split in enumerate(progress.splits.splits(store)):
        if index < progress.next and index not in positions:
            ended.append(split.id)
        else:
            going.append([split.id, positions.get(index, split.start), split.end, split.info])
    found = {"complete": progress.complete, "ended": ended, "known": dict(known or {}), "splits": going}
    return json.dumps(found if progress.state is None else {**found, "state": progress.state})


def shown_position(position: str) -> str:
    """A position for people to look at: of a source with thousands of splits only the newest that have ended, and the
    first that have not, with the numbers of both as ``ended_count`` and ``splits_count``."""
    try:
        found = SourcePosition.decode(position, "")
    except SavepointError:
        # it is an offset of Spark
        return position
    if len(found.ended) <= ENDED_SHOWN and len(found.splits) <= SPLITS_SHOWN:
        return position
    counts = {"ended_count": len(found.ended), "splits_count": len(found.splits)}
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
