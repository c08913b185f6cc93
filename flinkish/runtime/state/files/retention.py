"""Decides which files of a subtask may be deleted.

Rule: a file is kept as long as a retained epoch may refer to it. An attempt of a task that was retried, or that went on
although its epoch had failed, may have left files that no epoch ever referred to. These are deleted by the epoch in
their name, once it is older than all retained epochs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory

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
