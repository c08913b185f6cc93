"""In which runs of the query a job gets to its end.

An unbounded job is one run without end. A bounded job must, after its last data, tell every channel that the input has
ended (watermark MAX, END_OF_INPUT):

* sources made in the worker say so themselves, in the epoch of their last record;
* sources that Spark reads cannot. If nothing bounds an epoch, all their data comes in one epoch and the end is
  announced in the same one. Otherwise a first run works through all data there is, and a second run of one epoch
  announces the end. That the second run has begun is remembered in the job directory, so that an epoch that was
  announced as the last one is replayed as the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flinkish.core.source import DataFrameSource, GeneratedSource, Source
from flinkish.jobmanager.settings import DriverSettings
from flinkish.runtime.deployment import JobDescriptor
from flinkish.spark.plan import PlanOptions

#: A bound this large is no bound.
_UNLIMITED = 2**50


@dataclass(frozen=True)
class QueryRun:
    """One run of the query. ``available_now``: ends by itself; else every ``interval_ms``."""

    options: PlanOptions
    available_now: bool
    interval_ms: int = 0
    #: epochs of this run announce the end of sources that Spark reads
    announces_end: bool = False


def plan_runs(
    job: JobDescriptor, sources: dict[int, Source], settings: DriverSettings, base: PlanOptions, end_announced: bool
) -> list[QueryRun]:
    """The runs still to be made. ``end_announced``: the second run has begun before."""
    frames = [source for source in sources.values() if isinstance(source, DataFrameSource)]
    generated = [source for source in sources.values() if isinstance(source, GeneratedSource)]
    clocked = any(vertex.clocked and vertex.level > 0 for vertex in job.vertices)
    if not all(source.bounded for source in sources.values()):
        interval = settings.heartbeat_interval_ms if clocked else settings.epoch_interval_ms
        control = clocked and not generated
        return [QueryRun(replace(base, control=control), settings.available_now, interval)]
    if not frames:
        return [
            QueryRun(base, all(_fits_one_tick(source, job, base) for source in generated), settings.epoch_interval_ms)
        ]
    options = replace(base, control=True, whole_sources=True)
    last = replace(options, end_of_input=True)
    if _unbounded_epochs(job):
        return [QueryRun(replace(last, unlimited=True), True, announces_end=True)]
    ending = QueryRun(last, True, announces_end=True)
    return [ending] if end_announced else [QueryRun(options, True), ending]


def _unbounded_epochs(job: JobDescriptor) -> bool:
    return job.settings.max_records_per_epoch >= _UNLIMITED and job.settings.max_bytes_per_epoch >= _UNLIMITED


def _fits_one_tick(source: GeneratedSource, job: JobDescriptor, base: PlanOptions) -> bool:
    size, most = source.size, base.records_per_tick or job.settings.max_records_per_epoch
    return size is not None and -(-size // source.splits) <= most
