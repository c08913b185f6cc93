"""The history of a job, which outlives its driver: the Delta tables jobs, executions, exceptions and checkpoints."""

from __future__ import annotations

from typing import Any

from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.history.delta_tables import DeltaTables
from flinkish.jobmanager.history.history import History
from flinkish.jobmanager.history.tables import Rows
from flinkish.jobmanager.history.writer import HistoryWriter
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.spark.session import is_remote

#: The first rows, those of the job's start, are written after this many seconds: after the first epoch of most jobs,
#: and before somebody wants a savepoint, because the first use of Delta in a driver takes seconds of processor time.
#: Under Spark Connect they wait for the interval: the server has used Delta for the claim already.
FIRST_WRITE_S = 5.0

__all__ = ["History", "delta_history"]


def delta_history(spark: Any, job: JobDescriptor, directory: JobDirectory, settings: DriverSettings) -> HistoryWriter:
    """The history of a job, written to the Delta tables in its directory."""
    tables = DeltaTables(spark, directory.path, settings.history_retention_ms)
    rows = Rows(job.job_id, job.name, directory.token)
    first_s = None if is_remote(spark) else FIRST_WRITE_S
    return HistoryWriter(rows, tables, settings.history_interval_ms / 1000, first_s)
