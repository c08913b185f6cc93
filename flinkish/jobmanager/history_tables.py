"""The Delta tables of the history (jobs, executions, exceptions and checkpoints), and what bounds their size.

* Rows older than the retention are deleted when a table is compacted.
* A table is compacted into one file when it has more than `MAX_FILES`. This is checked with the first batch of a driver
  and then with every `LOOK_EVERY`-th, so there are never more files than the sum of both.
* Files that are replaced are deleted by the next compaction at least an hour later; Delta deletes log files older than
  a day by itself.
"""

from __future__ import annotations

import logging
import posixpath
from collections import Counter
from typing import Any

from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.history import TABLES, History, HistoryWriter, Row, Rows
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.spark.data_files import vacuum
from flinkish.spark.failures import translate
from flinkish.spark.session import is_remote
from flinkish.storage.files import child_names
from flinkish.storage.paths import for_spark

__all__ = ["History", "delta_history"]

_LOG = logging.getLogger("flinkish.HistoryServer")

#: A table with more files than this is compacted.
MAX_FILES = 20
#: Number of batches from one check of the number of files to the next.
LOOK_EVERY = 10

_PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 days",
}


def history_path(job_dir: str, table: str) -> str:
    """Path of a table of the history."""
    return posixpath.join(job_dir, "history", table)


class DeltaTables:
    """Writes and compacts the history's tables of one job directory.

    Args:
        spark: the session that writes them.
        job_dir: the job's directory.
        retention_ms: age in milliseconds at which rows are deleted; 0: never.
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
            if not child_names(posixpath.join(path, "_delta_log")):
                # CREATE TABLE takes half the time of writing no rows
                columns = f"({TABLES[table]}) USING delta TBLPROPERTIES ({properties})"
                self._spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{for_spark(path)}` {columns}")

    def _tidy_up(self, path: str) -> None:
        try:
            # replaced files are there as well, so only Delta knows the number; but asking Delta takes a second
            if sum(name.endswith(".parquet") for name in child_names(path)) > MAX_FILES:
                frame = self._spark.read.format("delta").load(for_spark(path))
                if len(frame.inputFiles()) > MAX_FILES:
                    self.compact(path)
        except Exception as error:
            # another driver may write at the same time; the rows themselves are safe
            _LOG.info("history table %s is not compacted this time: %s", path, str(error).strip().splitlines()[:1])

    def compact(self, path: str) -> None:
        """Rewrite the rows that are within the retention as one file; delete files replaced long enough ago."""
        frame = self._spark.read.format("delta").load(for_spark(path))
        if self._retention_ms:
            frame = frame.where(f"time_ms >= {self._clock.now_ms() - self._retention_ms}")
        frame.coalesce(1).write.format("delta").mode("overwrite").save(for_spark(path))
        vacuum(self._spark, path)


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
