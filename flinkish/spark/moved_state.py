"""Tasks as one query of a job has stored them, handed to the first epoch of its next query.

Unlike the rows of a savepoint this is the stored form itself: header (watermarks, idleness, progress of each origin)
and body, for the same subtasks. So the next query goes on exactly where the other one stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from flinkish.runtime.buffer import Buffer, BufferHeader, BufferKind, encode
from flinkish.runtime.stored_pickle import dumps, loads
from flinkish.runtime.task import Row
from flinkish.runtime.task_header import TaskHeader
from flinkish.spark.rows import ROW_SCHEMA, to_arrow
from flinkish.spark.state_reader import stored_tasks
from flinkish.spark.worker import Deployment, failures_marked

#: Version of the stored form of a task on its way.
FORMAT_VERSION = 2


@dataclass(frozen=True)
class StoredToBuffers:
    """Stored tasks -> a TASK buffer for each."""

    deployment: Deployment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One partition of the state of a level."""
        with failures_marked():
            for batch in batches:
                yield from to_arrow(self._rows(batch), self.deployment.book(), 1)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        for data, body in zip(batch.column("header").to_pylist(), batch.column("body").to_pylist()):
            job = self.deployment.job()
            stored = TaskHeader.decode(data, f"job '{job.name}'", job.classes)
            header = BufferHeader(BufferKind.TASK, stored.vertex, stored.subtask, 0, "", 0, 0, 0)
            yield stored.vertex, stored.subtask, encode(header, dumps((data, body), FORMAT_VERSION))


def write_moved_state(spark: Any, deployment: Deployment, checkpoint: str, batch: int, levels: int, path: str) -> None:
    """Write the state of a query's batch as rows that the first epoch of another query takes in."""
    frame = None
    for level in range(levels):
        rows = stored_tasks(spark, checkpoint, batch, level).mapInArrow(StoredToBuffers(deployment), ROW_SCHEMA)
        frame = rows if frame is None else frame.unionByName(rows)
    if frame is not None:
        frame.coalesce(deployment.partitions).write.mode("overwrite").parquet(path)


class MovedIn(NamedTuple):
    """What a task begins with: stored form (None: nothing), and the epoch's other buffers, in their order."""

    header: bytes | None
    body: bytes | None
    buffers: Iterator[Buffer]


def moved_in(buffers: Iterable[Buffer]) -> MovedIn:
    """Look for stored state among the sorted buffers of a task that has none of its own: it comes first."""
    arriving = iter(buffers)
    first = next(arriving, None)
    if first is None or first.header.kind is not BufferKind.TASK:
        return MovedIn(None, None, chain([] if first is None else [first], arriving))
    header, body = loads(first.payload, FORMAT_VERSION, "the moved state of a task")
    return MovedIn(header, body, arriving)
