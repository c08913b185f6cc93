"""Reads Spark's log of a query: which batches were planned and committed, and the positions of its inputs.

    <query>/offsets/7    version, settings, then a line per input with the position at the end of batch 7
    <query>/commits/7    batch 7 is committed

Rule: a file that is not as Spark writes it is an error; its content is never guessed.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any

from flinkish.common.sealed_json import json_as
from flinkish.errors import CorruptStateError
from flinkish.jobmanager.directory.files import child_names, read_bytes

#: What Spark writes for an input that has no position yet.
_NONE = "-"
_VERSION = "v1"


@dataclass(frozen=True)
class QueryLog:
    """The log of batches below the checkpoint directory of a query."""

    path: str

    def planned(self) -> list[int]:
        """The batches that were planned and not cleaned up since, in order."""
        return self._batches("offsets")

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
        data = read_bytes(path)
        if data is None:
            raise damaged(path, "missing")
        try:
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
