"""What Spark has written about a query's batches: which were planned, which committed, and where its inputs stand.

    <query>/offsets/7    version, settings, then a line per input with the position at the end of batch 7
    <query>/commits/7    batch 7 is committed

Rule: a file that is not as Spark writes it is never guessed at.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from typing import Any

from flinkish.errors import CorruptStateError
from flinkish.jobmanager.directory.files import child_names, read_bytes

#: What Spark writes for an input that has no position yet.
_NONE = "-"
_VERSION = "v1"


@dataclass(frozen=True)
class QueryLog:
    """The log below the checkpoint directory of a query."""

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
        """Where each input stood at the end of a batch that was planned.

        Raises:
            CorruptStateError: the file is damaged or not there.
        """
        return self._read(batch)[1]

    def time_ms(self, batch: int) -> int:
        """The time at which a batch was planned, which is the processing time of its tasks behind a shuffle.

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
            settings = json.loads(text)
            whole = version == _VERSION and isinstance(settings, dict) and all(map(_is_whole, positions))
        except ValueError as error:
            raise damaged(path, f"unreadable ({error})") from error
        if not whole:
            raise damaged(path, "not what Spark writes")
        return settings, [None if position == _NONE else position for position in positions]

    def committed_positions(self) -> list[str | None]:
        """Where each input stood at the end of the last committed batch; [] before the first one."""
        committed = self.committed()
        return self.positions(committed[-1]) if committed else []


def _is_whole(position: str) -> bool:
    """Positions are JSON, but for sources that write something else of their own."""
    if position.startswith("{"):
        json.loads(position)
    return bool(position)


def damaged(path: str, how: str) -> CorruptStateError:
    """The error for a file of a query."""
    error = CorruptStateError(
        f"the query's own checkpoint is damaged: {path} is {how}",
        where=path,
        hint="restore the file from a copy, or the job from its last checkpoint or savepoint",
    )
    error.file = path
    return error
