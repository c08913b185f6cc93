"""References to the files of a subtask, small immutable values that are stored with the subtask's state, and which of
the files may be deleted.

The files of a subtask form *runs*. A run is a sequence of files with ascending, disjoint ranges of positions; a
position is (hash, entry_hash). The **base** is the oldest run; each **delta** holds the changes of one epoch, or of
some consecutive epochs. The rows of a newer run hide those of older runs.

Rule: rows of a file below its ``low`` do not count. Compaction leaves them there when it has moved only a part of the
file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from flinkish.errors import CorruptStateError, IncompatibleJobError
from flinkish.storage.paths import NameForm

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory


#: (hash, entry_hash): the sort key of a row in a run
Position = tuple[int, int]

#: Below and above every other position.
FIRST: Position = (0, 0)
END: Position = (1 << 64, 0)

_VERSION = 1

#: The names that `file_name` gives. The state of a subtask may refer to no other file.
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
        """The references as plain data that ``pickles.dumps`` accepts; about 100 bytes per file."""
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


_NAME = re.compile(r"(\d+)-[0-9a-f]+\.arrow(\.[0-9a-f]+\.part)?")


def file_name(epoch: int, token: str) -> str:
    """The name of a file that an epoch writes. ``token``: hexadecimal digits that are used only once."""
    return f"{epoch}-{token}.arrow"


def epoch_of(name: str) -> int | None:
    """The epoch that has written a file, or a file of which this is an unfinished copy; None for other names.

    >>> epoch_of(file_name(17, "c0ffee")), epoch_of("17-c0ffee.arrow.beef.part"), epoch_of("_SUCCESS")
    (17, 17, None)
    """
    match = _NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def original_of(name: str) -> str:
    """The name of the file of which this is an unfinished copy; the name itself if it is not that of such a copy.

    >>> original_of("17-c0ffee.arrow.beef.part"), original_of("17-c0ffee.arrow")
    ('17-c0ffee.arrow', '17-c0ffee.arrow')
    """
    return name.split(".arrow.")[0] + ".arrow" if name.endswith(".part") else name


def oldest_retained(epoch: int, retained_epochs: int) -> int:
    """The oldest epoch that the job may still be restored to, while ``epoch`` is the newest one."""
    return epoch - max(retained_epochs, 1) + 1


def deletable(
    names: Collection[str],
    referenced: Collection[str],
    dropped: Mapping[str, int],
    epoch: int,
    retained_epochs: int,
) -> set[str]:
    """The names of the files that may be deleted.

    Rule: a file is kept as long as a retained epoch may refer to it. An attempt of a task that was retried, or that
    went on although its epoch had failed, may have left files that no epoch ever referred to. These are deleted by the
    epoch in their name, once it is older than all retained epochs.

    Args:
        names: The files in the directory; other names are ignored.
        referenced: The files that the state of the newest epoch refers to.
        dropped: Name -> the first epoch whose state does not refer to the file any more. Files that are neither here
            nor referenced were never referred to, or dropped so long ago that they have been forgotten.
        epoch: The newest epoch whose state is known to count.
        retained_epochs: The number of epochs, this one included, that the job can be restored to.
    """
    oldest = oldest_retained(epoch, retained_epochs)
    kept = set(referenced)
    gone = set()
    for name in names:
        written = epoch_of(name)
        if written is None or name in kept:
            continue
        # the last epoch that needs a file is the one before the epoch that has dropped it
        if name in dropped and dropped[name] <= oldest or name not in dropped and written < oldest:
            gone.add(name)
    return gone


def still_dropped(dropped: Mapping[str, int], names: Collection[str]) -> dict[str, int]:
    """The part of ``dropped`` whose files still lie in the directory, which has these names."""
    present = set(names)
    return {name: epoch for name, epoch in dropped.items() if name in present}


class FileOwner(Protocol):
    """State that refers to files of a subtask. ``dropped``: name of a file that it no longer refers to -> the first
    epoch that does not."""

    dropped: dict[str, int]

    def file_names(self) -> Collection[str]:
        """The names of the files that the state refers to."""


def delete_unneeded(directory: StateDirectory, owners: Iterable[FileOwner], epoch: int, retained_epochs: int) -> None:
    """Delete the files of a subtask that no retained epoch refers to.

    Args:
        directory: The directory with the files of the subtask.
        owners: All state that refers to files in the directory; their ``dropped`` forgets files that are gone.
        epoch: The newest epoch whose state counts: the one that was restored or written last.
        retained_epochs: The number of epochs, this one included, that the job can be restored to.
    """
    owners = list(owners)
    names = directory.names()
    referenced = {name for owner in owners for name in owner.file_names()}
    dropped = {name: since for owner in owners for name, since in owner.dropped.items()}
    gone = deletable(names, referenced, dropped, epoch, retained_epochs)
    directory.delete(gone)
    directory.close_others(referenced)
    for owner in owners:
        owner.dropped = still_dropped(owner.dropped, set(names) - gone)


#: The name of the timer service, and the name of the time domain.
TimerQueueName = tuple[str, str]


@dataclass(frozen=True)
class TimerSets:
    """The references to the files with the timers of a subtask, by timer service and time domain."""

    queues: Mapping[TimerQueueName, FileSet]

    def of(self, queue: TimerQueueName) -> FileSet:
        """The files of one service and domain."""
        return self.queues.get(queue, FileSet())

    def replaced(self, queue: TimerQueueName, files: FileSet) -> TimerSets:
        """A copy with other files for one service and domain."""
        queues = {name: held for name, held in self.queues.items() if name != queue}
        if files.files:
            queues[queue] = files
        return TimerSets(dict(sorted(queues.items())))

    @property
    def names(self) -> frozenset[str]:
        """The names of all files with timers."""
        return frozenset[str]().union(*(files.names for files in self.queues.values()))

    @property
    def size_bytes(self) -> int:
        """The size of all files with timers, in bytes."""
        return sum(files.size_bytes for files in self.queues.values())

    def encode(self) -> tuple[Any, ...]:
        """The references as plain data."""
        return tuple((*queue, files.encode()) for queue, files in self.queues.items())

    @staticmethod
    def decode(data: Any) -> TimerSets:
        """The inverse of `encode`. Raises CorruptStateError, or as `FileSet.decode` does, if the data is damaged."""
        try:
            queues = {(service, domain): files for service, domain, files in data}
        except (TypeError, ValueError) as error:
            raise CorruptStateError("the reference to the files of timers cannot be decoded") from error
        return TimerSets({queue: FileSet.decode(files) for queue, files in queues.items()})
