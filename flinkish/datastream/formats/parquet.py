"""The Parquet formats, at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.arguments import kind_of
from flinkish.common.configuration import Configuration
from flinkish.common.no_effect import supply_names, warn_of_hadoop_config, warn_without_effect
from flinkish.common.typeinfo.composite import RowTypeInfo
from flinkish.connectors.file_system.enumerator import BulkFormat
from flinkish.connectors.file_system.parquet import AvroParquetFormat
from flinkish.errors import ArgumentTypeError
from flinkish.formats.avro import AvroSchema
from flinkish.formats.avro_parquet import AvroColumns, AvroParquetWriters
from flinkish.formats.columnar import ParquetBulkWriters

__all__ = ["AvroParquetReaders", "AvroParquetWriters", "ParquetBulkWriters", "ParquetColumnarRowInputFormat"]

supply_names(__name__, "common.serialization", "datastream.connectors.file_system", "datastream.utils")


class AvroParquetReaders:
    """Makes formats that read Parquet files as Avro records.

    Example::

        readers = AvroParquetReaders.for_generic_record(schema)
        source = FileSource.for_record_stream_format(readers, "/data/in").build()
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroParquetFormat:
        """A format that reads the rows of Parquet files as dictionaries of the schema's fields. Needs the extra
        ``avro`` (fastavro).

        Raises:
            ProgramError: Parquet has no columns for the schema.
        """
        return AvroParquetFormat(AvroColumns(schema))


class ParquetColumnarRowInputFormat(BulkFormat):
    """Reads columns of Parquet files as Rows. Columns are found by the field names of ``row_type``, which are case
    sensitive; timestamps are in UTC. The other arguments are PyFlink's and have no effect; one that asks for something
    else is reported once.

    Example::

        source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row_type), "/data/in").build()
    """

    def __init__(
        self,
        row_type: RowTypeInfo,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        if not isinstance(row_type, RowTypeInfo):
            raise ArgumentTypeError(
                f"the row type is {kind_of(row_type)}",
                where="ParquetColumnarRowInputFormat",
                expected="DataTypes.ROW([...]) or Types.ROW_NAMED(...)",
                hint="it names the columns to read",
            )
        what = "of ParquetColumnarRowInputFormat"
        warn_of_hadoop_config(hadoop_config, "ParquetColumnarRowInputFormat")
        if batch_size != 2048:
            warn_without_effect(f"the batch_size {what}", "set flinkish.source.batch-size instead")
        if not is_case_sensitive:
            warn_without_effect(f"is_case_sensitive=False {what}", "write the names as the file has them")
        super().__init__(row_type, tuple(row_type.get_field_names()))
