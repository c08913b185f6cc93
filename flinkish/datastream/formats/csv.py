"""The CSV formats, at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.no_effect import supply_names
from flinkish.connectors.file_system.enumerator import StreamFormat
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

supply_names(__name__, "common.serialization", "common")


class CsvReaderFormat(StreamFormat):
    """Reads the records of CSV files as Rows.

    Example::

        source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "/data/in").build()
    """

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """A format that reads records of this schema. Blank lines are skipped. If the schema has a quote or an escape
        character, a record may span lines, and a file is read as a whole; otherwise it is cut into ranges."""
        reader, settings = schema._reader(), schema._settings
        header = bool(settings.get("header"))
        return CsvReaderFormat(
            reader,
            skip_blank=True,
            skip_comments=bool(settings.get("comments")),
            first_lines=header + bool(settings.get("skip")),
            check_header=reader.check_header if header and settings.get("strict") else None,
            spanning=reader.records,
        )
