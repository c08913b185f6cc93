"""What a job has done since it began, over all drivers.

Rule: the totals are noted in the job directory when an attempt or the job ends, and every ten seconds in between. What
a driver that was killed has done since its last note is not counted; everything else is counted once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from flinkish.common.job_status import JobStatus
from flinkish.errors import FlinkishError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import TotalsDescription
from flinkish.jobmanager.job.description import CheckpointDescription, JobObserver
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import JobDescriptor

_LOG = logging.getLogger("flinkish.JobManager")

#: Seconds between two notes of a job that runs.
NOTED_EVERY_S = 10.0


def with_epoch(totals: TotalsDescription, report: EpochReport, uids: Mapping[int, str]) -> TotalsDescription:
    """The totals with the records of an epoch, unless they have them: one whose commit was interrupted is reported
    again. ``uids``: vertex id -> uid of the vertex' head."""
    if report.epoch <= totals.last_epoch:
        return totals
    vertices = {uid: dict(counts) for uid, counts in totals.vertices.items()}
    for task in report.tasks:
        counts = vertices.setdefault(uids[task.vertex], {"records_in": 0, "records_out": 0})
        counts["records_in"] += task.records_in
        counts["records_out"] += task.records_out
    return replace(
        totals,
        epochs=totals.epochs + 1,
        last_epoch=report.epoch,
        records_in=totals.records_in + report.records_in,
        records_out=totals.records_out + report.records_out,
        vertices=vertices,
    )


def noted_totals(directory: JobDirectory) -> TotalsDescription:
    """What the drivers before have noted, as far as that can be read."""
    try:
        return directory.read(TotalsDescription) or TotalsDescription()
    except FlinkishError as error:
        _LOG.warning("the totals of the job begin anew: %s", error)
        return TotalsDescription()


class JobTotals(JobObserver):
    """Counts what a job does, and goes on from what earlier drivers have noted. Any thread may call it.

    Args:
        job: the job.
        directory: the job directory; None: a temporary one, in which nothing is noted.
    """

    def __init__(self, job: JobDescriptor, directory: JobDirectory | None) -> None:
        self._directory = directory
        self._uids = {vertex.id: vertex.head.uid for vertex in job.vertices}
        self._lock = threading.Lock()
        noted = TotalsDescription() if directory is None else noted_totals(directory)
        self._totals = replace(noted, drivers=noted.drivers + 1)
        self._noted_s = time.monotonic()

    def describe(self) -> TotalsDescription:
        """The totals as of now."""
        with self._lock:
            return self._totals

    def epoch_done(self, report: EpochReport) -> None:
        """Add the records of an epoch."""
        with self._lock:
            self._totals = with_epoch(self._totals, report, self._uids)

    def epoch_committed(self, epoch: int) -> None:
        """Note the totals if that was not done for a while."""
        if time.monotonic() - self._noted_s >= NOTED_EVERY_S:
            self._note()

    def checkpoint_ended(self, description: CheckpointDescription) -> None:
        one_more = Counter([description.status])
        with self._lock:
            totals = self._totals
            if description.is_savepoint:
                self._totals = replace(totals, savepoints=dict(Counter(totals.savepoints) + one_more))
            else:
                self._totals = replace(totals, checkpoints=dict(Counter(totals.checkpoints) + one_more))

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """Count a restart."""
        with self._lock:
            self._totals = replace(self._totals, restarts=self._totals.restarts + (restart_delay_ms is not None))
        self._note()

    def job_done(self, status: JobStatus) -> None:
        """Note the totals: this driver adds nothing more."""
        self._note()

    def _note(self) -> None:
        self._noted_s = time.monotonic()
        if self._directory is not None:
            self._directory.write(self.describe())
