"""The Python data source of a job's query. It holds all sources whose splits flinkish assigns, and it calls the tasks
that must be called without data.

Spark keeps the data source's offsets in the query's own log and writes them before the epoch runs; a replay asks for
the partitions between two logged offsets, whatever the cluster looks like by then. A partition is a subtask of a
source (or several, with ``flinkish.spark.partitions``), in every epoch, and the source's chain runs where the partition
is read.

Rule: Spark makes the reader in several processes, and pickles it, so the reader does nothing until it is asked for an
offset.
"""

from __future__ import annotations

import builtins
import logging
import math
import pickle
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import FunctionType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from flinkish.common.logger_levels import configure_loggers
from flinkish.core.source import RecordDecoder
from flinkish.errors import escaped
from flinkish.launch.daemon import quiet_this_worker
from flinkish.launch.spark_version import trigger_available_now
from flinkish.runtime.epoch.planner import (
    EpochRequested,
    GivenUpPlan,
    PendingTimers,
    ReachedWatermarks,
    StoredEpochTimes,
)
from flinkish.runtime.epoch.steps import EpochReport
from flinkish.runtime.job.deployment import VertexDescriptor
from flinkish.runtime.job.report import Row
from flinkish.runtime.phases import SystemClock
from flinkish.runtime.sources.job_enumerator import NOTHING_READ, JobEnumerator
from flinkish.runtime.sources.progress import SourceShare, decode_position
from flinkish.runtime.sources.sizer import EpochTimes
from flinkish.runtime.sources.split_list import SegmentFiles
from flinkish.runtime.task.source_task import end_of_source
from flinkish.runtime.task.task import EpochStamp, Waits, heartbeats
from flinkish.runtime.task.task_manager import TaskManager
from flinkish.spark.data_files import ROW_SCHEMA, to_arrow
from flinkish.spark.executors import register_data_source
from flinkish.spark.place import current_place
from flinkish.spark.worker import Deployment, current_epoch, failures_marked
from flinkish.storage.paths import is_local

_LOG = logging.getLogger("flinkish.JobMaster")

#: How often requests of user code for the next epoch are looked for where each look is a request to the storage, in
#: seconds.
_ASK_REMOTE_S = 1.0


@dataclass(frozen=True)
class SourceQuery:
    """What the data source of one query must know.

    Args:
        deployment: the job.
        job_dir: the job directory, where long lists of splits are kept.
        heartbeat: an epoch is planned at each trigger, even without data.
        end_of_input: the first epoch that is planned announces the end of the sources that Spark reads.
        drain: that epoch announces the end of all sources, and none is read any more.
        positions: uid -> the source's position in the savepoint that the query begins with.
        interval_ms: least time between two epochs in ms, unless user code requests one; 0: Spark keeps the interval.
        begins_at: the offset at which the next epoch to be planned begins. Only Spark 4.2 and later say that.
        frozen: only what is there at the start of the query is read. Spark 4.2 and later ask for that themselves.
        archive: name of the archive of flinkish in the session's files, if tasks of data sources do not find it there.
        timers_ms: how often to look whether a processing-time timer is due, in ms; 0: never.
    """

    deployment: Deployment
    job_dir: str
    heartbeat: bool = False
    end_of_input: bool = False
    drain: bool = False
    positions: dict[str, str] = field(default_factory=dict)
    interval_ms: int = 0
    begins_at: dict[str, Any] = field(default_factory=dict)
    frozen: bool = False
    archive: str = ""
    timers_ms: int = 0


@dataclass(frozen=True)
class ControlShare:
    """The share of an epoch that reads nothing: it calls tasks, and announces the end of sources.

    Args:
        time_ms: the epoch's processing time, in ms since 1970.
        call: call the tasks that must be called in each epoch.
        announce: announce the end of the sources that Spark reads.
        drain: together with ``announce``: announce the end of all sources.
    """

    time_ms: int
    call: bool
    announce: bool
    drain: bool


class SourceStreamReader(DataSourceStreamReader, trigger_available_now()):  # type: ignore[misc]
    """Plans the epochs of a query in a process beside the driver, and reads their shares in the workers."""

    def __init__(self, query: SourceQuery) -> None:
        self._query = query
        self._planning: JobEnumerator | None = None
        self._available_now = query.frozen
        self._called = False
        #: the offset that was returned last, with which Spark before 4.2 does not call the reader
        self._end = query.begins_at
        #: when an epoch was looked for last (in s of the monotonic clock), and the newest request that was known then
        self._looked_s = -math.inf
        self._request = -1
        #: the newest request that was read, and when to read it again (in s of the monotonic clock)
        self._newest_request, self._ask_at_s = -1, -math.inf
        #: when to look whether a timer is due, in s of the monotonic clock; None: nothing is known of timers yet
        self._timers_at_s: float | None = None
        #: the last epoch that was asked for, and its times
        self._times: tuple[int, EpochTimes | None] = (0, None)

    # ------------------------------------------------------------------ beside the driver

    def initialOffset(self) -> dict[str, Any]:
        """The offset of a query that has read nothing. Spark asks for it twice, and does not keep it."""
        return NOTHING_READ

    def prepareForTriggerAvailableNow(self) -> None:
        """Read the data that is there now, then end (``Trigger.AvailableNow``)."""
        self._available_now = True
        self._enumerator().freeze()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """The offset at which the next epoch ends; ``start`` if there is no next epoch. Spark before 4.2 passes none,
        but asks only when the epoch before is committed, so that the offset that was returned last is the start.
        ``limit`` is not used: flinkish keeps its own limits on an epoch."""
        self._end = self._next_offset(self._end if start is None else start)
        return self._end

    def _next_offset(self, start: dict[str, Any]) -> dict[str, Any]:
        query = self._query
        with failures_marked(query.deployment.secret):
            if query.interval_ms and not self._is_due():
                return start
            forced = query.heartbeat and not (self._available_now and self._called)
            timer_due = not (self._available_now and self._called) and self._timer_is_due()
            self._called = True
            announce = query.end_of_input and not start.get("announce", False)
            enumerator, files = self._enumerator(), query.deployment.files
            reached = ReachedWatermarks(files.query).read() if enumerator.learns and files is not None else None
            end = enumerator.next_offset(start, forced or timer_due, announce, reached, self._times_of(start))
            return {**end, "call": True} if timer_due else end

    def _timer_is_due(self) -> bool:
        """Whether an epoch must be planned because a processing-time timer is due, which may wait in any task. At first
        it is not known which timers there are: then an epoch calls all tasks that may have some, and they tell."""
        query, files, now_s = self._query, self._query.deployment.files, time.monotonic()
        if not query.timers_ms or files is None:
            return False
        at_s, self._timers_at_s = self._timers_at_s, now_s + query.timers_ms / 1000
        if at_s is None:
            return True
        if now_s < at_s:
            self._timers_at_s = at_s
            return False
        earliest_ms = PendingTimers(files.planner).earliest()
        return earliest_ms is not None and earliest_ms <= SystemClock().now_ms()

    def _times_of(self, start: dict[str, Any]) -> EpochTimes | None:
        """How long the epoch that ended with ``start`` has taken. Spark asks for the next offset many times a second
        while there is nothing to read; the file is read for the first of these calls."""
        files, epoch = self._query.deployment.files, start.get("epoch", 0)
        if files is not None and self._enumerator().sized and epoch != self._times[0]:
            found = StoredEpochTimes.read(files.planner)
            self._times = epoch, None if found is None else found.times
        return self._times[1]

    def _is_due(self) -> bool:
        """Whether it is time for an epoch: the interval is over, or user code has requested an epoch since the last
        one was looked for."""
        files, now_s = self._query.deployment.files, time.monotonic()
        if files is not None and now_s >= self._ask_at_s:
            self._newest_request = (EpochRequested.read(files.planner) or EpochRequested(-1)).epoch
            self._ask_at_s = now_s if is_local(files.planner) else now_s + _ASK_REMOTE_S
        request = self._newest_request
        if now_s - self._looked_s < self._query.interval_ms / 1000 and request <= self._request:
            return False
        self._looked_s, self._request = now_s, max(request, self._request)
        return True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions of the epoch between two offsets: the `SourceShare` of each subtask of each source (even one
        that reads nothing), and a `ControlShare` if tasks must be called or the end of sources is announced. Each
        partition is a list of shares, which are read one after the other."""
        query = self._query
        if start == end:
            return []
        with failures_marked(query.deployment.secret):
            enumerator = self._enumerator()
            found: list[Any] = in_partitions(enumerator.shares(start, end), enumerator.most_partitions)
        call = query.heartbeat or end.get("call", False)
        if call or end["announce"]:
            found.append([ControlShare(end["time_ms"], call, end["announce"], query.drain)])
        return [InputPartition(shares) for shares in found]

    def _enumerator(self) -> JobEnumerator:
        if self._planning is None:
            query, deployment = self._query, self._query.deployment
            job, store = deployment.unpickled_job(), SegmentFiles(query.job_dir, deployment.fence)
            configure_loggers(job.settings.configuration)
            restored = {uid: decode_position(text, uid, store) for uid, text in query.positions.items()}
            if query.drain:
                # a drain reads no source any more
                job = _without_sources(job)
            directory = posixpath.join(query.job_dir, "sources")
            files = deployment.files
            given_up = (None if files is None else GivenUpPlan.read(files.query)) or GivenUpPlan({})
            self._planning = JobEnumerator(job, store, SystemClock(), restored, directory, given_up.offset)
            if query.frozen:
                self._planning.freeze()
        return self._planning

    def stop(self) -> None:
        """Close the enumerators; Spark calls this when the query has ended."""
        if self._planning is not None:
            self._planning.close()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _reduced_for_worker(SourceStreamReader, self._query)

    # ------------------------------------------------------------------ in a worker

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run the shares of one partition in one epoch. Yields the rows that leave them, as Arrow batches."""
        deployment = self._query.deployment
        with deployment.failures_marked():
            deployment.begin_task()
            manager = deployment.task_manager()
            epoch, place, waits = current_epoch(deployment), current_place(), Waits()
            stamps = (EpochStamp(epoch, share.time_ms, place, waits) for share in partition.value)
            rows = (_rows_of(manager, share, stamp) for share, stamp in zip(partition.value, stamps))
            yield from waits.for_output(to_arrow(chain.from_iterable(rows), deployment.book(), 1))


def in_partitions(shares: Iterable[SourceShare], most: int | None) -> list[list[SourceShare]]:
    """The shares of an epoch, one in a partition; or, if a source may have ``most`` partitions, each in that of its
    subtask modulo this number.

    >>> shares = [SourceShare(0, subtask, 0) for subtask in range(3)]
    >>> [[share.subtask for share in partition] for partition in in_partitions(shares, 2)]
    [[0, 2], [1]]
    """
    found: dict[tuple[int, int], list[SourceShare]] = {}
    for share in shares:
        place = share.subtask if most is None else share.subtask % most
        found.setdefault((share.vertex, place), []).append(share)
    return list(found.values())


def _rows_of(manager: TaskManager, share: SourceShare | ControlShare, stamp: EpochStamp) -> Iterator[Row]:
    if isinstance(share, ControlShare):
        return _control_rows(manager, share, stamp)
    return chain.from_iterable(manager.run_source(share.vertex, share.subtask, share, stamp))


def _without_sources(job: Any) -> Any:
    from dataclasses import replace

    return replace(job, vertices=tuple(replace(vertex, source=None) for vertex in job.vertices))


def _control_rows(manager: TaskManager, share: ControlShare, stamp: EpochStamp) -> Iterator[Row]:
    if share.call:
        yield from heartbeats(manager.job)
    for vertex in manager.job.vertices:
        if share.announce and _is_ended(vertex, share.drain):
            for rows in manager.run_source(vertex.id, 0, end_of_source(), stamp, drain=share.drain):
                yield from rows


def _is_ended(vertex: VertexDescriptor, drain: bool) -> bool:
    return vertex.source is not None and (drain or isinstance(vertex.source, RecordDecoder))


class _SourcesOfAJob(DataSource):
    """The data source that Spark registers. It is subclassed for each query, so that the query's `SourceQuery` travels
    with the class."""

    query: SourceQuery

    def __init__(self, options: Any) -> None:
        quiet_this_worker()

    @classmethod
    def name(cls) -> str:
        return source_name(cls.query)

    def schema(self) -> str:
        return ROW_SCHEMA

    def streamReader(self, schema: Any) -> SourceStreamReader:
        quiet_this_worker()
        return SourceStreamReader(self.query)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _reduced_for_worker(_data_source, self.query)


def _data_source(query: SourceQuery) -> DataSource:
    return _class_of(query)({})


def _class_of(query: SourceQuery) -> type[_SourcesOfAJob]:
    # a class that is in no module is pickled as a whole, with its attributes
    return type("FlinkishSources", (_SourcesOfAJob,), {"query": query})


def _reduced_for_worker(
    build: Callable[[SourceQuery], Any], query: SourceQuery
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """How a worker unpickles an object that is made of a query.

    Under Spark Connect the tasks of a data source do not have the session's Python files on their path: Spark looks for
    them in the folder of all sessions. So the object brings a function, pickled as a whole, that finds flinkish there
    before anything of flinkish is unpickled.
    """
    if not query.archive:
        return build, (query,)
    # a function that is in no module is pickled as a whole
    return FunctionType(_import_and_rebuild.__code__, {"__builtins__": builtins}), (
        query.archive,
        pickle.dumps((build, query)),
    )


def _import_and_rebuild(archive: str, pickled: bytes) -> Any:
    import glob
    import os
    import pickle
    import sys

    from pyspark import SparkFiles

    folder = glob.escape(os.path.abspath(SparkFiles.getRootDirectory()))
    sys.path[:0] = [path for path in glob.glob(os.path.join(folder, "*", archive))[:1] if path not in sys.path]
    build, query = pickle.loads(pickled)
    return build(query)


def source_name(query: SourceQuery) -> str:
    """The name under which a query's data source is registered in the session."""
    return f"flinkish-{query.deployment.job_id}"


def source_rows(spark: Any, query: SourceQuery) -> Any:
    """The streaming DataFrame with the rows of all sources that are read split by split, as `ROW_SCHEMA`."""
    register_data_source(spark, _class_of(query))
    return spark.readStream.format(source_name(query)).load()


class RecordsInProgress:
    """Has Spark's progress of a query (``numInputRows``, the rates, every StreamingQueryListener) count the records
    that the data source has read in an epoch. Spark itself counts the source's rows, which are buffers.

    Args:
        job: name of the job, for the log.
    """

    def __init__(self, spark: Any, job: str) -> None:
        self._spark = spark
        self._job = job
        self._is_possible = True

    def show(self, report: EpochReport) -> None:
        """Show the records of an epoch. To be called by the thread that runs it, before Spark makes the progress.

        Spark takes the number of rows from a metric of the first leaf of the epoch's plan, and nothing else reads it.
        Where Spark's inner classes are others, the progress counts buffers, which is logged once.
        """
        if not self._is_possible:
            return
        try:
            query = self._spark.streams.get(self._spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
            leaf = query._jsq.streamingQuery().lastExecution().executedPlan().collectLeaves().head()
            metric = leaf.metrics().get("numOutputRows")
            if metric.isDefined():
                metric.get().set(report.split_records_in)
        except Exception as error:
            self._is_possible = False
            _LOG.info("job '%s': numInputRows of Spark's progress counts buffers: %s", self._job, escaped(str(error)))
