"""Checks the log of a Delta table before Delta reads it, because Delta does not say which of its files is damaged."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from flinkish.common.sealed_json import json_as, typed
from flinkish.common.storage import check_below
from flinkish.errors import SavepointError
from flinkish.jobmanager.directory.files import child_names, read_bytes

_COMMIT = re.compile(r"(\d{20})\.json")
#: The commits of several versions, joined into one file.
_JOINED = re.compile(r"\d{20}\.\d{20}\.compacted\.json")
_SUMMED_UP = re.compile(r"(\d{20})\.checkpoint\..*")
#: A checkpoint of the log, or a part of one, that names no further files (as those of Delta's "V2" may).
_CLASSIC = re.compile(r"\d{20}\.checkpoint\.(\d{10}\.\d{10}\.)?parquet")
#: Rows of a checkpoint of the log that are in memory at a time.
_CHECKPOINT_ROWS = 10_000


#: A deletion vector beside the data files: a random prefix, which is a folder, and a UUID as 20 characters.
_VECTOR = re.compile(r"[A-Za-z0-9]*[!-~]{20}", re.ASCII)


@dataclass(frozen=True)
class _Vector:
    """A deletion vector of a data file, as Delta's log has it."""

    storageType: str
    pathOrInlineDv: str


@dataclass(frozen=True)
class _Added:
    """An ``add`` action of Delta's log, as far as it names files."""

    path: str
    deletionVector: _Vector | None = None


@dataclass(frozen=True)
class _Action:
    """A line of Delta's log, as far as it names files."""

    add: _Added | None = None


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
    names = child_names(log)
    commits, sums = _numbers(_COMMIT, names), _numbers(_SUMMED_UP, names)
    last = max([*commits, *sums], default=0) if version is None else version
    first = max((number for number in sums if number <= last), default=-1) + 1
    for number in range(first, last + 1):
        path = posixpath.join(log, f"{number:020d}.json")
        problem = _problem(table, read_bytes(path))
        if problem:
            raise damaged_log(path, problem, f"all commits of the Delta table from {first} to {last}")
    # Delta may begin with any checkpoint of the log, and may read any commits that were joined into one file
    for name in names:
        path, found = posixpath.join(log, name), _SUMMED_UP.fullmatch(name)
        if found is not None and int(found.group(1)) <= last:
            _check_checkpoint(table, path)
        elif _JOINED.fullmatch(name) and (problem := _problem(table, read_bytes(path))):
            raise damaged_log(path, problem)


def damaged_log(path: str, problem: str, expected: str = "the file as Delta wrote it") -> SavepointError:
    """The error for a file of the log of a table of state."""
    return SavepointError(
        f"the log of the table of state is damaged: {path} is {problem}",
        where=path,
        expected=expected,
        hint="copy the file from a backup, or use another savepoint or checkpoint",
    )


def rows_of_checkpoint(path: str, columns: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a checkpoint of the log, a Parquet file; only these columns, as far as there are such.

    Raises:
        SavepointError: the file is missing or damaged.
    """
    from pyarrow import ArrowException, BufferReader, parquet

    data = read_bytes(path)
    if data is None:
        raise damaged_log(path, "missing")
    try:
        for batch in parquet.ParquetFile(BufferReader(data)).iter_batches(_CHECKPOINT_ROWS, columns=columns):
            yield from batch.to_pylist()
    except (OSError, ArrowException) as error:
        raise damaged_log(path, f"unreadable ({error})") from error


def _check_checkpoint(table: str, path: str) -> None:
    columns = ["add.path", "add.deletionVector.storageType", "add.deletionVector.pathOrInlineDv", "sidecar"]
    whole = _CLASSIC.fullmatch(posixpath.basename(path)) is not None
    for row in rows_of_checkpoint(path, columns) if whole else ():
        whole = whole and row.get("sidecar") is None
        try:
            added = typed(_Action, {"add": row.get("add")}).add
            if added is not None:
                _check_added(table, added)
        except ValueError as error:
            raise damaged_log(path, f"not what Delta writes below the table ({error})") from error
    if not whole:
        raise damaged_log(path, "a checkpoint that names further files, which flinkish does not check")


def files_of_first_commit(table: str) -> list[str]:
    """The Parquet files that make up a table of one commit; empty if there are none, or if only Delta can read them.

    Only Delta can read a table in whose settings features of Delta (such as column mapping) are on by default.
    """
    data = read_bytes(posixpath.join(table, "_delta_log", f"{0:020d}.json")) or b""
    files = []
    for line in data.splitlines():
        action: dict[str, Any] = json_as(dict[str, Any], line) if line.strip() else {}
        metadata, protocol = action.get("metaData", {}), action.get("protocol", {})
        if metadata.get("configuration") or metadata.get("partitionColumns") or protocol.get("minReaderVersion", 1) > 1:
            return []
        if "add" in action:
            files.append(_data_file(table, action["add"]["path"]))
    return files


def _numbers(pattern: re.Pattern[str], names: list[str]) -> list[int]:
    return [int(found.group(1)) for name in names if (found := pattern.fullmatch(name))]


def _problem(table: str, data: bytes | None) -> str:
    if not data:
        return "missing" if data is None else "empty"
    try:
        actions = [json_as(_Action, line) for line in data.splitlines() if line.strip()]
        for action in actions:
            if action.add is not None:
                _check_added(table, action.add)
    except json.JSONDecodeError as error:
        return f"unreadable ({error})"
    except ValueError as error:
        return f"not what Delta writes below the table ({error})"
    return "" if actions else "not what Delta writes"


def _check_added(table: str, added: _Added) -> None:
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
