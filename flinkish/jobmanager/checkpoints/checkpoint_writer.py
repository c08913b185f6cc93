"""Writes a checkpoint: the state of a committed epoch into the tables, then the manifest that completes it."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from flinkish.errors import SavepointError
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobmanager.checkpoints.barriers import Barrier
from flinkish.jobmanager.checkpoints.changelog_ledger import ChangelogLedger
from flinkish.jobmanager.checkpoints.checkpoint_directory import CheckpointDirectory
from flinkish.jobmanager.checkpoints.checkpoint_table import CheckpointTable, Written
from flinkish.jobmanager.checkpoints.damaged_table import may_be_damage, set_aside_if_damaged
from flinkish.jobmanager.checkpoints.incremental import IncrementalWriter
from flinkish.jobmanager.checkpoints.maintenance import Maintenance, oldest_changes, oldest_version
from flinkish.jobmanager.checkpoints.spark_jobs import gentle_tasks
from flinkish.jobmanager.description import CheckpointDescription
from flinkish.jobmanager.savepoints.manifest import Manifest, TableVersion, manifest_of, version_of
from flinkish.jobmanager.savepoints.state_catalog import read_states
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.sources.progress import StoreIds, shown_position
from flinkish.spark.state import SAVEPOINT_SCHEMA, read_state
from flinkish.spark.worker import DeployedClasses


class CheckpointedAttempt(Protocol):
    """What a checkpoint needs of the attempt whose state it holds."""

    job: JobDescriptor
    directory: JobDirectory
    location: QueryLocation

    def positions(self, epoch: int, store_ids: StoreIds | None = None) -> dict[str, str]:
        """The position of each source at the end of an epoch, by the uid of the source."""


@dataclass(frozen=True)
class _Written:
    """The versions of the tables that hold the state of a checkpoint, and how many rows were written for it."""

    state: TableVersion
    changes: TableVersion | None
    rows: int
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
        self, attempt: CheckpointedAttempt, description: CheckpointDescription, barrier: Barrier
    ) -> CheckpointDescription:
        """Write a checkpoint of an attempt's epoch; returns the description with offsets, watermarks and sizes."""
        epoch = description.epoch
        positions = attempt.positions(epoch, self.directory.store_ids)
        description = replace(
            description,
            offsets={uid: shown_position(position) for uid, position in positions.items()},
            watermarks=barrier.watermarks,
            state_bytes=barrier.state_bytes,
        )
        written = self._write_state(attempt, epoch)
        passed(Phase.CHECKPOINT_WRITTEN, epoch=epoch)
        self._check()
        self.directory.write(
            description.id, self._manifest(attempt, description, positions, written, barrier.accumulators)
        )
        passed(Phase.CHECKPOINT_COMPLETED, epoch=epoch)
        return replace(description, rows_written=written.rows, incremental=written.incremental)

    def _write_state(self, attempt: CheckpointedAttempt, epoch: int) -> _Written:
        base = self._last_to_trust(attempt)
        self._check()
        self._maintenance.keep_readable(oldest_version(self.directory, self.directory.completed()))
        if base is not None and self._incremental is not None:
            try:
                written = self._write_changes(self._incremental, base, epoch, attempt.job)
            except Exception as error:
                self._trusted = not may_be_damage(error)
                raise
            if written is not None:
                return written
        full = self._write_all(attempt, epoch)
        self._maintenance.overwritten(full)
        self._trusted = True
        return _Written(TableVersion(posixpath.join("..", "state"), full.version), None, full.rows, False)

    def _write_changes(
        self, incremental: IncrementalWriter, base: Manifest, epoch: int, job: JobDescriptor
    ) -> _Written | None:
        """Append what has changed since a checkpoint; None if a full one must be written, because they are not
        known or as large as the state."""
        changes = incremental.changes(base, epoch, self._maintenance.last_full)
        if changes is None:
            return None
        if not changes.epochs:
            return _Written(base.state, base.changes, 0, True)
        passed(Phase.CHECKPOINT_READ, epoch=epoch)
        self._check()
        written = incremental.append(base, changes, DeployedClasses.of_job(job))
        if written is None:
            return None
        self._maintenance.appended(written, first=base.changes is None)
        table = TableVersion(posixpath.join("..", "changes"), written.version)
        return _Written(base.state, table, written.rows, True)

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
            return manifest if self.table.latest_version() is not None else None
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
        rows = read_state(
            self.session,
            location.path,
            epoch - location.first_epoch,
            job.levels,
            deployed,
            attempt.directory.keyed_state,
        )
        if rows is None:
            rows = self.session.createDataFrame([], SAVEPOINT_SCHEMA)
        passed(Phase.CHECKPOINT_READ, epoch=epoch)
        self._check()
        # before, not after: a reader of both tables sees an older state in between, but never a part of this one
        self.changes.empty()
        self._check()
        return self.table.overwrite(rows.coalesce(gentle_tasks(self.session)))

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
