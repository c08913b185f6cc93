"""Files of the job directory that others show to have been there: without them a job would silently begin anew."""

from __future__ import annotations

import posixpath

from flinkish.errors import FinalOperationError
from flinkish.jobmanager.directory.damaged_files import HINT
from flinkish.jobmanager.directory.files import child_names

#: Files that are written before the first epoch.
_BEFORE_EPOCHS = ("job.json", "query.json")
_LOCATION = "query-location.json"


def check_nothing_missing(directory: str) -> None:
    """
    Raises:
        FinalOperationError: epochs have been planned here, and a file that was there by then is not.
    """
    names = child_names(directory)
    begun = [name for name in names if _is_query(name) and child_names(posixpath.join(directory, name, "offsets"))]
    needed = list(_BEFORE_EPOCHS) if begun else []
    if any(name != "spark" for name in begun):
        needed.append(_LOCATION)
    if begun and any(name == "restore" or name.startswith("restore-") for name in names):
        needed.append("restored.json")
    for name in needed:
        if name not in names:
            raise FinalOperationError(
                f"the file {name} is missing",
                where=posixpath.join(directory, name),
                expected="a job directory with all its files, since epochs have been run in it",
                hint=HINT,
            )


def _is_query(name: str) -> bool:
    return name == "spark" or name.startswith("spark-")
