"""Deletes files of a query that count no more: what a failed run of an epoch has written of the state that Spark keeps,
and, where each file that Spark deletes costs several requests, what no start of the query needs any more.

    <query>/state/<operator>/<partition>/18.delta    the state after batch 17, as changes of the version before
    <query>/state/<operator>/<partition>/18.snapshot the same as a whole
    <query>/offsets/17, <query>/commits/17           batch 17 is planned, is committed
    <query>/prepared/17.json, <query>/prepared/17/   what epoch 17 gives to sinks (runtime/epoch/files.py)

Rule: the state after an epoch is that of the run which prepares the epoch, and is not deleted from then on. Spark's
file manager never replaces a file of state that is there already: the state of a failed run would stay, beside the
output of the run that took its place. So the files of the failed run are deleted before the epoch runs again.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import TaskContext

from flinkish.core.sink import Fence
from flinkish.errors import RetryableError
from flinkish.runtime.epoch.files import EpochFiles, PreparedEpochs
from flinkish.runtime.task.task import RETAINED_EPOCHS
from flinkish.spark.object_stores import delete_objects
from flinkish.spark.place import DRIVER, executor_id
from flinkish.storage.paths import is_local
from flinkish.storage.stores import storage_errors, storage_of

#: The number of partitions whose files are deleted at the same time.
_THREADS = 64

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


def delete_state_of_failed_try(files: EpochFiles, operator: int, batch: int, epoch: int) -> None:
    """Delete what an earlier try of the running Spark task has written as the state after a batch.

    To be called in a Spark task of a level before it hands anything to the state store. Each task looks for such a
    file; where a look is a request, for the one file that each commit of the state store writes.

    Rule: only a try that Spark has begun because the one before it has failed deletes. The first try of a task cannot
    know whether what is there is left of a stage that is run again, or is the state of a later try which Spark has
    accepted meanwhile: a stage that is run again leaves tasks of its first run at work, and so does an executor that is
    cut off. It fails, and Spark begins another try of it if, and only if, the task is still wanted. A local master
    repeats nothing; there, what is found is left of an earlier query.

    Args:
        files: the files of the running query.
        operator: Spark's number of the level's stateful operator.
        batch: the running batch.
        epoch: its number among the epochs of the job.

    Raises:
        RetryableError: the state that is there may be that of another try, or of an epoch that is prepared.
    """
    context = TaskContext.get()
    if context is None:
        return
    folder, version = posixpath.join(files.query, "state", str(operator), str(context.partitionId())), batch + 1
    kinds: tuple[str, ...] = _KINDS
    if not is_local(folder):
        provider = context.getLocalProperty("spark.sql.streaming.stateStore.providerClass") or ""
        kinds = ("changelog",) if "RocksDB" in provider else ("delta",)
    if not any(storage_of(folder).exists(posixpath.join(folder, f"{version}.{kind}")) for kind in kinds):
        return
    first_of_many = context.attemptNumber() == 0 and executor_id(os.getpid()) != DRIVER
    if first_of_many or _is_decided(PreparedEpochs(files.prepared).file(epoch), folder, version):
        raise RetryableError(
            f"the state after epoch {epoch} is there already",
            where=folder,
            hint="another try of this Spark task has written it; Spark tries the task once more if it is still needed",
        )
    _delete(folder, version)


def _is_decided(prepared: str, folder: str, version: int) -> bool:
    """Whether the epoch is prepared, or a later one has run: then a task of it is one that nobody waits for."""
    found = (_FILE.fullmatch(entry.name) for entry in storage_of(folder).list(folder))
    return any(name is not None and int(name.group(1)) > version for name in found) or storage_of(prepared).exists(
        prepared
    )


#: How many epochs pass between two deletions by `OldFiles`.
_EPOCHS_OF_A_DELETION = 20

_LOG_FILE = re.compile(r"(?:offsets|commits)/(\d+)")
_STATE_FILE = re.compile(r"(state/.+)/(\d+)\.(delta|snapshot)")
_PREPARED_FILE = re.compile(r"prepared/(\d+)(?:\.json|/.+)")

#: A file that Spark was writing when its process was killed. Group 1 is the batch, or that of the next version.
_TEMPORARY_FILE = re.compile(r"(?:offsets|commits|state)/(?:.+/)?\.(\d+)(?:\.\w+)?\.[0-9a-f-]{36}\.tmp")


def old_files(names: Iterable[str], batch: int, epoch: int) -> list[str]:
    """Those of a query's files that no start of the query needs any more, in the order in which they are to be deleted.

    The offsets, commits and versions of the state of the last `RETAINED_EPOCHS` batches stay, with the snapshot that
    the oldest of these versions is made from; so do prepared epochs that may be delivered again.

    Args:
        names: the files, relative to the query's directory.
        batch: the last batch that is committed.
        epoch: its number among the epochs of the job.
    """
    names = sorted(names)
    oldest = batch - RETAINED_EPOCHS
    bases: dict[str, int] = {}
    for found in filter(None, map(_STATE_FILE.fullmatch, names)):
        if found[3] == "snapshot" and int(found[2]) <= oldest + 1:
            bases[found[1]] = max(int(found[2]), bases.get(found[1], 0))

    def is_old(name: str) -> bool:
        if found := _LOG_FILE.fullmatch(name) or _TEMPORARY_FILE.fullmatch(name):
            return int(found[1]) < oldest
        if found := _STATE_FILE.fullmatch(name):
            base = bases.get(found[1], 0)
            return int(found[2]) < base or int(found[2]) == base and found[3] == "delta"
        prepared = _PREPARED_FILE.fullmatch(name)
        return prepared is not None and int(prepared[1]) <= epoch - 2

    # the file of a prepared epoch goes before the files that it refers to, without which it would be a damaged one
    return sorted(filter(is_old, names), key=lambda name: not name.endswith(".json"))


class OldFiles:
    """Deletes the old files of a query on S3, many at a time, in place of Spark and of each epoch.

    Args:
        spark: the session.
        query: the directory of the query.
        first_epoch: the number of the query's batch 0 among the epochs of the job.
    """

    def __init__(self, spark: Any, query: str, first_epoch: int) -> None:
        self._spark = spark
        self._query = query
        self._first_epoch = first_epoch
        self._next = -1

    def delete(self, committed: int, fence: Fence) -> None:
        """Delete what is old if that was not done for a while. ``committed``: the last epoch that is committed.

        Raises:
            FencedError: this driver does not own the job any more.
        """
        if committed < self._next:
            return
        self._next = committed + _EPOCHS_OF_A_DELETION
        with storage_errors("delete old files of", self._query):
            entries = storage_of(self._query).list(self._query, recursive=True)
            paths = {entry.name: entry.path for entry in entries if entry.is_file}
            old = old_files(paths, committed - self._first_epoch, committed)
            if old:
                fence.check()
                delete_objects(self._spark, self._query, [paths[name] for name in old])


def _delete(folder: str, version: int) -> None:
    storage = storage_of(folder)
    with storage_errors("delete files of", folder):
        for entry in storage.list(folder):
            found = _FILE.fullmatch(entry.name)
            if found is not None and int(found.group(1)) >= version:
                storage.delete(entry.path)


def _directories(path: str) -> Iterator[str]:
    return (entry.name for entry in storage_of(path).list(path) if entry.is_directory)
