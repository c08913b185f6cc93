"""The errors for damaged and missing files of the job directory, which name the file. Contents are never guessed."""

from __future__ import annotations

import posixpath

from flinkish.errors import FinalOperationError

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
