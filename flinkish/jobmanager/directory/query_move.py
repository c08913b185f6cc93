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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from flinkish.errors import OperationError
from flinkish.jobmanager.directory.damaged_files import damaged_file
from flinkish.jobmanager.directory.job_directory import QUERY_FILE, QUERY_NAME, JobDirectory, QueryFile
from flinkish.storage.stores import Entry, Storage

_SUFFIX = re.compile(r"-owner-\d+$")

#: Directories that are copied first, in this order.
_FIRST = ("commits", "offsets")

_TRIES = 5

#: How many files are copied at a time: each one is a request that waits for the store.
_THREADS = 32


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
    if old == new:
        raise damaged_file(directory.path, QUERY_FILE, f"the query was moved from {old} to the same place")
    for name in (old, new):
        directory.path_of(QUERY_NAME, name, QUERY_FILE)
    source, target = posixpath.join(directory.path, old), posixpath.join(directory.path, new)
    directory.fence.check()
    if directory.storage.renames_directories:
        _rename(directory.storage, source, target, new)
    else:
        _copy(directory.storage, source, target)
    directory.write(QUERY_FILE, {"name": new, "first_epoch": kept.first_epoch})


def _rename(storage: Storage, source: str, target: str, new: str) -> None:
    if not storage.exists(target) and not storage.is_directory(target):
        with suppress(FileNotFoundError):
            if storage.is_directory(source):
                storage.move(source, target)
    _forbid(storage, source, new)
    _drop_unfinished(storage, target)


def _forbid(storage: Storage, path: str, new: str) -> None:
    """Put a file where the directory was, so that nobody can make the directory again."""
    if storage.is_directory(path):
        # the earlier driver has made it again meanwhile
        storage.delete_directory(path)
    storage.write(path, json.dumps({"moved_to": new, "because": "a newer driver has taken this job over"}).encode())


def _drop_unfinished(storage: Storage, target: str) -> None:
    """Delete files that the earlier driver still had open: what it writes to them belongs to nobody."""
    for entry in storage.list(target, recursive=True):
        name = posixpath.basename(entry.name)
        if entry.is_file and name.startswith(".") and ".tmp" in name:
            storage.delete(entry.path)


def _copy(storage: Storage, source: str, target: str) -> None:
    copied = posixpath.join(target, "_COPIED")
    if storage.exists(copied) or not storage.is_directory(source):
        return
    for name in (*_FIRST, ""):
        _copy_new(storage, posixpath.join(source, name), posixpath.join(target, name))
    storage.write(copied, b"")


def _copy_new(storage: Storage, source: str, target: str) -> None:
    """Copy the files that the target does not have. Commits and offsets are copied in their own turn only: the state of
    a later commit may be missing."""
    commits_or_offsets = posixpath.basename(target.rstrip("/")) in _FIRST
    copied = {entry.name for entry in storage.list(target, recursive=True)}
    new = [
        entry
        for entry in storage.list(source, recursive=True)
        if entry.is_file and entry.name not in copied and (commits_or_offsets or entry.name.split("/")[0] not in _FIRST)
    ]

    def copy(entry: Entry) -> None:
        with suppress(FileNotFoundError):
            storage.copy(entry.path, posixpath.join(target, entry.name))

    with ThreadPoolExecutor(_THREADS, "flinkish-query-move") as pool:
        for _ in pool.map(copy, new):
            pass
