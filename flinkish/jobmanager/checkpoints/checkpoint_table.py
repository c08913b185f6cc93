"""A Delta table of checkpoints: that of state, or that of the changes since the state was written.

Rule: each commit is of one checkpoint as a whole, never of parts of two. A checkpoint's manifest names the versions of
both tables, since they may already be at later ones whose checkpoint did not become whole.

Rule: before files are deleted it is asked whether the job is still this driver's, and what is deleted was listed before
it was read what is needed. A driver that was paused in between deletes nothing that a newer one has written.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.jobmanager.directory.files import child_names, delete_file, read_bytes
from flinkish.spark.vacuum import vacuum

_LOG = "_delta_log"
_HOUR_MS = 3_600_000
#: A checkpoint of the log in one file, and any file of one version.
_SINGLE_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")
_OF_VERSION = re.compile(r"\d{20}\.(json|crc|checkpoint\.parquet)")

#: Deletes by marks: a checkpoint of few changes rewrites no file of the others.
_PROPERTIES = {"delta.enableDeletionVectors": "true"}


@dataclass(frozen=True)
class Written:
    """One commit of the table."""

    version: int
    rows: int
    bytes: int = 0


class CheckpointTable:
    """See the module.

    Args:
        spark: a session of its own, so that settings are nobody else's.
        path: of the table.
        check: raises when nothing may be deleted any more, because another driver owns the job.
    """

    def __init__(self, spark: Any, path: str, check: Callable[[], None]) -> None:
        self.spark = spark
        self.path = path
        self.check = check

    def overwrite(self, rows: Any) -> Written:
        """All rows, in one commit."""
        writer = rows.write.format("delta").mode("overwrite")
        for key, value in _PROPERTIES.items():
            writer = writer.option(key, value)
        writer.save(self.path)
        return self.written("numOutputRows")

    def append(self, rows: Any) -> Written:
        """More rows, in one commit."""
        rows.write.format("delta").mode("append").save(self.path)
        return self.written("numOutputRows")

    def empty(self) -> None:
        """Delete all rows, in one commit, if there are any."""
        if self.latest_version() is not None:
            self.spark.sql(f"DELETE FROM delta.`{self.path}`").collect()

    def compact(self) -> None:
        """Join small files, and rewrite those of which many rows are deleted."""
        self.spark.sql(f"OPTIMIZE delta.`{self.path}`").collect()

    def vacuum(self, retain_ms: int) -> None:
        """Delete the deletion vectors that were replaced longer ago than this: `delete_unneeded` deletes the rest."""
        if any(name.endswith(".bin") for name in child_names(self.path)):
            self.check()
            # Delta rounds to whole hours: half of one would be none, and take the files of retained checkpoints
            vacuum(self.spark, self.path, -(-retain_ms // _HOUR_MS))

    def delete_unneeded(self, oldest: int) -> int:
        """Delete the data files that no version from this one on has; how many. By the log and not by time, as VACUUM
        does: that counts whole hours, and a clock may be set back."""
        # first: a file that is written from now on is never looked at
        names = child_names(self.path)
        later = [version for version in self.versions() if version > oldest]
        if later and later != list(range(oldest + 1, later[-1] + 1)):
            return 0
        needed = self._files_of(oldest)
        for version in later:
            needed |= _added(self.actions(version))
        unneeded = [name for name in names if name.endswith(".parquet") and name not in needed]
        # a newer driver's files were listed only if it had claimed the job by then
        self.check()
        for name in unneeded:
            delete_file(posixpath.join(self.path, name))
        return len(unneeded)

    def _files_of(self, version: int) -> set[str]:
        """The names of a version's data files."""
        actions = self.actions(version)
        if any(a.get("commitInfo", {}).get("operationParameters", {}).get("mode") == "Overwrite" for a in actions):
            return _added(actions)
        frame = self.spark.read.format("delta").option("versionAsOf", version).load(self.path)
        return {posixpath.basename(path) for path in frame.inputFiles()}

    def retain(self, days: int) -> None:
        """Let Delta remember replaced files and old versions for so long."""
        self.spark.sql(
            f"ALTER TABLE delta.`{self.path}` SET TBLPROPERTIES ("
            f"'delta.deletedFileRetentionDuration' = 'interval {days} days', "
            f"'delta.logRetentionDuration' = 'interval {days} days')"
        ).collect()

    def trim_log(self, oldest: int) -> None:
        """Delete the log files that are not needed to read any version from this one on."""
        log = posixpath.join(self.path, _LOG)
        names = child_names(log)
        whole = [int(name[:20]) for name in names if _SINGLE_CHECKPOINT.fullmatch(name) and int(name[:20]) <= oldest]
        if not whole:
            return
        self.check()
        for name in names:
            if _OF_VERSION.fullmatch(name) and int(name[:20]) < max(whole):
                delete_file(posixpath.join(log, name))

    def written(self, metric: str) -> Written:
        version = self.latest_version()
        assert version is not None, f"no commit in {self.path}"
        return Written(version, self._metric(version, metric), self._metric(version, "numOutputBytes"))

    def versions(self) -> list[int]:
        """The versions whose log files are there."""
        names = child_names(posixpath.join(self.path, _LOG))
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def latest_version(self) -> int | None:
        """The newest version; None: there is no table."""
        return max(self.versions(), default=None)

    def changed_since(self, version: int) -> bool:
        """Whether a later version holds other rows: one of a checkpoint that did not become whole, of this driver or of
        another one. Compaction and settings change nothing."""
        return bool(self._changes_since(version))

    def is_only_change(self, written: Written, version: int | None) -> bool:
        """Whether nobody else has changed rows since a version (None: ever): an older driver of the job, say, that was
        paused right before it wrote."""
        return self._changes_since(version) in ([written.version], [])

    def _changes_since(self, version: int | None) -> list[int]:
        """The later versions that hold other rows than the one before them."""
        later = [found for found in self.versions() if version is None or found > version]
        return [found for found in later if any(map(_is_change, self.actions(found)))]

    def has_null(self, version: int, column: str) -> bool:
        """Whether a row that a version has added has no value in a column; also if its statistics do not say."""
        for action in self.actions(version):
            if "add" in action:
                stats = json.loads(action["add"].get("stats") or "{}")
                if stats.get("nullCount", {}).get(column) != 0:
                    return True
        return False

    def _metric(self, version: int, name: str) -> int:
        for action in self.actions(version):
            if "commitInfo" in action:
                return int(action["commitInfo"].get("operationMetrics", {}).get(name, 0))
        return 0

    def committed_ms(self, version: int) -> int | None:
        """When a version was committed, by the clock of the driver that did."""
        for action in self.actions(version):
            if "commitInfo" in action:
                return int(action["commitInfo"]["timestamp"])
        return None

    def actions(self, version: int) -> list[dict[str, Any]]:
        """What the log says of a version."""
        data = read_bytes(posixpath.join(self.path, _LOG, f"{version:020d}.json"))
        return [] if data is None else [json.loads(line) for line in data.splitlines() if line.strip()]


def _is_change(action: dict[str, Any]) -> bool:
    file = action.get("add") or action.get("remove") or {}
    return bool(file.get("dataChange", False))


def _added(actions: list[dict[str, Any]]) -> set[str]:
    """The names of the data files that a version has added."""
    return {posixpath.basename(action["add"]["path"]) for action in actions if "add" in action}
