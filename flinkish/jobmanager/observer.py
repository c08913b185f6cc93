"""What the parts of the driver that watch a job are told of it."""

from __future__ import annotations

from flinkish.common.job_status import JobStatus
from flinkish.errors import FlinkishError
from flinkish.jobmanager.lifecycle.story import Event
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.task.progress import EpochProgress


class JobObserver:
    """Is notified of what happens to a running job. Methods do nothing unless they are overridden. What one raises is
    logged: the job and the other observers go on."""

    def status_changed(self, event: Event) -> None:
        """The job's status has changed."""

    def query_started(self) -> None:
        """Spark has accepted a query of the running attempt."""

    def attempt_started(self, attempt: int) -> None:
        """The job has begun to run, for the first time or again."""

    def epoch_done(self, report: EpochReport) -> None:
        """The sinks have committed an epoch. Called by the thread that runs epochs."""

    def epoch_running(self, progress: EpochProgress) -> None:
        """An epoch has run for some time. Called now and then by a thread of its own, also after the end of the epoch
        or of the attempt."""

    def epoch_committed(self, epoch: int) -> None:
        """The metadata of all epochs up to this one are committed, on Spark by Spark."""

    def attempt_failed(self, failure: FlinkishError, restart_delay_ms: int | None) -> None:
        """An attempt has failed; the job is restarted after the delay, or, with None, has failed as well."""

    def task_failed(self, failure: FlinkishError) -> None:
        """A task has failed, and Spark runs it again: the attempt goes on."""

    def job_done(self, status: JobStatus) -> None:
        """The job has ended, with this status; its directory is still this driver's."""
