"""Files as sources of columns, for tables: the batches of Parquet files, and lines that a format decodes into columns.

Positions, splits and errors are those of `FileSource`; only the records are batches of Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from flinkish.common.time import Duration
from flinkish.common.typeinfo.lossless import Conversion, lossless, unreadable
from flinkish.connectors.file_system.enumerator import BulkFormat, StreamFormat
from flinkish.connectors.file_system.lines import Lines, LineSplitReader
from flinkish.connectors.file_system.listing import FileSystems, folders_of
from flinkish.connectors.file_system.parquet import ParquetSplitReader
from flinkish.connectors.file_system.source import FileSource
from flinkish.core.source import SourceSplit, SplitRange, SplitReader, SplitRecords
from flinkish.errors import MalformedRecordError
from flinkish.formats.columns import ColumnDecoder, as_declared

#: The most rows of a batch.
BATCH_ROWS = 65_536

#: What a table can know of the file of a row, by its key: the type of the column and its value.
FILE_FACTS: dict[str, tuple[pa.DataType, Callable[[SourceSplit], Any]]] = {
    "file.path": (pa.string(), lambda split: split.id),
    "file.name": (pa.string(), lambda split: PurePath(split.id).name),
    "file.size": (pa.int64(), lambda split: split.info["bytes"]),
    "file.modification-time": (pa.timestamp("ms", "UTC"), lambda split: split.info["modified_ns"] // 1_000_000),
}


@dataclass(frozen=True)
class FileColumns:
    """The columns of a source of files: the fields of ``schema`` in their order.

    Args:
        stored: those that are read from the files; some of them may not be wanted.
        facts: the names of those that are facts about the file, with their keys in `FILE_FACTS`.
        decoder: what makes the stored ones of lines; None: they are columns of Parquet files.
        zone: that of local times.
    """

    schema: pa.Schema
    stored: pa.Schema
    facts: dict[str, str] = field(default_factory=dict)
    decoder: ColumnDecoder | None = None
    zone: str = "UTC"

    def of_file(self, stored: pa.RecordBatch, split: SourceSplit) -> pa.RecordBatch:
        """The columns of rows of a file, of those that are stored."""
        if self.schema.names == stored.schema.names:
            return stored
        columns = []
        for name, kind in zip(self.schema.names, self.schema.types, strict=True):
            if name not in self.facts:
                columns.append(stored.column(name))
                continue
            of_facts, of = FILE_FACTS[self.facts[name]]
            columns.append(as_declared(pa.repeat(pa.scalar(of(split), of_facts), len(stored)), kind, self.zone))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class ColumnFileSource(FileSource):
    """Reads files as batches of columns."""

    def __init__(
        self,
        content: StreamFormat | BulkFormat,
        paths: Sequence[str],
        discovery_interval: Duration | None,
        columns: FileColumns,
    ) -> None:
        super().__init__(content, paths, discovery_interval)
        self._columns = columns

    def create_reader(self) -> SplitReader:
        systems = FileSystems(folders_of(self._paths))
        if isinstance(self._content, StreamFormat):
            return ColumnLineReader(self._content, systems, self._columns)
        return ColumnParquetReader(systems, self._columns)


class ColumnParquetReader(ParquetSplitReader):
    """Reads ranges of rows of Parquet files as they are. A column of another type than the declared one is converted
    where no value changes, or refused."""

    def __init__(self, systems: FileSystems, columns: FileColumns) -> None:
        super().__init__(tuple(columns.stored.names), systems)
        self._wanted, self._stored = columns, columns.stored
        #: for each column, the type that it had last, and the conversion that columns of this type need
        self._conversions: list[tuple[pa.DataType, Conversion | None]] = [(kind, None) for kind in self._stored.types]

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        at = wanted.start
        for part, _ in self._parts(wanted):
            for begin in range(0, part.num_rows, BATCH_ROWS):
                rows = self._converted(part.slice(begin, BATCH_ROWS), wanted.split.id)
                self._row, at = at, at + rows.num_rows
                yield SplitRecords(self._wanted.of_file(rows, wanted.split), None)
        if wanted.ends:
            self.close()

    def _converted(self, part: pa.RecordBatch, file: str) -> pa.RecordBatch:
        columns = []
        for place, (column, wanted) in enumerate(zip(part.columns, self._stored, strict=True)):
            found = column.type
            try:
                last, convert = self._conversions[place]
                if found != last:
                    convert = lossless(found, wanted.type)
                    self._conversions[place] = (found, convert)
                columns.append(column if convert is None else convert(column))
            except (ValueError, ArithmeticError, NotImplementedError) as error:
                expected = ", ".join(f"{each.name} {each.type}" for each in self._stored)
                raise unreadable(wanted.name, found, wanted.type, error, f"file {file}", expected) from None
        return pa.RecordBatch.from_arrays(columns, schema=self._stored)


class ColumnLineReader(LineSplitReader):
    """Reads ranges of files of lines, of which the decoder of the format makes columns."""

    def __init__(self, content: StreamFormat, systems: FileSystems, columns: FileColumns) -> None:
        super().__init__(content, systems)
        self._wanted = columns
        assert columns.decoder is not None
        self._decode = columns.decoder.decode

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        return super().read(wanted, BATCH_ROWS)

    def _records(self, messages: list[bytes | None], split: SourceSplit, block: Lines, begin: int) -> Any:
        try:
            columns = self._decode(messages)[0]
        except MalformedRecordError:
            raise self._located(messages, split, block, begin) from None
        return self._wanted.of_file(columns, split)
