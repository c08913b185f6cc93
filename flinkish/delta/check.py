"""Checks the log of a Delta table before Delta reads it, because Delta does not say which of its files is damaged."""

from __future__ import annotations

import json
import os
import posixpath
import re
from contextlib import suppress
from typing import Any

from flinkish.delta.actions import AddedFile, actions_of, added_by
from flinkish.delta.checkpoints import checkpoint_batches
from flinkish.delta.log import (
    AS_WRITTEN,
    NAMES_OF_FILES,
    NOT_BELOW,
    DeltaLog,
    checkpoints_in,
    commits_in,
    last_checkpoint,
)
from flinkish.errors import FlinkishError
from flinkish.storage.paths import FileKind, local_path
from flinkish.storage.sealed import json_as, typed
from flinkish.storage.stores import Entry, storage_errors, storage_of

#: The commits of several versions, joined into one file.
_JOINED = re.compile(r"\d{20}\.\d{20}\.compacted\.json")
#: The file in which Delta looks for the last checkpoint of a log.
_LAST_CHECKPOINT = "_last_checkpoint"
#: A checkpoint of the log, or a part of one, that names no further files (as those of Delta's "V2" may).
_CLASSIC = re.compile(r"\d{20}\.checkpoint\.(\d{10}\.\d{10}\.)?parquet")
#: A deletion vector beside the data files: a random prefix, which is a folder, and a UUID as 20 characters.
_VECTOR = re.compile(r"[A-Za-z0-9]*[!-~]{20}", re.ASCII)


def check_log(table: str, version: int | None) -> None:
    """Check that all commits are there and readable that Delta needs in order to read a version of a table.

    Args:
        table: path of the table.
        version: the version of the table that is going to be read; None: the newest one.

    Raises:
        SavepointError: a file that Delta needs for that version is missing or damaged; the error names it.
    """
    log = DeltaLog(table)
    _check_regular(log)
    entries = storage_of(log.path).list(log.path)
    names = sorted(entry.name for entry in entries)
    _check_sizes(log, entries)
    summed_up, parts = last_checkpoint(names, version)
    first = summed_up + 1
    last = max([*commits_in(names), summed_up, 0]) if version is None else version
    files: set[str] = set()
    # Delta may begin with any checkpoint of the log, and may read any commits that were joined into one file
    for name in names:
        path = posixpath.join(log.path, name)
        if (versions := checkpoints_in([name])) and versions[0] <= last:
            added = _check_checkpoint(log, path)
            files.update(added if name in parts else ())
        elif _JOINED.fullmatch(name):
            _check_commit(log, path)
        elif name == _LAST_CHECKPOINT:
            _check_last_checkpoint(log, path)
    for number in range(first, last + 1):
        expected = f"all commits of the Delta table from {first} to {last}"
        _check_removed(log, log.file(number), _check_commit(log, log.file(number), expected), files)


def _check_removed(log: DeltaLog, path: str, actions: list[dict[str, Any]], files: set[str]) -> None:
    """Check that a commit removes only what the version before it has: with a name in which a bit has changed, a file
    that was replaced would stay. ``files``: the files of the version before, and then those of this one."""
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    if unknown := removed - files:
        raise log.damaged(path, f"not what Delta writes (it removes {min(unknown)!r:.200}, which is not in the table)")
    files -= removed
    files.update(added.path for added in added_by(actions))


def _check_sizes(log: DeltaLog, entries: list[Entry]) -> None:
    """Check the sizes of all files of a log, some of which only Delta reads."""
    for entry in entries:
        is_commit = commits_in([entry.name]) or _JOINED.fullmatch(entry.name)
        kind = FileKind.LOG_CHECKPOINT if checkpoints_in([entry.name]) else FileKind.LOG_OTHER
        try:
            (FileKind.LOG_COMMIT if is_commit else kind).check_size(entry.size_bytes)
        except ValueError as error:
            raise log.damaged(entry.path, f"not what Delta writes ({error})") from error


def _check_regular(log: DeltaLog) -> None:
    """Check that a local table consists of files and directories: Spark would wait for what somebody writes to a pipe,
    and read a device without end."""
    folders = [local] if (local := local_path(log.table)) is not None and os.path.isdir(local) else []
    while folders:
        # another driver may be deleting what is not needed any more
        with storage_errors("read", log.table), suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_file():
                    # links that lead nowhere, or to a directory, are none of these
                    with suppress(FileNotFoundError):
                        _check_mode(log, entry.path)


def _check_mode(log: DeltaLog, path: str) -> None:
    try:
        FileKind.DATA_FILE.check(os.stat(path))
    except ValueError as error:
        raise log.damaged(path, f"not what Delta writes ({error})") from error


def _check_last_checkpoint(log: DeltaLog, path: str) -> None:
    """Check the file that says which checkpoint is the last, and may name the files of one of Delta's "V2"."""
    try:
        found = json_as(dict[str, Any], log.content(path, FileKind.LOG_OTHER))
    except ValueError as error:
        raise log.damaged(path, f"not what Delta writes ({error})") from error
    if "v2Checkpoint" in found:
        raise _names_further_files(log, path)


def _check_checkpoint(log: DeltaLog, path: str) -> list[str]:
    """Check a checkpoint of the log, or a part of one; returns the files that it names."""
    files: list[str] = []
    if _CLASSIC.fullmatch(posixpath.basename(path)) is None:
        raise _names_further_files(log, path)
    with log.decoding(path):
        for batch in checkpoint_batches(log.content(path, FileKind.LOG_CHECKPOINT), [*NAMES_OF_FILES, "sidecar"]):
            if "sidecar" in batch.schema.names and batch.column("sidecar").null_count < len(batch):
                raise _names_further_files(log, path)
            if "add" in batch.schema.names:
                for row in batch.column("add").drop_null().to_pylist():
                    added = typed(AddedFile, row)
                    _check_added(log, added)
                    files.append(added.path)
    return files


def _names_further_files(log: DeltaLog, path: str) -> FlinkishError:
    return log.damaged(path, "a checkpoint that names further files, which flinkish does not check")


def _check_commit(log: DeltaLog, path: str, expected: str = AS_WRITTEN) -> list[dict[str, Any]]:
    """Check a file of commits; returns its actions."""
    data = log.content(path, FileKind.LOG_COMMIT, expected)
    if not data:
        raise log.damaged(path, "empty", expected)
    try:
        actions = actions_of(data)
        for added in added_by(actions):
            _check_added(log, added)
    except ValueError as error:
        how = "unreadable" if isinstance(error.__cause__, json.JSONDecodeError) else NOT_BELOW
        raise log.damaged(path, f"{how} ({error})", expected) from error
    if not actions:
        raise log.damaged(path, "not what Delta writes", expected)
    return actions


def _check_added(log: DeltaLog, added: AddedFile) -> None:
    """Check that a data file and its deletion vector lie below the table: Delta itself would read any other file as
    well, with the rights of whoever starts the job."""
    log.data_file(added.path)
    vector = added.deletionVector
    if vector is None or vector.storageType == "i":
        return
    if vector.storageType != "u" or _VECTOR.fullmatch(vector.pathOrInlineDv) is None:
        raise ValueError(f"it names the deletion vector {vector.pathOrInlineDv!r:.200}")
