"""The Spark plan of a job: the union of its sources, then one stateful stage per level."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from flinkish.core.source import DataFrameSource, SourceLimits
from flinkish.errors import InternalError
from flinkish.runtime.buffer import BufferKind
from flinkish.runtime.deployment import JobDescriptor
from flinkish.spark.level_stage import level_rows
from flinkish.spark.rows import ROW_SCHEMA
from flinkish.spark.source_stage import control_rows, frame_source_rows, generated_source_rows
from flinkish.spark.worker import Deployment

#: Of rows from files: records of other tasks are pickles that are read as they are, and never come from there.
_HOLDS_STATE = (
    f"CASE WHEN hex(substring(buffer, 2, 1)) IN ('{BufferKind.STATE:02X}', '{BufferKind.CHANNEL:02X}') THEN true "
    "ELSE raise_error('a row of a savepoint holds something other than state') END"
)


@dataclass(frozen=True)
class FirstTick:
    """Where a generated source goes on after a restore, and the most records that a tick of a split has."""

    tick: int
    records: int


#: No tick is larger: everything in one epoch.
WHOLE_SOURCE_RECORDS = 2**62


@dataclass(frozen=True)
class PlanOptions:
    """How one run of the query differs from another run of the same job."""

    #: the epochs of this run carry the end of the sources that Spark reads
    end_of_input: bool = False
    #: generated sources give everything in one epoch
    whole_sources: bool = False
    #: no bound on what an epoch takes in
    unlimited: bool = False
    #: channels must be called without data, or ends be announced
    control: bool = False
    #: most records of a split in one tick; None: as many as an epoch may have
    records_per_tick: int | None = None
    #: vertex -> where its generated source goes on (after a restore)
    first_ticks: dict[int, FirstTick] = field(default_factory=dict)
    #: vertex -> offsets to start from (after a restore)
    start_offsets: dict[int, str] = field(default_factory=dict)
    #: directory with the rows of a savepoint to take in, or None
    restore_rows: str | None = None
    #: no source is read any more, generated ones included; ``end_of_input`` ends them all
    drain: bool = False


def build_plan(
    spark: Any, job: JobDescriptor, sources: dict[int, Any], deployment: Deployment, options: PlanOptions
) -> Any:
    """The streaming DataFrame whose rows are what leaves the job. ``sources``: vertex -> Source, as in the program."""
    inputs = [
        _source_rows(spark, job, vertex_id, source, deployment, options)
        for vertex_id, source in sorted(sources.items())
    ]
    if options.control:
        inputs.append(control_rows(spark, deployment, options.end_of_input, options.drain))
    if options.restore_rows is not None:
        # the whole directory is one file source: taken in by the first epoch, never again
        rows = spark.readStream.schema(ROW_SCHEMA).parquet(options.restore_rows)
        # those without a channel tell of the savepoint, not to the job
        inputs.append(rows.where("vertex >= 0").where(_HOLDS_STATE))
    if not inputs:
        raise InternalError("a job without sources", hint="please report this")
    frame = reduce(lambda left, right: left.unionByName(right), inputs)
    for level in range(1, job.levels + 1):
        frame = level_rows(frame, deployment, level)
    return frame


def first_tick(job: JobDescriptor, vertex_id: int, options: PlanOptions) -> FirstTick:
    """The first tick of a generated source in this query, and the size of all its ticks."""
    if vertex_id in options.first_ticks:
        return options.first_ticks[vertex_id]
    if options.whole_sources:
        return FirstTick(0, WHOLE_SOURCE_RECORDS)
    return FirstTick(0, options.records_per_tick or job.settings.max_records_per_epoch)


def _source_rows(
    spark: Any, job: JobDescriptor, vertex_id: int, source: Any, deployment: Deployment, options: PlanOptions
) -> Any:
    vertex = job.vertex(vertex_id)
    if not isinstance(source, DataFrameSource):
        first = first_tick(job, vertex_id, options)
        return generated_source_rows(spark, deployment, vertex, first.tick, first.records)
    settings = job.settings
    unbounded = 2**62
    limits = SourceLimits(
        max_records=unbounded if options.unlimited else settings.max_records_per_epoch,
        max_bytes=unbounded if options.unlimited else settings.max_bytes_per_epoch,
        batch_size=settings.source_batch_size,
    )
    frame = source.load(spark, limits, options.start_offsets.get(vertex_id))
    return frame_source_rows(frame, deployment, vertex_id)
