"""Plans the runs of the query by which a job gets to its end.

An unbounded job is one run without end. So is a bounded one that reads a source whose records become due as time goes
by: it is stopped when its input has ended. Any other bounded job must, after its last data, tell every task that the
input has ended (watermark MAX, END_OF_INPUT):

* sources whose splits the engine assigns say so themselves, in the epoch of their last record;
* sources that Spark reads cannot. If nothing bounds an epoch, all their data comes in one epoch and the end is
  announced in the same one. Otherwise a first run works through all data there is, and a second run of one epoch
  announces the end. The job directory remembers that the second run has begun, so that an epoch that was announced as
  the last one is replayed as the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flinkish.core.functions import Function
from flinkish.core.source import Source, SplitSource
from flinkish.errors import FinalOperationError, SparkLostError
from flinkish.jobmanager.job.settings import DriverSettings
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.spark.plan import PlanOptions, frame_sources
from flinkish.spark.session import is_remote

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


def plan_runs(
    job: JobDescriptor,
    sources: Mapping[int, Source],
    settings: DriverSettings,
    base: PlanOptions,
    end_announced: bool,
    input_ended: bool = False,
) -> list[QueryRun]:
    """The runs that are still to be made, in order.

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
