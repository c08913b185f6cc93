"""The Delta tables of the history (jobs, executions, exceptions and checkpoints), and what bounds their size.

* A table is compacted by day (UTC): a day that is over is one file, and the running one has at most `MAX_FILES` more
  than that between two looks. So what a compaction rewrites does not depend on how long the job has run.
* Days older than the retention are deleted as wholes.
* What the log says of the files decides, at the first batch of a driver and then at every `LOOK_EVERY`-th.
* Files that are replaced are deleted by the next compaction at least an hour later; Delta deletes log files older than
  a day by itself.
"""

from __future__ import annotations

import logging
import posixpath
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flinkish.delta.actions import AddedFile
from flinkish.delta.log import DeltaLog
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.history import TABLES, History, HistoryWriter, Row, Rows
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.spark.data_files import vacuum
from flinkish.spark.failures import translate
from flinkish.spark.session import is_remote
from flinkish.storage.paths import for_spark
from flinkish.storage.sealed import json_as

__all__ = ["History", "delta_history"]

_LOG = logging.getLogger("flinkish.HistoryServer")

#: A table with so many files more than it has days is compacted.
MAX_FILES = 20
#: Number of batches from one check of the number of files to the next.
LOOK_EVERY = 10

DAY_MS = 86_400_000

_PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 days",
}


def history_path(job_dir: str, table: str) -> str:
    """Path of a table of the history."""
    return posixpath.join(job_dir, "history", table)


@dataclass(frozen=True)
class _Times:
    """What is read of the smallest or largest values of a data file."""

    time_ms: int | None = None


@dataclass(frozen=True)
class _Statistics:
    """What is read of the statistics of a data file."""

    minValues: _Times = field(default_factory=_Times)


def first_days(files: Iterable[AddedFile]) -> list[int]:
    """The day of the first row of each file, in days since 1970, as far as the statistics of the files tell."""
    times_ms = (json_as(_Statistics, file.stats or "{}").minValues.time_ms for file in files)
    return [time_ms // DAY_MS for time_ms in times_ms if time_ms is not None]


def days_to_compact(days: list[int]) -> list[int]:
    """The days whose rows should be written anew, in order; ``days``: what `first_days` returns.

    They are those with several files, and all behind the first of these: a file that was written after midnight has
    rows of both days.
    """
    files = Counter(days)
    if len(days) - len(files) <= MAX_FILES:
        return []
    first = min(day for day, count in files.items() if count > 1)
    return [day for day in sorted(files) if day >= first]


class DeltaTables:
    """Writes and compacts the history's tables of one job directory.

    Args:
        spark: the session that writes them.
        job_dir: the job's directory.
        retention_ms: age in milliseconds at which days of rows are deleted; 0: never.
        clock: the clock by which rows age; by default the machine's.
    """

    def __init__(self, spark: Any, job_dir: str, retention_ms: int, clock: Clock | None = None) -> None:
        self._spark = spark
        self._job_dir = job_dir
        self._retention_ms = retention_ms
        self._clock = clock or SystemClock()
        self._batches: Counter[str] = Counter()

    def append(self, table: str, rows: list[Row]) -> None:
        """Append rows to a table, in one commit of one file.

        Raises:
            FlinkishError: it cannot be written; the message says why in one line.
        """
        path = history_path(self._job_dir, table)
        frame = self._spark.createDataFrame(rows, TABLES[table]).coalesce(1)
        writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
        try:
            writer.options(**_PROPERTIES).save(for_spark(path))
        except Exception as error:
            raise translate(error, path) from error
        self._batches[table] += 1
        if self._batches[table] % LOOK_EVERY == 1:
            self._tidy_up(path)

    def make_missing(self) -> None:
        """Create the tables that have no rows yet, for SQL to find them: a job that never failed has no exceptions."""
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
        for table in TABLES:
            path = history_path(self._job_dir, table)
            if not DeltaLog(path).versions():
                # CREATE TABLE takes half the time of writing no rows
                columns = f"({TABLES[table]}) USING delta TBLPROPERTIES ({properties})"
                self._spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{for_spark(path)}` {columns}")

    def _tidy_up(self, path: str) -> None:
        try:
            days = first_days(DeltaLog(path).added().values())
            oldest = (self._clock.now_ms() - self._retention_ms) // DAY_MS if self._retention_ms else 0
            due = [day for day in days_to_compact(days) if day >= oldest]
            if days and min(days) < oldest:
                self._spark.sql(f"DELETE FROM delta.`{for_spark(path)}` WHERE time_ms < {oldest * DAY_MS}").collect()
            for day in due:
                self._compact(path, day)
            if due:
                vacuum(self._spark, path)
        except Exception as error:
            # another driver may write at the same time; the rows themselves are safe
            _LOG.info("history table %s is not compacted this time: %s", path, str(error).strip().splitlines()[:1])

    def _compact(self, path: str, day: int) -> None:
        """Rewrite the rows of a day as one file. Delta leaves files alone that have none of them."""
        rows = f"time_ms >= {day * DAY_MS} AND time_ms < {(day + 1) * DAY_MS}"
        frame = self._spark.read.format("delta").load(for_spark(path)).where(rows).coalesce(1)
        frame.write.format("delta").mode("overwrite").option("replaceWhere", rows).save(for_spark(path))


#: The first rows, those of the job's start, are written after this many seconds: after the first epoch of most jobs,
#: and before somebody wants a savepoint, because the first use of Delta in a driver takes seconds of processor time.
#: Under Spark Connect they wait for the interval: the server has used Delta for the claim already.
FIRST_WRITE_S = 5.0


def delta_history(spark: Any, job: JobDescriptor, directory: JobDirectory, settings: DriverSettings) -> HistoryWriter:
    """The history of a job, written to the Delta tables in its directory."""
    tables = DeltaTables(spark, directory.path, settings.history_retention_ms)
    rows = Rows(job.job_id, job.name, directory.token)
    first_s = None if is_remote(spark) else FIRST_WRITE_S
    return HistoryWriter(rows, tables, settings.history_interval_ms / 1000, first_s)
