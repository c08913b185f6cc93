"""Reads the state of a committed epoch from the query's checkpoint, with Spark's ``statestore`` data source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flinkish.runtime.state.saved.columns import rows_of_task
from flinkish.runtime.state.saved.texts import SavepointColumns, SavepointRow
from flinkish.spark.data_files import FILE_SCHEMA, DataFile, RowsToFiles
from flinkish.spark.rows import joined
from flinkish.spark.worker import DeployedClasses, failures_marked
from flinkish.spark.worker_pool import give_way_to_epochs, workers_beside_epochs
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
    """The state of all levels as of an epoch, as a DataFrame of `SAVEPOINT_SCHEMA`; None for a job without levels.

    Args:
        checkpoint: checkpoint directory of the query.
        epoch: Spark's number of the micro-batch in that query.
        levels: the number of levels behind the sources.
        deployed: the classes that values in the state may be instances of.
        state: directory of the files of keyed state.
    """
    return _converted(spark, checkpoint, epoch, levels, BodyToRows(deployed, state), SAVEPOINT_SCHEMA)


def write_state(
    spark: Any, checkpoint: str, epoch: int, levels: int, deployed: DeployedClasses, state: str, *, table: str
) -> list[DataFile]:
    """Write the rows of `read_state` to files in the directory of a table. ``table``: a path without a scheme."""
    convert = RowsToFiles(BodyToRows(deployed, state), SAVEPOINT_ARROW, table, deployed.secret)
    files = _converted(spark, checkpoint, epoch, levels, convert, FILE_SCHEMA)
    return [] if files is None else [DataFile(*file) for file in files.collect()]


def _converted(spark: Any, checkpoint: str, epoch: int, levels: int, convert: Any, schema: str) -> Any:
    """What a function of ``mapInArrow`` makes of the stored tasks of all levels; None for a job without levels."""
    frame = None
    with workers_beside_epochs(spark):
        for operator in range(levels):
            level = stored_tasks(spark, checkpoint, epoch, operator).mapInArrow(convert, schema)
            frame = level if frame is None else frame.unionByName(level)
    return frame


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
