"""Spark's log of a query: which batches were planned and committed, and the positions of its inputs; and what the names
of a query's files say, before Spark is started.

    <query>/offsets/7    version, settings, then a line per input with the position at the end of batch 7
    <query>/commits/7    batch 7 is committed
    <query>/sources/1/3  of a file source that is input 1: the files that its position {"logOffset":3} stands for

Rule: a file that is not as Spark writes it is an error; its content is never guessed. Spark alone adds to the log, but
for the commit of an epoch behind which the query never runs again (`QueryLog.commit`); only `QueryLog.give_up` takes
something out of it.

Rule: an error names the file that is missing or unreadable before Spark is started. Some of these files Spark would not
miss: it would plan an epoch anew that it has run already.
"""

from __future__ import annotations

import json
import posixpath
import re
import zlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flinkish.errors import CorruptStateError
from flinkish.jobdir.directory import QueryLocation
from flinkish.runtime.epoch.files import PreparedEpochs, prepared_directory
from flinkish.runtime.epoch.planner import GivenUpPlan
from flinkish.storage.files import child_names, delete_file, empty_files, read_bytes
from flinkish.storage.paths import FileKind
from flinkish.storage.sealed import json_as
from flinkish.storage.stores import Entry, storage_of

#: What Spark writes for an input that has no position yet.
_NONE = "-"
_VERSION = "v1"
#: What Spark writes for a committed batch of a query without watermarks of Spark's.
_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'

#: The position of a file source: the number of its last list of files.
_FILES_READ = re.compile(r'\{"logOffset":(-?\d+)\}')


@dataclass(frozen=True)
class QueryLog:
    """The log of batches below the checkpoint directory of a query."""

    path: str

    def planned(self) -> list[int]:
        """The batches that were planned and not cleaned up since, in order."""
        return self._batches("offsets")

    def is_planned(self, batch: int) -> bool:
        """Whether a batch was planned and not cleaned up since; looks at one file."""
        return storage_of(self.path).exists(posixpath.join(self.path, "offsets", str(batch)))

    def is_committed(self, batch: int) -> bool:
        """Whether a batch was committed and not cleaned up since; looks at one file."""
        return storage_of(self.path).exists(posixpath.join(self.path, "commits", str(batch)))

    def committed(self) -> list[int]:
        """The batches that were committed and not cleaned up since, in order."""
        return self._batches("commits")

    def _batches(self, folder: str) -> list[int]:
        return sorted(int(name) for name in child_names(posixpath.join(self.path, folder)) if name.isdigit())

    def positions(self, batch: int) -> list[str | None]:
        """The position of each input at the end of a planned batch; None for an input that has no position yet.

        Raises:
            CorruptStateError: the file is damaged or not there.
        """
        return self._read(batch)[1]

    def time_ms(self, batch: int) -> int:
        """When a batch was planned, in milliseconds since 1970: the processing time of its tasks behind a shuffle.

        Raises:
            CorruptStateError: the file is damaged or not there.
        """
        settings, _ = self._read(batch)
        if "batchTimestampMs" not in settings:
            raise damaged(posixpath.join(self.path, "offsets", str(batch)), "not what Spark writes")
        return int(settings["batchTimestampMs"])

    def _read(self, batch: int) -> tuple[dict[str, Any], list[str | None]]:
        """The settings of a batch, and the positions of its inputs."""
        path = posixpath.join(self.path, "offsets", str(batch))
        try:
            data = read_bytes(path, FileKind.JOB_FILE)
            if data is None:
                raise damaged(path, "missing")
            if not _has_checksum(data, read_bytes(_checksum_of(path), FileKind.JOB_FILE)):
                raise damaged(path, "not what was written (its checksum differs)")
            version, text, *positions = data.decode().split("\n")
            settings = json_as(dict[str, Any], text)
            whole = version == _VERSION and all(map(_is_whole, positions))
        except ValueError as error:
            raise damaged(path, f"unreadable ({error})") from error
        if not whole:
            raise damaged(path, "not what Spark writes")
        return settings, [None if position == _NONE else position for position in positions]

    def commit(self, batch: int) -> None:
        """Mark a planned batch as committed, as Spark does it, after the sinks have committed what it has for them: if
        Spark delivered it again, it would do nothing else. To be called while no query runs."""
        storage_of(self.path).replace(posixpath.join(self.path, "commits", str(batch)), _COMMIT, durable=True)

    def committed_positions(self) -> list[str | None]:
        """The position of each input at the end of the last committed batch; [] before the first one."""
        committed = self.committed()
        return self.positions(committed[-1]) if committed else []

    # ------------------------------------------------------------------ giving up

    def can_be_planned_anew(self, batch: int, begin_anew: Collection[int] = ()) -> bool:
        """Whether nothing would be left out if a batch were planned once more.

        In the first batch of a query the sources have no positions to go on from and find out anew where they begin.
        For one that Spark reads and that keeps no record of it (a Delta table that is read from its latest version on)
        this may be somewhere else by now. ``begin_anew``: the inputs of the query for which this does no harm.
        """
        return bool(batch) or all(
            end is None or number in begin_anew or bool(self._records(number))
            for number, end in enumerate(self.positions(batch)[1:], 1)
        )

    def give_up(self, batch: int) -> None:
        """Take the last batch out of the log, which is planned and not committed, so that Spark plans it anew.

        To be called while no query runs, for a batch that `can_be_planned_anew`, of which no sink has heard and whose
        state was deleted.

        The new plan begins where the batch before ended, so nothing is left out and nothing comes twice:

        * Sources whose splits flinkish assigns plan from the positions in the log. What the plan had found is kept
          (`GivenUpPlan`), since a look may give something else when it is repeated.
        * Sources that Spark reads must be able to go on from any position in the log, since they hear only of committed
          batches that they may forget something. What they list for themselves (the files of a file source) is deleted
          with the batch; if the process dies before that, the next batch has those files, too.

        Raises:
            CorruptStateError: the log is damaged.
        """
        ends = self.positions(batch)
        starts = self.positions(batch - 1) if batch else [None] * len(ends)
        planned = json.loads(ends[0] or "{}")
        GivenUpPlan(planned, batch).write(self.path)
        _delete_checked(posixpath.join(self.path, "offsets", str(batch)))
        for number, (start, end) in enumerate(zip(starts, ends)):
            if files_read(end) is not None:
                self._delete_lists_behind(number, files_read(start))

    def _delete_lists_behind(self, number: int, position: int | None) -> None:
        """Delete the lists of files behind a position of a file source, which is an input of the query."""
        kept = -1 if position is None else position
        for name in self._records(number):
            listed = name.removesuffix(".compact")
            if listed.isdigit() and int(listed) > kept:
                _delete_checked(posixpath.join(self.path, "sources", str(number), name))

    def _records(self, number: int) -> list[str]:
        """The names of the files in which an input of the query keeps where it began, or what it has read."""
        return child_names(posixpath.join(self.path, "sources", str(number)))


def files_read(position: str | None) -> int | None:
    """The number of the last list of files that a file source had read at a position, -1 if none; None if it is the
    position of another source."""
    found = _FILES_READ.fullmatch(position or "")
    return None if found is None else int(found.group(1))


def _checksum_of(path: str) -> str:
    """The file in which Hadoop keeps the checksum of a file, on local file systems."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f".{name}.crc")


def _has_checksum(data: bytes, checksum: bytes | None) -> bool:
    """Whether this is the data that Hadoop has made the checksum of; also if there is none, or one of another form."""
    if checksum is None or checksum[:4] != b"crc\0" or len(checksum) < 8:
        return True
    step = int.from_bytes(checksum[4:8], "big")
    parts = (data[begin : begin + step] for begin in range(0, len(data), max(step, 1)))
    return b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts) == checksum[8:]


def _delete_checked(path: str) -> None:
    """Delete a file and its checksum."""
    delete_file(path)
    delete_file(_checksum_of(path))


def _is_whole(position: str) -> bool:
    """Whether a position is complete. Positions are JSON, except those of sources with a format of their own; raises
    ValueError when the JSON is damaged."""
    if position.startswith("{"):
        json_as(dict[str, Any], position)
    return bool(position)


def damaged(path: str, how: str) -> CorruptStateError:
    """The error for a damaged or missing file of a query's own checkpoint. ``how``: what is wrong with it."""
    error = CorruptStateError(
        f"the query's own checkpoint is damaged: {path} is {how}",
        where=path,
        hint="restore the file from a copy, or the job from its last checkpoint or savepoint",
    )
    error.file = path
    return error


#: The path of a file of state below the directory of an operator's partition; its group is the version.
_FILE_OF_STATE = re.compile(r"[^/]+/\d+/(\d+)(?:_[\w-]+)?\.(?:delta|snapshot|changelog|zip)")


def read_traces(location: QueryLocation) -> Traces:
    """The traces of a query, by the names of its files. State of a batch that was given up and not planned since is
    none: a task of the failed run, which has ended late, has left it."""
    return _traces(location, _files_of_state(location.path))


def _traces(location: QueryLocation, of_state: list[tuple[int, Entry]]) -> Traces:
    log, first = QueryLog(location.path), location.first_epoch
    planned, late = log.planned(), late_batch(location)
    # version n + 1 of the state is the one after batch n
    versions = [version for version, _ in of_state if late is None or version <= late]
    return Traces(
        tuple(batch + first for batch in planned),
        tuple(batch + first for batch in log.committed()),
        max(versions) - 1 + first if versions else None,
        # their files are numbered as the job's epochs are
        tuple(PreparedEpochs(prepared_directory(location.path)).epochs()),
    )


def late_batch(location: QueryLocation) -> int | None:
    """The batch that was given up and is not planned; None if there is none."""
    batch = None
    with suppress(CorruptStateError):
        batch = (GivenUpPlan.read(location.path) or GivenUpPlan({})).batch
    return None if batch is None or batch <= max(QueryLog(location.path).planned(), default=-1) else batch


def _files_of_state(query: str) -> list[tuple[int, Entry]]:
    """The files of state with the versions of which they are, in one listing: there may be thousands of them."""
    state = posixpath.join(query, "state")
    entries = [entry for entry in storage_of(state).list(state, recursive=True) if entry.is_file]
    found = ((_FILE_OF_STATE.fullmatch(entry.name), entry) for entry in entries)
    return [(int(match.group(1)), entry) for match, entry in found if match is not None]


def check_query(location: QueryLocation) -> Traces:
    """Check the files with which a query starts; returns the traces of the query.

    Raises:
        CorruptStateError: a file is missing or cannot be read; the error names it.
    """
    of_state = _files_of_state(location.path)
    traces = _traces(location, of_state)
    missing = traces.missing()
    if missing is not None:
        raise damaged(posixpath.join(location.path, "offsets", str(missing - location.first_epoch)), "missing")
    if not traces.planned:
        return traces
    for _, entry in of_state:
        # none ever is; Spark finds out, too, but does not say which one
        if not entry.size_bytes:
            raise damaged(entry.path, "empty")
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
