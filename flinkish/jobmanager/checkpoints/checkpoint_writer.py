"""Writes one checkpoint: the state of a committed epoch into the table, then the manifest that makes it one."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flinkish.errors import SavepointError
from flinkish.jobmanager.checkpoints.barriers import Barrier
from flinkish.jobmanager.checkpoints.changelog_ledger import ChangelogLedger
from flinkish.jobmanager.checkpoints.checkpoint_directory import CheckpointDirectory
from flinkish.jobmanager.checkpoints.checkpoint_table import CheckpointTable, Written
from flinkish.jobmanager.checkpoints.damaged_table import may_be_damage, set_aside_if_damaged
from flinkish.jobmanager.checkpoints.incremental import IncrementalWriter
from flinkish.jobmanager.checkpoints.maintenance import Maintenance, oldest_version
from flinkish.jobmanager.checkpoints.spark_jobs import gentle_tasks
from flinkish.jobmanager.description import CheckpointDescription
from flinkish.jobmanager.savepoints.manifest import Manifest, TableVersion
from flinkish.jobmanager.savepoints.state_catalog import read_states
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.program_classes import ProgramClasses
from flinkish.spark.state_reader import SAVEPOINT_SCHEMA, read_state
from flinkish.spark.worker import DeployedClasses

if TYPE_CHECKING:
    from flinkish.jobmanager.attempt.query_attempt import QueryAttempt


class CheckpointWriter:
    """Of one job.

    Args:
        session: for its Spark jobs; of its own, so that settings and tags are nobody else's.
        directory: of the checkpoints.
        check: raises when this checkpoint must not become whole: it has expired, or another driver owns the job.
        ledger: of the changelog; None: all checkpoints are full.
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
        self._check = check
        self._ledger = ledger
        #: the table's log was looked at; the last write gave no reason to mistrust the table
        self._looked_at, self._trusted = False, True
        self._maintenance = Maintenance(self.table, directory)
        self._incremental = None if ledger is None else IncrementalWriter(session, self.table, ledger)

    def write(
        self, attempt: QueryAttempt, description: CheckpointDescription, barrier: Barrier
    ) -> CheckpointDescription:
        """The description with all that is known of the checkpoint, which is whole now."""
        epoch = description.epoch
        positions = attempt.positions(epoch)
        description = replace(
            description, offsets=positions, watermarks=barrier.watermarks, state_bytes=barrier.state_bytes
        )
        written, incremental = self._write_state(attempt, epoch)
        passed(Phase.CHECKPOINT_WRITTEN, epoch=epoch)
        self._check()
        self.directory.write(description.id, self._manifest(attempt, description, written))
        passed(Phase.CHECKPOINT_COMPLETED, epoch=epoch)
        return replace(description, rows_written=written.rows, incremental=incremental)

    def _write_state(self, attempt: QueryAttempt, epoch: int) -> tuple[Written, bool]:
        """The commit, and whether it holds only what has changed."""
        base = self._last_to_trust(attempt)
        incremental = self._incremental
        if incremental is not None and base is not None and self._is_behind_table(base):
            # changes behind the base would be applied to rows that are not those of the base
            incremental = None
        self._check()
        self._maintenance.keep_readable(oldest_version(self.directory, self.directory.completed()))
        if base is not None and incremental is not None and base.epoch is not None and base.epoch < epoch:
            try:
                written = self._write_changes(incremental, base, epoch, attempt.job.classes)
            except Exception as error:
                self._trusted = not may_be_damage(error)
                raise
            if written is not None:
                return written, True
        written = self._write_all(attempt, epoch)
        self._maintenance.overwritten(written)
        self._trusted = True
        return written, False

    def _is_behind_table(self, base: Manifest) -> bool:
        """Whether the table has gone on since a checkpoint: by one that did not become whole, of whatever driver."""
        return base.state.version is None or self.table.changed_since(base.state.version)

    def _write_changes(
        self, incremental: IncrementalWriter, base: Manifest, epoch: int, classes: ProgramClasses
    ) -> Written | None:
        """What has changed since a checkpoint; None: that is not known, or as much as all of it."""
        staged = incremental.stage(base, epoch, self._maintenance.last_full, DeployedClasses.of(classes))
        if staged is None:
            return None
        passed(Phase.CHECKPOINT_READ, epoch=epoch)
        self._check()
        self._maintenance.before_merge()
        self._check()
        written = incremental.apply(base, staged)
        self._maintenance.merged(written)
        return written

    def _last_to_trust(self, attempt: QueryAttempt) -> Manifest | None:
        """The last checkpoint, if the next one may be built upon it."""
        if not self._looked_at:
            newest = max(self.directory.completed(), default=0)
            set_aside_if_damaged(self.table.path, newest, attempt.job.name, self._check)
            self._looked_at = True
        return self._last() if self._trusted else None

    def _last(self) -> Manifest | None:
        """The manifest of the last checkpoint that is whole."""
        for number in reversed(self.directory.completed()):
            try:
                manifest = self.directory.read(number)
            except SavepointError:
                # damaged: nothing can be built upon it
                return None
            return manifest if self.table.latest_version() is not None else None
        return None

    def clean(self, retained: int, epoch: int) -> None:
        """Delete what is not needed any more, now that there is a checkpoint of the epoch."""
        left = self.directory.drop_but(retained, self._check)
        if self._ledger is not None:
            self._ledger.forget(epoch)
        self._maintenance.clean(oldest_version(self.directory, left))

    def _write_all(self, attempt: QueryAttempt, epoch: int) -> Written:
        """All state of the epoch."""
        job, location = attempt.job, attempt.location
        deployed = DeployedClasses.of(job.classes)
        rows = read_state(self.session, location.path, epoch - location.first_epoch, job.levels, deployed)
        if rows is None:
            rows = self.session.createDataFrame([], SAVEPOINT_SCHEMA)
        passed(Phase.CHECKPOINT_READ, epoch=epoch)
        self._check()
        return self.table.overwrite(rows.coalesce(gentle_tasks(self.session)))

    def _manifest(self, attempt: QueryAttempt, description: CheckpointDescription, written: Written) -> Manifest:
        job = attempt.job
        return Manifest(
            job_id=job.job_id,
            job_name=job.name,
            epoch=description.epoch,
            time_ms=time.time_ns() // 1_000_000,
            operators=tuple(sorted(d.uid for vertex in job.vertices for d in vertex.operators)),
            sources=description.offsets,
            watermarks=description.watermarks,
            states=read_states(attempt.directory),
            state=TableVersion(posixpath.join("..", "state"), written.version),
        )
