"""The Delta table that holds the state of checkpoints: one commit per checkpoint.

Rule: its newest version is the state of one checkpoint as a whole, never of parts of two. A checkpoint's manifest names
the version, since the table may already be at a later one whose checkpoint did not become whole.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from typing import Any

from flinkish.jobmanager.directory.files import child_names, read_bytes

_LOG = "_delta_log"

#: Deletes by marks: a checkpoint of few changes rewrites no file of the others.
_PROPERTIES = {"delta.enableDeletionVectors": "true"}


@dataclass(frozen=True)
class Written:
    """One commit of the table."""

    version: int
    rows: int


class CheckpointTable:
    """See the module. ``spark``: a session of its own, so that settings are nobody else's."""

    def __init__(self, spark: Any, path: str) -> None:
        self.spark = spark
        self.path = path

    def overwrite(self, rows: Any) -> Written:
        """All state, in one commit."""
        writer = rows.write.format("delta").mode("overwrite")
        for key, value in _PROPERTIES.items():
            writer = writer.option(key, value)
        writer.save(self.path)
        return self._written("numOutputRows")

    def _written(self, metric: str) -> Written:
        version = self.latest_version()
        assert version is not None, f"no commit in {self.path}"
        return Written(version, self._metric(version, metric))

    def versions(self) -> list[int]:
        """The versions whose log files are there."""
        names = child_names(posixpath.join(self.path, _LOG))
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def latest_version(self) -> int | None:
        """The newest version; None: there is no table."""
        return max(self.versions(), default=None)

    def _metric(self, version: int, name: str) -> int:
        for action in self.actions(version):
            if "commitInfo" in action:
                return int(action["commitInfo"].get("operationMetrics", {}).get(name, 0))
        return 0

    def committed_ms(self, version: int) -> int | None:
        """When a version was committed, by the clock of the driver that did."""
        for action in self.actions(version):
            if "commitInfo" in action:
                return int(action["commitInfo"]["timestamp"])
        return None

    def actions(self, version: int) -> list[dict[str, Any]]:
        """What the log says of a version."""
        data = read_bytes(posixpath.join(self.path, _LOG, f"{version:020d}.json"))
        return [] if data is None else [json.loads(line) for line in data.splitlines() if line.strip()]
