"""Glob patterns in the syntax of Hadoop (and so of Spark): ``*``, ``?``, ``[a-c]``, ``[^a]``, ``{a,b/c}``, and ``\\``
before a character that is meant literally. A wildcard matches characters within one name, never a ``/``.

Rule upheld here: names that begin with ``.`` or ``_`` are hidden from wildcards and from the listing of a folder, but
not from a path that spells them out. A name that exists as it is written is no pattern.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flinkish.errors import ProgramError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

_MAGIC = re.compile(r"[*?\[{\\]")


def is_pattern(path: str) -> bool:
    """Whether a path has wildcards.

    >>> is_pattern("/data/a.txt"), is_pattern("/data/{a,b}.txt")
    (False, True)
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
