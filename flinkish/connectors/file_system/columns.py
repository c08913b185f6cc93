"""Files as sources of columns, for tables: the batches of Parquet files, and lines that a format decodes into columns.

Positions, splits and errors are those of `FileSource`; only the records are batches of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from flinkish.formats.columns import ColumnDecoder

#: The most rows of a batch.
BATCH_ROWS = 65_536


class ColumnFileSource(FileSource):
    """Reads the columns of ``schema`` in batches. ``decoder`` makes them of lines; None: the files are Parquet, and
    what a file lacks is NULL, as in Flink."""

    _nullable = True

    def __init__(
        self,
        content: StreamFormat | BulkFormat,
        paths: Sequence[str],
        discovery_interval: Duration | None,
        schema: pa.Schema,
        decoder: ColumnDecoder | None = None,
    ) -> None:
        super().__init__(content, paths, discovery_interval)
        self._schema, self._decoder = schema, decoder

    def create_reader(self) -> SplitReader:
        systems = FileSystems(folders_of(self._paths))
        if isinstance(self._content, StreamFormat) and self._decoder is not None:
            return ColumnLineReader(self._content, systems, self._schema.names, self._decoder)
        return ColumnParquetReader(systems, self._schema)


class ColumnParquetReader(ParquetSplitReader):
    """Reads ranges of rows of Parquet files as they are. A column of another type than the declared one is converted
    where no value changes, or refused."""

    def __init__(self, systems: FileSystems, schema: pa.Schema) -> None:
        super().__init__(tuple(schema.names), systems, nullable=schema.names)
        self._stored = schema
        #: for each column, the type that it had last, and the conversion that columns of this type need
        self._conversions: list[tuple[pa.DataType, Conversion | None]] = [(kind, None) for kind in self._stored.types]

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        at = wanted.start
        for part, _ in self._parts(wanted):
            for begin in range(0, part.num_rows, BATCH_ROWS):
                rows = self._converted(part.slice(begin, BATCH_ROWS), wanted.split.id)
                self._row, at = at, at + rows.num_rows
                yield SplitRecords(rows, None)
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

    def __init__(
        self, content: StreamFormat, systems: FileSystems, names: Sequence[str], decoder: ColumnDecoder
    ) -> None:
        super().__init__(content, systems)
        self._names, self._decode = list(names), decoder.decode

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        return super().read(wanted, BATCH_ROWS)

    def _records(self, messages: list[bytes | None], split: SourceSplit, block: Lines, begin: int) -> Any:
        try:
            return self._decode(messages)[0].select(self._names)
        except MalformedRecordError:
            raise self._located(messages, split, block, begin) from None
