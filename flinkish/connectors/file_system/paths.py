"""Resolves the paths that users write to file systems, and maps files to the ids of their splits and back."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from flinkish.common.storage import local_path
from flinkish.errors import ConnectionFailedError, FinalOperationError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def file_system_of(path: str) -> tuple[FileSystem, str]:
    """pyarrow's file system for a path or URI, and the path within it. Hadoop's schemes ``s3a`` and ``s3n`` are read as
    ``s3``.

    Raises:
        ConnectionFailedError: the file system cannot be reached or is not known.
    """
    import pyarrow as pa
    from pyarrow import fs

    # Hadoop writes file:/x, and does not percent-encode its paths
    local = re.fullmatch(r"file:(?://)?(/.*)", path)
    if local or "://" not in path:
        return fs.LocalFileSystem(), local[1] if local else path
    try:
        found: tuple[FileSystem, str] = fs.FileSystem.from_uri(re.sub("^s3[an]://", "s3://", path))
    except (OSError, pa.ArrowInvalid) as error:
        raise ConnectionFailedError(
            f"the file system of '{path}' cannot be reached: {error}",
            where="files",
            expected="a local path or a URI that pyarrow.fs knows (file, s3, gs, hdfs, abfs)",
        ) from error
    return found


def absolute(path: str) -> str:
    """The path in a form that means the same in every process: a local path becomes absolute and loses ``file:``, other
    URIs stay as they are.

    >>> absolute("file:///data/in/"), absolute("s3a://bucket/in")
    ('/data/in', 's3a://bucket/in')
    """
    local = local_path(path)
    return path if local is None else os.path.abspath(local)


class Root(NamedTuple):
    """The file system of a source's path, the path within it, and how files map to split ids. The ids of the files
    begin with ``prefix``; an id without its first ``cut`` characters is the file's path within the file system. Neither
    the credentials nor the query string of a URI become part of an id."""

    system: FileSystem
    path: str
    prefix: str
    cut: int

    def id_of(self, path: str) -> str:
        """The split id of a file, given its path within the file system."""
        return self.prefix[: self.cut] + path


def root_of(path: str) -> Root:
    """The root of a path or URI, which has no wildcards.

    Raises:
        ConnectionFailedError: the file system cannot be reached or is not known.
    """
    system, inside = file_system_of(path)
    if local_path(path) is not None:
        return Root(system, inside, "/", 0)
    return Root(system, inside.rstrip("/"), *id_prefix(path, inside))


def id_prefix(uri: str, inside: str) -> tuple[str, int]:
    """The prefix of the split ids of a URI's files, and how many of its characters are not part of the path ``inside``
    the file system.

    >>> id_prefix("s3a://key:secret@bucket/in?region=eu", "bucket/in"), id_prefix("hdfs://node:8020/in", "/in")
    (('s3://bucket/', 5), ('hdfs://node:8020/', 16))
    """
    parts = urlsplit(re.sub("^s3[an]://", "s3://", uri))
    host = parts.netloc.rpartition("@")[2]
    prefix = f"{parts.scheme}://{host}/"
    if inside.startswith("/"):
        return prefix, len(prefix) - 1
    return prefix, len(parts.scheme) + 3 if inside.partition("/")[0] == host else len(prefix)


class FileSystems:
    """The file systems of a source's paths, opened when they are first needed in a process."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._roots: list[Root] | None = None

    def locate(self, split_id: str) -> tuple[FileSystem, str]:
        """The file system of a split and its path within it. The file system is that of the source's path whose prefix
        the split id has.

        Raises:
            ConnectionFailedError: the file system cannot be reached or is not known.
            FinalOperationError: none of the source's paths is on the file system of the split.
        """
        if self._roots is None:
            self._roots = [root_of(path) for path in self._paths]
        for root in self._roots:
            if split_id.startswith(root.prefix):
                return root.system, split_id[root.cut :]
        raise FinalOperationError(
            "none of the source's paths is on the file system of the file",
            where=f"file {split_id}",
            expected="the paths as before, or more of them",
            hint="name its folder again",
        )
