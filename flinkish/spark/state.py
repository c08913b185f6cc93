"""Reads the state of a committed epoch from the query's checkpoint, with Spark's ``statestore`` data source, and hands
the stored tasks of one query of a job to the first epoch of the job's next query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from flinkish.runtime.exchange.buffer import Buffer, BufferHeader, BufferKind, encode
from flinkish.runtime.job.report import Row, TaskHeader
from flinkish.runtime.state.saved.columns import rows_of_task
from flinkish.runtime.state.saved.texts import SavepointColumns, SavepointRow
from flinkish.runtime.stored.pickles import dumps, loads
from flinkish.spark.data_files import FILE_SCHEMA, ROW_SCHEMA, DataFile, RowsToFiles, joined, to_arrow
from flinkish.spark.settings import give_way_to_epochs, workers_beside_epochs
from flinkish.spark.worker import DeployedClasses, Deployment, failures_marked
from flinkish.storage.paths import for_spark

#: Columns of a savepoint's table, in Spark's DDL.
SAVEPOINT_SCHEMA = "uid string, state string, kind string, key string, namespace string, value string"

#: The same as a schema of Arrow.
SAVEPOINT_ARROW = pa.schema([(name, pa.string()) for name in SavepointRow._fields])


@dataclass(frozen=True)
class BodyToRows:
    """The function of ``mapInArrow`` that turns stored tasks into rows of a savepoint. ``state`` is the directory of
    the files of keyed state."""

    deployed: DeployedClasses
    state: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert one partition of the state of a level."""
        give_way_to_epochs()
        with failures_marked(self.deployed.secret):
            yield from joined(self._batches(batches))

    def _batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        classes = self.deployed.classes()
        for batch in batches:
            for header, body in zip(batch.column("header").to_pylist(), batch.column("body").to_pylist()):
                yield from map(batch_of, rows_of_task(header, body, self.state, classes))


def batch_of(saved: SavepointColumns) -> pa.RecordBatch:
    """The rows of one state as a batch of `SAVEPOINT_ARROW`."""
    same = [pa.repeat(pa.scalar(text, pa.string()), len(saved.keys)) for text in saved[:3]]
    texts = [pa.array(column, pa.string()) for column in saved[3:]]
    return pa.RecordBatch.from_arrays(same + texts, schema=SAVEPOINT_ARROW)


def read_state(spark: Any, checkpoint: str, epoch: int, levels: int, deployed: DeployedClasses, state: str) -> Any:
    """The state of all levels as of an epoch, as a DataFrame of `SAVEPOINT_SCHEMA`, without rows for a job without
    levels.

    Args:
        checkpoint: checkpoint directory of the query.
        epoch: Spark's number of the micro-batch in that query.
        levels: the number of levels behind the sources.
        deployed: the classes that values in the state may be instances of.
        state: directory of the files of keyed state.
    """
    rows = _converted(spark, checkpoint, epoch, levels, BodyToRows(deployed, state), SAVEPOINT_SCHEMA)
    return spark.createDataFrame([], SAVEPOINT_SCHEMA) if rows is None else rows


def write_state(
    spark: Any,
    checkpoint: str,
    epoch: int,
    levels: int,
    deployed: DeployedClasses,
    state: str,
    *,
    table: str,
    tasks: int | None = None,
) -> list[DataFile]:
    """Write the rows of `read_state` to files in the directory of a table.

    Args:
        table: a path without a scheme.
        tasks: the most that run at once, each of which writes one file per level; None: as many as there are.
    """
    convert = RowsToFiles(BodyToRows(deployed, state), SAVEPOINT_ARROW, table, deployed.secret)
    files = _converted(spark, checkpoint, epoch, levels, convert, FILE_SCHEMA, tasks)
    return [] if files is None else [DataFile(*file) for file in files.collect()]


def _converted(
    spark: Any, checkpoint: str, epoch: int, levels: int, convert: Any, schema: str, tasks: int | None = None
) -> Any:
    """What a function of ``mapInArrow`` makes of the stored tasks of all levels; None for a job without levels."""
    frame = None
    with workers_beside_epochs(spark):
        for operator in range(levels):
            stored = stored_tasks(spark, checkpoint, epoch, operator)
            level = (stored if tasks is None else stored.coalesce(tasks)).mapInArrow(convert, schema)
            frame = level if frame is None else frame.unionByName(level)
    return frame if frame is None or tasks is None else frame.coalesce(tasks)


def stored_tasks(spark: Any, checkpoint: str, batch: int, operator: int) -> Any:
    """The stored tasks of one level as of a batch, as a DataFrame with the columns ``header`` and ``body``.

    Args:
        operator: Spark's number of the level's stateful operator, from 0.
    """
    # Spark's state stores report to a coordinator, which Spark starts with the session's query manager: a driver that
    # has run no query yet has none of both until it asks for its queries
    _ = spark.streams.active
    stored = (
        spark.read.format("statestore")
        .option("operatorId", operator)
        .option("batchId", batch)
        .load(for_spark(checkpoint))
    )
    return _header_and_body(stored.selectExpr("value.*"))


def _header_and_body(stored: Any) -> Any:
    """The columns of the stored state: Spark may keep the state of ``applyInPandasWithState`` as a struct, next to the
    timeout."""
    if "groupState" in stored.columns:
        stored = stored.selectExpr("groupState.*")
    return stored.select("header", "body")


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

    Unlike the rows of a savepoint, what is handed over is the stored form itself: header (watermarks, idleness,
    progress of each origin) and body, for the same subtasks. So the next query goes on exactly where the previous one
    ended.

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
