"""CSV, at PyFlink's module path."""

from __future__ import annotations

from flinkish.connectors.file_system.stream_format import StreamFormat
from flinkish.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from flinkish.formats.csv_schema import CsvBulkWriters, CsvSchema, CsvSchemaBuilder

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]


class CsvReaderFormat(StreamFormat):
    """Reads files of CSV as Rows.

    Example::

        source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "/data/in").build()
    """

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Lines without anything but blanks are no records."""
        return CsvReaderFormat(schema._reader(), skip_blank=True, header=schema._header)
