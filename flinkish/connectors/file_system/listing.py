"""Lists the files that the paths of a source match now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flinkish.connectors.file_system.globs import expand_braces, files_below, matching, split_pattern
from flinkish.connectors.file_system.paths import Root, root_of
from flinkish.core.source import SourceSplit
from flinkish.errors import ConnectionFailedError, FlinkishError, ProgramError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo


def single_paths(paths: Sequence[str]) -> list[str]:
    """The paths with their braces expanded.

    Raises:
        ProgramError: there is no path, or a brace is not closed.
    """
    if not paths:
        raise ProgramError("a file source without a path", where="FileSource", expected="at least one path")
    return [single for path in paths for single in expand_braces(path)]


def folder_of(path: str) -> tuple[str, str]:
    """Split a path or URI without braces into the folder before the first wildcard, and the pattern after it. The query
    string of a URI stays with the folder.

    >>> folder_of("s3://bucket/in/*.txt?region=eu-west-1"), folder_of("/in/a?.txt"), folder_of("/in")
    (('s3://bucket/in?region=eu-west-1', '*.txt'), ('/in', 'a?.txt'), ('/in', ''))
    """
    settings = re.search(r"\?\w+=[^/]*$", path) if "://" in path else None
    query = settings[0] if settings else ""
    folder, rest = split_pattern(path.removesuffix(query))
    return folder + query, rest


def find_roots(path: str, must_match: bool) -> tuple[Root, list[FileInfo]]:
    """The root of one path without braces, and the files and folders that the path matches.

    Args:
        must_match: whether a pattern that matches nothing is an error; a path without wildcards always must exist.

    Raises:
        ProgramError: the path does not exist, the pattern matches nothing, or a name is not UTF-8.
        ConnectionFailedError: the file system does not answer.
    """
    folder, rest = folder_of(path)
    root = root_of(folder)
    try:
        found = matching(root.system, root.path, rest)
    except (OSError, UnicodeDecodeError) as error:
        raise _unlisted(path, error) from error
    if not found and (must_match or not rest):
        raise ProgramError(
            f"nothing matches the path '{path}'" if rest else f"the path '{path}' does not exist",
            where="FileSource",
            expected="files, or folders of files",
            hint="correct the path, or make the folder first",
        )
    return root, found


def find_files(path: str, must_match: bool) -> list[SourceSplit]:
    """The files of one path without braces, as splits that begin at 0 and have no end yet.

    Empty files are left out: a file that is just being created would otherwise count as read.

    Raises:
        ProgramError: the path does not exist, or the pattern matches nothing and ``must_match`` is set.
        ConnectionFailedError: the file system does not answer.
    """
    root, found = find_roots(path, must_match)
    try:
        files = [file for info in found for file in files_below(root.system, info) if file.size]
    except (OSError, UnicodeDecodeError) as error:
        raise _unlisted(path, error) from error
    return [
        SourceSplit(root.id_of(file.path), info={"bytes": file.size, "modified_ns": file.mtime_ns}) for file in files
    ]


def _unlisted(path: str, error: Exception) -> FlinkishError:
    if isinstance(error, UnicodeDecodeError):
        return ProgramError(
            f"the name {error.object!r} is not UTF-8",
            where=f"FileSource {path}",
            expected="files and folders whose names are UTF-8",
            hint="rename it",
        )
    return ConnectionFailedError(f"the files cannot be listed: {error}", where=f"FileSource {path}")
