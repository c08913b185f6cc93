"""The reports of all epochs of a job, which the engine itself does not keep."""

from __future__ import annotations

from typing import Any
from unittest import mock

from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager.job.description import JobObserver
from flinkish.jobmanager.job_run import JobRun
from flinkish.runtime.epoch.steps import EpochReport


class EpochReports(JobObserver):
    """Collects the reports of all epochs of one run."""

    def __init__(self) -> None:
        self.reports: list[EpochReport] = []

    def epoch_done(self, report: EpochReport) -> None:
        self.reports.append(report)


def execute_observed(env: StreamExecutionEnvironment, name: str) -> Any:
    """``env.execute_async(name)``; the reports of the job, from its first epoch on, are those of `reports_of`."""
    unchanged = JobRun.start

    def start(run: JobRun) -> None:
        run.observers.append(EpochReports())
        unchanged(run)

    with mock.patch.object(JobRun, "start", start):
        return env.execute_async(name)


def reports_of(run: JobRun) -> list[EpochReport]:
    """The reports of the epochs that a run which `execute_observed` has started has done so far."""
    return next(observer.reports for observer in run.observers if isinstance(observer, EpochReports))
