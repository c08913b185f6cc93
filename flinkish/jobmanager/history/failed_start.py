"""Adds a start that failed before there was anything to run to the history of a job that ran before."""

from __future__ import annotations

import logging
from typing import Any

from flinkish.common.job_status import JobStatus
from flinkish.errors import FencedError, FlinkishError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.history.delta_tables import DeltaTables
from flinkish.jobmanager.history.tables import Rows
from flinkish.jobmanager.history.writer import HistoryWriter
from flinkish.jobmanager.job.lifecycle import StateMachine
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.jobmanager.job_record import describe_exception
from flinkish.jobmanager.job_run import describe

_HISTORY_LOG = logging.getLogger("flinkish.HistoryServer")


def remember_failed_start(
    spark: Any,
    directory: JobDirectory,
    settings: DriverSettings,
    life: StateMachine[JobStatus],
    failure: BaseException,
) -> None:
    """Write the transitions of a job that failed before it began, and the exception with which it failed.

    Nothing is written to a directory that another driver owns, or in which no job has run. Failing to write is logged.
    """
    if not isinstance(failure, FlinkishError) or isinstance(failure, FencedError) or not settings.history_enabled:
        return
    try:
        _remember(spark, directory, settings, life, failure)
    except Exception:
        # the failure of the start is what counts; the directory itself may be what is damaged
        _HISTORY_LOG.warning("the failed start is not in the history of %s", directory.path, exc_info=True)


def _remember(
    spark: Any,
    directory: JobDirectory,
    settings: DriverSettings,
    life: StateMachine[JobStatus],
    failure: FlinkishError,
) -> None:
    job_id = directory.job_id()
    if job_id is None:
        return
    name = str((directory.read("job.json") or {}).get("name"))
    attempt = int((directory.read("attempts.json") or {"attempts": 0})["attempts"])
    tables = DeltaTables(spark, directory.path, settings.history_retention_ms)
    history = HistoryWriter(Rows(job_id, name, directory.token), tables, settings.history_interval_ms / 1000)
    event = life.to(JobStatus.FAILED, describe(failure))
    for told in life.story.events:
        history.status(told, attempt)
    history.exception(describe_exception(failure, event.time_ms, attempt, None))
    history.close()
