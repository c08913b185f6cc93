"""Which files of a subtask may be deleted.

Rule: a file is kept as long as a retained epoch may refer to it. A task that is tried again, or that goes on although
its epoch has failed, may have left files that nothing ever referred to; these go by the epoch in their name, once that
epoch can no longer be under way or be the newest one that is retained.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flinkish.runtime.state.files.directory import StateDirectory

_NAME = re.compile(r"(\d+)-[0-9a-f]+\.arrow(\.part)?")


def file_name(epoch: int, token: str) -> str:
    """The name of a file that an epoch writes. ``token``: used once."""
    return f"{epoch}-{token}.arrow"


def epoch_of(name: str) -> int | None:
    """The epoch that has written a file; None for names that are not those of state files.

    >>> epoch_of(file_name(17, "c0ffee")), epoch_of("17-c0ffee.arrow.part"), epoch_of("_SUCCESS")
    (17, 17, None)
    """
    match = _NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def oldest_retained(epoch: int, retained_epochs: int) -> int:
    """The oldest epoch to which the job may still go back, while ``epoch`` is the newest one."""
    return epoch - max(retained_epochs, 1) + 1


def deletable(
    names: Collection[str],
    referenced: Collection[str],
    dropped: Mapping[str, int],
    epoch: int,
    retained_epochs: int,
) -> set[str]:
    """The names that may go.

    Args:
        names: What lies in the directory.
        referenced: What the newest epoch's state refers to.
        dropped: Name -> the first epoch whose state does not refer to it any more. Names that are in neither were
            never referred to, or dropped so long ago that they have been forgotten.
        epoch: The newest epoch whose state is known to count.
        retained_epochs: So many epochs, this one included, can be gone back to.
    """
    oldest = oldest_retained(epoch, retained_epochs)
    kept = set(referenced)
    gone = set()
    for name in names:
        written = epoch_of(name)
        if written is None or name in kept:
            continue
        # the state of the epoch before the one that has dropped it is the last one that needs it
        if name in dropped and dropped[name] <= oldest or name not in dropped and written < oldest:
            gone.add(name)
    return gone


def still_dropped(dropped: Mapping[str, int], names: Collection[str]) -> dict[str, int]:
    """What is left of ``dropped`` when only these names still lie in the directory."""
    present = set(names)
    return {name: epoch for name, epoch in dropped.items() if name in present}


class FileOwner(Protocol):
    """What refers to files of a subtask. ``dropped``: files that were dropped -> the epoch since which they are not
    referred to."""

    dropped: dict[str, int]

    def file_names(self) -> Collection[str]:
        """The files that are referred to."""


def delete_unneeded(directory: StateDirectory, owners: Iterable[FileOwner], epoch: int, retained_epochs: int) -> None:
    """Delete the files of a subtask that no retained epoch refers to.

    Args:
        owners: all that refer to files in the directory.
        epoch: The last one whose state counts, which is the one that was restored or written last.
        retained_epochs: So many epochs, this one included, can be gone back to.
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
