"""References to the files of a subtask: small immutable values that are stored with the subtask's state.

The files of a subtask form *runs*. A run is a sequence of files with ascending, disjoint ranges of positions; a
position is (hash, entry_hash). The **base** is the oldest run; each **delta** holds the changes of one epoch, or of
some consecutive epochs. The rows of a newer run hide those of older runs.

Rule: rows of a file below its ``low`` do not count. Compaction leaves them there when it has moved only a part of the
file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.errors import CorruptStateError, IncompatibleJobError
from flinkish.storage.paths import NameForm

#: (hash, entry_hash): the sort key of a row in a run
Position = tuple[int, int]

#: Below and above every other position.
FIRST: Position = (0, 0)
END: Position = (1 << 64, 0)

_VERSION = 1

#: The names that `retention.file_name` gives. The state of a subtask may refer to no other file.
STATE_FILE = NameForm(r"[0-9]+-[0-9a-f]+\.arrow")


@dataclass(frozen=True)
class FileReference:
    """The reference to one immutable file.

    ``low`` and ``high`` are the lowest and highest position of its rows that count, ``sha256`` is the digest of its
    content, and ``tombstones`` the number of rows that only hide older ones.
    """

    name: str
    rows: int
    size_bytes: int
    sha256: bytes
    low: Position
    high: Position
    tombstones: int = 0

    def encode(self) -> tuple[Any, ...]:
        """The reference as plain data."""
        return (self.name, self.rows, self.size_bytes, self.sha256, *self.low, *self.high, self.tombstones)

    @staticmethod
    def decode(data: tuple[Any, ...]) -> FileReference:
        """The inverse of `encode`.

        Raises:
            TypeError, ValueError: the data is damaged, or the name is not one that flinkish gives.
        """
        name, rows, size, sha256, low, low_entry, high, high_entry, tombstones = data
        return FileReference(
            STATE_FILE.checked(name), rows, size, sha256, (low, low_entry), (high, high_entry), tombstones
        )


#: Files with ascending, disjoint ranges of positions.
Run = tuple[FileReference, ...]


def run_bytes(run: Run) -> int:
    """The size of the files of a run, in bytes."""
    return sum(file.size_bytes for file in run)


@dataclass(frozen=True)
class FileSet:
    """The references to all files with the keyed state of a subtask (or with its timers of one service and time
    domain), and the progress of compaction. ``deltas`` are oldest first.

    A compaction cycle rewrites the base from the lowest position to the highest. ``cycle`` is the number of the oldest
    deltas that it merges into the base; ``cursor`` is the position that it has reached, None if no cycle is under way.
    ``added`` is the number of bytes that were added since the last compaction.
    """

    base: Run = ()
    deltas: tuple[Run, ...] = ()
    cursor: Position | None = None
    cycle: int = 0
    added: int = 0

    @property
    def newest_first(self) -> tuple[Run, ...]:
        """The runs from the newest to the oldest, which is the order of look-ups."""
        return (*reversed(self.deltas), *((self.base,) if self.base else ()))

    @property
    def files(self) -> Run:
        """All files of all runs."""
        return (*self.base, *(file for run in self.deltas for file in run))

    @property
    def names(self) -> frozenset[str]:
        """The names of all files."""
        return frozenset(file.name for file in self.files)

    @property
    def rows(self) -> int:
        """The number of rows in all files, including hidden ones."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """The size of all files, in bytes."""
        return run_bytes(self.files)

    @property
    def live_rows_at_most(self) -> int:
        """An upper bound of the number of entries."""
        return self.rows - sum(file.tombstones for file in self.files)

    def encode(self) -> tuple[Any, ...]:
        """The references as plain data that ``stored_pickle.dumps`` accepts; about 100 bytes per file."""
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
            CorruptStateError: the data is no tuple that begins with a version.
            TypeError, ValueError: the data is damaged in another way.
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
