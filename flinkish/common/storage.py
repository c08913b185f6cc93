"""Which file system a path belongs to: a plain path or ``file:`` is local, any other scheme is one of pyarrow's.

Rule upheld here: this is the only place that decides it, for the driver and for the workers.
"""

from __future__ import annotations

import os
from typing import Any


def local_path(path: str) -> str | None:
    """The path without its scheme if it is on the local file system, else None."""
    if path.startswith("file:"):
        return "/" + path[len("file:") :].lstrip("/")
    return None if "://" in path else path


def place(path: str) -> tuple[Any, str]:
    """The pyarrow file system that a path belongs to, and the path within it."""
    from pyarrow import fs

    local = local_path(path)
    if local is not None:
        return fs.LocalFileSystem(), os.path.abspath(local)
    filesystem, root = fs.FileSystem.from_uri(path)
    return filesystem, root
