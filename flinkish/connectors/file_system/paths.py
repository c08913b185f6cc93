"""Paths as Spark, pyarrow and users write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from flinkish.errors import ConnectionFailedError, ProgramError

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


def one_glob(paths: Sequence[str]) -> str:
    """Several paths as the ONE that Spark's file streams take.

    >>> one_glob(["/a/x", "/b"]), one_glob(["s3a://bucket/a", "s3a://bucket/b"]), one_glob(["/a"])
    ('/{a/x,b}', 's3a://bucket/{a,b}', '/a')

    Raises:
        ProgramError: no path, or paths on several file systems.
    """
    if not paths:
        raise ProgramError("a file source without a path", where="FileSource", expected="at least one path")
    if len(paths) == 1:
        return paths[0]
    heads = {_root(path) for path in paths}
    if len(heads) > 1:
        raise ProgramError(
            f"the paths of one file source lie on several file systems: {', '.join(paths)}",
            where="FileSource",
            expected="paths with the same scheme and host",
            hint="make one source per file system and union() the streams",
        )
    (head,) = heads
    return f"{head}{{{','.join(path[len(head) :] for path in paths)}}}"


def first_file(paths: Sequence[str]) -> tuple[FileSystem, str, int] | None:
    """Any file that the source would read now: (file system, path, bytes); None if there is none, or for globs."""
    from pyarrow import fs

    for path in paths:
        if re.search(r"[*?\[{]", path):
            continue
        system, inside = file_system_of(path)
        info = system.get_file_info(inside)
        if info.type == fs.FileType.File:
            return system, inside, info.size
        if info.type == fs.FileType.Directory:
            for found in system.get_file_info(fs.FileSelector(inside, recursive=True)):
                if found.type == fs.FileType.File and found.size and not _hidden(found.path[len(inside) :]):
                    return system, found.path, found.size
    return None


def processed_files(spark: Any, checkpoint_location: str, source_index: int, log_offset: int) -> list[str]:
    """The files that a query's file source had taken in up to ``log_offset`` of its progress.

    They are what ``load(start=...)`` wants, as ``{"processed": [...]}``: Spark's own offset is a number that only
    means something to the query that counted it.
    """
    import json

    lines = spark.read.text(f"{checkpoint_location.rstrip('/')}/sources/{source_index}").collect()
    entries = [json.loads(line[0]) for line in lines if line[0].startswith("{")]
    return sorted({entry["path"] for entry in entries if entry["batchId"] <= log_offset})


def readable(uri: str) -> str:
    """A file's URI for messages.

    >>> readable("file:///tmp/a%20b.json")
    '/tmp/a b.json'
    """
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def _root(path: str) -> str:
    # Hadoop takes a path that begins with a brace for a relative one: the root stays outside
    match = re.match(r"(?:[a-z0-9+.-]+:(?://[^/]*)?)?/?", path, re.IGNORECASE)
    return match[0] if match else ""


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/") if part)
