"""Parquet files: positions are rows. Only declared columns are read, and only the row groups that a range touches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.connectors.columns import RecordReader
from flinkish.connectors.file_system.enumerator import FileEnumerator
from flinkish.connectors.file_system.paths import FileSystems
from flinkish.connectors.file_system.split_file import open_split, unreadable
from flinkish.connectors.file_system.stream_format import BulkFormat
from flinkish.core.source import SourceSplit, SplitRange, SplitReader, SplitRecords, UnitCost
from flinkish.errors import ProgramError

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import FileMetaData

#: Records that the reader takes from a file at a time: dictionaries are decoded once for so many.
READ_RECORDS = 131072
#: Fewer, if they are long: what is taken at a time is not to hold more than this.
READ_BYTES = 16 * 1024 * 1024
#: A column of a row group is read through a buffer of this size: writers make row groups as large as they like.
_BUFFER_BYTES = 4 * 1024 * 1024

#: A dictionary with more texts than this share of the records costs more than it spares (measured: 0.8 still pays).
DICTIONARY_SHARE = 1.0
#: Nor is a column read as a dictionary whose row groups hold more than this: Arrow collects the texts of a whole one.
_DICTIONARY_BYTES = 64 * 1024 * 1024
#: Smaller reads say nothing about dictionaries.
_JUDGED_RECORDS = 10_000


class ParquetFacts(NamedTuple):
    """Out of a file's footer. ``group_ends``: the row behind each row group."""

    rows: int
    group_ends: tuple[int, ...]
    bytes_per_row: float


class ParquetFileEnumerator(FileEnumerator[ParquetFacts]):
    """Parquet files, as ranges of rows."""

    def __init__(
        self, columns: tuple[str, ...], paths: Sequence[str], interval_s: float | None, restored: Collection[str] = ()
    ) -> None:
        super().__init__(paths, interval_s, restored)
        self._columns = columns

    def look_at(self, split: SourceSplit) -> ParquetFacts:
        from pyarrow import ArrowInvalid, parquet

        try:
            with open_split(self.systems, split) as file:
                footer = parquet.read_metadata(file)
        except (ArrowInvalid, OSError) as error:
            raise unreadable(split.id, error) from None
        check_columns(self._columns, footer, split.id)
        return facts_of(footer, self._columns)

    def end_of(self, split: SourceSplit, position: int) -> tuple[int | None, bool]:
        return max(position, self.facts(split).rows), True

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        return UnitCost(1.0, self.facts(split).bytes_per_row)

    def cut(self, split: SourceSplit, start: int, stop: int) -> int:
        """At the end of a row group, if that takes at least half of what was offered: the rest of one that is cut is
        decoded twice."""
        ends = [end for end in self.facts(split).group_ends if end <= stop and 2 * end >= start + stop and end > start]
        return max(ends, default=stop)


def facts_of(footer: FileMetaData, columns: tuple[str, ...]) -> ParquetFacts:
    """What the footer says of the declared columns."""
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
    """Keeps the file open that it read last. ``encoded``: columns of texts that are read as dictionaries, until one
    turns out to hold too many texts."""

    def __init__(self, columns: tuple[str, ...], systems: FileSystems, encoded: Sequence[str] = ()) -> None:
        self._columns = columns
        self._systems = systems
        self._open: tuple[SourceSplit, Any, ParquetFacts] | None = None
        self._encoded = list(encoded)

    def open(self, ranges: Sequence[SplitRange], batch_size: int) -> None:
        if self._open is not None and all(wanted.split != self._open[0] for wanted in ranges):
            self.close()

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close(force=True)
            self._open = None

    def _parts(self, wanted: SplitRange) -> Iterator[tuple[pyarrow.RecordBatch, int]]:
        """The rows of a range, with how many the file is read at a time."""
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
            # one thread: the other cores belong to other tasks
            for part in file.iter_batches(rows_at_a_time, groups, columns, use_threads=False):
                begin, end = max(0, wanted.start - at), min(part.num_rows, stop - at)
                at += part.num_rows
                if begin < end:
                    batch = part.select(columns).slice(begin, end - begin)
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
                check_columns(self._columns, footer, split.id)
                facts = facts_of(footer, self._columns)
                encoded = [name for name in self._encoded if _largest_chunk(footer, name) <= _DICTIONARY_BYTES]
                # a file that is read ahead (pre_buffer) is held in memory until it is closed
                file = parquet.ParquetFile(
                    handle, metadata=footer, read_dictionary=encoded, buffer_size=_BUFFER_BYTES, pre_buffer=False
                )
            except BaseException:
                handle.close()
                raise
            self._open = (split, file, facts)
        return self._open[1], self._open[2]

    def _learn(self, batch: pyarrow.RecordBatch) -> None:
        """The next files are read without the dictionaries that did not pay."""
        if batch.num_rows >= _JUDGED_RECORDS:
            most = DICTIONARY_SHARE * batch.num_rows
            self._encoded = [name for name in self._encoded if _dictionary_size(batch.column(name)) <= most]


class RowSplitReader(ParquetSplitReader):
    """Makes Rows or tuples of rows."""

    def __init__(self, bulk_format: BulkFormat, systems: FileSystems) -> None:
        super().__init__(bulk_format.columns, systems, _text_columns(bulk_format))
        self._format = bulk_format

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        # what has been learnt about dictionaries moves the borders of Arrow's batches, but never those of ours
        held: list[Any] = []
        reader = RecordReader(self._format.type_info, f"file {wanted.split.id}")
        for part, rows_at_a_time in self._parts(wanted):
            size = min(batch_size, rows_at_a_time)
            for records in reader.parts(part, _ranges(part.num_rows, size, size - len(held))):
                held = held + records if held else records
                if len(held) == size:
                    yield SplitRecords(held, None)
                    held = []
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
    """The ranges that so many rows are cut into, of which the first one is shorter.

    >>> list(_ranges(7, 3, 1))
    [(0, 1), (1, 4), (4, 7)]
    """
    stops = range(first, rows + size, size)
    return ((max(0, stop - size), min(stop, rows)) for stop in stops)


def _rows_at_a_time(facts: ParquetFacts) -> int:
    return max(1, min(READ_RECORDS, int(READ_BYTES / max(1.0, facts.bytes_per_row))))


def _largest_chunk(footer: FileMetaData, column: str) -> int:
    """The most bytes that a row group holds of a column, before compression."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = (group.column(index) for group in groups for index in range(group.num_columns))
    return max((chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == column), default=0)


def _dictionary_size(column: pyarrow.Array) -> int:
    """Number of texts in the dictionary of a column; 0 if it has none."""
    dictionary = getattr(column, "dictionary", None)
    return 0 if dictionary is None else len(dictionary)


def check_columns(declared: tuple[str, ...], footer: FileMetaData, file: str) -> None:
    """
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
