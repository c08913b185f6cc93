"""Avro object container files as a source: a file is read as a whole, by one subtask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.file_system.enumerator import FileEnumerator
from flinkish.connectors.file_system.paths import FileSystems
from flinkish.connectors.file_system.split_file import open_split, unreadable
from flinkish.core.source import SourceSplit, SplitRange, SplitReader, SplitRecords, UnitCost
from flinkish.errors import MalformedRecordError
from flinkish.formats.avro import AvroSchema, GenericRecordAvroTypeInfo, read_file

#: The assumed size of a record, in bytes: an epoch's limit of records is kept as far as the assumption holds.
_BYTES_PER_RECORD = 100


@dataclass(frozen=True)
class AvroFormat:
    """The format of Avro files that are read as generic records (dictionaries) of a schema. Files that were written
    with another schema are read if Avro's rules of schema resolution allow it."""

    schema: AvroSchema

    @property
    def produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self.schema)


class AvroFileEnumerator(FileEnumerator[UnitCost]):
    """Finds Avro files. Such a file is not cut: the unit of its positions is the whole file."""

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        return self.facts(split)

    def look_at(self, split: SourceSplit) -> UnitCost:
        size = float(split.info["bytes"])
        return UnitCost(max(1.0, size / _BYTES_PER_RECORD), size)


class AvroSplitReader(SplitReader):
    """Reads an Avro file from its beginning to its end."""

    def __init__(self, avro_format: AvroFormat, systems: FileSystems) -> None:
        self._schema = avro_format.schema
        self._systems = systems

    def open(self, ranges: Sequence[SplitRange], batch_size: int) -> None:
        """Does nothing: no file is kept open between ranges."""

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        held: list[Any] = []
        try:
            with open_split(self._systems, wanted.split, as_it_is=True) as file:
                for record in read_file(file, self._schema, self.max_record_bytes):
                    held.append(record)
                    if len(held) == batch_size:
                        yield SplitRecords(held, None)
                        held = []
        except MalformedRecordError as error:
            error.where = ", ".join(filter(None, (f"file {wanted.split.id}", error.where)))
            raise
        except OSError as error:
            raise unreadable(wanted.split.id, error) from None
        if held:
            yield SplitRecords(held, None)

    def close(self) -> None:
        """Does nothing: no file is kept open between ranges."""
