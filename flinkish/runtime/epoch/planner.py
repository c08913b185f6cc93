"""The files through which an epoch informs the planner of the next ones.

    <planner>/epoch-requested       the number of the last epoch in which user code has asked (``request_commit``) that
                                    the next one be planned at once
    <planner>/epoch-times           how long the last epoch that has run has taken (`EpochTimes`)
    <planner>/pending-timers        {"vertex/subtask": timestamp in ms of its first processing-time timer}
    <query>/reached-watermarks      what the sources' tasks had reached (`Reached`) after each of the last two epochs
                                    that have run: [[epoch, {"watermarks": ..., "states": ...}], ...]
    <query>/given-up.json           {"version": 2, "offset": offset of the epoch that was given up last,
                                    "batch": its number in the query, "digest": ...}

Epochs are planned in a process beside the driver; under Spark Connect, it may be on another machine. ``<planner>`` is
the query's directory, or, where that is on remote storage and the process on the driver's machine, a temporary one of
the driver (`directory_beside_driver`): a new driver starts without the files in it. The planner polls the first file
while it waits. It reads the second and the third one when the epoch that wrote them is committed; what a plan makes of
them is then part of its offset. It reads the last one when the query starts.
"""

from __future__ import annotations

import atexit
import json
import posixpath
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar

from flinkish.errors import CorruptStateError
from flinkish.runtime.sources.alignment import Reached
from flinkish.runtime.sources.sizer import EpochTimes
from flinkish.storage.paths import FileKind, is_local
from flinkish.storage.sealed import json_as, sealed, typed, unsealed_as
from flinkish.storage.stores import storage_errors, storage_of


@cache
def directory_beside_driver(query: str) -> str:
    """The temporary directory of this driver for what its epochs tell the planner of a query; it is deleted with the
    driver. "" if the query's own directory is local, too. Not for Spark Connect, whose planner may be elsewhere."""
    if is_local(query):
        return ""
    directory = tempfile.mkdtemp(prefix="flinkish-planner-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


class _QueryFile:
    """One file of a query's directory, or of the planner's."""

    NAME: ClassVar[str]

    def __init__(self, query: str) -> None:
        self._path = posixpath.join(query, self.NAME)
        self._storage = storage_of(query)

    def _read(self) -> bytes | None:
        """The content; None if there is no such file.

        Raises:
            CorruptStateError: it is none that may be read.
        """
        try:
            with storage_errors("read", self._path), suppress(FileNotFoundError):
                return self._storage.read(self._path, FileKind.JOB_FILE)
        except ValueError as error:
            raise CorruptStateError(
                f"a file of the query is damaged: {error}", where=self._path, hint="delete it, then start the job again"
            ) from error
        return None

    def _write(self, data: bytes) -> None:
        with storage_errors("write", self._path):
            self._storage.write(self._path, data)


class EpochRequest(_QueryFile):
    """The file through which one query requests that its next epoch be planned at once."""

    NAME = "epoch-requested"

    def ask(self, epoch: int) -> None:
        """Record that user code has asked for it in this epoch."""
        self._write(str(epoch).encode())

    def newest(self) -> int:
        """The last epoch in which user code has asked for it; -1 if there is none or the file is just being written."""
        return int(self._read() or b"-1")


class ReachedWatermarks(_QueryFile):
    """The file with what the tasks of the sources of one query have reached. It holds two epochs: if the last one runs
    again, it begins with what the one before it has left."""

    NAME = "reached-watermarks"

    def write(self, epoch: int, reached: Reached) -> None:
        """Add what an epoch that has run has reached. The epoch is prepared only after this."""
        before = [entry for entry in self._entries() if entry[0] < epoch][-1:]
        known = before[0][1] if before else Reached()
        entries = [*before, (epoch, reached.behind(known))]
        self._storage.replace(self._path, json.dumps([(number, asdict(one)) for number, one in entries]).encode())

    def read(self, before: int | None = None) -> Reached:
        """What the last epoch has reached, or the last one before this epoch; nothing if there is none."""
        entries = [one for number, one in self._entries() if before is None or number < before]
        return entries[-1] if entries else Reached()

    def _entries(self) -> list[tuple[int, Reached]]:
        """The epochs of the file in their order; none if the file is of another version."""
        try:
            return [(int(number), typed(Reached, one)) for number, one in json.loads(self._read() or b"[]")]
        except (TypeError, ValueError):
            return []


class PendingTimers(_QueryFile):
    """The file that says which subtasks have processing-time timers, so that epochs are planned for them. A driver that
    begins does not trust it: the one before may have died before it has written it."""

    NAME = "pending-timers"

    #: path of a file -> its content, if this process has written it
    _written: ClassVar[dict[str, dict[str, int]]] = {}

    def update(self, timers: Mapping[str, int | None]) -> None:
        """Write the timestamps of the first timers of the subtasks that an epoch has run; None: it has none. Those of
        other subtasks stay as this process has written them."""
        before = self._written.get(self._path)
        both = sorted({**(before or {}), **timers}.items())
        after = {task: time_ms for task, time_ms in both if time_ms is not None}
        if after != before:
            self._storage.replace(self._path, json.dumps(after).encode())
            self._written[self._path] = after

    def earliest(self) -> int | None:
        """The timestamp of the first timer of all; None if there is none."""
        return min(json_as(dict[str, int], self._read() or b"{}").values(), default=None)


class LastEpochTimes(_QueryFile):
    """The file with the times of the last epoch of one query, by which the next one is sized."""

    NAME = "epoch-times"

    def forget(self) -> None:
        """Delete the times, because those of the next epoch will not be known: an earlier run has prepared it."""
        with storage_errors("delete", self._path):
            self._storage.delete(self._path)

    def write(self, times: EpochTimes) -> None:
        """Write the times of an epoch whose sinks have committed."""
        self._write(json.dumps(asdict(times)).encode())

    def read(self) -> EpochTimes | None:
        """The times of the last epoch; None if they are not known: there was no epoch, the driver has died while the
        last one was committed, or the query was moved here."""
        try:
            return json_as(EpochTimes, self._read() or b"")
        except ValueError:
            return None


@dataclass(frozen=True)
class _GivenUp:
    """The content of the file of `GivenUpEpoch`."""

    offset: dict[str, Any]
    batch: int | None = None


class GivenUpEpoch(_QueryFile):
    """The file with the plan of the epoch that one query has given up last. The epoch is planned anew, but what its
    plan had found (new splits and where they start, pages of a service that may not give them again) stays found."""

    NAME = "given-up.json"

    def write(self, offset: dict[str, Any], batch: int) -> None:
        """Write the offset at the end of the epoch, which is a batch of the query. The epoch is taken out of the
        query's log only after this."""
        with storage_errors("write", self._path):
            self._storage.replace(self._path, sealed({"version": 2, "offset": offset, "batch": batch}), durable=True)

    def batch(self) -> int | None:
        """The number of the epoch in the query; None if the query has given up none, or the file does not say."""
        try:
            return unsealed_as(_GivenUp, self._read() or b"").batch
        except ValueError:
            return None

    def read(self) -> dict[str, Any]:
        """The offset at the end of the epoch; {} if the query has given up none.

        Raises:
            CorruptStateError: the file is damaged.
        """
        data = self._read()
        if data is None:
            return {}
        try:
            return unsealed_as(_GivenUp, data).offset
        except ValueError as error:
            raise CorruptStateError(
                f"the plan of an epoch that was given up is damaged: {self._path} ({error})",
                where=self._path,
                hint="restore the file from a copy; or delete it: splits that were found for that epoch only are "
                "looked for again, so that a service that gives a page once gives others",
            ) from error
