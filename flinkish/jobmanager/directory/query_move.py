"""Moves the query's own checkpoint to a place that an earlier driver does not know.

Spark writes state, offsets and commits itself, in tasks and in the JVM, where flinkish cannot ask the fence. A driver
that was paused in the midst of that would go on writing when it wakes up. So the newer driver renames the directory and
leaves a file in its place: writing below a file fails. Object stores have no such rename; there the newer driver works
on a copy. The order of copying makes the copy consistent: an epoch that is committed in the copy has its state in the
copy, and the offsets of each epoch that may have reached a sink are in it, because they were written before that epoch
was allowed to begin.
"""

from __future__ import annotations

import json
import posixpath
import re
from contextlib import suppress
from typing import Any

from flinkish.errors import OperationError
from flinkish.jobmanager.directory.damaged_files import damaged_file
from flinkish.jobmanager.directory.job_directory import QUERY_FILE, QUERY_NAME, JobDirectory, QueryFile

_SUFFIX = re.compile(r"-owner-\d+$")

#: File systems that rename a directory in one step.
_RENAMING = ("local", "hdfs")

#: Directories that are copied first, in this order.
_FIRST = ("commits", "offsets")

_TRIES = 5


def move_query_away(directory: JobDirectory) -> None:
    """Move the query's checkpoint to where only this driver and later ones look. Called after the claim. A job that has
    no query yet gets the new location, and nothing is moved."""
    for _ in range(_TRIES):
        kept = directory.query_file() or QueryFile("spark", 0)
        old = kept.name
        new = f"{_SUFFIX.sub('', old)}-owner-{directory.fence.token}"
        directory.write(QUERY_FILE, {"name": new, "first_epoch": kept.first_epoch, "moved_from": old})
        finish_move(directory)
        again = directory.query_file()
        if again is not None and again.name == new:
            return
    raise OperationError(
        "the query's checkpoint could not be taken over: others keep moving it",
        where=f"job directory {directory.path}",
        expected="no more than a few drivers that begin at once",
        hint="start the job again",
    )


def finish_move(directory: JobDirectory) -> None:
    """Finish a move that has begun, if there is one."""
    kept = directory.query_file()
    if kept is None or kept.moved_from is None:
        return
    old, new = kept.moved_from, kept.name
    system, root = directory.storage()
    if old == new:
        raise damaged_file(directory.path, QUERY_FILE, f"the query was moved from {old} to the same place")
    for name in (old, new):
        directory.path_of(QUERY_NAME, name, QUERY_FILE)
    source, target = posixpath.join(root, old), posixpath.join(root, new)
    directory.fence.check()
    if system.type_name in _RENAMING:
        _rename(system, source, target, new)
    else:
        _copy(system, source, target)
    directory.write(QUERY_FILE, {"name": new, "first_epoch": kept.first_epoch})


def _rename(system: Any, source: str, target: str, new: str) -> None:
    from pyarrow import fs

    if system.get_file_info(target).type == fs.FileType.NotFound:
        with suppress(FileNotFoundError):
            if system.get_file_info(source).type == fs.FileType.Directory:
                system.move(source, target)
    _forbid(system, source, new)
    _drop_unfinished(system, target)


def _forbid(system: Any, place: str, new: str) -> None:
    """Put a file where the directory was, so that nobody can make the directory again."""
    from pyarrow import fs

    if system.get_file_info(place).type == fs.FileType.Directory:
        # the earlier driver has made it again meanwhile
        system.delete_dir(place)
    with system.open_output_stream(place) as stream:
        stream.write(json.dumps({"moved_to": new, "because": "a newer driver has taken this job over"}).encode())


def _drop_unfinished(system: Any, target: str) -> None:
    """Delete files that the earlier driver still had open: what it writes to them belongs to nobody."""
    from pyarrow import fs

    for info in system.get_file_info(fs.FileSelector(target, recursive=True, allow_not_found=True)):
        if info.is_file and info.base_name.startswith(".") and ".tmp" in info.base_name:
            with suppress(FileNotFoundError):
                system.delete_file(info.path)


def _copy(system: Any, source: str, target: str) -> None:
    from pyarrow import fs

    if system.get_file_info(posixpath.join(target, "_COPIED")).is_file:
        return
    if system.get_file_info(source).type == fs.FileType.NotFound:
        return
    for name in (*_FIRST, ""):
        part = posixpath.join(source, name)
        if system.get_file_info(part).type != fs.FileType.NotFound:
            _copy_new(system, part, posixpath.join(target, name))
    with system.open_output_stream(posixpath.join(target, "_COPIED")) as stream:
        stream.write(b"")


def _copy_new(system: Any, source: str, target: str) -> None:
    """Copy the files that the target does not have. Commits and offsets are copied in their own turn only: the state of
    a later commit may be missing."""
    from pyarrow import fs

    commits_or_offsets = posixpath.basename(target.rstrip("/")) in _FIRST
    for info in system.get_file_info(fs.FileSelector(source, recursive=True, allow_not_found=True)):
        relative = posixpath.relpath(info.path, source)
        if not info.is_file or (not commits_or_offsets and relative.split("/")[0] in _FIRST):
            continue
        place = posixpath.join(target, relative)
        if not system.get_file_info(place).is_file:
            system.create_dir(posixpath.dirname(place), recursive=True)
            with suppress(FileNotFoundError):
                system.copy_file(info.path, place)
