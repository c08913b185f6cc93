"""Reads what the names of a query's files say, and checks that the files with which the query starts can be read.

Rule: an error names the file that is missing or unreadable before Spark is started. Some of these files Spark would not
miss: it would plan an epoch anew that it has run already.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flinkish.jobmanager.directory.job_directory import QueryLocation
from flinkish.jobmanager.directory.query_log import QueryLog, damaged, files_read
from flinkish.runtime.epoch.files import PreparedEpochs, prepared_directory
from flinkish.runtime.epoch.planner import GivenUpEpoch
from flinkish.storage.files import child_names, empty_files, read_bytes
from flinkish.storage.paths import FileKind
from flinkish.storage.sealed import json_as

_VERSION_OF_STATE = re.compile(r"(\d+)(?:_[\w-]+)?\.(?:delta|snapshot|changelog|zip)")


def read_traces(location: QueryLocation) -> Traces:
    """The traces of a query, by the names of its files. State of a batch that was given up and not planned since is
    none: a task of the failed run, which has ended late, has left it."""
    log, first = QueryLog(location.path), location.first_epoch
    planned, late = log.planned(), late_batch(location)
    # version n + 1 of the state is the one after batch n
    versions = [version for version in _state_versions(location.path) if late is None or version <= late]
    return Traces(
        tuple(batch + first for batch in planned),
        tuple(batch + first for batch in log.committed()),
        max(versions) - 1 + first if versions else None,
        # their files are numbered as the job's epochs are
        tuple(PreparedEpochs(prepared_directory(location.path)).epochs()),
    )


def late_batch(location: QueryLocation) -> int | None:
    """The batch that was given up and is not planned; None if there is none."""
    batch = GivenUpEpoch(location.path).batch()
    return None if batch is None or batch <= max(QueryLog(location.path).planned(), default=-1) else batch


def _state_versions(query: str) -> Iterator[int]:
    for folder in _state_folders(query):
        for name in child_names(folder):
            found = _VERSION_OF_STATE.fullmatch(name)
            if found is not None:
                yield int(found.group(1))


def _state_folders(query: str) -> Iterator[str]:
    """The directories of state, one per partition of each stateful operator."""
    state = posixpath.join(query, "state")
    for operator in child_names(state):
        for partition in child_names(posixpath.join(state, operator)):
            if partition.isdigit():
                yield posixpath.join(state, operator, partition)


def check_query(location: QueryLocation) -> Traces:
    """Check the files with which a query starts; returns the traces of the query.

    Raises:
        CorruptStateError: a file is missing or cannot be read; the error names it.
    """
    traces = read_traces(location)
    missing = traces.missing()
    if missing is not None:
        raise damaged(posixpath.join(location.path, "offsets", str(missing - location.first_epoch)), "missing")
    if not traces.planned:
        return traces
    _check_state(location.path)
    log = QueryLog(location.path)
    last = log.planned()[-1]
    _check_read_files(location.path, log.positions(last))
    if last:
        # Spark starts with the offsets of both batches, whether the last one has been committed or not
        log.positions(last - 1)
    _check_metadata(posixpath.join(location.path, "metadata"))
    if traces.committed:
        _check_commit(posixpath.join(location.path, "commits", str(log.committed()[-1])))
    return traces


def _check_state(query: str) -> None:
    """Check that no file of state is empty, as none ever is; Spark finds out, too, but does not say which one."""
    for folder in _state_folders(query):
        for name in empty_files(folder):
            if _VERSION_OF_STATE.fullmatch(name):
                raise damaged(posixpath.join(folder, name), "empty")


def _check_read_files(query: str, positions: list[str | None]) -> None:
    """Check the last list of files that each file source has read: without it Spark would read the files again."""
    for index, position in enumerate(positions):
        last = files_read(position)
        if last is None or last == -1:
            continue
        folder = posixpath.join(query, "sources", str(index))
        names = {str(last), f"{last}.compact"} & set(child_names(folder))
        if not names:
            raise damaged(posixpath.join(folder, str(last)), "missing")
        for name in names & set(empty_files(folder)):
            raise damaged(posixpath.join(folder, name), "empty")


def _check_metadata(path: str) -> None:
    try:
        data = read_bytes(path, FileKind.JOB_FILE)
        if data is None:
            raise damaged(path, "missing")
        whole = bool(json_as(dict[str, Any], data).get("id"))
    except ValueError:
        whole = False
    if not whole:
        raise damaged(path, "not what Spark writes" if data else "empty")


def _check_commit(path: str) -> None:
    lines = [""]
    try:
        lines = (read_bytes(path, FileKind.JOB_FILE) or b"").decode(errors="replace").split("\n")
        whole = lines[0].startswith("v") and json_as(dict[str, Any], lines[1]) is not None
    except (ValueError, IndexError):
        whole = False
    if not whole:
        raise damaged(path, "not what Spark writes" if lines != [""] else "empty")


@dataclass(frozen=True)
class Traces:
    """What the names of a query's files say of its batches, which are given as epochs of the job."""

    #: epochs with a file in ``offsets/``
    planned: tuple[int, ...]
    #: epochs with a file in ``commits/``
    committed: tuple[int, ...]
    #: the last epoch of which there is state
    last_state: int | None = None
    #: epochs with a file in ``prepared/``
    prepared: tuple[int, ...] = ()

    @property
    def last_delivered(self) -> int | None:
        """The last epoch that any sink can have heard of; None if there is none."""
        before = max((epoch - 1 for epoch in (*self.planned, *self._states)), default=-1)
        last = max((*self.committed, *self.prepared, before), default=-1)
        return None if last < 0 else last

    def missing(self) -> int | None:
        """The epoch whose offsets must be there and are not; None if there is none. Spark writes the offsets before
        anything of an epoch happens; without them it would plan the epoch anew, with other offsets."""
        last = max((*self.committed, *self.prepared, *self._states), default=-1)
        return last if last > max(self.planned, default=-1) else None

    @property
    def _states(self) -> tuple[int, ...]:
        return () if self.last_state is None else (self.last_state,)
