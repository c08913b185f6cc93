"""The marker of a drain that has begun, with what is needed to complete it: ``<job dir>/drain.json``.

Rule: once the file is there, the job has no ordinary epoch any more. Any driver that runs the job next completes the
drain: epoch ``epoch + 1`` is the drain's, however often it is begun, so sinks accept it once.
"""

from __future__ import annotations

import posixpath
from dataclasses import asdict, dataclass

from flinkish.jobmanager.directory.job_directory import JobDirectory

_DRAIN = "drain.json"

#: Name of the directory of the drain's query.
QUERY_NAME = "spark-drain"


@dataclass(frozen=True)
class DrainMarker:
    """Describes a drain that has begun."""

    #: the last ordinary epoch
    epoch: int
    #: source uid -> its position after that epoch
    positions: dict[str, str]
    #: directory for the final savepoint; None: the directory of the job's savepoints
    savepoint_directory: str | None
    #: number of operator levels of the job
    levels: int

    @property
    def drain_epoch(self) -> int:
        """The epoch in which event time ends."""
        return self.epoch + 1

    def write(self, directory: JobDirectory) -> None:
        """Write the marker: from now on the job is being drained."""
        directory.write(_DRAIN, asdict(self))

    @staticmethod
    def read(directory: JobDirectory) -> DrainMarker | None:
        """The marker of the drain that has begun in a directory; None when there is none."""
        return directory.read(_DRAIN, DrainMarker)


def state_rows(directory: JobDirectory) -> str:
    """Directory of the state with which the drain begins."""
    return posixpath.join(directory.path, "drain-state")


def has_moved(directory: JobDirectory) -> bool:
    """Whether the drain's state is written and its query is the job's."""
    # a newer driver may have moved the query, which adds a suffix to its name
    return posixpath.basename(directory.query_location().path).startswith(QUERY_NAME)
