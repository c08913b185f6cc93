"""Paths as users write them, and the names that files have as splits."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

from flinkish.common.storage import local_path
from flinkish.errors import ConnectionFailedError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def file_system_of(path: str) -> tuple[FileSystem, str]:
    """pyarrow's file system for a path or URI, and the path inside it. ``s3a`` (Hadoop's name) is ``s3``.

    Raises:
        ConnectionFailedError: the file system cannot be reached or is not known.
    """
    import pyarrow as pa
    from pyarrow import fs

    # Hadoop writes file:/x, and does not encode what is in its paths
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
    """A path that means the same in every process: local ones from the root and without ``file:``, URIs as they are.

    >>> absolute("file:///data/in/"), absolute("s3a://bucket/in")
    ('/data/in', 's3a://bucket/in')
    """
    local = local_path(path)
    return path if local is None else os.path.abspath(local)


class Root(NamedTuple):
    """Where the files of a path lie. Their ids begin with ``prefix``, without its first ``cut`` characters they are
    paths inside of the file system. Neither keys nor settings of a URI get into ids."""

    system: FileSystem
    path: str
    prefix: str
    cut: int

    def id_of(self, path: str) -> str:
        """The id of a file by its path inside of the file system."""
        return self.prefix[: self.cut] + path


def root_of(path: str) -> Root:
    """
    Raises:
        ConnectionFailedError: the file system cannot be reached or is not known.
    """
    system, inside = file_system_of(path)
    if local_path(path) is not None:
        return Root(system, inside, "/", 0)
    return Root(system, inside.rstrip("/"), *id_prefix(path, inside))


def id_prefix(uri: str, inside: str) -> tuple[str, int]:
    """What the ids of files of a URI begin with, and how much of it is not part of the path ``inside``.

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
    """The file systems of a source, made when they are first needed in a process."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._roots: list[Root] | None = None

    def locate(self, split_id: str) -> tuple[FileSystem, str]:
        """The file system of a split and its path there: that of the source's path with the same beginning.

        Raises:
            ConnectionFailedError: the file system cannot be reached or is not known.
        """
        if self._roots is None:
            self._roots = [root_of(path) for path in self._paths]
        for root in self._roots:
            if split_id.startswith(root.prefix):
                return root.system, split_id[root.cut :]
        # the program no longer names the path that the split was found by
        return file_system_of(split_id if split_id.startswith("/") else quote(split_id, safe=":/@"))
