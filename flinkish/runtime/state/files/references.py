"""What remembers the files of a subtask: small immutable values that travel with the subtask's state.

The files of a subtask are *runs*. A run is a sequence of files with ascending, disjoint ranges of positions; a position
is (hash, entry_hash). The **base** is the oldest run, each **delta** holds what one epoch (or some epochs in a row) has
changed. A newer run's rows hide those of older runs.

Rule: what lies in a file below its ``low`` does not count. Compaction leaves it there when it has moved only a part of
the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.errors import CorruptStateError, IncompatibleJobError

#: (hash, entry_hash): where a row lies in a run
Position = tuple[int, int]

#: Below and above every other position.
FIRST: Position = (0, 0)
END: Position = (1 << 64, 0)

_VERSION = 1


@dataclass(frozen=True)
class FileReference:
    """One immutable file. ``low``, ``high``: the lowest and highest position of its rows that count. ``tombstones``:
    the number of rows that only hide older ones."""

    name: str
    rows: int
    size_bytes: int
    sha256: bytes
    low: Position
    high: Position
    tombstones: int = 0

    def encode(self) -> tuple[Any, ...]:
        """Plain data."""
        return (self.name, self.rows, self.size_bytes, self.sha256, *self.low, *self.high, self.tombstones)

    @staticmethod
    def decode(data: tuple[Any, ...]) -> FileReference:
        """The inverse of `encode`."""
        name, rows, size, sha256, low, low_entry, high, high_entry, tombstones = data
        return FileReference(name, rows, size, sha256, (low, low_entry), (high, high_entry), tombstones)


#: Files with ascending, disjoint ranges.
Run = tuple[FileReference, ...]


def run_bytes(run: Run) -> int:
    """The size of the files of a run."""
    return sum(file.size_bytes for file in run)


@dataclass(frozen=True)
class FileSet:
    """All files of a subtask, and how far compaction is. ``deltas``: oldest first.

    A compaction cycle rewrites the base from the lowest position to the highest. ``cycle``: the number of oldest deltas
    that it moves into the base; ``cursor``: the position that it has reached, None when no cycle is under way.
    ``added``: bytes that were added since the last compaction.
    """

    base: Run = ()
    deltas: tuple[Run, ...] = ()
    cursor: Position | None = None
    cycle: int = 0
    added: int = 0

    @property
    def newest_first(self) -> tuple[Run, ...]:
        """The runs in the order in which they are looked into."""
        return (*reversed(self.deltas), *((self.base,) if self.base else ()))

    @property
    def files(self) -> Run:
        """All files, each once."""
        return (*self.base, *(file for run in self.deltas for file in run))

    @property
    def names(self) -> frozenset[str]:
        """The names of all files."""
        return frozenset(file.name for file in self.files)

    @property
    def rows(self) -> int:
        """The number of rows in all files, with those that are hidden."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return run_bytes(self.files)

    @property
    def live_rows_at_most(self) -> int:
        """An estimate of the entries that are there, which is never too low."""
        return self.rows - sum(file.tombstones for file in self.files)

    def encode(self) -> tuple[Any, ...]:
        """Plain data, which ``stored_pickle.dumps`` takes; about 100 bytes per file."""
        return (
            _VERSION,
            tuple(file.encode() for file in self.base),
            tuple(tuple(file.encode() for file in run) for run in self.deltas),
            self.cursor,
            self.cycle,
            self.added,
        )

    @staticmethod
    def decode(data: Any) -> FileSet:
        """The inverse of `encode`.

        Raises:
            IncompatibleJobError: another version of flinkish has written it.
            CorruptStateError: it is something else.
        """
        if not isinstance(data, tuple) or not data or not isinstance(data[0], int):
            raise CorruptStateError("the reference to the files of a state cannot be decoded")
        if data[0] != _VERSION:
            raise IncompatibleJobError(
                f"the reference to the files of a state has format version {data[0]}",
                expected=f"format version {_VERSION}",
                hint="run the version of flinkish that has written it, or start in a new job directory",
            )
        _, base, deltas, cursor, cycle, added = data
        return FileSet(_run(base), tuple(map(_run, deltas)), cursor, cycle, added)


def _run(files: Any) -> Run:
    return tuple(map(FileReference.decode, files))
