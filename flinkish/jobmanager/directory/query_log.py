"""Spark's log of a query: which batches were planned and committed, and the positions of its inputs.

    <query>/offsets/7    version, settings, then a line per input with the position at the end of batch 7
    <query>/commits/7    batch 7 is committed
    <query>/sources/1/3  of a file source that is input 1: the files that its position {"logOffset":3} stands for

Rule: a file that is not as Spark writes it is an error; its content is never guessed. Spark alone adds to the log; only
`QueryLog.give_up` takes something out of it.
"""

from __future__ import annotations

import json
import posixpath
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from flinkish.errors import CorruptStateError
from flinkish.runtime.epoch.planner import GivenUpEpoch
from flinkish.storage.files import child_names, delete_file, read_bytes
from flinkish.storage.paths import FileKind
from flinkish.storage.sealed import json_as
from flinkish.storage.stores import storage_of

#: What Spark writes for an input that has no position yet.
_NONE = "-"
_VERSION = "v1"

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
          (`GivenUpEpoch`), since a look may give something else when it is repeated.
        * Sources that Spark reads must be able to go on from any position in the log, since they hear only of committed
          batches that they may forget something. What they list for themselves (the files of a file source) is deleted
          with the batch; if the process dies before that, the next batch has those files, too.

        Raises:
            CorruptStateError: the log is damaged.
        """
        ends = self.positions(batch)
        starts = self.positions(batch - 1) if batch else [None] * len(ends)
        planned = json.loads(ends[0] or "{}")
        GivenUpEpoch(self.path).write(planned, batch)
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
