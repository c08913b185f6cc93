"""An epoch that Spark has planned and of which no sink has heard: a stop has kept it from happening, or it is the first
one that reads state from storage, and not all of that has been read yet.

Rule: the file is there only while that is so. It is deleted before any sink hears of an epoch.
"""

from __future__ import annotations

from flinkish.jobmanager.directory.job_directory import JobDirectory

_FILE = "not-begun.json"


def remember_not_begun(directory: JobDirectory, epoch: int) -> None:
    """The planned epoch will not happen now."""
    directory.write(_FILE, {"epoch": epoch})


def forget_not_begun(directory: JobDirectory) -> None:
    """An epoch begins."""
    directory.delete(_FILE)


def epoch_not_begun(directory: JobDirectory) -> int | None:
    """The epoch that was planned and has not begun; None: nothing is known of such a one."""
    kept = directory.read(_FILE)
    return None if kept is None else int(kept["epoch"])
