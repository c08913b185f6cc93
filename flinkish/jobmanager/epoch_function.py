"""What Spark calls for each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.errors import FlinkishError
from flinkish.jobmanager.epoch_listeners import StopQuery, listener_of
from flinkish.jobmanager.remote_reports import RemoteReports
from flinkish.runtime.phases import Phase, passed
from flinkish.spark.sink_stage import EpochRunner
from flinkish.spark.worker import Deployment, failures_marked

#: Text by which a query that was ended on purpose is known.
STOP_MARK = "flinkish-stop-query"


@dataclass(frozen=True)
class EpochFunction:
    """The ``foreachBatch`` function of a job."""

    deployment: Deployment
    job_dir: str

    def __call__(self, frame: Any, epoch: int) -> None:
        """Run one epoch."""
        listener = listener_of(self.deployment.job_id)
        remote = RemoteReports(self.job_dir, self.deployment.job_id) if listener is None else None
        try:
            if listener is not None:
                listener.before_epoch(epoch)
            elif remote is not None:
                remote.before_epoch(epoch)
            passed(Phase.PLANNED, epoch=epoch)
            report = EpochRunner(self.deployment).run(frame, epoch)
            if listener is not None:
                listener.after_epoch(report)
            elif remote is not None:
                remote.after_epoch(report)
        except StopQuery:
            raise RuntimeError(STOP_MARK) from None
        except FlinkishError:
            with failures_marked():
                raise
