"""Lists the files that the paths of a source match now.

Rule upheld here: a path that exists as it is written is no pattern. So a folder that is named ``data[1]`` is read, and
its wildcard is literal in a longer path (``data[1]/part-*``) too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flinkish.connectors.file_system.globs import (
    expand_braces,
    files_below,
    is_hidden,
    is_pattern,
    matching,
    split_pattern,
)
from flinkish.connectors.file_system.paths import Root, root_of
from flinkish.core.source import SourcePosition, SourceSplit
from flinkish.errors import ConnectionFailedError, FinalOperationError, FlinkishError, ProgramError
from flinkish.storage.paths import is_local
from flinkish.storage.sealed import typed

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo


def checked_paths(paths: Sequence[str]) -> list[str]:
    """The paths, of which those with braces in the name of a host or bucket become several: no such name has a brace.

    Raises:
        ProgramError: there is no path.
    """
    if not paths:
        raise ProgramError("a file source without a path", where="FileSource", expected="at least one path")
    found: list[str] = []
    for path in paths:
        found += expand_braces(path) if re.match(r"\w+://[^/]*\{", path) else [path]
    return found


def folders_of(paths: Sequence[str]) -> list[str]:
    """The folders before the first wildcard of each path or URI, by which their file systems are found."""
    return [folder_of(single)[0] for path in paths for single in _alternatives(path)]


def _alternatives(path: str) -> list[str]:
    """The path with its braces expanded; a path with a brace that is not closed, as it is."""
    try:
        return expand_braces(path)
    except ProgramError:
        return [path]


def folder_of(path: str) -> tuple[str, str]:
    """Split a path or URI without braces into the folder before the first wildcard, and the pattern after it. The query
    string of a URI stays with the folder.

    >>> folder_of("s3://bucket/in/*.txt?region=eu-west-1"), folder_of("/in/a?.txt"), folder_of("/in")
    (('s3://bucket/in?region=eu-west-1', '*.txt'), ('/in', 'a?.txt'), ('/in', ''))
    """
    settings = None if is_local(path) else re.search(r"\?\w+=[^/]*$", path)
    query = settings[0] if settings else ""
    folder, rest = split_pattern(path.removesuffix(query))
    return folder + query, rest


def find_roots(path: str, must_match: bool) -> tuple[Root, list[FileInfo]]:
    """The root of one path, and the files and folders that the path matches.

    Args:
        must_match: whether a pattern that matches nothing is an error; a path without wildcards always must exist.

    Raises:
        ProgramError: the path does not exist, the pattern matches nothing, a brace is not closed, or a name is not
            UTF-8.
        ConnectionFailedError: the file system does not answer.
    """
    folder, rest = folder_of(path)
    root = root_of(folder)
    try:
        root, rest = _without_literal_names(root, rest)
        alternatives = expand_braces(rest)
        found = {single: matching(root.system, root.path, single) for single in alternatives}
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FlinkishError):
            raise
        raise _unlisted(path, error) from error
    for single, infos in found.items():
        if not infos and (must_match or not is_pattern(single)):
            missing = path if len(found) == 1 else f"{folder.rstrip('/')}/{single}"
            raise ProgramError(
                f"nothing matches the path '{missing}'" if rest else f"the path '{missing}' does not exist",
                where="FileSource",
                expected="files, or folders of files",
                hint="correct the path, or make the folder first",
            )
    return root, [info for infos in found.values() for info in infos]


def _without_literal_names(root: Root, rest: str) -> tuple[Root, str]:
    """Move the names at the beginning of a pattern that exist as they are written from the pattern to the root."""
    from pyarrow import fs

    while rest:
        name, _, after = rest.partition("/")
        literal = f"{root.path.rstrip('/')}/{name}"
        if root.system.get_file_info(literal).type == fs.FileType.NotFound:
            break
        root, rest = root._replace(path=literal), after
    return root, rest


def find_files(path: str, must_match: bool) -> list[SourceSplit]:
    """The files of one path, as splits that begin at 0 and have no end yet. See `find_roots` for arguments and errors.

    Empty files are left out: a file that is just being created would otherwise count as read.
    """
    root, found = find_roots(path, must_match)
    try:
        files = [file for info in found for file in files_below(root.system, info) if file.size]
    except (OSError, UnicodeDecodeError) as error:
        raise _unlisted(path, error) from error
    return [
        SourceSplit(root.id_of(file.path), info={"bytes": file.size, "modified_ns": file.mtime_ns}) for file in files
    ]


@dataclass(frozen=True)
class _FileInfo:
    """What the split of a file knows besides its position."""

    bytes: int
    modified_ns: int | None


def check_position(position: str, found: Iterable[tuple[Root, list[FileInfo]]]) -> None:
    """Check that a position, which somebody else may have written, leads only to files that the paths of the source
    name. ``found``: what `find_roots` has found for each of them.

    Raises:
        SavepointError: it is no position of files.
        FinalOperationError: it names another file.
    """
    named = {root.id_of(info.path).rstrip("/") for root, infos in found for info in infos}
    for file, at, end, info in SourcePosition.decode(position, "FileSource").splits:
        try:
            size = typed(_FileInfo, info).bytes
        except ValueError as error:
            raise SourcePosition.refusal([file, at, end, info], "FileSource", error) from None
        if size < 0 or not 0 <= at <= (at if end is None else end):
            raise SourcePosition.refusal([file, at, end, info], "FileSource", "it lies outside of the file")
        if not _is_named(file, named):
            raise FinalOperationError(
                f"the source is to go on in the file '{file}', which none of its paths names",
                where="FileSource",
                expected="the paths as before, or more of them, and their files where they were",
                hint="name its folder again; put the file back if it was moved away; if the job has never read it, "
                "somebody has changed the savepoint: use another one",
            )


def _is_named(file: str, named: set[str]) -> bool:
    """Whether a file is one of these, or lies in a folder that is, as `files_below` would find it."""
    at = len(file)
    while at >= 0 and file[:at] not in named:
        at = file.rfind("/", 0, at)
    return at >= 0 and not is_hidden(file[at:])


def _unlisted(path: str, error: Exception) -> FlinkishError:
    if isinstance(error, UnicodeDecodeError):
        return ProgramError(
            f"the name {error.object!r} is not UTF-8",
            where=f"FileSource {path}",
            expected="files and folders whose names are UTF-8",
            hint="rename it",
        )
    return ConnectionFailedError(f"the files cannot be listed: {error}", where=f"FileSource {path}")
