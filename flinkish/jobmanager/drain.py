"""A drain, which begins after the last ordinary epoch of a job and ends with the final savepoint: its marker, and its
query of one epoch, in which every source ends.

    stop -> last ordinary epoch E committed, query ended
         -> the savepoint's directory is checked: the job goes on if nothing can be written there
         -> the drain's marker           from here on the job can only be drained
         -> drain-state/, the job's query is spark-drain      (`DrainAttempt`)
         -> epoch E + 1: every source ends, windows and timers fire, sinks commit
         -> savepoint of E + 1, with the positions of E
         -> the end is remembered

Rule: when a driver dies, the next one goes on with the drain at the step that was reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flinkish.errors import SavepointError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import DrainMarker
from flinkish.jobdir.query import QueryLog
from flinkish.jobdir.waiting_epoch import QUERY_NAME, has_moved, state_rows
from flinkish.jobmanager.attempt import AttemptPlan, QueryAttempt
from flinkish.jobmanager.epoch_gate import StateReaders, StopQuery
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.jobmanager.query_inputs import QueryRun
from flinkish.jobmanager.wishes import Wishes
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Phase, passed
from flinkish.runtime.sources.progress import StoreIds
from flinkish.spark.failures import translate
from flinkish.spark.place import partitions_of
from flinkish.spark.plan import PlanOptions
from flinkish.spark.state import write_moved_state
from flinkish.spark.worker import deploy


class DrainAttempt(QueryAttempt):
    """An attempt that completes a drain which has begun. Nothing but a failure stops it."""

    def __init__(
        self,
        spark: Any,
        plan: AttemptPlan,
        settings: DriverSettings,
        directory: JobDirectory,
        observer: JobObserver,
        readers: StateReaders,
        marker: DrainMarker,
    ) -> None:
        self._marker = marker
        rows = state_rows(directory) if marker.levels else None
        options = PlanOptions(end_of_input=True, drain=True, restore_rows=rows)
        drained = replace(plan, sources={}, base=options)
        super().__init__(spark, drained, settings, directory, observer, Wishes(), readers)

    @property
    def savepoint_directory(self) -> str | None:
        """Directory for the final savepoint; None: the directory of the job's savepoints."""
        return self._marker.savepoint_directory

    def before_epoch(self, epoch: int) -> None:
        """Raise StopQuery after the drain's one epoch."""
        if epoch > self._marker.drain_epoch:
            raise StopQuery
        super().before_epoch(epoch)

    def begin(self) -> None:
        """Get ready for the drain's epoch, unless an earlier attempt has committed it."""
        _move(self.spark, self.job, self.directory, self._marker)
        self.move_to(self.directory.query_location())
        if self._is_committed():
            passed(Phase.DRAIN_DONE, epoch=self._marker.drain_epoch)
        else:
            super().begin()

    def run_query(self, again: bool = False) -> None:
        """Run the drain's epoch."""
        super().run_query(again)
        passed(Phase.DRAIN_DONE, epoch=self._marker.drain_epoch)

    def _runs(self) -> list[QueryRun]:
        return [QueryRun(self._base, available_now=True)]

    def _is_committed(self) -> bool:
        return bool(QueryLog(self.location.path).committed())

    def wake(self) -> None:
        """Does nothing: a drain that has begun is completed."""

    def committed_epoch(self) -> int | None:
        """The drain's epoch once it is committed; None before."""
        return self._marker.drain_epoch if self._is_committed() else None

    def positions(self, epoch: int, store_ids: StoreIds | None = None) -> dict[str, str]:
        """Source uid -> its position before the drain, which reads nothing."""
        return dict(self._marker.positions)


def _move(spark: Any, job: JobDescriptor, directory: JobDirectory, marker: DrainMarker) -> None:
    """Replace the job's query by the drain's, with the state after the last ordinary epoch; unless that has been
    done."""
    if has_moved(directory):
        return
    query = directory.query_location()
    deployment = deploy(job, partitions_of(job))
    try:
        batch = marker.epoch - query.first_epoch
        write_moved_state(spark, deployment, query.path, batch, marker.levels, state_rows(directory))
    except Exception as error:
        raise translate(error, f"job '{job.name}', directory {directory.path}", deployment.secret) from error
    passed(Phase.DRAIN_PREPARED, epoch=marker.epoch)
    directory.move_query(QUERY_NAME, marker.drain_epoch)


def begin_drain(attempt: QueryAttempt, directory: JobDirectory, savepoint_directory: str | None) -> DrainMarker:
    """Write the marker of the drain of a job that has stopped; returns the marker.

    Raises:
        SavepointError: there is no committed epoch at whose end state and sinks agree.
    """
    epoch = attempt.committed_epoch()
    if epoch is None:
        raise SavepointError(
            "the job cannot be drained: no epoch has been committed yet",
            where=f"job '{attempt.job.name}'",
            hint="try again after its first epoch",
        )
    marker = DrainMarker(epoch, attempt.positions(epoch), savepoint_directory, attempt.job.levels)
    directory.write(marker)
    passed(Phase.DRAIN_BEGUN, epoch=epoch)
    return marker
