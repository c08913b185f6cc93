"""Rows of a savepoint become buffers for the subtasks of a job, re-hashed for its parallelism; what was found on the
way is told in rows of their own, so that one pass over the state both checks and moves it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa

from flinkish.runtime.buffer import BufferHeader, BufferKind, encode
from flinkish.runtime.deployment import JobDescriptor
from flinkish.runtime.key_groups import subtask_of_key
from flinkish.runtime.state.state_rows import StateRow
from flinkish.runtime.state.state_rows import OPERATOR_STATE_KIND
from flinkish.runtime.state.restored_rows import encode_rows
from flinkish.runtime.state.savepoint_rows import WATERMARK, SavepointRow
from flinkish.runtime.state.stored_values import Migration, ProgramStates, RowReader, StoredState
from flinkish.runtime.stored_pickle import dumps, loads
from flinkish.runtime.task import Row
from flinkish.spark.rows import ROW_SCHEMA, to_arrow
from flinkish.spark.worker import Deployment, failures_marked

_BATCH_ROWS = 20_000

#: Vertex number of rows that are no buffer, but hold the StoredStates of a partition.
FOUND_VERTEX = -1000

#: Version of the stored form of these.
_FOUND_VERSION = 2

Migrations = dict[tuple[str, str], Migration]


@dataclass(frozen=True)
class RowsToBuffers:
    """Runs in the workers. ``buffers`` False: only look."""

    deployment: Deployment
    program: ProgramStates
    migrations: Migrations = field(default_factory=dict)
    convert: bool = False
    buffers: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One partition of the savepoint's table."""
        with failures_marked():
            job = self.deployment.job()
            book = self.deployment.book()
            reader = RowReader(self.program, self.migrations, self.convert, job.classes)
            for batch in batches:
                yield from to_arrow(self._rows(job, reader, batch), book, 1)
            yield _found_batch(list(reader.found.values()))

    def _rows(self, job: JobDescriptor, reader: RowReader, batch: pa.RecordBatch) -> Iterator[Row]:
        by_task: dict[tuple[int, int], list[tuple[str, StateRow]]] = defaultdict(list)
        places = places_of(job)
        for values in zip(*(column.to_pylist() for column in batch.columns)):
            saved = SavepointRow(*values)
            if saved.kind == WATERMARK:
                continue
            row = reader.read(saved)
            if row is not None and self.buffers and saved.uid in places:
                by_task[task_of(job, places[saved.uid], row)].append((saved.uid, row))
        for (vertex, subtask), rows in by_task.items():
            for start in range(0, len(rows), _BATCH_ROWS):
                payload = encode_rows(rows[start : start + _BATCH_ROWS], job.classes)
                header = BufferHeader(BufferKind.STATE, vertex, subtask, 0, "", 0, 0, len(rows))
                yield vertex, subtask, encode(header, payload)


def _found_batch(found: list[StoredState]) -> pa.RecordBatch:
    columns: list[tuple[str, Any, pa.DataType]] = [
        ("address", 0, pa.int32()),
        ("vertex", FOUND_VERTEX, pa.int32()),
        ("subtask", 0, pa.int32()),
        ("buffer", dumps([astuple(state) for state in found], _FOUND_VERSION), pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], kind) for _, value, kind in columns], names=[name for name, _, _ in columns]
    )


def places_of(job: JobDescriptor) -> dict[str, int]:
    """Operator uid -> vertex, of all operators that can have state."""
    return {d.uid: vertex.id for vertex in job.vertices if vertex.level > 0 for d in vertex.operators}


def task_of(job: JobDescriptor, vertex_id: int, row: StateRow) -> tuple[int, int]:
    """(vertex, subtask) that a row belongs to."""
    vertex = job.vertex(vertex_id)
    if row.kind == OPERATOR_STATE_KIND:
        return vertex_id, int(row.key) % vertex.parallelism
    return vertex_id, subtask_of_key(row.key, vertex.parallelism, vertex.max_parallelism)


def written_to(path: str, spark: Any, table: Any, convert: RowsToBuffers) -> list[StoredState]:
    """Write the buffers below ``path``; what the rows were found to be."""
    table.mapInArrow(convert, ROW_SCHEMA).coalesce(4).write.mode("overwrite").parquet(path)
    return _found(spark.read.schema(ROW_SCHEMA).parquet(path))


def looked_at(table: Any, convert: RowsToBuffers) -> list[StoredState]:
    """What the rows were found to be."""
    return _found(table.mapInArrow(convert, ROW_SCHEMA))


def _found(rows: Any) -> list[StoredState]:
    merged: dict[tuple[str, str, str], StoredState] = {}
    for row in rows.where(f"vertex = {FOUND_VERTEX}").select("buffer").collect():
        for values in loads(bytes(row["buffer"]), _FOUND_VERSION, "what was found in a savepoint"):
            state = StoredState(*values)
            key = (state.uid, state.state, state.kind)
            if key in merged:
                merged[key].add(state)
            else:
                merged[key] = state
    return [merged[key] for key in sorted(merged)]
