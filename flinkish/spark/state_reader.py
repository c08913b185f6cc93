"""The state of a committed epoch, read from the query's checkpoint by Spark's ``statestore`` source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.runtime.state.body_codec import rows
from flinkish.runtime.state.operator_state import decode_operator_states
from flinkish.runtime.state.restore import operator_state_rows
from flinkish.runtime.state.savepoint_rows import SavepointRow, to_savepoint_row, watermark_row
from flinkish.runtime.state.task_body import TaskBody
from flinkish.runtime.task_header import TaskHeader
from flinkish.spark.worker import DeployedClasses, failures_marked
from flinkish.spark.worker_pool import give_way_to_epochs, workers_beside_epochs

#: Columns of a savepoint's table, in Spark's DDL.
SAVEPOINT_SCHEMA = "uid string, state string, kind string, key string, namespace string, value string"

_ARROW_SCHEMA = pa.schema([(name, pa.string()) for name in SavepointRow._fields])
_BATCH_ROWS = 10_000


@dataclass(frozen=True)
class BodyToRows:
    """Stored tasks -> rows of a savepoint."""

    deployed: DeployedClasses

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One partition of the state of a level."""
        give_way_to_epochs()
        with failures_marked():
            share: list[SavepointRow] = []
            for row in self._rows(batches):
                share.append(row)
                if len(share) >= _BATCH_ROWS:
                    yield _batch(share)
                    share = []
            if share:
                yield _batch(share)

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[SavepointRow]:
        classes = self.deployed.classes()
        for batch in batches:
            for data, body in zip(batch.column("header").to_pylist(), batch.column("body").to_pylist()):
                header = TaskHeader.decode(data, "", classes)
                if MIN_TIMESTAMP_MS < header.watermark_ms < MAX_WATERMARK_MS:
                    yield watermark_row(header.uid, header.subtask, header.watermark_ms)
                stored = TaskBody.decode(body)
                for row in rows(stored.keyed, f"uid {header.uid}, subtask {header.subtask}", classes):
                    yield to_savepoint_row(header.uid, row, classes)
                for uid, values in decode_operator_states(stored.operators, classes).items():
                    for _, row in operator_state_rows(uid, header.subtask, values):
                        yield to_savepoint_row(uid, row, classes)


def _batch(share: list[SavepointRow]) -> pa.RecordBatch:
    columns = [pa.array(column, pa.string()) for column in zip(*share)]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def read_state(spark: Any, checkpoint: str, epoch: int, levels: int, deployed: DeployedClasses) -> Any:
    """The rows of all levels as of an epoch, as a DataFrame; None for a job without levels."""
    frame = None
    with workers_beside_epochs(spark):
        for operator in range(levels):
            stored = stored_tasks(spark, checkpoint, epoch, operator)
            level = stored.mapInArrow(BodyToRows(deployed), SAVEPOINT_SCHEMA)
            frame = level if frame is None else frame.unionByName(level)
    return frame


def stored_tasks(spark: Any, checkpoint: str, batch: int, operator: int) -> Any:
    """(header, body) of the tasks of one level (from 0) as of a batch, as a DataFrame."""
    stored = spark.read.format("statestore").option("operatorId", operator).option("batchId", batch).load(checkpoint)
    return _header_and_body(stored.selectExpr("value.*"))


def _header_and_body(stored: Any) -> Any:
    """Spark keeps the state of applyInPandasWithState as a struct, next to the timeout."""
    if "groupState" in stored.columns:
        stored = stored.selectExpr("groupState.*")
    return stored.select("header", "body")
