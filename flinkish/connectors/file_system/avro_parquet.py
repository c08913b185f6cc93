"""Parquet files of generic Avro records as a source: read in ranges of rows, as other Parquet files are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.file_system.parquet import ParquetSplitReader
from flinkish.connectors.file_system.paths import FileSystems
from flinkish.core.source import SplitRange, SplitRecords
from flinkish.formats.avro import GenericRecordAvroTypeInfo
from flinkish.formats.avro_parquet import AvroColumns


@dataclass(frozen=True)
class AvroParquetFormat:
    """The format of Parquet files that are read as generic Avro records: dictionaries of the schema's fields. Other
    columns are not read."""

    records: AvroColumns

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that are read."""
        return self.records.names

    @property
    def produced_type(self) -> TypeInformation:
        return GenericRecordAvroTypeInfo(self.records.schema)


class AvroParquetSplitReader(ParquetSplitReader):
    """Reads ranges of rows as dictionaries, at most ``batch_size`` at a time."""

    def __init__(self, avro_format: AvroParquetFormat, systems: FileSystems) -> None:
        super().__init__(avro_format.columns, systems)
        self._records = avro_format.records

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        held: list[Any] = []
        self._row = wanted.start
        for part, _ in self._parts(wanted):
            for begin in range(0, part.num_rows, batch_size):
                held += self._records.records(part.slice(begin, batch_size), f"file {wanted.split.id}")
                while len(held) >= batch_size:
                    yield SplitRecords(held[:batch_size], None)
                    self._row, held = self._row + batch_size, held[batch_size:]
        if held:
            yield SplitRecords(held, None)
        if wanted.ends:
            self.close()
