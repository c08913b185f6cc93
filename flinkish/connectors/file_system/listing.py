"""Lists the files that the paths of a source match now, and maps files to the ids of their splits and back. Glob
patterns have the syntax of Hadoop, and so of Spark.

Rule upheld here: a path that exists as it is written is no pattern. So a folder that is named ``data[1]`` is read, and
its wildcard is literal in a longer path (``data[1]/part-*``) too. Names that begin with ``.`` or ``_`` are hidden from
wildcards and from the listing of a folder, but not from a path that spells them out.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from flinkish.core.source import SourcePosition, SourceSplit
from flinkish.errors import ConnectionFailedError, FinalOperationError, FlinkishError, ProgramError
from flinkish.storage import stores
from flinkish.storage.paths import ACCEPTED, is_local, location_of
from flinkish.storage.sealed import typed

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


_MAGIC = re.compile(r"[*?\[{\\]")


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards.

    >>> is_pattern("/data/a.txt"), is_pattern("/data/{a,b}.txt")
    (False, True)

    The wildcards are ``*``, ``?``, ``[a-c]``, ``[^a]`` and ``{a,b/c}``; a backslash stands before a character that is
    meant literally. A wildcard matches characters within one name, never a ``/``.
    """
    return _MAGIC.search(path) is not None


def expand_braces(pattern: str) -> list[str]:
    """The patterns without braces that a pattern with braces stands for.

    >>> expand_braces("/in/{a,b{1,2}/c}.txt")
    ['/in/a.txt', '/in/b1/c.txt', '/in/b2/c.txt']

    Raises:
        ProgramError: a brace is not closed.
    """
    opened = re.search(r"(?<!\\)\{", pattern)
    if opened is None:
        return [pattern]
    head, alternatives, begin, depth, at = pattern[: opened.start()], [], opened.end(), 1, opened.end()
    while at < len(pattern):
        character = pattern[at]
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0 or (depth == 1 and character == ","):
            alternatives.append(pattern[begin:at])
            begin = at + 1
        if depth == 0:
            return [path for part in alternatives for path in expand_braces(head + part + pattern[begin:])]
        at += 2 if character == "\\" else 1
    raise ProgramError(
        f"the brace in the path '{pattern}' is not closed",
        where="FileSource",
        expected="alternatives as in {a,b}",
        hint="write \\{ for a brace that is part of a name",
    )


def split_pattern(pattern: str) -> tuple[str, str]:
    """Split a pattern without braces into the folder before its first wildcard, and the rest. A path without wildcards
    gives itself and "".

    >>> split_pattern("s3://bucket/in/2024-*/x.txt"), split_pattern("/*"), split_pattern("/a/b")
    (('s3://bucket/in', '2024-*/x.txt'), ('/', '*'), ('/a/b', ''))
    """
    found = _MAGIC.search(pattern)
    if found is None:
        return pattern, ""
    at = pattern.rfind("/", 0, found.start())
    return pattern[:at] or "/", pattern[at + 1 :]


def matching(system: FileSystem, folder: str, rest: str) -> list[FileInfo]:
    """The files and folders below ``folder`` that match the pattern ``rest``; for an empty pattern ``folder`` itself, a
    file or a folder, if it exists."""
    from pyarrow import fs

    found: list[FileInfo] = [system.get_file_info(folder)]
    for part in filter(None, rest.split("/")):
        folders = [info.path for info in found if info.type == fs.FileType.Directory]
        if is_pattern(part):
            found = [info for path in folders for info in _children(system, path, part)]
        else:
            found = list(system.get_file_info([f"{path.rstrip('/')}/{part}" for path in folders]))
    return [info for info in found if info.type != fs.FileType.NotFound]


def _children(system: FileSystem, folder: str, pattern: str) -> Iterator[FileInfo]:
    from pyarrow import fs

    children = list(system.get_file_info(fs.FileSelector(folder, allow_not_found=True)))
    literal = [info for info in children if info.base_name == pattern]
    if literal:
        yield from literal
        return
    name = re.compile(fnmatch.translate(re.sub(r"\\(.)", r"[\1]", pattern.replace("[^", "[!"))))
    for info in children:
        if name.match(info.base_name) and (pattern[0] in "._" or not info.base_name.startswith((".", "_"))):
            yield info


def files_below(system: FileSystem, found: FileInfo) -> Iterator[FileInfo]:
    """The file itself; or the files of a folder at any depth, without hidden ones.

    Symbolic links are followed. A folder that several of them lead to, as one does that links to itself, is listed
    once, and under its own name if that is below the folder, too. Each link to a file is a file.
    """
    from pyarrow import fs

    if found.type == fs.FileType.File:
        yield found
        return
    if isinstance(system, fs.LocalFileSystem):
        yield from _local_files_below(system, found.path)
        return
    for info in system.get_file_info(fs.FileSelector(found.path, recursive=True)):
        if info.type == fs.FileType.File and not is_hidden(info.path[len(found.path) :]):
            yield info


def _local_files_below(system: FileSystem, folder: str) -> Iterator[FileInfo]:
    from pyarrow import fs

    seen: set[tuple[int, int]] = set()
    folders, links = [folder], list[str]()
    while folders or links:
        links.sort(reverse=True)
        folder = folders.pop() if folders else links.pop()
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for info in system.get_file_info(fs.FileSelector(folder)):
            if is_hidden(info.base_name):
                continue
            if info.type == fs.FileType.File:
                yield info
            elif info.type == fs.FileType.Directory:
                (links if os.path.islink(info.path) else folders).append(info.path)


def is_hidden(path: str) -> bool:
    """Whether a path relative to a folder is left out of the listing of that folder. So are paths with ``..``."""
    return any(part.startswith((".", "_")) for part in path.split("/") if part)


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
