"""Deletes what a failed run of an epoch has written to the files in which Spark keeps the state of a query.

    <query>/state/<operator>/<partition>/18.delta    the state after batch 17

Rule: the state after an epoch is that of the run which prepares the epoch. Spark's file manager never replaces a file
of state that is there already: the state of a failed run would stay, beside the output of the run that took its place.
So the files of the failed run are deleted before the epoch runs again.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from pyspark import TaskContext

from flinkish.common.storage import local_path, place
from flinkish.common.storage_errors import storage_errors

#: The number of partitions whose files are deleted at the same time.
_THREADS = 64

_KINDS = ("delta", "snapshot", "changelog", "zip")

#: The name of a file of state, or of a temporary file or checksum that belongs to one. Group 1 is the version.
_FILE = re.compile(r"\.{0,2}(\d+)(?:_[\w-]+)?\.(?:delta|snapshot|changelog|zip)(?:\..*)?")


def delete_state_from(query: str, version: int) -> None:
    """Delete the files of a query's state, in all levels and partitions, from a version on. Version n + 1 is the state
    after batch n. From the first version on, the directory itself is deleted: Spark does not plan the first batch of a
    query that has one."""
    if version <= 1:
        filesystem, root = place(posixpath.join(query, "state"))
        with storage_errors("delete", root), suppress(FileNotFoundError):
            filesystem.delete_dir(root)
        return
    state = posixpath.join(query, "state")
    folders = [
        posixpath.join(state, operator, partition)
        for operator in _directories(state)
        for partition in _directories(posixpath.join(state, operator))
        if partition.isdigit()
    ]
    with ThreadPoolExecutor(_THREADS, "flinkish-delete-state") as pool:
        # a wide job has thousands of partitions, each of which takes a request or more, before it can go on
        for _ in pool.map(lambda folder: _delete(folder, version), folders):
            pass


def delete_state_of_failed_try(query: str, operator: int, batch: int) -> None:
    """Delete what an earlier try of the running Spark task has written as the state after a batch, or a later one.

    To be called in a Spark task of a level before it hands anything to the state store. On a local file system each
    task looks for such files, which takes microseconds. Elsewhere, where a look is a request, it does so only if Spark
    says that it has tried the task before (Spark does not say so of a whole stage that is run again).

    Args:
        query: directory of the query.
        operator: Spark's number of the level's stateful operator.
        batch: the running batch.
    """
    context = TaskContext.get()
    if context is None:
        return
    folder, version = posixpath.join(query, "state", str(operator), str(context.partitionId())), batch + 1
    local = local_path(folder)
    again = context.attemptNumber() > 0
    if local is not None:
        again = any(os.path.exists(os.path.join(local, f"{version}.{kind}")) for kind in _KINDS)
    if again:
        _delete(folder, version)


def _delete(folder: str, version: int) -> None:
    filesystem, _ = place(folder)
    with storage_errors("delete files of", folder):
        for info in _infos(folder):
            found = _FILE.fullmatch(info.base_name)
            if found is not None and int(found.group(1)) >= version:
                with suppress(FileNotFoundError):
                    filesystem.delete_file(info.path)


def _directories(path: str) -> Iterator[str]:
    from pyarrow import fs

    return (info.base_name for info in _infos(path) if info.type == fs.FileType.Directory)


def _infos(path: str) -> list[Any]:
    from pyarrow import fs

    filesystem, root = place(path)
    found: list[Any] = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
    return found
