"""The list of all splits of a source that were ever found, in the order in which they were found. It only grows.

Rule: what an offset of the query's log refers to never changes. The list is stored in *segments*, immutable files in
the job directory, and in a short *tail*, which is part of the offset itself. Most sources have few splits and no file.

Of a split that had ended before the epoch that is being planned only the id is kept.
"""

from __future__ import annotations

import posixpath
import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from flinkish.core.sink import NO_FENCE, Fence
from flinkish.core.source import SourceSplit
from flinkish.errors import CorruptStateError
from flinkish.storage.paths import NameForm, check_below
from flinkish.storage.stored_file import CHECKPOINT, StoredFile
from flinkish.storage.stores import storage_of

#: Maximum number of splits in the tail; a longer tail becomes a segment.
MAX_TAIL = 64
#: Maximum number of segments of one source; when another one is needed, the newest of them become one.
MAX_SEGMENTS = 16
#: Number of epochs for which a segment is kept after the last offset that refers to it, far more than the query's log
#: keeps.
KEPT_EPOCHS = 1_000


#: The names of segments.
_SEGMENT = NameForm(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Segment(StoredFile):
    """Some splits in the order in which they were found: id, start, end and info, or the id alone."""

    NAME = "{}.json"
    PART = _SEGMENT.pattern
    FOLDER = "splits"
    WHEN = "of sources with more than 64 splits"
    READER = "the planner"
    REMEDY = CHECKPOINT
    DURABLE = True
    ERROR = CorruptStateError

    splits: list[list[Any]]

    def check_name(self, *parts: str) -> None:
        _SEGMENT.checked(parts[0])
        if not all(map(_is_split, self.splits)):
            raise ValueError("an entry is no split")


def _is_split(entry: list[Any]) -> bool:
    if not entry or not isinstance(entry[0], str):
        return False
    return len(entry) == 1 or len(entry) == 4 and type(entry[1]) is int and (entry[2] is None or type(entry[2]) is int)


class SegmentStore(Protocol):
    """Stores the segments of lists of splits."""

    def write(self, entries: list[list[Any]]) -> str:
        """Store a segment; returns its name, which is unique."""

    def read(self, name: str) -> list[list[Any]]:
        """The inverse of `write`.

        Raises:
            CorruptStateError: the segment is missing or damaged.
        """

    def sweep(self, referenced: Collection[str], epoch: int) -> None:
        """Delete segments to which no offset refers any more. ``referenced`` are the names of the segments to which the
        offset of this epoch, or the one before, refers."""


class SegmentFiles:
    """Stores segments as files in the job directory.

    Args:
        job_dir: path or URI of the job directory.
        fence: is checked before anything is deleted.
    """

    def __init__(self, job_dir: str, fence: Fence = NO_FENCE) -> None:
        self._directory = posixpath.join(job_dir, "splits")
        self._storage = storage_of(self._directory)
        self._fence = fence
        self._cache: dict[str, list[list[Any]]] = {}
        self._referenced: set[str] | None = None
        #: name -> the first epoch whose offset did not refer to it
        self._left_in: dict[str, int] = {}

    def write(self, entries: list[list[Any]]) -> str:
        """Write a segment to a file of a new name, to which nothing refers before it is complete."""
        name = uuid.uuid4().hex
        Segment(entries).write(self._directory, name)
        self._cache[name] = entries
        return name

    def read(self, name: str) -> list[list[Any]]:
        """Read a segment, from its file only the first time."""
        found = self._cache.get(name)
        if found is None:
            found = self._cache[name] = self._read(name)
        return found

    def _read(self, name: str) -> list[list[Any]]:
        try:
            check_below(self._directory, Segment.path_in(self._directory, _SEGMENT.checked(name)))
        except ValueError as error:
            raise Segment.damaged(Segment.path_in(self._directory, name[:100]), error) from error
        found = Segment.read(self._directory, name)
        if found is None:
            raise Segment.damaged(Segment.path_in(self._directory, name), "it is missing")
        return found.splits

    def sweep(self, referenced: Collection[str], epoch: int) -> None:
        """Delete files to which no retained offset of the query's log can refer, including those of earlier drivers."""
        names = set(referenced)
        if self._referenced is None:
            self._left_in = {name: epoch for name in self._names() if name not in names}
        else:
            self._left_in.update((name, epoch) for name in self._referenced - names)
        self._referenced = names
        over = [name for name, left_in in self._left_in.items() if epoch - left_in >= KEPT_EPOCHS]
        if over:
            self._fence.check()
        for name in over:
            Segment.delete(self._directory, name)
            del self._left_in[name]
            self._cache.pop(name, None)

    def _names(self) -> list[str]:
        found = self._storage.list(self._directory)
        return [parts[0] for entry in found if entry.is_file and (parts := Segment.parts_of(entry.name)) is not None]


class SegmentsInMemory:
    """Stores the segments of a job without a directory, in memory."""

    def __init__(self) -> None:
        self._segments: dict[str, list[list[Any]]] = {}

    def write(self, entries: list[list[Any]]) -> str:
        """Store a segment; returns its name, which is unique."""
        name = uuid.uuid4().hex
        self._segments[name] = entries
        return name

    def read(self, name: str) -> list[list[Any]]:
        """The segment of that name."""
        return self._segments[name]

    def sweep(self, referenced: Collection[str], epoch: int) -> None:
        """Delete all other segments at once."""
        self._segments = {name: self._segments[name] for name in referenced}


@dataclass(frozen=True)
class SplitList:
    """A version of the list of splits, as an offset refers to it.

    Args:
        segments: (name, number of splits) of each segment, oldest first.
        tail: the newest splits, which are in no segment.
    """

    segments: tuple[tuple[str, int], ...] = ()
    tail: tuple[SourceSplit, ...] = ()

    def __len__(self) -> int:
        return sum(count for _, count in self.segments) + len(self.tail)

    def splits(self, store: SegmentStore) -> list[SourceSplit]:
        """All splits of the list."""
        stored = [from_json(entry) for name, _ in self.segments for entry in store.read(name)]
        return [*stored, *self.tail]

    def at(self, numbers: Iterable[int], store: SegmentStore) -> dict[int, SourceSplit]:
        """Index -> split for some of the splits; costs as much as there are of these, whatever the length of the list.

        Raises:
            IndexError: the list has no such split.
        """
        firsts = [0, *accumulate(count for _, count in self.segments)]
        found: dict[int, SourceSplit] = {}
        for number in numbers:
            segment = bisect_right(firsts, number) - 1
            if segment == len(self.segments):
                found[number] = self.tail[number - firsts[segment]]
            else:
                found[number] = from_json(store.read(self.segments[segment][0])[number - firsts[segment]])
        return found

    def with_splits(
        self, all_splits: Sequence[SourceSplit], begun: int, going: Set[int], store: SegmentStore
    ) -> SplitList:
        """A version with all these splits, the first of which this version holds already.

        Args:
            all_splits: the whole list.
            begun: number of splits that were assigned before the epoch that is being planned.
            going: indices of those of them that had not ended then.
            store: stores the tail if it becomes too long for the offset.
        """

        def from_index(first: int) -> list[SourceSplit]:
            rest = enumerate(all_splits[first:], first)
            return [_stub(split) if i < begun and i not in going else split for i, split in rest]

        first = len(self) - len(self.tail)
        tail = from_index(first)
        if len(tail) <= MAX_TAIL:
            return SplitList(self.segments, tuple(tail))
        segments = list(self.segments)
        if len(segments) >= MAX_SEGMENTS:
            # only segments that are not much larger than what follows them are written again: so each split is written
            # as often as the list has doubled, not as often as the list has grown
            while segments and (len(segments) >= MAX_SEGMENTS or segments[-1][1] <= len(all_splits) - first):
                first -= segments.pop()[1]
            tail = from_index(first)
        name = store.write([to_json(split) for split in tail])
        return SplitList((*segments, (name, len(tail))))


def _stub(split: SourceSplit) -> SourceSplit:
    return SourceSplit(split.id)


def to_json(split: SourceSplit) -> list[Any]:
    """Encode a split for offsets and segments; of a split that has no more than an id only that is kept."""
    if split == _stub(split):
        return [split.id]
    return [split.id, split.start, split.end, split.info]


def from_json(entry: list[Any]) -> SourceSplit:
    """The inverse of `to_json`."""
    return SourceSplit(*entry)
