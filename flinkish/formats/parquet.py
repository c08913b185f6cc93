"""Bulk writers of Parquet files for ``FileSink``."""

from __future__ import annotations

from typing import Any

from flinkish.common.bulk_writer import BulkWriterFactory
from flinkish.common.configuration import Configuration
from flinkish.common.no_effect import warn_of_hadoop_config
from flinkish.common.typeinfo.composite import RowTypeInfo
from flinkish.formats._column_files import ColumnFileWriter, ColumnFileWriterFactory

__all__ = ["ParquetBulkWriters"]


class ParquetFileWriter(ColumnFileWriter):
    """Writes records to a Parquet file in memory."""

    def open_file(self, stream: Any, schema: Any) -> Any:
        from pyarrow import parquet

        return parquet.ParquetWriter(stream, schema)

    def write_table(self, file: Any, table: Any) -> None:
        file.write_table(table)


class ParquetBulkWriters:
    """Bulk writers of Parquet files for `FileSink`. Example::

    sink = FileSink.for_bulk_format("/data/out", ParquetBulkWriters.for_row_type(row_type)).build()
    """

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo, hadoop_config: Configuration | None = None, utc_timestamp: bool = False
    ) -> BulkWriterFactory:
        """A writer of Parquet files with one column per field of the ROW type. Timestamps are in UTC.
        ``hadoop_config`` and ``utc_timestamp`` are kept for PyFlink and have no effect (a ``hadoop_config`` is reported
        once); storage is configured by ``spark.hadoop.*``.

        Raises:
            TypeMismatchError: a field is of pickled objects, which no column can hold.
        """
        warn_of_hadoop_config(hadoop_config, "ParquetBulkWriters")
        return ColumnFileWriterFactory(row_type, ParquetFileWriter, "ParquetBulkWriters")
