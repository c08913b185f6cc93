"""The Spark plan of a job: the union of its sources, then one stateful stage per level. A source that Spark reads
itself runs its chain in a ``mapInArrow`` over its DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F

from flinkish.core.source import DataFrameSource, RecordDecoder, Source
from flinkish.runtime.epoch.planner import ReachedWatermarks
from flinkish.runtime.exchange.buffer import Buffer, BufferKind, decode, place
from flinkish.runtime.job.deployment import JobDescriptor
from flinkish.runtime.job.report import Row
from flinkish.runtime.sources.alignment import keeps_watermarks
from flinkish.runtime.task.source_task import UNSPLIT, SourceInput, SplitBatch
from flinkish.runtime.task.task import EpochStamp
from flinkish.runtime.task.task_manager import StoredTask, TaskManager
from flinkish.spark.data_files import ROW_SCHEMA, STATE_SCHEMA, VERIFY_PAGES, to_arrow
from flinkish.spark.place import current_place
from flinkish.spark.session import archive_for_sources
from flinkish.spark.split_source import SourceQuery, source_rows
from flinkish.spark.state import moved_in
from flinkish.spark.state_files import delete_state_of_failed_try
from flinkish.spark.worker import Deployment, current_epoch, current_partition
from flinkish.storage.paths import for_spark

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState


def level_rows(frame: Any, deployment: Deployment, level: int) -> Any:
    """Run a level over the rows addressed to it: one ``groupBy(address).applyInPandasWithState`` for all its vertices.

    Returns the rows that leave the level, addressed to the next one, as a DataFrame of `ROW_SCHEMA`.
    """
    # a real projection before the grouping: without it a second stateful operator in the query fails with
    # "ColumnarBatchRow cannot be cast to UnsafeRow"
    addressed = frame.withColumn("address", F.expr("address & 2147483647"))
    # the grouping needs an exchange and a sort in any case: this sort also puts the buffers of each task in order
    arrived = addressed.repartition(deployment.partitions, "address").sortWithinPartitions("address", "buffer")
    return arrived.groupBy("address").applyInPandasWithState(
        LevelFunction(deployment, level), ROW_SCHEMA, STATE_SCHEMA, "append", "NoTimeout"
    )


@dataclass(frozen=True)
class LevelFunction:
    """The function of ``applyInPandasWithState``: one call runs one task in one epoch, or passes on rows in transit."""

    deployment: Deployment
    level: int

    def __call__(self, key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        """Run the task, or let rows in transit pass."""
        with self.deployment.failures_marked():
            begins = self.deployment.begin_task()
            if begins:
                self._begin()
            target = self.deployment.book().target(self.level, key[0])
            if target is None:
                for frame in frames:
                    yield self._readdressed(frame)
                return
            rows = self._run(target, frames, state)
            if rows:
                yield self._frame(rows)
            if begins:
                self.deployment.task_manager().update_standby_tasks_aside(current_epoch(self.deployment))

    def _begin(self) -> None:
        """At the beginning of a Spark task, delete what a failed try of it has left, and name the standby tasks."""
        epoch, manager = current_epoch(self.deployment), self.deployment.task_manager()
        if self.deployment.files is not None:
            # Spark numbers the stateful operators of a plan from its end
            operator = manager.job.levels - self.level
            delete_state_of_failed_try(self.deployment.files, operator, epoch - self.deployment.first_epoch, epoch)
        replicas = manager.job.settings.standby_replicas
        if replicas:
            manager.keep_standby(self.deployment.book().standby_tasks(self.level, current_partition(), replicas))

    def _run(self, target: tuple[int, int], frames: Iterator[pd.DataFrame], state: GroupState) -> list[Row]:
        header, body = state.get if state.exists else (None, None)
        context = TaskContext.get()
        stamp = EpochStamp(current_epoch(self.deployment), state.getCurrentProcessingTimeMs(), current_place())
        buffers = arriving(stamp.waits.for_input(frames), 0 if context is None else context.attemptNumber())
        if header is None:
            header, body, buffers = moved_in(buffers)
        stored = StoredTask(header, lambda: body)
        manager = self.deployment.task_manager()
        result, rows = manager.run_task(*target, stored, buffers, stamp)
        if result is not None:
            header = result.header.encode(manager.job.classes)
            state.update((header, result.body if result.body_written else body))
        elif not state.exists:
            # the task had finished in the query that its state was moved from
            state.update((header, body))
        return rows

    def _readdressed(self, frame: pd.DataFrame) -> pd.DataFrame:
        book, level = self.deployment.book(), self.level + 1
        frame["address"] = [book.address(level, *place) for place in zip(frame["vertex"], frame["subtask"])]
        columns: pd.DataFrame = frame[["address", "vertex", "subtask", "buffer"]]
        return columns

    def _frame(self, rows: list[Row]) -> pd.DataFrame:
        import pandas as pd

        book = self.deployment.book()
        addresses = [book.address(self.level + 1, vertex, subtask) for vertex, subtask, _ in rows]
        vertices, subtasks, buffers = zip(*rows)
        columns = {"address": addresses, "vertex": vertices, "subtask": subtasks, "buffer": buffers}
        made: pd.DataFrame = pd.DataFrame(columns)
        return made


def arriving(frames: Iterator[pd.DataFrame], attempt: int) -> Iterator[Buffer]:
    """The buffers of a task in their order. The first attempt takes them as they come from Spark, which has sorted
    them, and holds none of them; later attempts sort them here, since the reason of the failure may have been that the
    rows did not come sorted.

    Args:
        attempt: Spark's number of the attempt, from 0: how often the Spark task has failed before.
    """
    buffers = (decode(data) for frame in frames for data in frame["buffer"] if data is not None)
    return iter(sorted(buffers, key=lambda buffer: place(buffer.header))) if attempt else buffers


#: Name of the column with the epoch's processing time in ms, as text. Spark keeps that time when it replays the epoch.
TIME_COLUMN = "__epoch_ms"


def with_time(frame: Any) -> Any:
    """Add the column `TIME_COLUMN`. It is text, since Spark writes a number into the code that it generates, so that
    the code would be compiled again for each epoch; it passes a text to the code from outside (docs/performance.md)."""
    return frame.withColumn(TIME_COLUMN, F.unix_millis(F.current_timestamp()).cast("string"))


def frame_source_rows(frame: Any, deployment: Deployment, vertex: int, parallelism: int) -> Any:
    """The rows that leave the chain of a source that Spark reads, made in at most ``parallelism`` Spark tasks."""
    return with_time(frame).coalesce(parallelism).mapInArrow(FrameSourceFunction(deployment, vertex), ROW_SCHEMA)


@dataclass(frozen=True)
class FrameSourceFunction:
    """The function of ``mapInArrow`` that decodes the records of a source and runs the source's chain over them."""

    deployment: Deployment
    vertex: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the chain over one Spark partition of one epoch. An empty partition runs nothing."""
        with self.deployment.failures_marked():
            first = next((batch for batch in batches if batch.num_rows), None)
            if first is None:
                return
            self.deployment.begin_task()
            manager, part = self.deployment.task_manager(), current_partition()
            decoder = manager.job.vertex(self.vertex).source
            assert isinstance(decoder, RecordDecoder)
            time_ms = int(first.column(TIME_COLUMN)[0].as_py())
            stamp = EpochStamp(current_epoch(self.deployment), time_ms, current_place())
            given = SourceInput(
                _decoded(decoder, chain([first], stamp.waits.for_input(batches))),
                part,
                states=self._states(manager, stamp.epoch),
            )
            rows = chain.from_iterable(manager.run_source(self.vertex, part, given, stamp))
            yield from stamp.waits.for_output(to_arrow(rows, self.deployment.book(), 1))

    def _states(self, manager: TaskManager, epoch: int) -> Mapping[str, Any]:
        """What the epochs before this one have left of the watermarks of the source, where its functions see them."""
        vertex, files = manager.job.vertex(self.vertex), self.deployment.files
        if files is None or not keeps_watermarks(vertex):
            return {}
        return ReachedWatermarks(files.query).read(before=epoch).states.get(vertex.head.uid, {})


def _decoded(decoder: RecordDecoder, batches: Iterator[pa.RecordBatch]) -> Iterator[SplitBatch]:
    for batch in batches:
        names = [name for name in batch.schema.names if name != TIME_COLUMN]
        values, timestamps = decoder.decode(batch.select(names))
        yield SplitBatch(UNSPLIT, values, timestamps)


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
