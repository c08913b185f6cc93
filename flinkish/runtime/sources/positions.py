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
    known = SplitList().with_splits([*ended, *splits], (), store)
    return SourceProgress(known, next=len(ended), complete=found.complete, state=found.state)
