"""Finds the savepoint or checkpoint that a path means, and the Spark session that reads it."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from flinkish.checkpoint.manifest import MANIFEST
from flinkish.common.configuration import Configuration
from flinkish.errors import SavepointError
from flinkish.storage.files import child_names
from flinkish.storage.paths import absolute

_CHECKPOINT = re.compile(r"chk-(\d+)")


def snapshot_directory(path: str) -> str:
    """The directory of a savepoint or checkpoint: the path itself, or the latest completed checkpoint of a job
    directory or of a directory of checkpoints.

    Raises:
        SavepointError: there is neither a savepoint nor a completed checkpoint.
    """
    directory = absolute(str(path))
    names = child_names(directory)
    if MANIFEST in names:
        return directory
    checkpoints = posixpath.join(directory, "checkpoints") if "checkpoints" in names else directory
    numbers = [int(match.group(1)) for match in map(_CHECKPOINT.fullmatch, child_names(checkpoints)) if match]
    for number in sorted(numbers, reverse=True):
        candidate = posixpath.join(checkpoints, f"chk-{number}")
        if MANIFEST in child_names(candidate):
            return candidate
    raise SavepointError(
        f"there is neither a savepoint nor a completed checkpoint at {directory}",
        expected=f"a savepoint or a checkpoint (a directory with {MANIFEST}), or the directory of a job that has one",
    )


def session_of(spark: Any) -> Any:
    """The given Spark session; if it is None, the active one, or else a local one."""
    if spark is not None:
        return spark
    from flinkish.spark.session import get_session

    return get_session(Configuration(), "flinkish.state")
