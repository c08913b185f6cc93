"""Paths of storage: a plain path or ``file:`` lies on the local file system, another scheme is one that pyarrow knows.

Rule: this is the one place that decides it, for the driver as for the workers.
"""

from __future__ import annotations

import os
from typing import Any


def local_path(path: str) -> str | None:
    """The path without scheme when it is on the local file system, else None."""
    if path.startswith("file:"):
        return "/" + path[len("file:") :].lstrip("/")
    return None if "://" in path else path


def place(path: str) -> tuple[Any, str]:
    """The file system of a path, as pyarrow's, and the path on it."""
    from pyarrow import fs

    local = local_path(path)
    if local is not None:
        return fs.LocalFileSystem(), os.path.abspath(local)
    filesystem, root = fs.FileSystem.from_uri(path)
    return filesystem, root
