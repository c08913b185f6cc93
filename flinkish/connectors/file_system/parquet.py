"""Parquet files as a source, of Rows, tuples or generic Avro records: positions are rows. Only the declared columns are
read, and only the row groups that a range touches."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.columns import RecordReader
from flinkish.connectors.file_system.enumerator import BulkFormat, FileEnumerator, open_split, unreadable
from flinkish.connectors.file_system.listing import FileSystems
from flinkish.core.source import SourceSplit, SplitRange, SplitReader, SplitRecords, UnitCost, positions_text
from flinkish.errors import ProgramError
from flinkish.formats.avro import GenericRecordAvroTypeInfo
from flinkish.formats.avro_parquet import AvroColumns

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import FileMetaData

_LOG = logging.getLogger("flinkish.FileSource")

#: The most rows that are read from a file at a time; dictionaries are decoded once per read.
READ_RECORDS = 131072
#: The most bytes that are read at a time: of long rows fewer are read.
READ_BYTES = 16 * 1024 * 1024
#: The buffer through which a column of a row group is read, since the size of row groups is up to their writer.
_BUFFER_BYTES = 4 * 1024 * 1024

#: A dictionary with more strings than this share of the rows costs more than it saves (measured: 0.8 still pays).
DICTIONARY_SHARE = 1.0
#: A column with a larger chunk in any row group is not read as a dictionary: Arrow collects the strings of the whole
#: row group.
_DICTIONARY_BYTES = 64 * 1024 * 1024
#: The use of dictionaries is not judged by batches with fewer rows.
JUDGED_RECORDS = 10_000


class ParquetFacts(NamedTuple):
    """The facts that a file's footer gives: the number of rows, ``group_ends`` (for each row group the number of the
    row after its last one), and the uncompressed bytes per row of the declared columns."""

    rows: int
    group_ends: tuple[int, ...]
    bytes_per_row: float


class ParquetFileEnumerator(FileEnumerator[ParquetFacts]):
    """Finds Parquet files, which are read in ranges of rows. ``nullable``: columns that files may lack."""

    def __init__(
        self,
        columns: tuple[str, ...],
        paths: Sequence[str],
        interval_s: float | None,
        restored: Collection[str] = (),
        nullable: Collection[str] = (),
    ) -> None:
        super().__init__(paths, interval_s, restored)
        self._columns = columns
        self._required = tuple(name for name in columns if name not in nullable)
        self._never_absent = set(nullable)

    def reads_file(self, split: SourceSplit) -> bool:
        return True

    def look_at(self, split: SourceSplit) -> ParquetFacts:
        from pyarrow import ArrowInvalid, parquet

        try:
            with open_split(self.systems, split) as file:
                footer = parquet.read_metadata(file)
        except (ArrowInvalid, OSError) as error:
            raise unreadable(split.id, error) from None
        check_columns(self._required, footer, split.id)
        absent = self._never_absent.difference(footer.schema.to_arrow_schema().names)
        if absent:
            _LOG.warning("file %s has no column %s, which is NULL there", split.id, ", ".join(sorted(absent)))
            self._never_absent -= absent
        return facts_of(footer, self._columns)

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        return max(position, self.facts(split).rows), True

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        return UnitCost(1.0, self.facts(split).bytes_per_row)

    def cut(self, split: SourceSplit, start: int, stop: int) -> int:
        """The last end of a row group in the range, if the range up to it has at least half of the rows up to ``stop``;
        otherwise ``stop``. The rest of a row group that is cut is decoded twice."""
        ends = [end for end in self.facts(split).group_ends if end <= stop and 2 * end >= start + stop and end > start]
        return max(ends, default=stop)


def facts_of(footer: FileMetaData, columns: tuple[str, ...]) -> ParquetFacts:
    """The facts that a footer gives about the declared columns."""
    ends, rows, size = [], 0, 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        rows += group.num_rows
        ends.append(rows)
        for index in range(group.num_columns):
            column = group.column(index)
            if column.path_in_schema in columns or column.path_in_schema.startswith(tuple(f"{c}." for c in columns)):
                size += column.total_uncompressed_size
    return ParquetFacts(rows, tuple(ends), size / max(1, rows))


class ParquetSplitReader(SplitReader):
    """The base of the readers of Parquet files. The file that was read last is kept open.

    ``encoded`` are string columns that are read as dictionaries, each until its dictionaries turn out to be too large
    to pay. ``nullable`` are columns that a file may lack; their type is that of NULL then.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        systems: FileSystems,
        encoded: Sequence[str] = (),
        nullable: Collection[str] = (),
    ) -> None:
        self._columns = columns
        self._required = tuple(name for name in columns if name not in nullable)
        self._systems = systems
        self._open: tuple[SourceSplit, Any, ParquetFacts] | None = None
        self._encoded = list(encoded)
        #: the row of the first record of the last batch
        self._row = 0

    def open(self, ranges: Sequence[SplitRange], batch_size: int) -> None:
        if self._open is not None and all(wanted.split != self._open[0] for wanted in ranges):
            self.close()

    def place_of(self, split: str, first: int, last: int) -> str:
        return f"file {split}, {positions_text('row', self._row + first, self._row + last)}"

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close(force=True)
            self._open = None

    def _parts(self, wanted: SplitRange) -> Iterator[tuple[pyarrow.RecordBatch, int]]:
        """The rows of a range in batches, each with the number of rows that the file is read at a time."""
        from pyarrow import ArrowInvalid

        columns = list(self._columns)
        try:
            file, facts = self._file(wanted)
            stop = facts.rows if wanted.ends or wanted.stop is None else min(wanted.stop, facts.rows)
            starts = (0, *facts.group_ends)
            groups = [
                number
                for number, end in enumerate(facts.group_ends)
                if starts[number] < end and starts[number] < stop and end > wanted.start
            ]
            if not groups or wanted.start >= stop:
                return
            at = starts[groups[0]]
            rows_at_a_time = _rows_at_a_time(facts)
            # a single thread, since the other cores belong to other tasks
            for part in file.iter_batches(rows_at_a_time, groups, columns, use_threads=False):
                begin, end = max(0, wanted.start - at), min(part.num_rows, stop - at)
                at += part.num_rows
                if begin < end:
                    batch = _selected(part, columns).slice(begin, end - begin)
                    self._learn(batch)
                    yield batch, rows_at_a_time
                if at >= stop:
                    break
        except (ArrowInvalid, OSError) as error:
            self.close()
            raise unreadable(wanted.split.id, error) from None

    def _file(self, wanted: SplitRange) -> tuple[Any, ParquetFacts]:
        from pyarrow import parquet

        split = wanted.split
        if self._open is None or self._open[0] != split or wanted.whole:
            self.close()
            handle = open_split(self._systems, split, wanted.whole)
            try:
                footer = parquet.read_metadata(handle)
                check_columns(self._required, footer, split.id)
                facts = facts_of(footer, self._columns)
                encoded = [name for name in self._encoded if _largest_chunk(footer, name) <= _DICTIONARY_BYTES]
                # with pre_buffer, what was read ahead is held in memory until the file is closed
                file = parquet.ParquetFile(
                    handle, metadata=footer, read_dictionary=encoded, buffer_size=_BUFFER_BYTES, pre_buffer=False
                )
            except BaseException:
                handle.close()
                raise
            self._open = (split, file, facts)
        return self._open[1], self._open[2]

    def _learn(self, batch: pyarrow.RecordBatch) -> None:
        """Judge the dictionaries of a batch: the next files are read without those that do not pay."""
        if batch.num_rows >= JUDGED_RECORDS:
            most = DICTIONARY_SHARE * batch.num_rows
            self._encoded = [name for name in self._encoded if _dictionary_size(batch.column(name)) <= most]


class RowSplitReader(ParquetSplitReader):
    """Reads ranges of rows as Rows or tuples."""

    def __init__(self, bulk_format: BulkFormat, systems: FileSystems) -> None:
        super().__init__(bulk_format.columns, systems, _text_columns(bulk_format))
        self._format = bulk_format

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        # which columns are read as dictionaries moves the ends of Arrow's batches, but never those of the batches here
        held: list[Any] = []
        self._row = wanted.start
        reader = RecordReader(self._format.type_info, f"file {wanted.split.id}")
        for part, rows_at_a_time in self._parts(wanted):
            size = min(batch_size, rows_at_a_time)
            for records in reader.parts(part, _ranges(part.num_rows, size, size - len(held))):
                held = held + records if held else records
                if len(held) == size:
                    yield SplitRecords(held, None)
                    self._row, held = self._row + size, []
        if held:
            yield SplitRecords(held, None)
        if wanted.ends:
            self.close()


def _text_columns(bulk_format: BulkFormat) -> list[str]:
    import pyarrow as pa

    fields = bulk_format.type_info.to_arrow_fields()
    pairs = zip(bulk_format.columns, fields, strict=True)
    return [name for name, field in pairs if pa.types.is_string(field.type)]


def _ranges(rows: int, size: int, first: int) -> Iterator[tuple[int, int]]:
    """Cut rows into ranges of ``size`` rows each, except that the first one has ``first`` rows, and the last one the
    rows that are left.

    >>> list(_ranges(7, 3, 1))
    [(0, 1), (1, 4), (4, 7)]
    """
    stops = range(first, rows + size, size)
    return ((max(0, stop - size), min(stop, rows)) for stop in stops)


def _selected(rows: pyarrow.RecordBatch, columns: list[str]) -> pyarrow.RecordBatch:
    """These columns; those that are not there are NULL."""
    import pyarrow as pa

    names = rows.schema.names
    if set(columns).issubset(names):
        return rows.select(columns)
    found = [rows.column(name) if name in names else pa.nulls(rows.num_rows) for name in columns]
    return pa.RecordBatch.from_arrays(found, columns)


def _rows_at_a_time(facts: ParquetFacts) -> int:
    return max(1, min(READ_RECORDS, int(READ_BYTES / max(1.0, facts.bytes_per_row))))


def _largest_chunk(footer: FileMetaData, column: str) -> int:
    """The size of the column's largest chunk in a row group, in uncompressed bytes."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = (group.column(index) for group in groups for index in range(group.num_columns))
    return max((chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == column), default=0)


def _dictionary_size(column: pyarrow.Array) -> int:
    """The number of strings in the dictionary of a column; 0 if it has none."""
    dictionary = getattr(column, "dictionary", None)
    return 0 if dictionary is None else len(dictionary)


def check_columns(declared: tuple[str, ...], footer: FileMetaData, file: str) -> None:
    """Check that a file has all declared columns.

    Raises:
        ProgramError: a declared column is not in the file.
    """
    found = footer.schema.to_arrow_schema().names
    missing = [name for name in declared if name not in found]
    if missing:
        raise ProgramError(
            f"the declared column '{missing[0]}' is not in the file",
            where=f"file {file}",
            expected=f"one of its columns {', '.join(found)}",
            hint="correct the names in the type of the source",
        )


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
