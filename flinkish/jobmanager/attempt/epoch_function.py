"""The function that Spark calls for each epoch: in the driver's process, or under Spark Connect in a process of the
server."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flinkish.jobmanager.attempt.epoch_listeners import EpochListener, StopQuery, listener_of
from flinkish.jobmanager.attempt.remote_reports import FarSide, far_side
from flinkish.runtime.job.failure import uncommitted
from flinkish.runtime.phases import Phase, passed
from flinkish.spark.failures import translate
from flinkish.spark.sink_stage import EpochRunner
from flinkish.spark.worker import Deployment, announce_batch, failures_marked


@dataclass(frozen=True)
class EpochFunction:
    """The ``foreachBatch`` function of a job: runs an epoch and reports it to the JobManager. ``token``: that of the
    driver which owns the job directory."""

    deployment: Deployment
    job_dir: str
    token: str

    def __call__(self, frame: Any, batch: int) -> None:
        """Run one epoch, which is one batch of the query."""
        epoch = batch + self.deployment.first_epoch
        listener = listener_of(self.deployment.job_id)
        try:
            if listener is not None:
                self._run_here(listener, frame, epoch)
            else:
                self._run_apart(frame, epoch)
        except StopQuery:
            # whoever refused the epoch remembers it: the text of the query's error may quote a record
            raise
        except Exception as error:
            if (listener or self._far_side()).given_up():
                # without the cause: its text is what Spark looks through, in vain, for the reason why a query that was
                # stopped has ended, by a regular expression that overflows the stack of the query's thread
                raise StopQuery from None
            # translated here, where the exception itself is at hand: Spark passes on only its text
            typed = translate(error, self._what_of(epoch), self.deployment.secret, epoch)
            if listener is None:
                self._far_side().failed(typed)
            with failures_marked(self.deployment.secret, epoch):
                raise typed from error

    def _run_here(self, listener: EpochListener, frame: Any, epoch: int) -> None:
        listener.before_epoch(epoch)
        passed(Phase.PLANNED, epoch=epoch)
        listener.after_epoch(EpochRunner(self.deployment).run(frame, epoch, listener.before_commit))

    def _run_apart(self, frame: Any, epoch: int) -> None:
        far = self._far_side()
        far.before_epoch(epoch)
        announce_batch(frame.sparkSession, self.deployment, epoch - self.deployment.first_epoch)
        passed(Phase.PLANNED, epoch=epoch)
        # the session is that of the driver, and of its other jobs
        session, tag = frame.sparkSession, f"flinkish-epoch-{self.deployment.job_id}"
        session.addTag(tag)
        try:
            with far.may_be_told_to_give_up(lambda: session.interruptTag(tag)):
                far.after_epoch(EpochRunner(self.deployment).run(frame, epoch, far.before_commit, far.keep))
        finally:
            session.removeTag(tag)

    def _what_of(self, epoch: int) -> str:
        """Describe a failed epoch, and say whether any of it can have been committed."""
        with suppress(Exception):
            if not EpochRunner(self.deployment).is_prepared(epoch):
                return uncommitted(epoch)
            return f"epoch {epoch}, which is prepared: sinks may have committed a part of it"
        return f"epoch {epoch}"

    def _far_side(self) -> FarSide:
        return far_side(self.job_dir, self.token, self.deployment.job().name, self.deployment.fence)
