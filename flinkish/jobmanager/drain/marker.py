"""What a drain that has begun must know, kept in ``<job dir>/drain.json``.

Rule: once the file is there the job has no ordinary epoch any more. Whoever runs the job next ends the drain first:
epoch ``epoch + 1`` is the drain's, however often it is begun, so sinks take it in once.
"""

from __future__ import annotations

import posixpath
from dataclasses import asdict, dataclass

from flinkish.jobmanager.directory.job_directory import JobDirectory

_FILE = "drain.json"

#: Name of the directory of the drain's query.
QUERY_NAME = "spark-drain"


@dataclass(frozen=True)
class DrainMarker:
    """A drain that has begun."""

    #: the last ordinary epoch
    epoch: int
    #: source uid -> where it stood after that epoch
    positions: dict[str, str]
    #: where the final savepoint goes; None: where the job's savepoints go
    savepoint_directory: str | None
    #: operator levels of the job
    levels: int

    @property
    def drain_epoch(self) -> int:
        """The epoch in which event time ends."""
        return self.epoch + 1

    def write(self, directory: JobDirectory) -> None:
        """From now on the job is being drained."""
        directory.write(_FILE, asdict(self))

    @staticmethod
    def read(directory: JobDirectory) -> DrainMarker | None:
        """The drain that has begun in a directory; None when there is none."""
        kept = directory.read(_FILE)
        if kept is None:
            return None
        kept.pop("version", None)
        return DrainMarker(**kept)


def state_rows(directory: JobDirectory) -> str:
    """Where the state lies that the drain begins with."""
    return posixpath.join(directory.path, "drain-state")


def has_moved(directory: JobDirectory) -> bool:
    """Whether the state is there and the drain's query is the job's."""
    # a newer driver may have renamed it
    return posixpath.basename(directory.query_location().path).startswith(QUERY_NAME)
