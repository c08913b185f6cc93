"""Detects files of the job directory that are missing although other files show that they were there: without them a
job would silently begin anew."""

from __future__ import annotations

import posixpath
import re

from flinkish.jobmanager.directory.damaged_files import missing_file
from flinkish.jobmanager.directory.files import child_names

#: Files that are written before the first epoch.
_BEFORE_EPOCHS = ("job.json", "query.json")
_LOCATION = "query-location.json"

_FALLBACK = re.compile(r"spark-(\d+)(-owner-\d+)?")


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
