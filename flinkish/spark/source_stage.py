"""Runs level 0 for sources that Spark reads itself: a ``mapInArrow`` over the source's DataFrame, in which the source's
chain runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from flinkish.core.source import RecordDecoder
from flinkish.runtime.epoch.planner import ReachedWatermarks
from flinkish.runtime.sources.alignment import keeps_watermarks
from flinkish.runtime.task.source_task import UNSPLIT, SourceInput, SplitBatch
from flinkish.runtime.task.task import EpochStamp
from flinkish.runtime.task.task_manager import TaskManager
from flinkish.spark.rows import ROW_SCHEMA, to_arrow
from flinkish.spark.task_place import current_place
from flinkish.spark.worker import Deployment, current_epoch, current_partition

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
                _decoded(decoder, chain([first], batches)), part, states=self._states(manager, stamp.epoch)
            )
            rows = chain.from_iterable(manager.run_source(self.vertex, part, given, stamp))
            yield from to_arrow(rows, self.deployment.book(), 1)

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
