"""The Spark side of the checkpoint thread: a session of its own, and jobs that can be told from those of the query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flinkish.spark.data_files import VERIFY_PAGES
from flinkish.spark.session import is_remote, slots_of
from flinkish.spark.settings import described_jobs

#: Scheduler pool of jobs that must not hold up epochs; it has an effect where Spark schedules fairly.
POOL = "flinkish-checkpoints"
#: Settings for how many tasks a stage has: of a shuffle, a scan, a table in memory.
_TASKS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.files.minPartitionNum",
    "spark.sql.leafNodeDefaultParallelism",
)


def own_session(spark: Any) -> Any:
    """A session with settings of its own on the same cluster; under Spark Connect the given session."""
    if is_remote(spark):
        return spark
    session = spark.newSession()
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
def tagged_jobs(session: Any, tag: str, description: str) -> Iterator[None]:
    """Give all Spark jobs of this thread the tag and the description, and let them give way to those of epochs."""
    session.addTag(tag)
    if not is_remote(session):
        session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    try:
        with described_jobs(session, description):
            yield
    finally:
        session.removeTag(tag)
