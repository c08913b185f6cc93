"""The Delta tables of the history (jobs, executions, exceptions and checkpoints), and what bounds their size.

* A table is compacted by day (UTC): a day that is over is one file, and the running one has at most `MAX_FILES` more
  than that between two looks. So what a compaction rewrites does not depend on how long the job has run.
* Days older than the retention are deleted as wholes.
* What the log says of the files decides, at the first batch of a driver and then at every `LOOK_EVERY`-th.
* On a local file system the driver's process appends the rows itself: that takes milliseconds, and Spark's Delta a
  second of processor time, the first time several. Spark compacts, and writes a checkpoint of the log whenever it does.
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

from flinkish.delta.actions import AddedFile, append_info, new_table
from flinkish.delta.log import Appends, DeltaLog
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.history import TABLES, History, HistoryWriter, Row, Rows, columns_of
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.spark.data_files import vacuum
from flinkish.spark.failures import translate
from flinkish.spark.session import is_remote
from flinkish.storage.paths import for_spark, is_local
from flinkish.storage.sealed import json_as
from flinkish.storage.stores import storage_errors

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
#: Of the tables to which Spark does not append: what it commits are compactions.
_PROPERTIES_HERE = {**_PROPERTIES, "delta.checkpointInterval": "1"}

#: Types of the columns in Spark's DDL -> in Delta's words.
_TYPES: dict[str, Any] = {
    "string": "string",
    "int": "integer",
    "bigint": "long",
    "boolean": "boolean",
    "array<string>": {"type": "array", "elementType": "string", "containsNull": True},
    "map<string, double>": {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
    "map<string, bigint>": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    "map<string, string>": {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True},
}
#: The place of the time in each row.
_TIME = 4


def arrow_of(table: str, rows: list[Row]) -> Any:
    """The rows of a table of the history as a ``pyarrow.Table``."""
    import pyarrow as pa

    plain = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_()}
    of_values = {"array<string>": pa.list_(pa.string()), "map<string, double>": pa.map_(pa.string(), pa.float64())}
    of_maps = {f"map<string, {kind}>": pa.map_(pa.string(), plain[kind]) for kind in ("bigint", "string")}
    types = {**plain, **of_values, **of_maps}
    columns = columns_of(table)
    values = ([list(one.items()) if isinstance(one, dict) else one for one in column] for column in zip(*rows))
    arrays = [pa.array(column, types[kind]) for column, kind in zip(values, columns.values(), strict=True)]
    return pa.table(arrays, names=list(columns))


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
        self._is_local = is_local(job_dir) and not is_remote(spark)
        self._appends: dict[str, Appends] = {}

    def append(self, table: str, rows: list[Row]) -> None:
        """Append rows to a table, in one commit of one file.

        Raises:
            FlinkishError: it cannot be written; the message says why in one line.
        """
        path = history_path(self._job_dir, table)
        with storage_errors("write", path):
            is_written = self._written_here(table, rows)
        if not is_written:
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
            if not DeltaLog(path).versions() and not self._written_here(table, []):
                # CREATE TABLE takes half the time of writing no rows
                columns = f"({TABLES[table]}) USING delta TBLPROPERTIES ({properties})"
                self._spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{for_spark(path)}` {columns}")

    def _written_here(self, table: str, rows: list[Row]) -> bool:
        """Append rows without Spark, to a table that is made if there is none; False if only Spark can."""
        if not self._is_local:
            return False
        log, columns = DeltaLog(history_path(self._job_dir, table)), columns_of(table)
        base = self._appends.setdefault(table, Appends(log, columns)).base()
        if base is None and log.versions():
            return False
        now_ms, version = self._clock.now_ms(), 0 if base is None else base + 1
        actions = [append_info(now_ms)]
        if base is None:
            actions += new_table({name: _TYPES[kind] for name, kind in columns.items()}, now_ms, _PROPERTIES_HERE)
        try:
            if not rows:
                return log.publish(version, actions)
            times_ms = [row[_TIME] for row in rows]
            ends = {"minValues": {"time_ms": min(times_ms)}, "maxValues": {"time_ms": max(times_ms)}}
            stats = {**ends, "nullCount": {"time_ms": 0}}
            return log.append(version, arrow_of(table, rows), actions, stats)
        except FileExistsError:
            # another driver was first
            return False

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
            _LOG.info("history table %s is not compacted this time: %s", path, str(error).strip().split("\n")[:1])

    def _compact(self, path: str, day: int) -> None:
        """Rewrite the rows of a day as one file. Delta leaves files alone that have none of them."""
        rows = f"time_ms >= {day * DAY_MS} AND time_ms < {(day + 1) * DAY_MS}"
        frame = self._spark.read.format("delta").load(for_spark(path)).where(rows).coalesce(1)
        frame.write.format("delta").mode("overwrite").option("replaceWhere", rows).save(for_spark(path))


#: The first rows, those of the job's start, are written after this many seconds: after the first epoch of most jobs,
#: and before somebody wants a savepoint, because the first use of Delta in a driver, which a store other than a local
#: file system needs, takes seconds of processor time.
#: Under Spark Connect they wait for the interval: the server has used Delta for the claim already.
FIRST_WRITE_S = 5.0


def delta_history(spark: Any, job: JobDescriptor, directory: JobDirectory, settings: DriverSettings) -> HistoryWriter:
    """The history of a job, written to the Delta tables in its directory."""
    tables = DeltaTables(spark, directory.path, settings.history_retention_ms)
    rows = Rows(job.job_id, job.name, directory.token)
    first_s = None if is_remote(spark) else FIRST_WRITE_S
    return HistoryWriter(rows, tables, settings.history_interval_ms / 1000, first_s)
