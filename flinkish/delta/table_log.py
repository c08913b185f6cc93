"""Checks the log of a Delta table before Delta reads it, because Delta does not say which of its files is damaged."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

from flinkish.delta.log import AddedFile, actions_of, added_by, checkpoint_batches, described_table
from flinkish.errors import SavepointError
from flinkish.storage.files import child_names, read_bytes
from flinkish.storage.paths import FileKind, check_below, local_path
from flinkish.storage.sealed import json_as, typed
from flinkish.storage.stores import Entry, storage_errors, storage_of

_COMMIT = re.compile(r"(\d{20})\.json")
#: The commits of several versions, joined into one file.
_JOINED = re.compile(r"\d{20}\.\d{20}\.compacted\.json")
_SUMMED_UP = re.compile(r"(\d{20})\.checkpoint\..*")
#: The file in which Delta looks for the last checkpoint of a log.
_LAST_CHECKPOINT = "_last_checkpoint"
#: A checkpoint of the log, or a part of one, that names no further files (as those of Delta's "V2" may).
_CLASSIC = re.compile(r"\d{20}\.checkpoint\.(\d{10}\.\d{10}\.)?parquet")
#: What is said of a file whose actions have another shape than Delta's, or name files elsewhere.
_NOT_BELOW = "not what Delta writes below the table"

#: The columns of a checkpoint of the log that name files.
_ADDED = ["add.path", "add.stats", "add.deletionVector.storageType", "add.deletionVector.pathOrInlineDv"]
#: A deletion vector beside the data files: a random prefix, which is a folder, and a UUID as 20 characters.
_VECTOR = re.compile(r"[A-Za-z0-9]*[!-~]{20}", re.ASCII)


def has_log(table: str) -> bool:
    """Whether the table's log has any commit or checkpoint file."""
    names = child_names(posixpath.join(table, "_delta_log"))
    return bool(_numbers(_COMMIT, names) or _numbers(_SUMMED_UP, names))


def check_log(table: str, version: int | None) -> None:
    """Check that all commits are there and readable that Delta needs in order to read a version of a table.

    Args:
        table: path of the table.
        version: the version of the table that is going to be read; None: the newest one.

    Raises:
        SavepointError: a file that Delta needs for that version is missing or damaged; the error names it.
    """
    log = posixpath.join(table, "_delta_log")
    _check_regular(table)
    entries = storage_of(log).list(log)
    names = sorted(entry.name for entry in entries)
    _check_sizes(entries)
    commits, sums = _numbers(_COMMIT, names), _numbers(_SUMMED_UP, names)
    last = max([*commits, *sums], default=0) if version is None else version
    first = max((number for number in sums if number <= last), default=-1) + 1
    for number in range(first, last + 1):
        path = posixpath.join(log, f"{number:020d}.json")
        _check_commit(table, path, f"all commits of the Delta table from {first} to {last}")
    # Delta may begin with any checkpoint of the log, and may read any commits that were joined into one file
    for name in names:
        path, found = posixpath.join(log, name), _SUMMED_UP.fullmatch(name)
        if found is not None and int(found.group(1)) <= last:
            _check_checkpoint(table, path)
        elif _JOINED.fullmatch(name):
            _check_commit(table, path)
        elif name == _LAST_CHECKPOINT:
            _check_last_checkpoint(path)


def _check_sizes(entries: list[Entry]) -> None:
    """Check the sizes of all files of a log, some of which only Delta reads."""
    for entry in entries:
        is_commit = _COMMIT.fullmatch(entry.name) or _JOINED.fullmatch(entry.name)
        kind = FileKind.LOG_CHECKPOINT if _SUMMED_UP.fullmatch(entry.name) else FileKind.LOG_OTHER
        try:
            (FileKind.LOG_COMMIT if is_commit else kind).check_size(entry.size_bytes)
        except ValueError as error:
            raise damaged_log(entry.path, f"not what Delta writes ({error})") from error


def _check_regular(table: str) -> None:
    """Check that a local table consists of files and directories: Spark would wait for what somebody writes to a pipe,
    and read a device without end."""
    folders = [local] if (local := local_path(table)) is not None and os.path.isdir(local) else []
    while folders:
        # another driver may be deleting what is not needed any more
        with storage_errors("read", table), suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_file():
                    # links that lead nowhere, or to a directory, are none of these
                    with suppress(FileNotFoundError):
                        _check_mode(entry.path)


def _check_mode(path: str) -> None:
    try:
        FileKind.DATA_FILE.check(os.stat(path))
    except ValueError as error:
        raise damaged_log(path, f"not what Delta writes ({error})") from error


def _check_last_checkpoint(path: str) -> None:
    """Check the file that says which checkpoint is the last, and may name the files of one of Delta's "V2"."""
    try:
        found = json_as(dict[str, Any], _read(path, FileKind.LOG_OTHER))
    except ValueError as error:
        raise damaged_log(path, f"not what Delta writes ({error})") from error
    if "v2Checkpoint" in found:
        raise _names_further_files(path)


def damaged_log(path: str, problem: str, expected: str = "the file as Delta wrote it") -> SavepointError:
    """The error for a file of the log of a table of state."""
    return SavepointError(
        f"the log of the table of state is damaged: {path} is {problem}",
        where=path,
        expected=expected,
        hint="copy the file from a backup, or use another savepoint or checkpoint",
    )


def read_checkpoint(path: str) -> bytes:
    """The content of a checkpoint of the log.

    Raises:
        SavepointError: the file is missing, or none that may be read.
    """
    return _read(path, FileKind.LOG_CHECKPOINT)


@contextmanager
def decoding(path: str) -> Iterator[None]:
    """Within the block, what a checkpoint of the log is damaged by is raised as a SavepointError that names the
    file."""
    from pyarrow import ArrowException

    try:
        yield
    except ValueError as error:
        how = "unreadable" if isinstance(error, ArrowException) else _NOT_BELOW
        raise damaged_log(path, f"{how} ({error})") from error
    except (OSError, ArrowException) as error:
        raise damaged_log(path, f"unreadable ({error})") from error


def _check_checkpoint(table: str, path: str) -> None:
    if _CLASSIC.fullmatch(posixpath.basename(path)) is None:
        raise _names_further_files(path)
    with decoding(path):
        for batch in checkpoint_batches(read_checkpoint(path), [*_ADDED, "sidecar"]):
            if "sidecar" in batch.schema.names and batch.column("sidecar").null_count < len(batch):
                raise _names_further_files(path)
            if "add" in batch.schema.names:
                for added in batch.column("add").drop_null().to_pylist():
                    _check_added(table, typed(AddedFile, added))


def _names_further_files(path: str) -> SavepointError:
    return damaged_log(path, "a checkpoint that names further files, which flinkish does not check")


def files_of_first_commit(table: str) -> list[str]:
    """The Parquet files that make up a table of one commit; empty if there are none, or if only Delta can read them.

    Only Delta can read a table in whose settings features of Delta (such as column mapping) are on by default.

    Raises:
        SavepointError: the commit is damaged.
    """
    path = posixpath.join(table, "_delta_log", f"{0:020d}.json")
    try:
        actions = actions_of(read_bytes(path, FileKind.LOG_COMMIT) or b"")
        for action in actions:
            metadata, protocol = action.get("metaData", {}), action.get("protocol", {})
            featured = metadata.get("configuration") or metadata.get("partitionColumns")
            if featured or protocol.get("minReaderVersion", 1) > 1:
                return []
        return [_data_file(table, added.path) for added in added_by(actions)]
    except ValueError as error:
        raise damaged_log(path, f"not what Delta writes below the table ({error})") from error


def files_of_version(table: str, version: int | None) -> list[str]:
    """The Parquet files that make up a version of a table; None: the newest version.

    Raises:
        SavepointError: only Delta can read that version; or a file of the log is damaged.
    """
    files = _files_of_version(table, version)
    if _needs_delta(table, files):
        raise SavepointError(
            "only Delta itself can read the table of state: it has deletion vectors, partitions or mapped columns",
            where=table,
            expected="a table of plain Parquet files, as each savepoint of flinkish has it",
            hint="restore it on Spark; in place of a checkpoint, take a savepoint there (flinkish savepoint JOB_DIR)",
        )
    return [_data_file(table, path) for path in files]


def needs_delta(table: str, version: int | None) -> bool:
    """Whether only Delta can read a version of a table, and not this process; None: the newest version.

    Raises:
        SavepointError: a file of the log is damaged.
    """
    return _needs_delta(table, _files_of_version(table, version))


def added_files(table: str) -> list[AddedFile]:
    """What the log says of the files that make up the newest version of a table.

    Raises:
        SavepointError: a file of the log is damaged.
    """
    return list(_files_of_version(table, None).values())


def _needs_delta(table: str, files: dict[str, AddedFile]) -> bool:
    described = described_table(table) or {}
    mapped = dict(described.get("configuration") or {}).get("delta.columnMapping.mode", "none") != "none"
    vectors = any(one.deletionVector is not None for one in files.values())
    return bool(mapped or vectors or described.get("partitionColumns"))


def _files_of_version(table: str, version: int | None) -> dict[str, AddedFile]:
    log = posixpath.join(table, "_delta_log")
    names = child_names(log)
    commits, sums = _numbers(_COMMIT, names), _numbers(_SUMMED_UP, names)
    last = max([*commits, *sums], default=0) if version is None else version
    summed_up = max((number for number in sums if number <= last), default=-1)
    files: dict[str, AddedFile] = {}
    for name in names:
        path, found = posixpath.join(log, name), _SUMMED_UP.fullmatch(name)
        if found is not None and int(found.group(1)) == summed_up:
            with decoding(path):
                for batch in checkpoint_batches(read_checkpoint(path), _ADDED):
                    rows = batch.column("add").drop_null().to_pylist() if "add" in batch.schema.names else []
                    files.update((added.path, added) for added in (typed(AddedFile, row) for row in rows))
    for number in range(summed_up + 1, last + 1):
        path = posixpath.join(log, f"{number:020d}.json")
        with decoding(path):
            actions = actions_of(_read(path, FileKind.LOG_COMMIT))
            # the order within a commit says nothing: a file with new deletion vectors is removed and added by one
            for removed in (action["remove"] for action in actions if "remove" in action):
                files.pop(removed["path"], None)
            files.update((added.path, added) for added in added_by(actions))
    return files


def _numbers(pattern: re.Pattern[str], names: list[str]) -> list[int]:
    return [int(found.group(1)) for name in names if (found := pattern.fullmatch(name))]


def _check_commit(table: str, path: str, expected: str = "the file as Delta wrote it") -> None:
    """Check a file of commits."""
    data = _read(path, FileKind.LOG_COMMIT, expected)
    if not data:
        raise damaged_log(path, "empty", expected)
    try:
        actions = actions_of(data)
        for added in added_by(actions):
            _check_added(table, added)
    except ValueError as error:
        how = "unreadable" if isinstance(error.__cause__, json.JSONDecodeError) else _NOT_BELOW
        raise damaged_log(path, f"{how} ({error})", expected) from error
    if not actions:
        raise damaged_log(path, "not what Delta writes", expected)


def _read(path: str, kind: FileKind, expected: str = "the file as Delta wrote it") -> bytes:
    try:
        data = read_bytes(path, kind)
    except ValueError as error:
        raise damaged_log(path, f"not what Delta writes ({error})", expected) from error
    if data is None:
        raise damaged_log(path, "missing", expected)
    return data


def _check_added(table: str, added: AddedFile) -> None:
    """Check that a data file and its deletion vector lie below the table: Delta itself would read any other file as
    well, with the rights of whoever starts the job."""
    _data_file(table, added.path)
    vector = added.deletionVector
    if vector is None or vector.storageType == "i":
        return
    if vector.storageType != "u" or _VECTOR.fullmatch(vector.pathOrInlineDv) is None:
        raise ValueError(f"it names the deletion vector {vector.pathOrInlineDv!r:.200}")


def _data_file(table: str, path: str) -> str:
    """The path of a data file, given its path in the log: a URI that is relative to the table.

    Raises:
        ValueError: it does not lie below the table.
    """
    relative = unquote(path)
    names = relative.split("/")
    if ":" in path or "\0" in relative or any(name in ("", ".", "..") for name in names):
        raise ValueError(f"it names the file {path!r:.200}")
    found = posixpath.join(table, *names)
    check_below(table, found)
    return found
