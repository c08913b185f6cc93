"""What Spark calls for each epoch: in the driver's process, or under Spark Connect in one of the server's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.jobmanager.attempt.beginnings import Beginnings
from flinkish.jobmanager.attempt.epoch_listeners import STOP_MARK, EpochListener, StopQuery, listener_of
from flinkish.jobmanager.attempt.remote_reports import FarSide, far_side
from flinkish.runtime.epoch_report import EpochReport
from flinkish.runtime.phases import Phase, passed
from flinkish.spark.changelog import changelog_directory
from flinkish.spark.failures import translate
from flinkish.spark.sink_stage import DriverCommit, EpochRunner
from flinkish.spark.worker import Deployment, announce_batch, failures_marked


@dataclass(frozen=True)
class EpochFunction:
    """The ``foreachBatch`` function of a job. ``token``: of the driver that owns the job directory; ``beginnings``: for
    the process that runs the epochs, if that is another one."""

    deployment: Deployment
    job_dir: str
    token: str
    beginnings: Beginnings

    def __call__(self, frame: Any, batch: int) -> None:
        """Run one epoch: a batch of the query."""
        epoch = batch + self.deployment.first_epoch
        listener = listener_of(self.deployment.job_id)
        try:
            if listener is not None:
                self._run_here(listener, frame, epoch)
            else:
                self._run_apart(frame, epoch)
        except StopQuery:
            raise RuntimeError(STOP_MARK) from None
        except Exception as error:
            # typed here, where the error itself is known: Spark hands on only its text
            typed = translate(error, f"epoch {epoch}")
            if listener is None:
                self._far_side().failed(typed)
            with failures_marked():
                raise typed from error

    def _run_here(self, listener: EpochListener, frame: Any, epoch: int) -> None:
        listener.before_epoch(epoch)
        passed(Phase.PLANNED, epoch=epoch)
        listener.after_epoch(self._report(listener, frame, epoch))

    def _run_apart(self, frame: Any, epoch: int) -> None:
        far = self._far_side()
        far.before_epoch(epoch)
        announce_batch(frame.sparkSession, self.deployment, epoch - self.deployment.first_epoch)
        passed(Phase.PLANNED, epoch=epoch)
        far.after_epoch(self._report(far, frame, epoch, far.keep))

    def _report(self, side: EpochListener, frame: Any, epoch: int, keep: DriverCommit | None = None) -> EpochReport:
        if not side.proves_state(epoch):
            return self._runner().run(frame, epoch, keep)
        frame = frame.persist()
        try:
            frame.count()
            side.state_is_proved()
            return self._runner().run(frame, epoch, keep)
        finally:
            frame.unpersist()

    def _runner(self) -> EpochRunner:
        job = self.deployment.job()
        wanted = job.settings.changelog and job.levels > 0
        return EpochRunner(self.deployment, changelog_directory(self.job_dir) if wanted else None)

    def _far_side(self) -> FarSide:
        return far_side(self.job_dir, self.token, self.deployment.job().name, self.beginnings, self.deployment.fence)
