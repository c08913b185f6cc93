"""What must stay the same in the inputs of a job's query from run to run, the positions of its sources, and whether
sources and sinks can go on from there; and the runs of the query by which a job gets to its end.

`Query` remembers how the job's query began: whether it took in a savepoint, and into how many
partitions Spark packs the files of a source that it reads itself. With another packing, a replayed epoch would have its
records in another order and in other subtasks.

Rule: a job goes on with the input that it has read before (`continue_sources`), and behind the last epoch
that its sinks have: in a directory that was put back from an older copy, sinks would take new records for those that
they have.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from flinkish.core.functions import Function
from flinkish.core.sink import DataFrameSink
from flinkish.core.source import Source, SplitSource
from flinkish.errors import FinalOperationError, SparkLostError
from flinkish.jobdir.directory import JobDirectory, QueryLocation
from flinkish.jobdir.layout import Query, Restored
from flinkish.jobdir.query import QueryLog
from flinkish.jobdir.waiting_epoch import continue_sources, known_sources
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.launch.spark_version import plans_with_start
from flinkish.runtime.epoch.commit import check_sinks
from flinkish.runtime.epoch.steps import Backlog, EpochReport
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.sources.job_enumerator import NOTHING_READ, offset_of, progress_in
from flinkish.runtime.sources.progress import StoreIds, encode_position
from flinkish.runtime.sources.split_list import SegmentFiles, SegmentStore
from flinkish.spark.failures import raised_by_spark, translate
from flinkish.spark.plan import PlanOptions, frame_sources
from flinkish.spark.session import is_remote
from flinkish.storage.paths import is_local

#: Spark's settings for packing files into partitions, with the values that a new job directory begins with.
_PACKING = {
    "spark.sql.files.maxPartitionBytes": "134217728",
    "spark.sql.files.openCostInBytes": "4194304",
}
_MIN_PARTITIONS = "spark.sql.files.minPartitionNum"


def keep_packing(directory: JobDirectory, job: JobDescriptor, options: PlanOptions) -> dict[str, str]:
    """The settings for packing files that the job's query began with; a new query begins with the defaults.

    Raises:
        FinalOperationError: the query began with a savepoint, and the file that describes it is missing.
    """
    kept, first_epoch = directory.read(Query), directory.query_location().first_epoch
    if kept is None or kept.query != first_epoch:
        widest = max((vertex.parallelism for vertex in job.vertices if vertex.level == 0), default=1)
        packing, restored = {**_PACKING, _MIN_PARTITIONS: str(widest)}, options.restore_rows is not None
        kept = Query(packing, restored, first_epoch)
        directory.write(kept)
    if kept.restored and options.restore_rows is None:
        raise Restored.missing(directory.path)
    return kept.packing


def source_positions(
    job: JobDescriptor,
    sources: Mapping[int, Source],
    ends: list[str | None],
    store: SegmentStore,
    known: Mapping[str, Mapping[str, str]],
    store_ids: StoreIds | None = None,
) -> dict[str, str]:
    """Source uid -> its position; without the sources that have had nothing to read yet.

    Args:
        ends: the position of each input of the query, as Spark has it; [] before the first epoch.
        known: source uid -> ids of the things that it reads (topic -> its id), which tell them from others of the same
            name.
        store_ids: as for `encode_position`.
    """
    found: dict[str, str] = {}
    inputs = iter(ends)
    offset = offset_of(next(inputs, None), f"job '{job.name}'")
    for vertex, source in sorted(sources.items()):
        uid = job.vertex(vertex).head.uid
        if isinstance(source, SplitSource) and offset != NOTHING_READ:
            progress = progress_in(offset, uid, f"job '{job.name}'")
            found[uid] = encode_position(progress, store, known.get(uid), store_ids)
    for (vertex, _), end in zip(frame_sources(sources), inputs):
        if end is not None:
            found[job.vertex(vertex).head.uid] = end
    return found


def positions_by_uid(
    uids: Sequence[str],
    ends: list[str | None],
    store: SegmentStore,
    known: Mapping[str, Mapping[str, str]],
    where: str,
) -> dict[str, str]:
    """The same of the sources of an earlier program, of which only the uids are known, in their order, and what is in
    the query's log: the split sources by their uids, behind them the others in their order.

    Args:
        ends: as for `source_positions`, without that of the rows with which the query has begun.

    Raises:
        FinalOperationError: it cannot be told which position is whose.
    """
    inputs = iter(ends)
    offset = offset_of(next(inputs, None), where)
    splits = list(offset.get("sources", ()))
    found = {uid: encode_position(progress_in(offset, uid, where), store, known.get(uid)) for uid in splits}
    frames, ends_of_frames = [uid for uid in uids if uid not in splits], list(inputs)
    if any(ends_of_frames) and len(frames) != len(ends_of_frames):
        raise FinalOperationError(
            f"it cannot be told which of the sources {', '.join(frames)} has which position in the query's log",
            where=where,
            hint="take a savepoint with the program as it was, and start this one from it (-s) in a new directory",
        )
    return found | {uid: end for uid, end in zip(frames, ends_of_frames) if end is not None}


class LeftBehind:
    """Finds out what an epoch has left of the sources that Spark reads, as far as they know it. Where the query's
    directory is on an object store they are asked once in ten seconds at most, since each answer may be a request."""

    _REMOTE_EVERY_S = 10.0

    def __init__(self, job: JobDescriptor, sources: Mapping[int, Source]) -> None:
        self._sources = [(job.vertex(vertex).head.uid, source) for vertex, source in frame_sources(sources)]
        self._asked_s = -math.inf
        self._known: dict[str, Backlog] = {}

    def added_to(self, report: EpochReport, location: QueryLocation) -> EpochReport:
        """The report of an epoch with what it has left."""
        every_s = 0.0 if is_local(location.path) else self._REMOTE_EVERY_S
        if self._sources and time.monotonic() - self._asked_s >= every_s:
            self._asked_s, self._known = time.monotonic(), {}
            # an epoch that is committed does not fail since something cannot be shown of it
            with suppress(Exception):
                for (uid, source), end in zip(self._sources, end_offsets(location, report.epoch)[1:]):
                    splits = None if end is None else source.left_behind(end)
                    if splits is not None:
                        self._known[uid] = Backlog(0, splits, source.splits_are, None)
        return replace(report, left=self._known)


def input_has_ended(job: JobDescriptor, sources: Mapping[int, Source], ends: list[str | None]) -> bool:
    """Whether these are the positions behind the epoch in which the last source of a bounded job has ended. The end of
    sources that Spark reads is that of all: an epoch after those with records announces it. ``ends``: as for
    `source_positions`."""
    uids = [job.vertex(vertex).head.uid for vertex, source in sources.items() if isinstance(source, SplitSource)]
    return all_have_ended(offset_of(next(iter(ends), None), f"job '{job.name}'"), uids, bool(frame_sources(sources)))


def all_have_ended(offset: dict[str, Any], uids: Iterable[str], frames: bool) -> bool:
    """Whether all sources have ended by the offset of the split sources, which have these uids. ``frames``: whether
    there are sources that Spark reads."""
    if offset == NOTHING_READ:
        return False
    if frames:
        return bool(offset.get("announce"))
    read = [progress_in(offset, uid, "the query's log") for uid in uids]
    return all(progress.all_assigned and not progress.open for progress in read)


def planned_position(job: JobDescriptor, location: QueryLocation) -> dict[str, Any]:
    """The offset of the split sources at which the next epoch to be planned begins: the end of the newest planned one,
    which Spark runs before it asks for another."""
    log = QueryLog(location.path)
    planned = log.planned()
    return offset_of(log.positions(planned[-1])[0] if planned else None, f"job '{job.name}'")


def end_offsets(location: QueryLocation, epoch: int) -> list[str | None]:
    """The end offset of each input of the plan, as Spark writes it; None for an input that had nothing to read yet."""
    ends = QueryLog(location.path).positions(epoch - location.first_epoch)
    return [None if end == "null" else end for end in ends]


def prepare_sinks(spark: Any, job: JobDescriptor) -> None:
    """Let the sinks that take DataFrames find out what their tasks must know, before the job is sent to the tasks."""
    with _typed_errors(job):
        for sink in job.sinks:
            if isinstance(sink.sink, DataFrameSink):
                sink.sink.prepare(spark)


def check_committed(spark: Any, job: JobDescriptor, directory: JobDirectory, delivered: int | None) -> None:
    """Ask each sink, once per driver, whether it has an epoch that this directory does not know. ``delivered``: the
    last epoch that any sink can have heard of by the directory (`Traces.last_delivered`).

    Raises:
        FinalOperationError: one has, so the directory is older than the job's output.
        ConnectionFailedError: the external system of a sink does not answer.
    """
    # nobody has committed anything under the id of a job that is started for the first time
    if job.attempt == 0 or directory.sinks_checked:
        return
    first_epoch = directory.query_location().first_epoch
    with _typed_errors(job):
        check_sinks(job, max(first_epoch - 1, -1 if delivered is None else delivered), spark)
    directory.sinks_checked = True


@contextmanager
def _typed_errors(job: JobDescriptor) -> Iterator[None]:
    """Inside this context, what Spark raises becomes a typed error: sinks ask their destinations by Spark."""
    try:
        yield
    except Exception as error:
        if not raised_by_spark(error):
            raise
        raise translate(error, f"job '{job.name}', a sink's destination") from error


def check_sources(
    job: JobDescriptor, sources: Mapping[int, Source], directory: JobDirectory, base: PlanOptions
) -> None:
    """Ask each source whether it can go on from the position at which the query will (`continue_sources`)."""
    ends = QueryLog(directory.query_location().path).committed_positions()
    before = known_sources(directory)
    positions = {**base.positions, **source_positions(job, sources, ends, SegmentFiles(directory.path), before)}
    continue_sources(job, sources, directory, positions)


#: A limit this large counts as none.
_UNLIMITED = 2**50

#: How deep functions of the program lie in the engine's own objects at most.
_DEPTH = 6

#: Milliseconds between two checks of whether user code has requested an epoch.
REQUEST_POLL_MS = 50


@dataclass(frozen=True)
class QueryRun:
    """One run of the query. ``available_now``: it ends by itself once it has read all that is there; otherwise it
    begins an epoch every ``interval_ms`` milliseconds."""

    options: PlanOptions
    available_now: bool
    interval_ms: int = 0
    #: whether epochs of this run announce the end of the sources that Spark reads
    announces_end: bool = False
    #: whether an epoch of this run must say that the input has ended, before the run ends by itself
    reaches_end: bool = False

    @property
    def waits(self) -> bool:
        """Whether it waits for the times of its epochs."""
        return self.interval_ms > 0 and not self.available_now

    @property
    def is_to_be_ended(self) -> bool:
        """Whether it has to be ended once it has read all that is there: Spark before 4.2 does not see to that."""
        return self.available_now and not plans_with_start()


class EndCause(Enum):
    """Why a query ends before its next epoch though nobody has asked for that, its input goes on and nothing fails."""

    #: it is to end once it has read all that is there, and it has
    HAS_READ_ALL = "it has read all that is there"
    #: it waited for the time of its next epoch, and is run again
    CLOCK_SET_BACK = "the clock was set back"


@dataclass
class RunningQuery:
    """One query of an attempt while it runs."""

    run: QueryRun
    #: Spark's query; None: it is not started yet
    of_spark: Any = None
    #: why it ends; None: it goes on
    cause: EndCause | None = None
    #: whether its next epoch was not allowed to run, so that it has ended on purpose
    refused: bool = False


def plan_runs(
    job: JobDescriptor,
    sources: Mapping[int, Source],
    settings: DriverSettings,
    base: PlanOptions,
    end_announced: bool,
    input_ended: bool = False,
) -> list[QueryRun]:
    """The runs that are still to be made, in order.

    An unbounded job is one run without end. So is a bounded one that reads a source whose records become due as time
    goes by: it is stopped when its input has ended. Any other bounded job must, after its last data, tell every task
    that the input has ended (watermark MAX, END_OF_INPUT):

    * sources whose splits the engine assigns say so themselves, in the epoch of their last record;
    * sources that Spark reads cannot. If nothing bounds an epoch, all their data comes in one epoch and the end is
      announced in the same one. Otherwise a first run works through all data there is, and a second run of one
      epoch announces the end. The job directory remembers that the second run has begun, so that an epoch that was
      announced as the last one is replayed as the last one.

    Args:
        job: the job graph.
        sources: vertex -> source.
        settings: the driver's settings.
        base: the options of all runs.
        end_announced: the run that announces the end has begun before.
        input_ended: the epoch in which the sources have ended is committed, but the job's end was not reached. No
            further epoch will say that the input has ended, so the run must end by itself.
    """
    if not all(source.bounded for source in sources.values()) or waits_for_records(sources) and not input_ended:
        tasks = [vertex for vertex in job.vertices if vertex.level > 0]
        regular, timed = any(vertex.regular for vertex in tasks), any(vertex.clocked for vertex in tasks)
        interval_ms = settings.heartbeat_interval_ms if regular else settings.epoch_interval_ms
        timers_ms = settings.heartbeat_interval_ms if timed and not regular else 0
        options = replace(base, heartbeat=regular, timers_ms=timers_ms)
        run = QueryRun(options, settings.available_now, interval_ms)
        return [run if frame_sources(sources) else _on_request(run, job)]
    if not frame_sources(sources):
        interval_ms = settings.epoch_interval_ms
        return [
            _on_request(QueryRun(base, input_ended or interval_ms == 0, interval_ms, reaches_end=not input_ended), job)
        ]
    ending = QueryRun(replace(base, end_of_input=True), True, announces_end=True, reaches_end=not input_ended)
    return [ending] if end_announced or _unbounded_epochs(job) else [QueryRun(base, True), ending]


def check_end(spark: Any, run: QueryRun, where: str) -> None:
    """Check a query that has ended without an exception, though nobody has ended it here and nothing has said that the
    input has ended. Spark reports the same when somebody else stops a query, or when its JVM shuts down.

    Raises:
        SparkLostError: Spark has been shut down.
        FinalOperationError: somebody else has stopped the query.
    """
    if not is_remote(spark) and spark.sparkContext._jsc.sc().isStopped():
        raise SparkLostError(
            "Spark was shut down while the job ran",
            where=where,
            hint="start the same job again in a new driver; it goes on from the last committed epoch",
        )
    if run.reaches_end or not run.available_now:
        raise FinalOperationError(
            "the query was stopped, and not by flinkish",
            where=where,
            expected="jobs to be stopped by `flinkish stop` or `flinkish cancel`, or by their JobClient",
            hint="start the same job again; it goes on from the last committed epoch",
        )


def waits_for_records(sources: Mapping[int, Source]) -> bool:
    """Whether a bounded job reads what becomes due as time goes by, and nothing that Spark reads: in such a run nothing
    says that sources that Spark reads have ended."""
    return not frame_sources(sources) and any(isinstance(one, SplitSource) and one.paced for one in sources.values())


def _on_request(run: QueryRun, job: JobDescriptor) -> QueryRun:
    """The run, adapted to user code that may request the next epoch at once, if there is any. Spark cannot be
    interrupted while it waits for the next interval; so it triggers often instead, and the planner of epochs keeps the
    interval. Sources that Spark reads have no part in that: with them, Spark keeps the interval."""
    if run.available_now or run.interval_ms <= REQUEST_POLL_MS or not _may_request(job):
        return run
    return replace(run, options=replace(run.options, interval_ms=run.interval_ms), interval_ms=REQUEST_POLL_MS)


def _may_request(job: JobDescriptor) -> bool:
    """Whether there is an object of a class of the program that is given a context, by which it could request an epoch;
    functions without a class are given none."""
    return any(_may_ask(operator.factory, 0) for vertex in job.vertices for operator in vertex.operators)


def _may_ask(value: Any, depth: int) -> bool:
    if type(value).__module__.split(".")[0] != "flinkish":
        return isinstance(value, Function)
    return depth < _DEPTH and any(_may_ask(part, depth + 1) for part in getattr(value, "__dict__", {}).values())


def _unbounded_epochs(job: JobDescriptor) -> bool:
    limits = job.settings.source_limits(1)
    return limits.max_records >= _UNLIMITED and limits.max_bytes >= _UNLIMITED
