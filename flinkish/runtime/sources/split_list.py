"""All splits of a source that were ever found, in the order in which they were found. It only grows.

Rule: what an offset of the query's log refers to never changes. The list lies in *segments*, immutable files in the job
directory, and in a short *tail*, which travels in the offset itself. Most sources have few splits, and then no file.

    <job dir>/splits/<token>.json      [[id, start, end, info], ..., [id], ...]

A split that had ended before the epoch that is being planned is kept by its id alone.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from flinkish.common.durable_files import open_durable, sync_directory
from flinkish.common.storage import place
from flinkish.core.fence import NO_FENCE, Fence
from flinkish.core.source import SourceSplit
from flinkish.errors import CorruptStateError

#: Splits that travel in the offset; more of them go to a segment.
MAX_TAIL = 64
#: Segments of one source; more of them become one.
MAX_SEGMENTS = 16
#: Epochs for which a segment is kept after the last offset that refers to it: far more than the query's log keeps.
KEPT_EPOCHS = 1_000


class SegmentStore(Protocol):
    """Where segments lie."""

    def write(self, entries: list[list[Any]]) -> str:
        """Keep a segment; returns its name, which no other one has."""

    def read(self, name: str) -> list[list[Any]]:
        """The inverse of `write`. CorruptStateError when it is not there or not what was written."""

    def sweep(self, referenced: Collection[str], epoch: int) -> None:
        """Delete segments to which no offset refers any more. ``referenced``: by the offset of this epoch."""


class SegmentFiles:
    """Segments in a job directory.

    Args:
        job_dir: path or URI of the job directory.
        fence: asked before anything is deleted.
    """

    def __init__(self, job_dir: str, fence: Fence = NO_FENCE) -> None:
        self._directory = posixpath.join(job_dir, "splits")
        self._fence = fence
        self._cache: dict[str, list[list[Any]]] = {}
        self._referenced: set[str] | None = None
        #: name -> the first epoch whose offset did not refer to it
        self._left_in: dict[str, int] = {}

    def write(self, entries: list[list[Any]]) -> str:
        """Write a file under a new name: nobody refers to it before it is whole."""
        name = uuid.uuid4().hex
        file = open_durable(posixpath.join(self._directory, f"{name}.json"))
        file.write(json.dumps({"count": len(entries), "splits": entries}).encode())
        file.close()
        sync_directory(self._directory)
        self._cache[name] = entries
        return name

    def read(self, name: str) -> list[list[Any]]:
        """Read a file, once."""
        found = self._cache.get(name)
        if found is None:
            found = self._cache[name] = self._read(name)
        return found

    def _read(self, name: str) -> list[list[Any]]:
        filesystem, root = place(self._directory)
        path = posixpath.join(root, f"{name}.json")
        try:
            with filesystem.open_input_stream(path) as stream:
                content = json.loads(stream.read())
            entries: list[list[Any]] = content["splits"]
            if len(entries) != content["count"]:
                raise ValueError(f"{len(entries)} splits instead of {content['count']}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            damaged = CorruptStateError(
                f"the list of the splits that a source has found is damaged: {path} ({error})",
                where=path,
                hint="restore the file from a copy, or start the job from its last checkpoint or savepoint",
            )
            damaged.file = path
            raise damaged from error
        return entries

    def sweep(self, referenced: Collection[str], epoch: int) -> None:
        """Delete files that no retained offset of the query's log can refer to, those of earlier drivers included."""
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
            filesystem, root = place(self._directory)
            with suppress(FileNotFoundError):
                filesystem.delete_file(posixpath.join(root, f"{name}.json"))
            del self._left_in[name]
            self._cache.pop(name, None)

    def _names(self) -> list[str]:
        from pyarrow import fs

        filesystem, root = place(self._directory)
        found = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
        return [info.base_name.removesuffix(".json") for info in found if info.is_file]


class SegmentsInMemory:
    """Segments of a job without a directory."""

    def __init__(self) -> None:
        self._segments: dict[str, list[list[Any]]] = {}

    def write(self, entries: list[list[Any]]) -> str:
        """Keep them."""
        name = uuid.uuid4().hex
        self._segments[name] = entries
        return name

    def read(self, name: str) -> list[list[Any]]:
        """What was kept."""
        return self._segments[name]

    def sweep(self, referenced: Collection[str], epoch: int) -> None:
        """Forget the others."""
        self._segments = {name: self._segments[name] for name in referenced}


@dataclass(frozen=True)
class SplitList:
    """A version of the list, as an offset refers to it.

    Args:
        segments: (name, number of splits) of each segment, oldest first.
        tail: the newest splits.
    """

    segments: tuple[tuple[str, int], ...] = ()
    tail: tuple[SourceSplit, ...] = ()

    def __len__(self) -> int:
        return sum(count for _, count in self.segments) + len(self.tail)

    def splits(self, store: SegmentStore) -> list[SourceSplit]:
        """All of them."""
        stored = [from_json(entry) for name, _ in self.segments for entry in store.read(name)]
        return [*stored, *self.tail]

    def with_splits(self, all_splits: Sequence[SourceSplit], ended: Iterable[int], store: SegmentStore) -> SplitList:
        """The version that holds all these splits, of which this one holds the first ones.

        Args:
            all_splits: the whole list.
            ended: indices of splits that had ended before the epoch that is being planned.
            store: takes what becomes too long for the offset.
        """
        over = set(ended)
        stored = len(self) - len(self.tail)
        tail = tuple(_stub(split) if i in over else split for i, split in enumerate(all_splits[stored:], stored))
        if len(tail) <= MAX_TAIL:
            return SplitList(self.segments, tail)
        if len(self.segments) < MAX_SEGMENTS:
            name = store.write([to_json(split) for split in tail])
            return SplitList((*self.segments, (name, len(tail))))
        entries = [to_json(_stub(split) if i in over else split) for i, split in enumerate(all_splits)]
        return SplitList(((store.write(entries), len(entries)),))


def _stub(split: SourceSplit) -> SourceSplit:
    return SourceSplit(split.id)


def to_json(split: SourceSplit) -> list[Any]:
    """The form of a split in offsets, segments and savepoints."""
    if split == _stub(split):
        return [split.id]
    return [split.id, split.start, split.end, split.info]


def from_json(entry: list[Any]) -> SourceSplit:
    """The inverse of `to_json`."""
    return SourceSplit(*entry)
