"""The settings and local properties of a Spark session that a job's query and its other Spark jobs need. They are in
force no longer than they are needed: a session may belong to the program, and to other jobs."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from flinkish.errors import FinalOperationError, message_of
from flinkish.spark.session import SPECULATION, is_remote, speculates

_LOG = logging.getLogger("flinkish.JobManager")

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

#: Bytes of an Arrow batch. Rows are whole buffers, so Spark's limit on the rows of a batch bounds nothing: without this
#: one, a worker would be given all buffers of an epoch at once.
_MAX_ARROW_BATCH_BYTES = 8 * 1024 * 1024


def query_settings(state_backend: str, partitions: int, batch_size: int) -> dict[str, str]:
    """The Spark settings that a job's query needs wherever its files are (for those: `file_settings`).

    Args:
        state_backend: "rocksdb" for Spark's RocksDB state store; anything else: the one in memory.
        partitions: the number of shuffle partitions.
        batch_size: the most rows of an Arrow batch.
    """
    settings = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.unsupportedOperationCheck": "false",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB if state_backend == "rocksdb" else _HDFS,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(batch_size),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(_MAX_ARROW_BATCH_BYTES),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # how often sources without new data are asked for some: Spark's default of 10 ms costs a quarter of a core
        "spark.sql.streaming.pollingDelay": "50ms",
        # version 2 names the files of a state after the run that wrote them; see `epochs_that_do_not_run`
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
        # `QueryLog` reads version 1
        "spark.sql.streaming.offsetLog.formatVersion": "1",
    }
    if state_backend == "rocksdb":
        settings["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] = "true"
    return settings


#: Spark's check that each epoch has written state.
_VALIDATION = "spark.sql.streaming.stateStore.commitValidation.enabled"

#: Held while the table below and the setting that it is about are changed.
_validation = threading.Lock()
#: id of a session -> how many queries run in it without Spark's check, and the setting that was there before the first
_unchecked: dict[str, tuple[int, str | None]] = {}


@contextmanager
def epochs_that_do_not_run(spark: Any) -> Iterator[None]:
    """Inside this context, which is to last as long as a query, Spark does not check that each epoch has written state.

    An epoch that is already prepared when Spark delivers it again is committed without being run: its state is what the
    earlier run has written. Spark would take that for a ``foreachBatch`` function that never uses its DataFrame.

    Spark reads this setting from the session in each epoch, not from the query's copy of the session's settings. So the
    session has its former one again when the last of its queries has ended.
    """
    session = str(spark.session_id if is_remote(spark) else spark._jsparkSession.sessionUUID())
    with _validation:
        queries, before = _unchecked.get(session) or (0, spark.conf.get(_VALIDATION, None))
        spark.conf.set(_VALIDATION, "false")
        _unchecked[session] = queries + 1, before
    try:
        yield
    finally:
        with _validation:
            queries, before = _unchecked.pop(session)
            if queries > 1:
                _unchecked[session] = queries - 1, before
            else:
                with suppress(Exception):  # a session that has ended has no settings any more
                    _restore(spark, {_VALIDATION: before})


def check_session(spark: Any, where: str) -> None:
    """Refuse a session in which the settings of a query cannot be made, or whose Spark runs tasks twice.

    Raises:
        FinalOperationError: the session refuses them, as that of a serverless platform does; or speculative execution
            is on, which Spark reads when it starts and not again.
    """
    if speculates(spark):
        raise FinalOperationError(
            f"Spark's speculative execution is on ({SPECULATION}=true): two tries of a task would run side by side, "
            "and the state of the one would be stored with the output of the other",
            where=where,
            expected=f"{SPECULATION}=false, which Spark reads only when it starts",
            hint=f"start Spark with --conf {SPECULATION}=false (in a notebook: stop the session and make it anew; on a "
            "platform: take the setting out of the cluster's configuration), or let flinkish make the session",
        )
    try:
        with settings_in_force(spark, {_VALIDATION: "false"}):
            pass
    except Exception as error:
        if type(error).__name__ != "AnalysisException":
            raise
        raise FinalOperationError(
            f"the Spark session refuses a setting that the job's query needs: {message_of(error)}",
            where=where,
            expected="a session in which spark.conf.set can change settings of Spark SQL (not serverless compute)",
            hint="run the job on a cluster (on Databricks: classic compute)",
        ) from error


#: Spark's limit on the results of all tasks of a stage, in the driver.
MAX_RESULT_SIZE = "spark.driver.maxResultSize"
#: From so many partitions on the results of a stage may fail a job by Spark's default limit of 1 GiB.
_MANY_PARTITIONS = 1_500


def note_on_results(partitions: int, limit: str | None) -> str | None:
    """What to say of a job whose results of a stage may exceed Spark's limit, None: nothing. As the result of each task
    has the metrics of all partitions of the state (SPARK-59174), they grow with the square of the partitions.

    Args:
        partitions: those of the job's state.
        limit: the session's `MAX_RESULT_SIZE`, "0" for no limit; None: Spark's default.
    """
    if partitions < _MANY_PARTITIONS or limit == "0":
        return None
    size_mb = partitions * (7_100 + 170 * partitions) / 1e6
    return (
        f"each epoch sends about {size_mb:,.0f} MB of results of {partitions:,} tasks to the driver, and Spark fails "
        f"the job if they exceed {MAX_RESULT_SIZE}, {limit or '1g'} in this session: start it with {MAX_RESULT_SIZE}=0 "
        "and with as much memory of the driver more"
    )


#: The local property of a thread of Spark that holds the description of its jobs.
_DESCRIPTION = "spark.job.description"


@contextmanager
def described_jobs(session: Any, description: str) -> Iterator[None]:
    """Give all Spark jobs that this thread begins inside the context a description, which Spark's UI shows for each job
    and its stages. Under Spark Connect there is none: a client cannot set it."""
    if is_remote(session):
        yield
        return
    context = session.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


#: The local property of a thread of Spark that names the group of its jobs.
_GROUP = "spark.jobGroup.id"

#: Seconds between two attempts to end what Spark does.
_INTERRUPT_S = 0.2


class SparkWork:
    """What Spark does for the thread that enters this context. Any thread may end it, and a signal handler.

    Rule: it is ended again and again until the thread has left the context, since that may be between two Spark jobs.

    Args:
        session: the session in which the thread has Spark do it.
        what: a word for it.
    """

    def __init__(self, session: Any, what: str) -> None:
        self._session = session
        #: the group of Spark's jobs that it is
        self.group = f"flinkish-{what}-{uuid.uuid4().hex}"
        self._before: str | None = None
        self._left = threading.Event()
        self._ends = False

    def __enter__(self) -> SparkWork:
        if is_remote(self._session):
            self._session.addTag(self.group)
        else:
            context = self._session.sparkContext
            self._before = context.getLocalProperty(_GROUP)
            context.setLocalProperty(_GROUP, self.group)
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        if is_remote(self._session):
            self._session.removeTag(self.group)
        else:
            self._session.sparkContext.setLocalProperty(_GROUP, self._before)

    def end(self) -> None:
        """End it. Returns at once: Spark may take its time, and a signal handler may have come in a call to Spark."""
        if not self._ends:
            self._ends = True
            threading.Thread(target=self._interrupt, name="flinkish-interrupt", daemon=True).start()

    def _interrupt(self) -> None:
        while not self._left.is_set():
            try:
                if is_remote(self._session):
                    self._session.interruptTag(self.group)
                else:
                    self._session.sparkContext.cancelJobGroup(self.group)
            except Exception as error:
                _LOG.warning("what Spark does cannot be ended (%s): %s", self.group, error)
            self._left.wait(_INTERRUPT_S)

    def tasks(self) -> tuple[int, int] | None:
        """How many tasks of the stages of its running jobs have ended, and how many there are; None: none runs, or a
        client of Spark Connect cannot know."""
        if is_remote(self._session):
            return None
        tracker = self._session.sparkContext.statusTracker()
        jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(self.group)))
        stages = [stage for job in jobs if job.status == "RUNNING" for stage in job.stageIds]
        found = [one for one in map(tracker.getStageInfo, stages) if one is not None]
        return (sum(one.numCompletedTasks for one in found), sum(one.numTasks for one in found)) if found else None


#: Held while a query is started. Settings belong to the whole session, so jobs start their queries one at a time.
_starting = threading.RLock()


@contextmanager
def settings_in_force(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """Inside this context the session has these settings; afterwards it has its former ones again.

    For the start of a query, which is to be one of the program's session: Spark copies the session's settings at that
    moment. Only one thread at a time is inside, since another one would start its query with these settings and restore
    them later; so nothing that takes long belongs inside (`session_with`).
    """
    with _starting:
        before = {key: spark.conf.get(key, None) for key in settings}
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            _restore(spark, before)


def copy_of(spark: Any) -> Any:
    """A session on the same Spark that has the settings, the temporary views and the functions that this one has now,
    and in which nothing of what is changed in the one is seen in the other. Not under Spark Connect."""
    return type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())


@contextmanager
def session_with(spark: Any, settings: Mapping[str, str]) -> Iterator[Any]:
    """A session that has these settings besides those of the given one, for what may take long and starts no query.

    It is a copy, so nobody waits for anybody, and the settings get into no query that starts meanwhile. Under Spark
    Connect it is the session itself, in `settings_in_force`: a copy of it, where there is one at all, lacks the files
    that were shipped. There starts and restores of jobs in one session take turns.
    """
    if is_remote(spark):
        with settings_in_force(spark, settings):
            yield spark
        return
    session = copy_of(spark)
    for key, value in settings.items():
        session.conf.set(key, value)
    yield session


def _restore(spark: Any, settings: Mapping[str, str | None]) -> None:
    for key, value in settings.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


#: The environment variable whose value names the pool.
VARIABLE = "FLINKISH_WORKERS"
BESIDE_EPOCHS = "beside-epochs"
#: Niceness of the workers of this pool: if there are too few cores, the epochs get them.
NICENESS = 10


_lock = threading.Lock()


@contextmanager
def workers_beside_epochs(spark: Any) -> Iterator[None]:
    """Python functions that are applied to a DataFrame inside this context run in workers that no epoch uses.

    So does a function that another thread applies at the same time, which costs time and nothing else. Under Spark
    Connect this has no effect: the server chooses the workers.

    Spark hands out idle workers in the order in which they became idle, so each stage of an epoch tends to get the
    workers that have run it before and hold the decoded state of its tasks. A checkpoint that used workers of the same
    pool would mix up that order for good: with a million keys, all later epochs took 1.6 times as long. Spark keeps one
    pool for each set of environment variables that functions ask for, so a variable makes the second pool.
    """
    if is_remote(spark):
        yield
        return
    context = spark.sparkContext
    with _lock:
        usual = context.environment
        # a new dict: PySpark may be iterating over the present one in the thread of an epoch
        context.environment = {**usual, VARIABLE: BESIDE_EPOCHS}
        try:
            yield
        finally:
            context.environment = usual


def give_way_to_epochs() -> None:
    """Lower the priority of this worker process if it belongs to the pool beside the epochs. Further calls do
    nothing."""
    if os.environ.get(VARIABLE) == BESIDE_EPOCHS and hasattr(os, "nice"):
        os.nice(max(0, NICENESS - os.nice(0)))
