"""Incremental checkpoints: what has changed since the last checkpoint is appended to a table of changes.

    <checkpoints>/state/      the state as of the last full checkpoint, or of the last one after which it was merged
    <checkpoints>/changes/    what has changed since, each entry with its epoch (`flinkish.spark.changelog`)

Rule: both tables together hold what a full checkpoint of the epoch would have written. Now and then, when a checkpoint
is complete, the changes are merged into the state; then the next checkpoint begins the table of changes anew, and until
it does, applying them once more changes nothing. A driver that dies in between leaves a version of a table behind that
no manifest names, and the next checkpoint is a full one. In doubt (a gap in the changelog, keys whose text is not
unique) the checkpoint must be a full one, too.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from flinkish.errors import CorruptStateError
from flinkish.jobmanager.checkpoints.changelog_ledger import ChangelogLedger
from flinkish.jobmanager.checkpoints.checkpoint_table import CheckpointTable, Written
from flinkish.jobmanager.checkpoints.file_appends import FileAppends
from flinkish.jobmanager.checkpoints.spark_jobs import gentle_tasks
from flinkish.jobmanager.savepoints.manifest import Manifest
from flinkish.runtime.epoch.changelog_files import epoch_directory, read_parts
from flinkish.spark.changelog import changed_file, changed_files, changed_rows, merge_changes
from flinkish.spark.failures import translate
from flinkish.spark.worker import DeployedClasses
from flinkish.storage.files import directory_bytes
from flinkish.storage.paths import for_spark

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")

#: A state of fewer rows is written anew in less time than it takes to read changes together with it.
SMALL_STATE_ROWS = 20_000
#: Changes of at most so many bytes are appended, however small the state is in comparison.
_FEW_BYTES = 4 * 1024 * 1024
#: Changes of at most so many bytes are converted by the driver's process: epochs notice a Spark job more.
DRIVER_BYTES = 1024 * 1024


class Changes(NamedTuple):
    """The epochs since a checkpoint in which something has changed, and the size of their changelog in bytes."""

    epochs: list[int]
    bytes: int


class IncrementalWriter:
    """Writes the incremental checkpoints of one job: appends what the changelog says has changed to the table of
    changes, and merges that table into the state now and then.

    Args:
        session: the session for its Spark jobs.
        state: the table of the state.
        changes: the table of what has changed since.
        ledger: the ledger of the changelog.
        driver_bytes: changes of more bytes are converted by Spark's tasks.
    """

    def __init__(
        self,
        session: Any,
        state: CheckpointTable,
        changes: CheckpointTable,
        ledger: ChangelogLedger,
        driver_bytes: int = DRIVER_BYTES,
    ) -> None:
        self._session = session
        self._state = state
        self._changes = changes
        self._commits = FileAppends(changes)
        self._ledger = ledger
        self._driver_bytes = driver_bytes

    def changes(self, base: Manifest, epoch: int, full: Written) -> Changes | None:
        """What has changed after the base, up to an epoch; None if a full checkpoint must be written.

        ``full``: size of the last full checkpoint. Another one costs less than changes do if it is small, or if there
        are more changes than it has bytes.
        """
        ledger = self._ledger
        if full.rows < SMALL_STATE_ROWS or base.epoch is None or base.epoch >= epoch:
            return None
        if ledger.refused is not None or not ledger.covers(base.epoch + 1) or self.is_behind_tables(base):
            return None
        try:
            epochs = [number for number in ledger.epochs(base.epoch + 1, epoch) if read_parts(ledger.path, number)]
        except CorruptStateError as error:
            self._log_damage(error)
            return None
        changed = sum(directory_bytes(epoch_directory(ledger.path, number)) for number in epochs)
        return Changes(epochs, changed) if changed <= max(_FEW_BYTES, full.bytes) else None

    def is_behind_tables(self, base: Manifest) -> bool:
        """Whether a table has changed since a checkpoint, by a later one of any driver that was not completed. Changes
        after the base would then be applied to other rows than the base has."""
        if base.state.version is None or self._state.changed_since(base.state.version):
            return True
        if base.changes is None:
            # the next changes replace whatever is in the table
            return False
        version, latest = base.changes.version, self._changes.latest_version()
        # without that version, a damaged table has been set aside
        return version is None or latest is None or latest < version or self._changes.changed_since(version)

    def append(self, base: Manifest, changes: Changes, deployed: DeployedClasses) -> Written | None:
        """Append these changes, in one commit; None if a full checkpoint must be written: because the changelog is
        damaged, the table has other changes as well, or one of the keys is not identified by its text."""
        try:
            return self._appended(base, changes, deployed)
        except Exception as error:
            # Spark raises what its tasks have raised
            typed = translate(error, "incremental checkpoint", deployed.secret)
            if not isinstance(typed, CorruptStateError):
                raise
            self._log_damage(typed)
            return None

    def _appended(self, base: Manifest, changes: Changes, deployed: DeployedClasses) -> Written | None:
        if base.changes is None:
            before = self._changes.latest_version()
            written = self._changes.overwrite(self._rows(changes.epochs, deployed))
        else:
            before = base.changes.version
            written = self._append(changes, deployed)
        if not self._changes.is_only_change(written, before) or self._is_refused(written):
            return None
        return written

    @staticmethod
    def _log_damage(error: CorruptStateError) -> None:
        _LOG.warning("this checkpoint is a full one: %s", error)

    def _append(self, changes: Changes, deployed: DeployedClasses) -> Written:
        version, epochs = self._commits.base(), changes.epochs
        if version is not None:
            changelog, table = self._ledger.path, self._commits.directory
            if changes.bytes <= self._driver_bytes:
                files = changed_file(changelog, epochs, deployed, table)
            else:
                tasks = gentle_tasks(self._session)
                files = changed_files(self._session, changelog, epochs, deployed, tasks, table)
            written = self._commits.commit(files, version)
            if written is not None:
                return written
        return self._changes.append(self._rows(epochs, deployed))

    def _rows(self, epochs: list[int], deployed: DeployedClasses) -> Any:
        return changed_rows(self._session, self._ledger.path, epochs, deployed, gentle_tasks(self._session))

    def _is_refused(self, written: Written) -> bool:
        """Whether a key has more texts than the changelog can list: all checkpoints of the job must be full then."""
        if not self._changes.has_null(written.version, "uid"):
            return False
        rows = (
            self._session.read.format("delta")
            .option("versionAsOf", written.version)
            .load(for_spark(self._changes.path))
        )
        refused = rows.where("uid IS NULL").select("state", "key").take(1)
        for state, key in refused:
            reason = f"state '{state}' has the key {key}, which other keys equal that are written otherwise"
            self._ledger.refuse(reason)
            _LOG.warning("checkpoints of this job are not incremental: %s", reason)
        return bool(refused)

    def merge(self, base: Manifest) -> Written:
        """Apply the changes of a checkpoint to the table of state, in one commit."""
        assert base.changes is not None
        reader = self._session.read.format("delta").option("versionAsOf", base.changes.version)
        changes = reader.load(for_spark(self._changes.path))
        merge_changes(self._session, self._state.path, changes)
        return self._state.written("numTargetRowsInserted")
