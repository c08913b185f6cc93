"""Damaged and missing files of the job directory: the errors name the file, and contents are never guessed.

A file that is missing although other files show that it was there is detected, since without it a job would silently
begin anew.
"""

from __future__ import annotations

import posixpath
import re

from flinkish.errors import FinalOperationError
from flinkish.jobmanager.directory.files import child_names

#: Files that are written before the first epoch.
_BEFORE_EPOCHS = ("job.json", "query.json")
_LOCATION = "query-location.json"

_FALLBACK = re.compile(r"spark-(\d+)(-owner-\d+)?")

_HINT = "restore the file from a copy, or start the job in a new directory from a checkpoint or savepoint"

#: File -> hint for a file with another remedy than `_HINT`.
_HINTS = {
    "owner.json": "if no driver runs this job, delete the file and start the job again",
    "attempts.json": "delete the file and start the job again: it only counts starts",
    "states.json": "delete the file and start the job again: the job's tasks write it anew",
}


def damaged_file(directory: str, name: str, why: object) -> FinalOperationError:
    """The error for a file that is there and cannot be read. ``why``: what is wrong with it."""
    return FinalOperationError(
        f"the file {name} is damaged: {why}",
        where=posixpath.join(directory, name),
        expected="the file as flinkish wrote it",
        hint=_HINTS.get(name, _HINT),
    )


def missing_file(directory: str, name: str) -> FinalOperationError:
    """The error for a file that is missing, although other files show that it was there."""
    return FinalOperationError(
        f"the file {name} is missing",
        where=posixpath.join(directory, name),
        expected="a job directory with all its files, since epochs have been run in it",
        hint=_HINT,
    )


def check_nothing_missing(directory: str) -> None:
    """Check that a job directory has the files that its epochs need.

    Raises:
        FinalOperationError: epochs have been planned here, and a file that was there by then is missing.
    """
    names = child_names(directory)
    begun = [name for name in names if _is_query(name) and child_names(posixpath.join(directory, name, "offsets"))]
    needed = list(_BEFORE_EPOCHS) if begun else []
    if any(name != "spark" for name in begun):
        needed.append(_LOCATION)
    # a query that has taken the place of a damaged one was restored from a checkpoint
    needed += [f"restored-{found[1]}.json" for name in begun if (found := _FALLBACK.fullmatch(name))]
    for name in needed:
        if name not in names:
            raise missing_file(directory, name)


def _is_query(name: str) -> bool:
    return name == "spark" or name.startswith("spark-")
