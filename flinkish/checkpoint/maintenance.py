"""Keeps the storage of checkpoints bounded: merges changes, compacts and vacuums the tables, and trims their logs. The
Spark jobs of the checkpoint thread run in a session of their own, and can be told from those of the query.

Rule: every retained checkpoint stays readable. What is removed was replaced before the oldest of them was committed.

The bound: changes are merged into the state when they come from `APPENDS_PER_MERGE` checkpoints, or have half as many
rows as the state. A table has the data files of its versions since the oldest retained checkpoint, and those that were
replaced since the last clean-up. For the table of state these are `OVERWRITES_PER_CLEAN_UP` full checkpoints, or
`MERGES_PER_COMPACTION` merges and changes of half as many rows as the state has; for the table of changes, those of
twice as many checkpoints as are merged at once. Deletion vectors (a few bytes a change) stay for up to an hour more:
VACUUM counts whole hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flinkish.checkpoint.manifest import CheckpointDirectory, MaintenanceCounts
from flinkish.checkpoint.table import CheckpointTable, Written
from flinkish.runtime.phases import Clock, SystemClock
from flinkish.spark.data_files import VERIFY_PAGES
from flinkish.spark.session import is_remote, slots_of
from flinkish.spark.settings import SparkWork, copy_of, described_jobs

#: Full checkpoints between two clean-ups.
OVERWRITES_PER_CLEAN_UP = 3
#: Incremental checkpoints between two merges of changes into the state.
APPENDS_PER_MERGE = 40
#: Rows of changes since the last merge, as a share of the rows of the state: more are merged at once.
_APPENDED_SHARE = 0.5
#: Merges between two compactions.
MERGES_PER_COMPACTION = 20
#: Rows changed since the last compaction, as a share of all: more are compacted at once.
_CHANGED_SHARE = 0.5
#: Tolerated difference between the clocks of storage and driver, in milliseconds.
_MARGIN_MS = 1_000
_DAY_MS = 86_400_000
#: How long Delta keeps replaced files by default.
_RETENTION_MS = 7 * _DAY_MS


class Maintenance:
    """Counts what the checkpoints of one job write, and decides by the counts when their tables are merged and cleaned
    up."""

    def __init__(self, table: CheckpointTable, directory: CheckpointDirectory, clock: Clock | None = None) -> None:
        self._table = table
        self._changes = CheckpointTable(table.spark, directory.changes, table.check)
        self._directory = directory
        self._clock = clock or SystemClock()
        self._counts = self._load()

    def _load(self) -> dict[str, int]:
        counts = {"overwrites": 0, "merges": 0, "changed": 0, "rows": 0, "bytes": 0, "retention_ms": _RETENTION_MS}
        # of the table of changes: how often it was begun anew; checkpoints and rows since then
        counts.update(resets=0, appends=0, appended=0)
        found = MaintenanceCounts.read(self._directory.path)
        if found is not None:
            counts.update({name: value for name, value in found.counts.items() if name in counts})
        return counts

    def _save(self) -> None:
        # a driver that was paused while it wrote the table must not replace the counts of the one that took over
        self._table.check()
        MaintenanceCounts(self._counts).write(self._directory.path)

    def overwritten(self, written: Written) -> None:
        """Count a full checkpoint, which has replaced all files."""
        overwrites = self._counts["overwrites"] + 1
        self._counts.update(overwrites=overwrites, merges=0, changed=0, rows=written.rows, bytes=written.bytes)
        self._counts.update(resets=self._counts["resets"] + 1, appends=0, appended=0)
        self._save()

    @property
    def last_full(self) -> Written:
        """Size of the last full checkpoint; its version is not known and given as -1."""
        return Written(-1, self._counts["rows"], self._counts["bytes"])

    def appended(self, written: Written, first: bool) -> None:
        """Count an incremental checkpoint, which has added changes; ``first``: in the place of those before."""
        counts = self._counts
        if first:
            counts.update(resets=counts["resets"] + 1, appends=0, appended=0)
            if written.version == 0 and counts["retention_ms"] > _RETENTION_MS:
                self._changes.retain(days=counts["retention_ms"] // _DAY_MS + 1)
        counts.update(appends=counts["appends"] + 1, appended=counts["appended"] + written.rows)
        self._save()

    def is_merge_due(self) -> bool:
        """Whether so many changes have been appended that they should be merged into the state."""
        counts = self._counts
        return counts["appends"] >= APPENDS_PER_MERGE or counts["appended"] > max(
            1_000, _APPENDED_SHARE * counts["rows"]
        )

    def merged(self, written: Written) -> None:
        """Count a merge of changes into the state."""
        self._counts.update(merges=self._counts["merges"] + 1, changed=self._counts["changed"] + written.rows)
        self._counts.update(appends=0, appended=0)
        self._save()

    def before_merge(self) -> None:
        """Compact the table of state if many merges have fragmented it. Called before a merge, not after it, so that
        the files which compaction replaces soon belong to no retained checkpoint."""
        counts = self._counts
        if counts["merges"] >= MERGES_PER_COMPACTION or counts["changed"] > max(1_000, _CHANGED_SHARE * counts["rows"]):
            self._table.compact()
            counts.update(merges=0, changed=0, overwrites=OVERWRITES_PER_CLEAN_UP)
            self._save()

    def keep_readable(self, oldest: int | None) -> None:
        """Extend Delta's retention where the oldest retained version needs it: Delta forgets replaced files after a
        time, a week by default. Called before each commit."""
        committed_ms = None if oldest is None else self._table.committed_ms(oldest)
        if committed_ms is None:
            return
        age_ms = self._clock.now_ms() - committed_ms
        if age_ms > self._counts["retention_ms"] / 2:
            self._counts["retention_ms"] = 4 * age_ms
            for table in (self._table, self._changes):
                if table.log.newest() is not None:
                    table.retain(days=4 * age_ms // _DAY_MS + 1)
            self._save()

    def clean(self, oldest: int | None, oldest_changes: int | None) -> None:
        """Delete the files that no retained checkpoint needs.

        Args:
            oldest: version of the state of the oldest retained checkpoint; None: not known, so nothing is deleted.
            oldest_changes: oldest version of the changes that a retained checkpoint names; None: none names one.
        """
        if oldest is not None:
            self._clean_changes(oldest_changes)
        committed_ms = None if oldest is None else self._table.committed_ms(oldest)
        if oldest is None or committed_ms is None or self._counts["overwrites"] < OVERWRITES_PER_CLEAN_UP:
            return
        age_ms = max(0, self._clock.now_ms() - committed_ms)
        self._table.delete_unneeded(oldest)
        self._table.vacuum(age_ms + _MARGIN_MS)
        self._table.log.trim(oldest, self._table.check)
        self._counts["overwrites"] = 0
        self._save()

    def _clean_changes(self, oldest: int | None) -> None:
        if not self._counts["resets"]:
            return
        if oldest is None:
            oldest = self._changes.log.newest()
        if oldest is not None:
            self._changes.delete_unneeded(oldest)
            self._changes.log.trim(oldest, self._table.check)
        self._counts["resets"] = 0
        self._save()


def oldest_version(directory: CheckpointDirectory, retained: list[int]) -> int | None:
    """The oldest version of the state that one of these checkpoints names; None if unknown: nothing may be deleted."""
    try:
        versions: list[Any] = [directory.read(number).state.version for number in retained]
    except Exception:
        return None
    return min(versions, default=None) if None not in versions else None


def oldest_changes(directory: CheckpointDirectory, retained: list[int]) -> int | None:
    """The oldest version of the changes that one of these checkpoints names; None: none of them does. Call it only
    where `oldest_version` is known."""
    changes = [directory.read(number).changes for number in retained]
    return min((found.version for found in changes if found is not None and found.version is not None), default=None)


#: Scheduler pool of jobs that must not hold up epochs; it has an effect where Spark schedules fairly.
POOL = "flinkish-checkpoints"
#: Settings for how many tasks a stage has: of a shuffle, a scan, a table in memory.
_TASKS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.files.minPartitionNum",
    "spark.sql.leafNodeDefaultParallelism",
)


def own_session(spark: Any) -> Any:
    """A copy of the session with settings of its own; under Spark Connect the given session."""
    if is_remote(spark):
        return spark
    session = copy_of(spark)
    # MERGE and OPTIMIZE check what they rewrite: damaged data must not get a checksum that fits
    session.conf.set(*VERIFY_PAGES)
    # changes are in a table before they are merged; Delta would materialize them once more
    session.conf.set("spark.databricks.delta.merge.materializeSource", "none")
    # where these tasks take all cores, a task of an epoch waits for one of them to end
    tasks = str(gentle_tasks(session))
    for setting in _TASKS:
        session.conf.set(setting, tasks)
    return session


def gentle_tasks(session: Any) -> int:
    """How many long tasks a checkpoint may run at once: half of the cores are left to epochs."""
    return max(1, slots_of(session) // 2)


@contextmanager
def gentle_jobs(session: Any, description: str) -> Iterator[SparkWork]:
    """Within the block, the Spark jobs of this thread have a description and give way to those of epochs."""
    if not is_remote(session):
        session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    with SparkWork(session, "checkpoint") as work, described_jobs(session, description):
        yield work
