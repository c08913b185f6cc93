"""The CSV formats, at PyFlink's module path."""

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
    """Reads the lines of CSV files as Rows.

    Example::

        source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "/data/in").build()
    """

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """A format that reads lines of this schema. Blank lines are skipped."""
        return CsvReaderFormat(schema._reader(), skip_blank=True, header=schema._header)
