"""Level 0: a ``mapInArrow`` over each source, and their union.

Sources that Spark reads are decoded in the worker. Generated sources and the calls without data are driven by Spark's
``rate-micro-batch`` stream: one row per split and epoch, replayed with the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from flinkish.core.source import SPLIT_COLUMN, GeneratedSource, RecordDecoder
from flinkish.runtime.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.deployment import VertexDescriptor
from flinkish.runtime.source_task import UNSPLIT, SplitBatch, end_of_source, read_generated
from flinkish.runtime.task import EpochStamp, Row
from flinkish.spark.rows import ROW_SCHEMA, to_arrow
from flinkish.spark.task_place import current_place
from flinkish.spark.worker import Deployment, current_epoch, current_partition, failures_marked

#: Column with the epoch's own time, which Spark keeps when it replays the epoch.
TIME_COLUMN = "__epoch_ms"


def with_time(frame: Any) -> Any:
    """Add the epoch's time in ms, as text: Spark writes a number into the code that it generates, so that each epoch
    would be compiled anew; a text it keeps apart (docs/performance.md)."""
    return frame.withColumn(TIME_COLUMN, F.unix_millis(F.current_timestamp()).cast("string"))


def ticks(spark: Any, rows_per_epoch: int) -> Any:
    """A stream of that many rows per epoch, each in a partition of its own, numbered from 0."""
    stream = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows_per_epoch)
        .option("numPartitions", rows_per_epoch)
        .load()
    )
    return with_time(stream.select(F.col("value")))


def frame_source_rows(frame: Any, deployment: Deployment, vertex: int) -> Any:
    """Rows of a source that Spark reads."""
    return with_time(frame).mapInArrow(FrameSourceFunction(deployment, vertex), ROW_SCHEMA)


def generated_source_rows(
    spark: Any, deployment: Deployment, vertex: VertexDescriptor, first_tick: int, records_per_tick: int
) -> Any:
    """Rows of a generated source."""
    assert isinstance(vertex.source, GeneratedSource)
    function = GeneratedSourceFunction(deployment, vertex.id, vertex.source.splits, first_tick, records_per_tick)
    return ticks(spark, vertex.source.splits).mapInArrow(function, ROW_SCHEMA)


def control_rows(spark: Any, deployment: Deployment, end_of_input: bool, drain: bool = False) -> Any:
    """Calls to channels that need them in each epoch; with ``end_of_input`` the end of all sources that Spark reads,
    and with ``drain`` of generated ones too, which then are no inputs of the query."""
    return ticks(spark, 1).mapInArrow(ControlFunction(deployment, end_of_input, drain), ROW_SCHEMA)


def _stamp(deployment: Deployment, time_ms: str) -> EpochStamp:
    """Of the running task. ``time_ms``: as the column has it."""
    return EpochStamp(current_epoch(deployment), int(time_ms), current_place())


@dataclass(frozen=True)
class FrameSourceFunction:
    """Decodes Arrow batches and runs the source's chain over them."""

    deployment: Deployment
    vertex: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One Spark partition of one epoch."""
        with failures_marked():
            first = next((batch for batch in batches if batch.num_rows), None)
            if first is None:
                return
            self.deployment.begin_task()
            manager, part = self.deployment.task_manager(), current_partition()
            decoder = manager.job.vertex(self.vertex).source
            assert isinstance(decoder, RecordDecoder)
            stamp = _stamp(self.deployment, first.column(TIME_COLUMN)[0].as_py())
            shares = _decoded(decoder, chain([first], batches))
            for rows in manager.run_source(self.vertex, part, shares, part, stamp):
                yield from to_arrow(rows, self.deployment.book(), 1)


def _decoded(decoder: RecordDecoder, batches: Iterator[pa.RecordBatch]) -> Iterator[SplitBatch]:
    for batch in batches:
        names = [name for name in batch.schema.names if name not in (TIME_COLUMN, SPLIT_COLUMN)]
        records = batch.select(names)
        if SPLIT_COLUMN not in batch.schema.names:
            for values, timestamps in decoder.decode_many(records):
                yield SplitBatch(UNSPLIT, values, timestamps)
            continue
        for split, start, length in _runs(batch.column(SPLIT_COLUMN)):
            for values, timestamps in decoder.decode_many(records.slice(start, length)):
                yield SplitBatch(split, values, timestamps)


def _runs(splits: pa.Array) -> Iterator[tuple[str, int, int]]:
    """(split, start, length) of each stretch of equal splits."""
    runs = pc.run_end_encode(splits)
    start = 0
    for split, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist()):
        yield split, start, end - start
        start = end


@dataclass(frozen=True)
class GeneratedSourceFunction:
    """Makes the records of (split, tick) and runs the source's chain over them."""

    deployment: Deployment
    vertex: int
    splits: int
    first_tick: int
    records_per_tick: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One Spark partition of one epoch: one split."""
        with failures_marked():
            self.deployment.begin_task()
            for batch in batches:
                for value, time_ms in zip(batch.column("value").to_pylist(), batch.column(TIME_COLUMN).to_pylist()):
                    yield from self._read(value, _stamp(self.deployment, time_ms))

    def _read(self, value: int, stamp: EpochStamp) -> Iterator[pa.RecordBatch]:
        manager = self.deployment.task_manager()
        source, settings = manager.job.vertex(self.vertex).source, manager.job.settings
        assert isinstance(source, GeneratedSource)
        split, tick = value % self.splits, value // self.splits + self.first_tick
        shares = read_generated(source, [split], tick, self.records_per_tick, settings.source_batch_size)
        for rows in manager.run_source(self.vertex, split, shares, 0, stamp):
            yield from to_arrow(rows, self.deployment.book(), 1)


@dataclass(frozen=True)
class ControlFunction:
    """Calls channels, and ends the sources that Spark reads; with ``drain`` all sources."""

    deployment: Deployment
    end_of_input: bool
    drain: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The control row of one epoch."""
        with failures_marked():
            times = [time_ms for batch in batches for time_ms in batch.column(TIME_COLUMN).to_pylist()]
            if times:
                yield from to_arrow(self._rows(_stamp(self.deployment, times[0])), self.deployment.book(), 1)

    def _rows(self, stamp: EpochStamp) -> Iterator[Row]:
        manager = self.deployment.task_manager()
        for vertex in manager.job.vertices:
            if vertex.level == 1 and vertex.clocked:
                for channel in vertex.channels():
                    header = BufferHeader(BufferKind.HEARTBEAT, vertex.id, channel.number, 0, "", 0, 0, 0)
                    yield vertex.id, channel.number, encode(header, b"")
            if self.end_of_input and self._ends(vertex):
                for rows in manager.run_source(vertex.id, 0, end_of_source(), 0, stamp, drain=self.drain):
                    yield from rows

    def _ends(self, vertex: VertexDescriptor) -> bool:
        return vertex.source is not None and (self.drain or isinstance(vertex.source, RecordDecoder))
