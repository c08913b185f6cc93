"""Files and batches of rows in Arrow's form: the rows between Spark stages, and the Parquet files in the directory of a
Delta table, which tasks write and the driver adds to the table by a commit of its own (`flinkish.delta.log`). Writing
them and that commit cost less than Spark's Delta writer does.
"""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from flinkish.delta.actions import added_file, append_info
from flinkish.runtime.job.report import Row
from flinkish.spark.place import AddressBook
from flinkish.spark.settings import session_with
from flinkish.spark.worker import failures_marked
from flinkish.storage.paths import for_spark
from flinkish.storage.sealed import checksum_path, write_checksums
from flinkish.storage.stores import storage_errors, storage_of

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
    for the last one.

    Each batch costs a call across processes, or a row group of a file.
    """
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


#: Columns that describe a file, in Spark's DDL; ``without_uid``: the number of its rows whose ``uid`` is null.
FILE_SCHEMA = "name string, rows long, bytes long, without_uid long"

#: Parquet's pages carry checksums (parquet-mr writes them by default); Spark verifies them only with this setting.
VERIFY_PAGES = ("parquet.page.verify-checksum.enabled", "true")

#: Rows of a row group, the unit in which readers share out a file.
_ROW_GROUP_ROWS = 100_000


@dataclass(frozen=True)
class DataFile:
    """A Parquet file in the directory of a Delta table, which no commit has added yet: its name, how many rows and
    bytes it has, and how many of its rows have no ``uid``."""

    name: str
    rows: int
    bytes: int
    without_uid: int

    def added(self, now_ms: int) -> dict[str, Any]:
        """The action of a Delta commit that adds this file."""
        statistics = {"numRecords": self.rows, "nullCount": {"uid": self.without_uid}, "tightBounds": True}
        return added_file(self.name, self.bytes, now_ms, statistics)


def append_of(files: list[DataFile], now_ms: int, **more: Any) -> list[dict[str, Any]]:
    """The actions of a Delta commit that adds these files, the first of which describes it. ``more``: further fields of
    that, its ``commitInfo``."""
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    metrics = {"numFiles": str(len(files)), "numOutputRows": str(rows), "numOutputBytes": str(size)}
    return [append_info(now_ms, operationMetrics=metrics, **more), *(file.added(now_ms) for file in files)]


@dataclass(frozen=True)
class RowsToFiles:
    """The function of ``mapInArrow`` that writes the rows of each Spark partition to one file and describes the file; a
    partition without rows has none. A file of an attempt that was killed stays behind, in no commit. The directory is
    made here, and not by the tasks: one that ends late writes nothing when the directory was removed meanwhile.

    Args:
        convert: the function of ``mapInArrow`` that makes the rows.
        schema: of the rows; with a column ``uid``.
        table: the directory of the table, on a local file system.
    """

    convert: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    schema: pa.Schema
    table: str
    #: signs the errors of the workers; it must not be shown
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        os.makedirs(self.table, exist_ok=True)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write one Spark partition."""
        path = posixpath.join(self.table, f"part-{uuid.uuid4()}.parquet")
        try:
            with failures_marked(self.secret), storage_errors("write", path):
                file = self._write(self.convert(batches), path)
        except BaseException:
            storage_of(path).delete_many((path, checksum_path(path)))
            raise
        if file is not None:
            yield pa.RecordBatch.from_pylist([vars(file)])

    def _write(self, batches: Iterator[pa.RecordBatch], path: str) -> DataFile | None:
        import pyarrow.parquet as pq

        groups = joined(batches, _ROW_GROUP_ROWS)
        first = next(groups, None)
        if first is None:
            return None
        rows = without_uid = 0
        with pq.ParquetWriter(path, self.schema, write_page_checksum=True) as file:
            for group in chain([first], groups):
                file.write_batch(group)
                rows += group.num_rows
                without_uid += group.column("uid").null_count
        write_checksums(path)
        storage_of(path).synchronise(path)
        return DataFile(posixpath.basename(path), rows, os.path.getsize(path), without_uid)


#: The number of tasks with which Delta lists directories. The default of 10,000 takes half a minute for a table of ten
#: files.
_LISTING_TASKS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}


def vacuum(spark: Any, table: str, retain_hours: int | None = None) -> None:
    """Delete the files of a table that were replaced more than ``retain_hours`` ago.

    Args:
        table: path of the table.
        retain_hours: may be less than Delta usually allows; None: what the table's property says.
    """
    statement, settings = f"VACUUM delta.`{for_spark(table).replace('`', '``')}`", dict(_LISTING_TASKS)
    if retain_hours is not None:
        statement += f" RETAIN {retain_hours} HOURS"
        settings["spark.databricks.delta.retentionDurationCheck.enabled"] = "false"
    with session_with(spark, settings) as session:
        session.sql(statement).collect()
