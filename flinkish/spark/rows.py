"""The rows between Spark stages (buffers with the addresses of the subtasks that they are for), and how small Arrow
batches of any rows are joined: each batch costs a call across processes, or a row group of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from flinkish.runtime.job.report import Row
from flinkish.spark.addressing import AddressBook

#: Schema of the rows between stages, in Spark's DDL. ``address`` is the grouping value of the next level.
ROW_SCHEMA = "address int, vertex int, subtask int, buffer binary"

#: Schema of a subtask's state in Spark's state store, in Spark's DDL.
STATE_SCHEMA = "header binary, body binary"

_ARROW_SCHEMA = pa.schema(
    [("address", pa.int32()), ("vertex", pa.int32()), ("subtask", pa.int32()), ("buffer", pa.binary())]
)

#: Bytes of buffers in one Arrow batch: Spark bounds the number of rows, flinkish bounds their size. A batch has a cost
#: in both processes that does not depend on its size, so a few small buffers are too few for one.
BATCH_BYTES = 1024 * 1024

#: From so many rows on, a batch is passed on by default.
_BATCH_ROWS = 10_000


def to_arrow(rows: Iterable[Row], book: AddressBook, next_level: int) -> Iterable[pa.RecordBatch]:
    """Pack rows into Arrow batches of about `BATCH_BYTES` each, in their order, addressed to a level."""
    share: list[Row] = []
    size = 0
    for row in rows:
        share.append(row)
        size += len(row[2])
        if size >= BATCH_BYTES:
            yield _batch(share, book, next_level)
            share, size = [], 0
    if share:
        yield _batch(share, book, next_level)


def _batch(rows: list[Row], book: AddressBook, next_level: int) -> pa.RecordBatch:
    vertices, subtasks, buffers = zip(*rows)
    addresses = [book.address(next_level, vertex, subtask) for vertex, subtask in zip(vertices, subtasks)]
    columns = [
        pa.array(addresses, pa.int32()),
        pa.array(vertices, pa.int32()),
        pa.array(subtasks, pa.int32()),
        pa.array(buffers, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def joined(batches: Iterator[pa.RecordBatch], least_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of the batches, which have the same columns, in their order, in batches of ``least_rows`` or more but
    for the last one."""
    share: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        share.append(batch)
        rows += batch.num_rows
        if rows >= least_rows:
            yield _together(share)
            share, rows = [], 0
    if share:
        yield _together(share)


def _together(share: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(share) == 1:
        return share[0]
    schema = share[0].schema
    parts = [pa.concat_arrays([batch.column(name) for batch in share]) for name in schema.names]
    return pa.RecordBatch.from_arrays(parts, schema=schema)
