"""The Spark side of a checkpoint's thread: a session of its own, and jobs that can be told from the query's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flinkish.spark.session import is_remote

#: Scheduler pool of what must not hold up epochs; it matters where Spark schedules fairly.
POOL = "flinkish-checkpoints"
#: How many tasks a stage has: of a shuffle, a scan, a table in memory.
_TASKS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.files.minPartitionNum",
    "spark.sql.leafNodeDefaultParallelism",
)


def own_session(spark: Any) -> Any:
    """A session with settings of its own on the same cluster; the same one where that cannot be had."""
    if is_remote(spark):
        return spark
    session = spark.newSession()
    # what is rewritten (MERGE, OPTIMIZE) is checked before: damage must not get a checksum that fits
    session.conf.set("parquet.page.verify-checksum.enabled", "true")
    # changes are written down before they are merged; Delta would do so once more
    session.conf.set("spark.databricks.delta.merge.materializeSource", "none")
    # a task of an epoch waits for one of these to end where they take all cores
    tasks = str(gentle_tasks(session))
    for setting in _TASKS:
        session.conf.set(setting, tasks)
    return session


def gentle_tasks(session: Any) -> int:
    """How many tasks a checkpoint may run at once when they take long: half of the cores are left to epochs."""
    if is_remote(session):
        return 8
    return max(1, int(session.sparkContext.defaultParallelism) // 2)


@contextmanager
def tagged_jobs(session: Any, tag: str) -> Iterator[None]:
    """All Spark jobs of this thread bear the tag, and give way to those of epochs."""
    session.addTag(tag)
    if not is_remote(session):
        session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    try:
        yield
    finally:
        session.removeTag(tag)
