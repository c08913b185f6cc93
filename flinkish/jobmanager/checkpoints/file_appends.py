"""Appends data files to a Delta table with commits of our own instead of Spark's, which cost more than the rows.

Rule: only where the table asks nothing of its writers that an added file could break, and only where its log is on a
local file system; otherwise Spark has to write. Of two drivers that commit the same version one is refused.
"""

from __future__ import annotations

import posixpath
import time
from typing import Any

from flinkish.delta.log import publish
from flinkish.jobmanager.checkpoints.checkpoint_table import LOG, CheckpointTable, Written
from flinkish.spark.data_files import DataFile, append_of
from flinkish.storage.paths import local_path
from flinkish.storage.stores import NO_LINKS

#: The features of Delta tables that are upheld by a writer which only adds files to a table without constraints.
_FEATURES = {"appendOnly", "invariants", "deletionVectors"}
#: Up to the first version of Delta's writers, tables have no other features; tables of the second one list theirs.
_WRITER_VERSION, _FEATURES_VERSION = 2, 7


class FileAppends:
    """Commits files to one table."""

    def __init__(self, table: CheckpointTable) -> None:
        self._table = table
        local = local_path(table.path)
        #: the directory of the table, without a scheme
        self.directory = local if local is not None else table.path
        self._linked = local is not None
        #: the version up to which the table is known to ask nothing more of its writers
        self._known: int | None = None

    def base(self) -> int | None:
        """The version of the table to which files may be added without Spark; None: they may not."""
        latest = self._table.latest_version()
        if not self._linked or latest is None:
            return None
        if self._known is None or self._changed_rules(self._known, latest):
            self._known = latest if self._asks_little() else None
        return None if self._known is None else latest

    def _changed_rules(self, since: int, latest: int) -> bool:
        """Whether a later version may ask more of writers."""
        later = (self._table.actions(version) for version in range(since + 1, latest + 1))
        return any(not actions or any("protocol" in a or "metaData" in a for a in actions) for actions in later)

    def _asks_little(self) -> bool:
        protocol = self._protocol()
        if protocol is None:
            return False
        version, features = protocol["minWriterVersion"], protocol.get("writerFeatures") or ()
        return version <= _WRITER_VERSION or (version == _FEATURES_VERSION and set(features) <= _FEATURES)

    def _protocol(self) -> dict[str, Any] | None:
        """What the table asks of readers and writers; None: the files of its log that are read here do not tell."""
        for version in reversed(self._table.versions()):
            for action in self._table.actions(version):
                if action.get("protocol"):
                    return dict(action["protocol"])
        return self._table.protocol_of_checkpoint()

    def commit(self, files: list[DataFile], base: int) -> Written | None:
        """Add files to the table, as the version after ``base``; None if another writer has committed that version, or
        the file system has no hard links: then `base` will be None."""
        now_ms = time.time_ns() // 1_000_000
        try:
            publish(
                posixpath.join(self._table.path, LOG, f"{base + 1:020d}.json"),
                append_of(files, now_ms, readVersion=base, isolationLevel="Serializable"),
            )
        except FileExistsError:
            return None
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self._linked = False
            return None
        return Written(base + 1, sum(file.rows for file in files), sum(file.bytes for file in files))
