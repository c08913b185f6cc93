"""The Avro formats, at PyFlink's module path."""

from __future__ import annotations

from flinkish.common.io import InputFormat
from flinkish.common.no_effect import supply_names
from flinkish.connectors.file_system.avro import AvroFormat
from flinkish.connectors.file_system.source import FileSource
from flinkish.formats.avro import (
    AvroBulkWriters,
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]

supply_names(__name__, "common.serialization", "common")


class AvroInputFormat(InputFormat):
    """Reads the records of Avro files as dictionaries. ``path`` is a file or a directory.

    Example::

        records = env.create_input(AvroInputFormat("/data/in", AvroSchema.parse_file("order.avsc")))
    """

    def __init__(self, path: str, schema: AvroSchema) -> None:
        self._path = path
        self._format = AvroFormat(schema)

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        """The type of the records: dictionaries that fit the schema."""
        return GenericRecordAvroTypeInfo(self._format.schema)

    def _source(self) -> FileSource:
        return FileSource(self._format, [self._path])
