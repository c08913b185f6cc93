"""Epoch reports through the job directory, for when ``foreachBatch`` runs in another process (Spark Connect)."""

from __future__ import annotations

import base64
import pickle

from flinkish.jobmanager.epoch_listeners import StopQuery
from flinkish.jobmanager.job_directory import JobDirectory
from flinkish.runtime.epoch_report import EpochReport

#: Name of the file that asks the query to end before its next epoch.
STOP_FILE = "stop.json"


def report_file(epoch: int) -> str:
    """Name of the file of one epoch's report."""
    return f"report-{epoch:010d}.json"


class RemoteReports:
    """The far side: writes what the near side's JobManager reads."""

    def __init__(self, job_dir: str, job_id: str) -> None:
        self._directory = JobDirectory(job_dir)
        self._job_id = job_id

    def before_epoch(self, epoch: int) -> None:
        """End the query when it was asked for."""
        if self._directory.read(STOP_FILE) is not None:
            raise StopQuery

    def after_epoch(self, report: EpochReport) -> None:
        """Leave the report; drop an old one."""
        data = base64.b64encode(pickle.dumps(report, protocol=5)).decode()
        self._directory.write(report_file(report.epoch), {"report": data})
        self._directory.delete(report_file(report.epoch - 100))


def read_report(directory: JobDirectory, epoch: int) -> EpochReport | None:
    """The report of one epoch, if it was left."""
    value = directory.read(report_file(epoch))
    if value is None:
        return None
    report = pickle.loads(base64.b64decode(value["report"]))
    return report if isinstance(report, EpochReport) else None
