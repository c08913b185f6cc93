"""A Delta table of checkpoints: the table of state, or the table of the changes since the state was written.

Rule: each commit belongs to one checkpoint as a whole, never to parts of two. A checkpoint's manifest names the
versions of both tables, since they may already have later versions, whose checkpoint was not completed.

Rule: files are listed first; then the log tells which of them are needed; then it is checked that the job is still this
driver's; only then are the others deleted. So a driver that was paused in between deletes nothing that a newer one has
written.

A table that is found to be damaged is moved aside.
"""

from __future__ import annotations

import logging
import posixpath
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flinkish.delta.actions import new_table, removed_file
from flinkish.delta.check import check_log
from flinkish.delta.log import DeltaLog
from flinkish.errors import FlinkishError, SavepointError
from flinkish.runtime.state.saved.texts import SavepointRow
from flinkish.spark.data_files import DataFile, append_of, vacuum
from flinkish.storage.files import child_names, delete_file, is_directory, move_directory
from flinkish.storage.paths import for_spark, local_path
from flinkish.storage.sealed import checksum_path, json_as
from flinkish.storage.stores import storage_error

_HOUR_MS = 3_600_000

#: Rows are deleted by deletion vectors: merging few changes does not rewrite the files of all other rows.
_PROPERTIES = {"delta.enableDeletionVectors": "true"}

#: At every tenth version Delta sums the log up, if it is Delta that commits it (``delta.checkpointInterval``).
_SUMMED_UP_EVERY = 10

#: How a commit is described that replaces all files.
_OVERWRITE = {"mode": "Overwrite", "partitionBy": "[]"}

#: The columns of a table of state, which are texts.
_COLUMNS = SavepointRow._fields


@dataclass(frozen=True)
class Written:
    """One commit to the table: its version, and how many rows and bytes it has written."""

    version: int
    rows: int
    bytes: int = 0


@dataclass(frozen=True)
class _Statistics:
    """What is read of the statistics of a data file: how many rows have no value in each column."""

    nullCount: dict[str, int] = field(default_factory=dict)


class CheckpointTable:
    """Writes and cleans up one Delta table of checkpoints, and reads its log.

    Args:
        spark: the session for its Spark jobs; one of its own, so that its settings affect nobody else.
        path: path of the table.
        check: raises when nothing may be deleted any more, because another driver owns the job.
    """

    def __init__(self, spark: Any, path: str, check: Callable[[], None]) -> None:
        self.spark = spark
        self.path = path
        self.log = DeltaLog(path)
        self.check = check

    def overwrite(self, rows: Callable[[], Any], files: Callable[[str], list[DataFile]] | None = None) -> Written:
        """Replace all rows, in one commit.

        Args:
            rows: makes the DataFrame of the rows, for Spark to write.
            files: writes the same rows of state to files in the directory of the table, which is given without a
                scheme; None: only Spark can write them.
        """
        written = None if files is None else self._overwritten(files)
        if written is not None:
            return written
        writer = rows().write.format("delta").mode("overwrite")
        for key, value in _PROPERTIES.items():
            writer = writer.option(key, value)
        writer.save(for_spark(self.path))
        return self.written("numOutputRows")

    def _overwritten(self, files: Callable[[str], list[DataFile]]) -> Written | None:
        """Replace all files by others without Spark, which costs a fraction of it; None where only Spark can, or is
        to: it sums the log up, so that this stays short."""
        path, before = local_path(self.path), self.log.newest()
        version = 0 if before is None else before + 1
        if path is None or (version and version % _SUMMED_UP_EVERY == 0):
            return None
        if before is not None and (not self.log.takes_appends(_COLUMNS) or self.log.needs_delta(before)):
            return None
        written, now_ms = files(path), time.time_ns() // 1_000_000
        made = new_table(dict.fromkeys(_COLUMNS, "string"), now_ms, _PROPERTIES, with_deletion_vectors=True)
        gone = [] if before is None else [removed_file(name, now_ms) for name in self.log.added(before)]
        info, *added = append_of(written, now_ms, operationParameters=_OVERWRITE, isBlindAppend=False)
        # tasks have run meanwhile
        self.check()
        if not self.log.publish(version, [info, *(made if before is None else ()), *added, *gone]):
            return None
        return Written(version, sum(file.rows for file in written), sum(file.bytes for file in written))

    def append(self, rows: Any) -> Written:
        """Append rows, in one commit."""
        rows.write.format("delta").mode("append").save(for_spark(self.path))
        return self.written("numOutputRows")

    def empty(self) -> None:
        """Delete all rows, in one commit, if there are any."""
        if self.log.newest() is not None:
            self.spark.sql(f"DELETE FROM delta.`{for_spark(self.path)}`").collect()

    def compact(self) -> None:
        """Join small files, and rewrite files of which many rows are deleted."""
        self.spark.sql(f"OPTIMIZE delta.`{for_spark(self.path)}`").collect()

    def vacuum(self, retain_ms: int) -> None:
        """Delete the deletion vectors that were replaced more than ``retain_ms`` ago; `delete_unneeded` deletes the
        rest."""
        if any(name.endswith(".bin") for name in child_names(self.path)):
            self.check()
            # rounded up, as Delta counts whole hours: half an hour would become none, and files of retained checkpoints
            # would be deleted
            vacuum(self.spark, self.path, -(-retain_ms // _HOUR_MS))

    def delete_unneeded(self, oldest: int) -> int:
        """Delete the data files that no version from ``oldest`` on uses; returns how many. They are found by the log
        and not by their age, as VACUUM does: it counts whole hours, and a clock may be set back."""
        # listed first: a file that is written from now on is never deleted
        names = child_names(self.path)
        later = [version for version in self.versions() if version > oldest]
        if later and later != list(range(oldest + 1, later[-1] + 1)):
            return 0
        needed = self._files_of(oldest)
        for version in later:
            needed |= _added(self.actions(version))
        unneeded = [name for name in names if name.endswith(".parquet") and name not in needed]
        # if files of a newer driver were listed, it had claimed the job by then, and this raises
        self.check()
        for name in unneeded:
            delete_file(posixpath.join(self.path, name))
            if checksum_path(name) in names:
                delete_file(posixpath.join(self.path, checksum_path(name)))
        return len(unneeded)

    def _files_of(self, version: int) -> set[str]:
        """The names of a version's data files."""
        if self._info(version).get("operationParameters", {}).get("mode") == "Overwrite":
            return _added(self.actions(version))
        frame = self.spark.read.format("delta").option("versionAsOf", version).load(for_spark(self.path))
        return {posixpath.basename(path) for path in frame.inputFiles()}

    def retain(self, days: int) -> None:
        """Let Delta keep replaced files and old versions for so many days."""
        self.spark.sql(
            f"ALTER TABLE delta.`{for_spark(self.path)}` SET TBLPROPERTIES ("
            f"'delta.deletedFileRetentionDuration' = 'interval {days} days', "
            f"'delta.logRetentionDuration' = 'interval {days} days')"
        ).collect()

    def written(self, metric: str) -> Written:
        version = self.log.newest()
        assert version is not None, f"no commit in {self.path}"
        return Written(version, self._metric(version, metric), self._metric(version, "numOutputBytes"))

    def versions(self) -> list[int]:
        """The versions whose log files are there, in order."""
        return self.log.commits()

    def changed_since(self, version: int) -> bool:
        """Whether a later version holds other rows, because this driver or another one has written it for a checkpoint
        that was not completed. Compaction and new table properties change no rows."""
        return bool(self._changes_since(version))

    def is_only_change(self, written: Written, version: int | None) -> bool:
        """Whether no other commit than this one has changed rows since a version (None: ever). Another one may come
        from an older driver of the job that was paused right before it wrote."""
        return self._changes_since(version) in ([written.version], [])

    def _changes_since(self, version: int | None) -> list[int]:
        """The later versions that hold other rows than the version before them."""
        later = [found for found in self.versions() if version is None or found > version]
        return [found for found in later if any(map(_is_change, self.actions(found)))]

    def has_null(self, version: int, column: str) -> bool:
        """Whether a row that a version has added may have no value in a column; True as well if the statistics of the
        files do not tell."""
        for action in self.actions(version):
            if action.get("add"):
                try:
                    counts = json_as(_Statistics, action["add"].get("stats") or "{}").nullCount
                except ValueError:
                    return True
                if counts.get(column) != 0:
                    return True
        return False

    def _metric(self, version: int, name: str) -> int:
        return int(self._info(version).get("operationMetrics", {}).get(name, 0))

    def committed_ms(self, version: int) -> int | None:
        """When a version was committed, in milliseconds since 1970 by the clock of the driver that committed it; None
        if the log does not tell."""
        found: int | None = self._info(version).get("timestamp")
        return found

    def _info(self, version: int) -> dict[str, Any]:
        return next((dict(a["commitInfo"]) for a in self.actions(version) if a.get("commitInfo")), {})

    def actions(self, version: int) -> list[dict[str, Any]]:
        """The actions of a version in the log; [] if its file is not there.

        Raises:
            SavepointError: the file is damaged.
        """
        try:
            return self.log.actions(version)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise storage_error(error, "read", self.log.file(version)) from error


def _is_change(action: dict[str, Any]) -> bool:
    file = action.get("add") or action.get("remove") or {}
    return bool(file.get("dataChange", False))


def _added(actions: list[dict[str, Any]]) -> set[str]:
    """The names of the data files that a version has added."""
    return {posixpath.basename(action["add"]["path"]) for action in actions if action.get("add")}


_LOG = logging.getLogger("flinkish.CheckpointCoordinator")


def set_aside_if_damaged(table: str, newest_checkpoint: int, job_name: str, check: Callable[[], None]) -> None:
    """Check the log of a table, if there is one yet, and move the table aside if the log is damaged. ``check``: raises
    when the job is no longer this driver's.

    Rule: while the job itself is well, nothing is built upon a damaged table. It is set aside, and the next checkpoint
    is a full one into a new table.
    """
    if not is_directory(table) or not newest_checkpoint and not DeltaLog(table).versions():
        # there is no checkpoint yet: at most data files of a driver that was killed while it took the first one
        return
    try:
        check_log(table, None)
    except SavepointError as error:
        aside = f"{table}-damaged-{newest_checkpoint}"
        check()
        move_directory(table, aside)
        _LOG.warning(
            "job '%s': %s: the checkpoints of before are lost; what is left of their table is kept at %s, and the next "
            "checkpoint is a full one",
            job_name,
            error.what,
            aside,
        )


def may_be_damage(error: Exception) -> bool:
    """Whether a failed write is a reason to mistrust the table: any error is, unless flinkish has raised it for another
    reason."""
    return isinstance(error, SavepointError) or not isinstance(error, FlinkishError)
