"""Files of a job directory as JSON objects, whatever their fields are."""

from __future__ import annotations

import posixpath
from typing import Any

from flinkish.jobdir.directory import JobDirectory
from flinkish.storage.sealed import sealed, unsealed


def put(directory: JobDirectory, name: str, content: dict[str, Any]) -> None:
    """Write a file, sealed as a driver does it."""
    directory.storage.replace(posixpath.join(directory.path, name), sealed({"version": 2, **content}))


def get(directory: JobDirectory, name: str) -> dict[str, Any]:
    """The content of a file; {}: there is none."""
    path = posixpath.join(directory.path, name)
    return unsealed(directory.storage.read(path)) if directory.storage.exists(path) else {}


def names(directory: JobDirectory, prefix: str) -> list[str]:
    """The names of the files that begin in this way, sorted."""
    return sorted(entry.name for entry in directory.storage.list(directory.path) if entry.name.startswith(prefix))
