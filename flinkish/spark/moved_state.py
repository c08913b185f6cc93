"""Hands the stored tasks of one query of a job to the first epoch of the job's next query.

Unlike the rows of a savepoint, what is handed over is the stored form itself: header (watermarks, idleness, progress of
each origin) and body, for the same subtasks. So the next query goes on exactly where the previous one ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from flinkish.runtime.exchange.buffer import Buffer, BufferHeader, BufferKind, encode
from flinkish.runtime.job.report import Row, TaskHeader
from flinkish.runtime.stored.pickles import dumps, loads
from flinkish.spark.rows import ROW_SCHEMA, to_arrow
from flinkish.spark.state_reader import stored_tasks
from flinkish.spark.worker import Deployment, failures_marked
from flinkish.storage.paths import for_spark

#: Version of the stored form of a task that is moved to another query.
FORMAT_VERSION = 2


@dataclass(frozen=True)
class StoredToBuffers:
    """The function of ``mapInArrow`` that makes a TASK buffer of each stored task."""

    deployment: Deployment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert one partition of the state of a level."""
        with failures_marked(self.deployment.secret):
            for batch in batches:
                yield from to_arrow(self._rows(batch), self.deployment.book(), 1)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        for data, body in zip(batch.column("header").to_pylist(), batch.column("body").to_pylist()):
            job = self.deployment.job()
            stored = TaskHeader.decode(data, f"job '{job.name}'", job.classes)
            header = BufferHeader(BufferKind.TASK, stored.vertex, stored.subtask, 0, "", 0, 0, 0)
            yield stored.vertex, stored.subtask, encode(header, dumps((data, body), FORMAT_VERSION))


def write_moved_state(spark: Any, deployment: Deployment, checkpoint: str, batch: int, levels: int, path: str) -> None:
    """Write the state of a query as of a batch, as rows that the first epoch of another query takes in.

    Args:
        checkpoint: checkpoint directory of the query that has stored the state.
        batch: that query's number of the micro-batch.
        levels: the number of levels behind the sources.
        path: directory of the Parquet files to write. Files that are there are replaced; a job without levels writes
            none.
    """
    frame = None
    for level in range(levels):
        rows = stored_tasks(spark, checkpoint, batch, level).mapInArrow(StoredToBuffers(deployment), ROW_SCHEMA)
        frame = rows if frame is None else frame.unionByName(rows)
    if frame is not None:
        frame.coalesce(deployment.partitions).write.mode("overwrite").parquet(for_spark(path))


class MovedIn(NamedTuple):
    """What a task begins with: its stored header and body (None: none were moved), and the other buffers of the epoch,
    in their order."""

    header: bytes | None
    body: bytes | None
    buffers: Iterator[Buffer]


def moved_in(buffers: Iterable[Buffer]) -> MovedIn:
    """Separate the moved state, if there is any, from the sorted buffers of a task without state of its own.

    The order of buffers puts the moved state first.
    """
    arriving = iter(buffers)
    first = next(arriving, None)
    if first is None or first.header.kind is not BufferKind.TASK:
        return MovedIn(None, None, chain([] if first is None else [first], arriving))
    header, body = loads(first.payload, FORMAT_VERSION, "the moved state of a task")
    return MovedIn(header, body, arriving)
