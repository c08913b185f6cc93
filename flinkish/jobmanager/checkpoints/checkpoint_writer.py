"""Writes one checkpoint: the state of a committed epoch into the table, then the manifest that makes it one."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flinkish.jobmanager.checkpoints.barriers import Barrier
from flinkish.jobmanager.checkpoints.checkpoint_directory import CheckpointDirectory
from flinkish.jobmanager.checkpoints.checkpoint_table import CheckpointTable, Written
from flinkish.jobmanager.description import CheckpointDescription
from flinkish.jobmanager.savepoints.manifest import Manifest, TableVersion
from flinkish.jobmanager.savepoints.state_catalog import read_states
from flinkish.runtime.phases import Phase, passed
from flinkish.spark.state_reader import SAVEPOINT_SCHEMA, ChannelKinds, read_state

if TYPE_CHECKING:
    from flinkish.jobmanager.attempt.query_attempt import QueryAttempt


class CheckpointWriter:
    """Of one job.

    Args:
        session: for its Spark jobs; of its own, so that settings and tags are nobody else's.
        directory: of the checkpoints.
        check: raises when this checkpoint must not become whole: it has expired, or another driver owns the job.
    """

    def __init__(self, session: Any, directory: CheckpointDirectory, check: Callable[[], None]) -> None:
        self.session = session
        self.directory = directory
        self.table = CheckpointTable(session, directory.table)
        self._check = check

    def write(
        self, attempt: QueryAttempt, description: CheckpointDescription, barrier: Barrier
    ) -> CheckpointDescription:
        """The description with all that is known of the checkpoint, which is whole now."""
        epoch = description.epoch
        positions = attempt.positions(epoch)
        description = replace(
            description, offsets=positions, watermarks=barrier.watermarks, state_bytes=barrier.state_bytes
        )
        written = self._write_all(attempt, epoch)
        passed(Phase.CHECKPOINT_WRITTEN, epoch=epoch)
        self._check()
        self.directory.write(description.id, self._manifest(attempt, description, written))
        passed(Phase.CHECKPOINT_COMPLETED, epoch=epoch)
        return replace(description, rows_written=written.rows)

    def _write_all(self, attempt: QueryAttempt, epoch: int) -> Written:
        """All state of the epoch."""
        job, location = attempt.job, attempt.location
        kinds = ChannelKinds({vertex.id: (vertex.keyed, vertex.max_parallelism) for vertex in job.vertices})
        rows = read_state(self.session, location.path, epoch - location.first_epoch, job.levels, kinds)
        if rows is None:
            rows = self.session.createDataFrame([], SAVEPOINT_SCHEMA)
        passed(Phase.CHECKPOINT_READ, epoch=epoch)
        self._check()
        return self.table.overwrite(rows)

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
