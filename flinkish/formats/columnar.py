"""Bulk writers of columnar files (Parquet, ORC) for ``FileSink``, which write with pyarrow."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from flinkish.common.configuration import Configuration
from flinkish.common.no_effect import warn_of_hadoop_config, warn_without_effect
from flinkish.common.serialization import BulkWriter, BulkWriterFactory, RowDataBulkWriterFactory
from flinkish.common.typeinfo.arrow import RecordWriter
from flinkish.common.typeinfo.composite import RowTypeInfo
from flinkish.common.types import check_inserts_only
from flinkish.errors import TypeMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OrcBulkWriters", "ParquetBulkWriters"]

#: The number of records that are converted to columns at a time, however small the batches are in which they arrive.
_RECORDS_AT_A_TIME = 10_000
#: A row group of columns has at least so many rows, or bytes, unless it is the last one of its file.
_GROUP_ROWS, _GROUP_BYTES = 262_144, 64 * 1024 * 1024


class ColumnFileWriter(BulkWriter):
    """Writes records to a file of columns in memory. Records are held until there are enough of them to be converted.
    ``to_table`` converts a list of records to a table."""

    #: the end of the names of the files
    file_suffix: ClassVar[str]

    def __init__(self, to_table: Callable[[list[Any]], pa.Table]) -> None:
        import pyarrow as pa

        self._to_table = to_table
        self._stream = pa.BufferOutputStream()
        self._file: Any = None
        self._held: list[Any] = []

    def add_batch(self, values: list[Any]) -> None:
        self._held += values
        if len(self._held) >= _RECORDS_AT_A_TIME:
            self._write()

    def finish(self) -> bytes:
        if self._held or self._file is None:
            self._write()
        self._file.close()
        return self._stream.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def _write(self) -> None:
        table = self._to_table(self._held)
        self._held = []
        if self._file is None:
            self._file = self.open_file(self._stream, table.schema)
        self.write_table(self._file, table)

    @abc.abstractmethod
    def open_file(self, stream: Any, schema: Any) -> Any:
        """Open pyarrow's writer of the format on the stream, for tables of this schema."""

    @abc.abstractmethod
    def write_table(self, file: Any, table: Any) -> None:
        """Write a table with the writer that `open_file` returned."""


class ColumnFileWriterFactory(RowDataBulkWriterFactory):
    """Creates the writers of one format for Rows of a type.

    Args:
        row_type: the type of the records.
        writer: the class of the format's writer.
        where: the part of the program that error messages name.

    Raises:
        TypeMismatchError: a field has a type that no column can hold.
    """

    def __init__(self, row_type: RowTypeInfo, writer: type[ColumnFileWriter], where: str) -> None:
        super().__init__(row_type)
        self._writer = writer
        self._where = where
        self.file_suffix = writer.file_suffix
        # made here only so that an error in the type is raised before the job starts
        RecordWriter(row_type, where)
        self._check_columns()

    def _check_columns(self) -> None:
        import pyarrow as pa

        try:
            self.create().finish()
        except pa.ArrowNotImplementedError as error:
            raise TypeMismatchError(
                f"{self._row_type!r} has a field that no column of the format holds: {error}",
                where=self._where,
                expected="types that the files can hold",
                hint="map the field to a text before",
            ) from error

    def create(self) -> BulkWriter:
        import pyarrow as pa

        columns = RecordWriter(self._row_type, self._where)

        def to_table(records: list[Any]) -> pa.Table:
            check_inserts_only(records, self._where)
            return pa.Table.from_batches([columns.write(records)])

        return self._writer(to_table)


class ParquetFileWriter(ColumnFileWriter):
    """Writes records to a Parquet file in memory."""

    file_suffix = ".parquet"
    compression = "snappy"

    def open_file(self, stream: Any, schema: Any) -> Any:
        from pyarrow import parquet

        return parquet.ParquetWriter(stream, schema, compression=self.compression)

    def write_table(self, file: Any, table: Any) -> None:
        file.write_table(table)


class ColumnParquetFactory(BulkWriterFactory):
    """Creates the writers of Parquet files of batches of columns. ``compression``: the name of the codec, or
    ``uncompressed``."""

    def __init__(self, schema: pa.Schema, compression: str) -> None:
        self._schema, self._compression = schema, compression
        self.file_suffix = ParquetFileWriter.file_suffix

    def create(self) -> BulkWriter:
        return _ColumnParquetWriter(self._schema, self._compression.replace("uncompressed", "none"))


class _ColumnParquetWriter(ParquetFileWriter):
    def __init__(self, schema: pa.Schema, compression: str) -> None:
        import pyarrow as pa

        super().__init__(lambda batches: pa.Table.from_batches(batches, schema))
        self.compression = compression
        self._rows = self._bytes = 0

    def add_batch(self, values: Any) -> None:
        self._held.append(values.columns)
        self._rows += len(values)
        self._bytes += values.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write()
            self._rows = self._bytes = 0


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


class _OrcWriter(ColumnFileWriter):
    file_suffix = ".orc"

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
