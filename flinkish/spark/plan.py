"""The Spark plan of a job: the union of its sources, then one stateful stage per level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from flinkish.core.source import DataFrameSource, Source
from flinkish.runtime.exchange.buffer import BufferKind
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.spark.data_files import VERIFY_PAGES
from flinkish.spark.level_stage import level_rows
from flinkish.spark.rows import ROW_SCHEMA
from flinkish.spark.session import archive_for_sources
from flinkish.spark.source_stage import frame_source_rows
from flinkish.spark.split_source import SourceQuery, source_rows
from flinkish.spark.worker import Deployment
from flinkish.storage.paths import for_spark

#: SQL condition for rows from the files of a savepoint: they hold state and nothing else. Buffers of records are
#: pickles that are read as they are; they must never come from such files.
_HOLDS_STATE = (
    f"CASE WHEN hex(substring(buffer, 2, 1)) IN ('{BufferKind.STATE:02X}', '{BufferKind.TASK:02X}') THEN true "
    "ELSE raise_error('a row of a savepoint holds something other than state') END"
)


@dataclass(frozen=True)
class PlanOptions:
    """How one run of the query differs from another run of the same job."""

    #: the first epoch of this run announces the end of the sources that Spark reads
    end_of_input: bool = False
    #: some tasks must be called in each epoch, even without data, so an epoch is planned at each trigger
    heartbeat: bool = False
    #: uid of a source -> its position in the savepoint that the query begins with
    positions: dict[str, str] = field(default_factory=dict)
    #: directory with the rows of a savepoint to take in, or None
    restore_rows: str | None = None
    #: no source is read any more, and ``end_of_input`` announces the end of all sources
    drain: bool = False
    #: least time between two epochs in ms, kept by the process that plans epochs, which plans one at once if user code
    #: requests it; 0: Spark keeps the interval
    interval_ms: int = 0
    #: least time in ms between two looks at whether a processing-time timer is due, for which an epoch is planned even
    #: without data; 0: nobody looks, since there are none or `heartbeat` is set
    timers_ms: int = 0
    #: see `SourceQuery`
    begins_at: dict[str, Any] = field(default_factory=dict)
    frozen: bool = False


def frame_sources(sources: Mapping[int, Source]) -> list[tuple[int, DataFrameSource]]:
    """The sources that Spark reads itself, as (vertex, source), in the order in which they are inputs of the query. The
    query has one input before them, which holds all other sources."""
    return [(vertex, source) for vertex, source in sorted(sources.items()) if isinstance(source, DataFrameSource)]


def build_plan(
    spark: Any,
    job: JobDescriptor,
    sources: Mapping[int, Source],
    deployment: Deployment,
    options: PlanOptions,
    job_dir: str,
) -> Any:
    """The streaming DataFrame of a job: its rows (`ROW_SCHEMA`) are reports, committables and changes of state.

    Args:
        sources: vertex -> Source, as in the program.
        deployment: the job, as it travels to the workers.
        options: what is special about this run of the query.
        job_dir: the job directory.
    """
    query = SourceQuery(
        deployment,
        job_dir,
        options.heartbeat,
        options.end_of_input,
        options.drain,
        dict(options.positions),
        options.interval_ms,
        options.begins_at,
        options.frozen,
        archive_for_sources(spark),
        options.timers_ms,
    )
    inputs = [source_rows(spark, query)]
    for vertex, source in frame_sources(sources):
        descriptor = job.vertex(vertex)
        limits = job.settings.source_limits(descriptor.parallelism)
        frame = source.load(spark, limits, options.positions.get(descriptor.head.uid))
        inputs.append(frame_source_rows(frame, deployment, vertex, descriptor.parallelism))
    if options.restore_rows is not None:
        # the whole directory is one file source: the first epoch takes it in, no later one does
        reader = spark.readStream.schema(ROW_SCHEMA).option(*VERIFY_PAGES)
        rows = reader.parquet(for_spark(options.restore_rows))
        # rows without a vertex describe the savepoint and are not for the job
        inputs.append(rows.where("vertex >= 0").where(_HOLDS_STATE))
    frame = reduce(lambda left, right: left.unionByName(right), inputs)
    for level in range(1, job.levels + 1):
        frame = level_rows(frame, deployment, level)
    return frame
