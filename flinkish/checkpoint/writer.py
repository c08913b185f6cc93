"""Writes a checkpoint, full or incremental: the state of a committed epoch, or what has changed since the last
checkpoint, into the tables, then the manifest that completes it. A ledger says which epochs the changelog of a job
covers.
"""

from __future__ import annotations

import base64
import logging
import posixpath
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from flinkish.checkpoint.compatibility import read_states
from flinkish.checkpoint.coordinator import Barrier
from flinkish.checkpoint.maintenance import Maintenance, gentle_tasks, oldest_changes, oldest_version
from flinkish.checkpoint.manifest import CheckpointDirectory, Manifest, TableVersion, manifest_of, version_of
from flinkish.checkpoint.table import CheckpointTable, Written, may_be_damage, set_aside_if_damaged
from flinkish.delta.log import Appends
from flinkish.errors import CorruptStateError, SavepointError
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobdir.layout import Changelog
from flinkish.jobmanager.job.description import CheckpointDescription
from flinkish.runtime.epoch.changelog_files import changelog_directory, epoch_directory, read_parts
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.sources.progress import StoreIds, shown_position
from flinkish.spark.changelog import changed_file, changed_files, changed_rows, merge_changes
from flinkish.spark.data_files import append_of
from flinkish.spark.failures import translate
from flinkish.spark.state import read_state, write_state
from flinkish.spark.worker import DeployedClasses
from flinkish.storage.files import child_names, delete_directory, delete_directory_at_once, directory_bytes
from flinkish.storage.paths import for_spark, local_path

_PREFIX = "epoch="


class ChangelogLedger:
    """Keeps the record of one job's changelog: which epochs it covers without a gap, and why checkpoints may not use
    it. It decides whether a checkpoint can be incremental.

    Rule: in doubt there is no changelog. It begins after the first epoch that is known to have been written by tasks
    that keep one; it ends with any run that does not keep one, and with any change of the query. Only files are deleted
    that were there before the last check that this driver still owns the job.
    """

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self.path = changelog_directory(directory.path)
        self._location: str | None = None
        self._since: int | None = None
        #: why checkpoints of this job cannot be incremental; None: they can
        self.refused: str | None = None

    def drop(self) -> None:
        """Delete the changelog, if there is one, and forget why checkpoints could not use it."""
        self._since = self.refused = None
        # checks that this driver still owns the directory
        self._directory.delete(Changelog)
        delete_directory_at_once(self.path)

    def epoch_written(self, epoch: int, location: str) -> None:
        """Record that the tasks of the query at this location have written the changes of an epoch."""
        if location != self._location:
            self._begin(location)
        if self._since is None:
            # not this epoch: its files may just have been dropped, and rows of a savepoint it took in are no changes
            self._since = epoch + 1
            self._write()

    def _begin(self, location: str) -> None:
        self._location = location
        kept = self._directory.read(Changelog)
        if kept is not None and kept.location == posixpath.basename(location):
            self._since, self.refused = kept.since, kept.refused
        else:
            self.drop()
        self._location = location

    def refuse(self, reason: str) -> None:
        """Let all checkpoints be full from now on, for this reason."""
        self.refused = reason
        self._write()

    def _write(self) -> None:
        assert self._location is not None
        self._directory.write(Changelog(self._since, posixpath.basename(self._location), self.refused))

    def covers(self, first: int) -> bool:
        """Whether the changelog has all epochs from this one on."""
        return self._since is not None and self._since <= first

    def epochs(self, first: int, last: int) -> list[int]:
        """The epochs from ``first`` to ``last`` in which something has changed, in order."""
        found = (name[len(_PREFIX) :] for name in child_names(self.path) if name.startswith(_PREFIX))
        return sorted(epoch for epoch in map(int, found) if first <= epoch <= last)

    def forget(self, last: int) -> None:
        """Delete the changes up to an epoch, which are part of a checkpoint now."""
        epochs = self.epochs(0, last)
        self._directory.fence.check()
        for epoch in epochs:
            delete_directory(epoch_directory(self.path, epoch))


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

        <checkpoints>/state/      the state as of the last full checkpoint, or of the last one after which it was merged
        <checkpoints>/changes/    what has changed since, each entry with its epoch (`flinkish.spark.changelog`)

    Rule: both tables together hold what a full checkpoint of the epoch would have written. Now and then, when a
    checkpoint is complete, the changes are merged into the state; then the next checkpoint begins the table of changes
    anew, and until it does, applying them once more changes nothing. A driver that dies in between leaves a version of
    a table behind that no manifest names, and the next checkpoint is a full one. In doubt (a gap in the changelog, keys
    whose text is not unique) the checkpoint must be a full one, too.

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
        self._commits = Appends(changes.log)
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
        version, latest = base.changes.version, self._changes.log.newest()
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
            before = self._changes.log.newest()
            written = self._changes.overwrite(lambda: self._rows(changes.epochs, deployed))
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
            changelog, table = self._ledger.path, local_path(self._changes.path) or self._changes.path
            if changes.bytes <= self._driver_bytes:
                files = changed_file(changelog, epochs, deployed, table)
            else:
                tasks = gentle_tasks(self._session)
                files = changed_files(self._session, changelog, epochs, deployed, tasks, table)
            info = {"readVersion": version, "isolationLevel": "Serializable"}
            if self._commits.commit(append_of(files, time.time_ns() // 1_000_000, **info), version):
                return Written(version + 1, sum(file.rows for file in files), sum(file.bytes for file in files))
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


class CheckpointedAttempt(Protocol):
    """What a checkpoint needs of the attempt whose state it holds."""

    job: JobDescriptor
    directory: JobDirectory
    location: QueryLocation

    def positions(self, epoch: int, store_ids: StoreIds | None = None) -> dict[str, str]:
        """The position of each source at the end of an epoch, by the uid of the source."""


@dataclass(frozen=True)
class _Written:
    """The versions of the tables that hold the state of a checkpoint, and what was written for it."""

    state: TableVersion
    changes: TableVersion | None
    rows: int
    bytes: int
    incremental: bool


class CheckpointWriter:
    """Writes the checkpoints of one job, full or incremental, and deletes what later ones no longer need.

    Args:
        session: the session for its Spark jobs; one of its own, so that its settings and tags affect nobody else.
        directory: the directory of the checkpoints.
        check: raises when this checkpoint must not be completed: it has expired, or another driver owns the job.
        ledger: the ledger of the changelog; None: all checkpoints are full.
    """

    def __init__(
        self,
        session: Any,
        directory: CheckpointDirectory,
        check: Callable[[], None],
        ledger: ChangelogLedger | None = None,
    ) -> None:
        self.session = session
        self.directory = directory
        self.table = CheckpointTable(session, directory.table, check)
        self.changes = CheckpointTable(session, directory.changes, check)
        self._check = check
        self._ledger = ledger
        #: whether the tables' logs were checked; whether the last write gave no reason to mistrust the tables
        self._looked_at, self._trusted = False, True
        self._maintenance = Maintenance(self.table, directory)
        self._incremental = None if ledger is None else IncrementalWriter(session, self.table, self.changes, ledger)
        #: the manifest of a checkpoint whose changes were merged, and the same with the merged version of the state
        self._merged: tuple[Manifest, Manifest] | None = None

    def write(
        self, attempt: CheckpointedAttempt, description: CheckpointDescription, barrier: Barrier, full: bool = False
    ) -> CheckpointDescription:
        """Write a checkpoint of an attempt's epoch; returns the description with offsets, watermarks and sizes.
        ``full``: whether all state must be written."""
        epoch = description.epoch
        positions = attempt.positions(epoch, self.directory.store_ids)
        description = replace(
            description,
            offsets={uid: shown_position(position) for uid, position in positions.items()},
            **barrier.figures(),
        )
        written = self._write_state(attempt, epoch, full)
        passed(Phase.CHECKPOINT_WRITTEN, epoch=epoch)
        manifest = self._manifest(attempt, description, positions, written, barrier.accumulators)
        self.directory.complete(description.id, manifest, self._check)
        passed(Phase.CHECKPOINT_COMPLETED, epoch=epoch)
        return replace(
            description, rows_written=written.rows, bytes_written=written.bytes, incremental=written.incremental
        )

    def _write_state(self, attempt: CheckpointedAttempt, epoch: int, full: bool) -> _Written:
        base = self._last_to_trust(attempt)
        self._check()
        self._maintenance.keep_readable(oldest_version(self.directory, self.directory.completed()))
        if base is not None and self._incremental is not None and not full:
            try:
                written = self._write_changes(self._incremental, base, epoch, attempt.job)
            except Exception as error:
                self._trusted = not may_be_damage(error)
                raise
            if written is not None:
                return written
        all_of_it = self._write_all(attempt, epoch)
        self._maintenance.overwritten(all_of_it)
        self._trusted = True
        return _Written(
            TableVersion(posixpath.join("..", "state"), all_of_it.version), None, all_of_it.rows, all_of_it.bytes, False
        )

    def _write_changes(
        self, incremental: IncrementalWriter, base: Manifest, epoch: int, job: JobDescriptor
    ) -> _Written | None:
        """Append what has changed since a checkpoint; None if a full one must be written, because they are not
        known or as large as the state."""
        changes = incremental.changes(base, epoch, self._maintenance.last_full)
        if changes is None:
            return None
        if not changes.epochs:
            return _Written(base.state, base.changes, 0, 0, True)
        passed(Phase.CHECKPOINT_READ, epoch=epoch)
        self._check()
        written = incremental.append(base, changes, DeployedClasses.of_job(job))
        if written is None:
            return None
        self._maintenance.appended(written, first=base.changes is None)
        table = TableVersion(posixpath.join("..", "changes"), written.version)
        return _Written(base.state, table, written.rows, written.bytes, True)

    def _last_to_trust(self, attempt: CheckpointedAttempt) -> Manifest | None:
        """The manifest of the last checkpoint, if the next one may be built upon it."""
        if not self._looked_at:
            newest = max(self.directory.completed(), default=0)
            for table in (self.table, self.changes):
                set_aside_if_damaged(table.path, newest, attempt.job.name, self._check)
            self._looked_at = True
        return self._last() if self._trusted else None

    def _last(self) -> Manifest | None:
        """The manifest of the last completed checkpoint; None if there is none or nothing can be built upon it."""
        for number in reversed(self.directory.completed()):
            try:
                manifest = self.directory.read(number)
            except SavepointError:
                # damaged: nothing can be built upon it
                return None
            if self._merged is not None and self._merged[0] == manifest:
                return self._merged[1]
            return manifest if self.table.log.newest() is not None else None
        return None

    def clean(self, retained: int, epoch: int) -> None:
        """Delete what is no longer needed, now that there is a checkpoint of this epoch."""
        left = self.directory.drop_but(retained, self._check)
        if self._ledger is not None:
            self._ledger.forget(epoch)
        oldest = oldest_version(self.directory, left)
        if oldest is not None:
            self._maintenance.clean(oldest, oldest_changes(self.directory, left))

    def merge(self) -> None:
        """Merge the appended changes into the state if there are many, now that the last checkpoint is complete."""
        base, incremental = self._last() if self._maintenance.is_merge_due() else None, self._incremental
        if base is None or base.changes is None or incremental is None or incremental.is_behind_tables(base):
            return
        self._check()
        self._maintenance.before_merge()
        self._check()
        try:
            merged = incremental.merge(base)
        except Exception as error:
            self._trusted = not may_be_damage(error)
            raise
        self._maintenance.merged(merged)
        if self.table.is_only_change(merged, base.state.version):
            self._merged = base, replace(base, state=replace(base.state, version=merged.version), changes=None)

    def _write_all(self, attempt: CheckpointedAttempt, epoch: int) -> Written:
        """Write the whole state of the epoch, in one commit."""
        job, location = attempt.job, attempt.location
        deployed = DeployedClasses.of_job(job)
        tasks = gentle_tasks(self.session)
        stored = (
            self.session,
            location.path,
            epoch - location.first_epoch,
            job.levels,
            deployed,
            attempt.directory.keyed_state,
        )
        passed(Phase.CHECKPOINT_READ, epoch=epoch)
        self._check()
        # before, not after: a reader of both tables sees an older state in between, but never a part of this one
        self.changes.empty()
        self._check()
        return self.table.overwrite(
            lambda: read_state(*stored).coalesce(tasks), lambda local: write_state(*stored, table=local, tasks=tasks)
        )

    def _manifest(
        self,
        attempt: CheckpointedAttempt,
        description: CheckpointDescription,
        positions: dict[str, str],
        written: _Written,
        accumulators: bytes,
    ) -> Manifest:
        return manifest_of(
            attempt.job,
            description.epoch,
            positions,
            watermarks=description.watermarks,
            states=read_states(attempt.directory),
            state=written.state,
            changes=written.changes,
            accumulators=base64.b64encode(accumulators).decode(),
            savepoint_version=version_of(positions, written.changes),
        )
