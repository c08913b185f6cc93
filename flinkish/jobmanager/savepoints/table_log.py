"""Checks the log of a Delta table before Delta reads it, because Delta does not say which of its files is damaged."""

from __future__ import annotations

import json
import posixpath
import re
from urllib.parse import unquote

from flinkish.errors import SavepointError
from flinkish.jobmanager.directory.files import child_names, read_bytes

_COMMIT = re.compile(r"(\d{20})\.json")
_SUMMED_UP = re.compile(r"(\d{20})\.checkpoint\..*")


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
        problem = _problem(read_bytes(path))
        if problem:
            raise SavepointError(
                f"the log of the table of state is damaged: {path} is {problem}",
                where=path,
                expected=f"all commits of the Delta table from {first} to {last}",
                hint="copy the file from a backup, or use another savepoint or checkpoint",
            )


def files_of_first_commit(table: str) -> list[str]:
    """The Parquet files that make up a table of one commit; empty if there are none, or if only Delta can read them.

    Only Delta can read a table in whose settings features of Delta (such as column mapping) are on by default.
    """
    data = read_bytes(posixpath.join(table, "_delta_log", f"{0:020d}.json")) or b""
    files = []
    for line in data.splitlines():
        action = json.loads(line) if line.strip() else {}
        metadata, protocol = action.get("metaData", {}), action.get("protocol", {})
        if metadata.get("configuration") or metadata.get("partitionColumns") or protocol.get("minReaderVersion", 1) > 1:
            return []
        if "add" in action:
            files.append(posixpath.join(table, unquote(action["add"]["path"])))
    return files


def _numbers(pattern: re.Pattern[str], names: list[str]) -> list[int]:
    return [int(found.group(1)) for name in names if (found := pattern.fullmatch(name))]


def _problem(data: bytes | None) -> str:
    if data is None:
        return "missing"
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError as error:
        return f"unreadable ({error})"
    whole = actions and all(isinstance(action, dict) for action in actions)
    return "" if whole else "not what Delta writes" if data else "empty"
