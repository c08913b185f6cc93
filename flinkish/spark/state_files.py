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

from pyspark import TaskContext

from flinkish.common.storage import local_path
from flinkish.common.storage_errors import storage_errors
from flinkish.common.stores import storage_of

_KINDS = ("delta", "snapshot", "changelog", "zip")

#: The name of a file of state, or of a temporary file or checksum that belongs to one. Group 1 is the version.
_FILE = re.compile(r"\.{0,2}(\d+)(?:_[\w-]+)?\.(?:delta|snapshot|changelog|zip)(?:\..*)?")


def delete_state_from(query: str, version: int) -> None:
    """Delete the files of a query's state, in all levels and partitions, from a version on. Version n + 1 is the state
    after batch n. From the first version on, the directory itself is deleted: Spark does not plan the first batch of a
    query that has one."""
    state = posixpath.join(query, "state")
    if version <= 1:
        with storage_errors("delete", state):
            storage_of(state).delete_directory(state)
        return
    for operator in _directories(state):
        for partition in _directories(posixpath.join(state, operator)):
            if partition.isdigit():
                _delete(posixpath.join(state, operator, partition), version)


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
    storage = storage_of(folder)
    with storage_errors("delete files of", folder):
        for entry in storage.list(folder):
            found = _FILE.fullmatch(entry.name)
            if found is not None and int(found.group(1)) >= version:
                storage.delete(entry.path)


def _directories(path: str) -> Iterator[str]:
    return (entry.name for entry in storage_of(path).list(path) if entry.is_directory)
