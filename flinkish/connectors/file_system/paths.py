"""Maps the files of a source to the ids of their splits and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from flinkish.errors import ConnectionFailedError, FinalOperationError, FlinkishError
from flinkish.storage import stores
from flinkish.storage.paths import ACCEPTED, is_local, location_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def file_system_of(path: str) -> tuple[FileSystem, str]:
    """pyarrow's file system for a path or URI, and the path within it.

    Raises:
        ConfigurationError: flinkish has no storage of that scheme.
        ConnectionFailedError: the file system cannot be reached.
    """
    import pyarrow as pa

    try:
        found: tuple[FileSystem, str] = stores.file_system_of(path)
    except (OSError, pa.ArrowInvalid) as error:
        if isinstance(error, FlinkishError):
            raise
        raise ConnectionFailedError(
            f"the file system of '{path}' cannot be reached: {error}", where="files", expected=ACCEPTED
        ) from error
    return found


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
    if is_local(path):
        return Root(system, inside, "/", 0)
    return Root(system, inside.rstrip("/"), *id_prefix(path, inside))


def id_prefix(uri: str, inside: str) -> tuple[str, int]:
    """The prefix of the split ids of a URI's files, and how many of its characters are not part of the path ``inside``
    the file system.

    >>> id_prefix("s3a://key:secret@bucket/in?region=eu", "bucket/in"), id_prefix("hdfs://node:8020/in", "/in")
    (('s3://bucket/', 5), ('hdfs://node:8020/', 16))
    """
    scheme, authority, _ = location_of(uri)
    host = authority.rpartition("@")[2]
    prefix = f"{scheme}://{host}/"
    if inside.startswith("/"):
        return prefix, len(prefix) - 1
    return prefix, len(scheme) + 3 if inside.partition("/")[0] == host else len(prefix)


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
