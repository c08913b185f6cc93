"""Adds the free space to errors about a full disk: Spark says neither which file it was writing nor on which disk."""

from __future__ import annotations

import re
import shutil

from flinkish.errors import FlinkishError
from flinkish.jobmanager.directory.job_directory import JobDirectory

_FULL = re.compile(r"no space left|quota", re.IGNORECASE)


def with_free_space(error: FlinkishError, directory: JobDirectory) -> FlinkishError:
    """The same error; one about missing space also says how many bytes are free at a local job directory."""
    if directory.is_local and _FULL.search(error.what):
        try:
            free = shutil.disk_usage(directory.path).free
        except OSError:
            return error
        error.expected = f"space for the epoch's files; {free:,} bytes are free at {directory.path}"
    return error
