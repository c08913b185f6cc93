"""Bulk writers of ORC files for ``FileSink``."""

from __future__ import annotations

from typing import Any

from flinkish.common.bulk_writer import BulkWriterFactory
from flinkish.common.configuration import Configuration
from flinkish.common.no_effect import warn_of_hadoop_config, warn_without_effect
from flinkish.common.typeinfo.composite import RowTypeInfo
from flinkish.formats._column_files import ColumnFileWriter, ColumnFileWriterFactory

__all__ = ["OrcBulkWriters"]


class _OrcWriter(ColumnFileWriter):
    def open_file(self, stream: Any, schema: Any) -> Any:
        from pyarrow import orc

        return orc.ORCWriter(stream)

    def write_table(self, file: Any, table: Any) -> None:
        file.write(table)


class OrcBulkWriters:
    """Bulk writers of ORC files for `FileSink`. Example::

    sink = FileSink.for_bulk_format("/data/out", OrcBulkWriters.for_row_type(row_type)).build()
    """

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo,
        writer_properties: Configuration | None = None,
        hadoop_config: Configuration | None = None,
    ) -> BulkWriterFactory:
        """A writer of ORC files with one column per field of the ROW type. ``writer_properties`` and ``hadoop_config``
        are kept for PyFlink and have no effect, which is reported once; storage is configured by ``spark.hadoop.*``.

        Raises:
            TypeMismatchError: a field is of pickled objects, which no column can hold.
        """
        if writer_properties is not None:
            warn_without_effect("the writer_properties of OrcBulkWriters", "files have the defaults of pyarrow")
        warn_of_hadoop_config(hadoop_config, "OrcBulkWriters")
        return ColumnFileWriterFactory(row_type, _OrcWriter, "OrcBulkWriters")
