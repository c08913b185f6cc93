"""The incremental way of a checkpoint: what has changed since the last one is appended to a table of changes.

    <checkpoints>/state/      the state as of the last full checkpoint, or of the last one after which it was merged
    <checkpoints>/changes/    what has changed since, each entry with its epoch (`flinkish.spark.changed_rows`)

Rule: both together are what a full checkpoint of the epoch would have written. Now and then, when a checkpoint is
complete, the changes are merged into the state; then the next one begins the table of changes anew, and until it does
they change nothing any more. What a driver leaves behind that dies in between is a version of a table that no manifest
names, and the next checkpoint is a full one. In doubt (a gap in the changelog, keys whose text is not unique) nothing
is appended and the checkpoint must be a full one, too.
"""

from __future__ import annotations

import logging
from typing import Any

from flinkish.jobmanager.checkpoints.changelog_ledger import ChangelogLedger
from flinkish.jobmanager.checkpoints.checkpoint_table import CheckpointTable, Written
from flinkish.jobmanager.checkpoints.spark_jobs import gentle_tasks
from flinkish.jobmanager.directory.files import directory_bytes
from flinkish.jobmanager.savepoints.manifest import Manifest
from flinkish.runtime.changelog_files import epoch_directory, read_parts
from flinkish.spark.changed_rows import merge_changes
from flinkish.spark.changelog import changed_rows
from flinkish.spark.worker import DeployedClasses

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")

#: A state of fewer rows is written anew in less time than changes take to be read with it.
SMALL_STATE_ROWS = 20_000
#: Changes of so few bytes are appended in any case.
_FEW_BYTES = 4 * 1024 * 1024


class IncrementalWriter:
    """Of one job."""

    def __init__(self, session: Any, state: CheckpointTable, changes: CheckpointTable, ledger: ChangelogLedger) -> None:
        self._session = session
        self._state = state
        self._changes = changes
        self._ledger = ledger

    def epochs(self, base: Manifest, epoch: int, full: Written) -> list[int] | None:
        """The epochs behind the base in which something has changed; None: a full checkpoint, please.

        ``full``: the last full one. Another one costs less if it is small, or when there are more changes than that.
        """
        ledger = self._ledger
        if full.rows < SMALL_STATE_ROWS or base.epoch is None or base.epoch >= epoch:
            return None
        if ledger.refused is not None or not ledger.covers(base.epoch + 1) or self.is_behind_tables(base):
            return None
        epochs = [number for number in ledger.epochs(base.epoch + 1, epoch) if read_parts(ledger.path, number)]
        changed = sum(directory_bytes(epoch_directory(ledger.path, number)) for number in epochs)
        return epochs if changed <= max(_FEW_BYTES, full.bytes) else None

    def is_behind_tables(self, base: Manifest) -> bool:
        """Whether a table has gone on since a checkpoint: by one that did not become whole, of whatever driver. Changes
        behind the base would be those of other rows than the base has."""
        if base.state.version is None or self._state.changed_since(base.state.version):
            return True
        if base.changes is None:
            # whatever is there is replaced
            return False
        version, latest = base.changes.version, self._changes.latest_version()
        # a damaged table has been set aside
        return version is None or latest is None or latest < version or self._changes.changed_since(version)

    def append(self, base: Manifest, epochs: list[int], deployed: DeployedClasses) -> Written | None:
        """One commit with what the epochs have changed; None: they are not what is in the table now, so a full
        checkpoint, please."""
        rows = changed_rows(self._session, self._ledger.path, epochs, deployed).coalesce(gentle_tasks(self._session))
        if base.changes is None:
            before = self._changes.latest_version()
            written = self._changes.overwrite(rows)
        else:
            before = base.changes.version
            written = self._changes.append(rows)
        if not self._changes.is_only_change(written, before) or self._is_refused(written):
            return None
        return written

    def _is_refused(self, written: Written) -> bool:
        """Whether a key has more texts than can be told: then no checkpoint of the job can be incremental."""
        if not self._changes.has_null(written.version, "uid"):
            return False
        rows = self._session.read.format("delta").option("versionAsOf", written.version).load(self._changes.path)
        refused = rows.where("uid IS NULL").select("state", "key").take(1)
        for state, key in refused:
            reason = f"state '{state}' has the key {key}, which other keys equal that are written otherwise"
            self._ledger.refuse(reason)
            _LOG.warning("checkpoints of this job are not incremental: %s", reason)
        return bool(refused)

    def merge(self, base: Manifest) -> Written:
        """Apply the changes of a checkpoint to its state, in one commit."""
        assert base.changes is not None
        reader = self._session.read.format("delta").option("versionAsOf", base.changes.version)
        changes = reader.load(self._changes.path)
        merge_changes(self._session, self._state.path, changes)
        return self._state.written("numTargetRowsInserted")
