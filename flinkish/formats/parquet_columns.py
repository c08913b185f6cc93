"""Writes batches of columns to Parquet files as they are, for tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import parquet

from flinkish.common.serialization import BulkWriter, BulkWriterFactory

#: A row group has at least so many rows, or bytes, unless it is the last one of its file.
_GROUP_ROWS = 262_144
_GROUP_BYTES = 64 * 1024 * 1024


class ColumnParquetFactory(BulkWriterFactory):
    """Creates the writers of files with these columns. ``compression``: the name of the codec, or ``uncompressed``."""

    def __init__(self, schema: pa.Schema, compression: str) -> None:
        self._schema, self._compression = schema, compression
        self.file_suffix = ".parquet"

    def create(self) -> BulkWriter:
        return _ColumnParquetWriter(self._schema, "none" if self._compression == "uncompressed" else self._compression)


class _ColumnParquetWriter(BulkWriter):
    def __init__(self, schema: pa.Schema, compression: str) -> None:
        self._stream = pa.BufferOutputStream()
        self._file = parquet.ParquetWriter(self._stream, schema, compression=compression)
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add_batch(self, values: Any) -> None:
        self._held.append(values.columns)
        self._rows += len(values)
        self._bytes += values.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write()

    def finish(self) -> bytes:
        self._write()
        self._file.close()
        return self._stream.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def _write(self) -> None:
        if self._held:
            # as one row group
            self._file.write_table(pa.Table.from_batches(self._held, self._schema), row_group_size=self._rows)
        self._held, self._rows, self._bytes = [], 0, 0
