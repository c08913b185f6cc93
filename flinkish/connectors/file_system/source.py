"""``FileSource``: reads records from files, each of which is a split.

Rule upheld here: no line and no column becomes null unnoticed. So JSON and CSV are not parsed by Spark, whose parsers
take the first of two objects in a line, ignore the rest of the line, and give null where a text does not fit the type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flinkish.common.no_effect import warn_without_effect
from flinkish.common.time import Duration
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.connectors.file_system.avro import AvroFileEnumerator, AvroFormat, AvroSplitReader
from flinkish.connectors.file_system.enumerator import BulkFormat, StreamFormat
from flinkish.connectors.file_system.lines import LineFileEnumerator, LineSplitReader
from flinkish.connectors.file_system.listing import FileSystems, check_position, checked_paths, find_roots, folders_of
from flinkish.connectors.file_system.parquet import (
    AvroParquetFormat,
    AvroParquetSplitReader,
    ParquetFileEnumerator,
    RowSplitReader,
)
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitReader, SplitSource
from flinkish.errors import ProgramError
from flinkish.storage.paths import absolute

#: How often a monitored source looks for new files unless the program says otherwise (Flink's default).
DISCOVERY_INTERVAL = Duration.of_seconds(1)


class FileSource(SplitSource):
    """Reads records from files. A directory is read with all files below it; names that begin with ``.`` or ``_``
    and empty files are left out. Paths may have wildcards (``*``, ``?``, ``[a-c]``, ``{a,b}``), unless they exist as
    they are written, and may be on several file systems, all of which the workers and the driver must be able to reach
    with pyarrow.fs.

    The source is bounded (the files that exist when the job starts), unless it monitors its paths: then it also reads
    new files as they appear. Files are read one after the other in the order (modification time, path), by whichever
    subtask is free. A large file is read over several epochs, unless it is compressed or its records may span lines
    (CSV). A file must not change until it has been read.

    Restore: exact. Files that the savepoint has are read on from their positions there, all others from the beginning.
    A file that is to be read on must still be one that the paths name.

    Made by :meth:`for_record_stream_format` (PyFlink's) or by :meth:`text`, :meth:`csv`, :meth:`json`, :meth:`parquet`.

    Raises (when the job starts):
        ProgramError: a path does not exist; a declared column is not in a Parquet file.
    """

    splits_are = "files"
    #: whether the declared columns may be absent from a Parquet file
    _nullable = False

    def __init__(
        self,
        content: StreamFormat | BulkFormat | AvroFormat | AvroParquetFormat,
        paths: Sequence[str],
        discovery_interval: Duration | None = None,
    ) -> None:
        self._content = content
        self._paths = checked_paths([absolute(path) for path in paths])
        self._discovery_interval = discovery_interval

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat | AvroParquetFormat, *paths: str) -> FileSourceBuilder:
        """Builder of a source that reads files of lines, each of which is a record (or Parquet files of Avro records).

        >>> source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/data/in").build()
        >>> source.bounded
        True
        """
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """Builder of a source that reads the columns of Parquet files."""
        return FileSourceBuilder(bulk_format, paths)

    @staticmethod
    def text(*paths: str, charset: str = "UTF-8") -> FileSource:
        """A source of the lines of text files, as records of type STRING without line ends."""
        return FileSource(StreamFormat.text_line_format(charset), paths)

    @staticmethod
    def json(*paths: str, type_info: TypeInformation, ignore_parse_errors: bool = False) -> FileSource:
        """A source of files of JSON objects, one per line; ``type_info`` is a ROW_NAMED. Blank lines are no records.

        A line that is no JSON object of this type fails the job with MalformedRecordError (with file, line and text),
        unless ``ignore_parse_errors`` is set: then a field that cannot be read is None, and a line that is no object is
        left out. An absent field is None. Lines are read strictly (``JsonRowDeserializationSchema.Builder.strict``).
        """
        from flinkish.formats.json import JsonRowDeserializationSchema

        builder = JsonRowDeserializationSchema.builder().type_info(type_info).strict()
        schema = (builder.ignore_parse_errors() if ignore_parse_errors else builder).build()
        return FileSource(StreamFormat(schema, skip_blank=True), paths)

    @staticmethod
    def csv(
        *paths: str,
        type_info: TypeInformation,
        delimiter: str = ",",
        header: bool = False,
        ignore_parse_errors: bool = False,
    ) -> FileSource:
        """A source of CSV files; ``type_info`` is a ROW. Blank lines are no records. A quoted field may hold line
        breaks, so a file is not cut: it is read as a whole, in one epoch, as in Flink.

        With ``header``, the first line of a file is no record; it must have the field names of the type, in their
        order. Lines are read strictly (``CsvRowDeserializationSchema.Builder.set_strict``), and malformed ones are
        treated as by :meth:`json`; if parse errors are ignored, those with too many fields are left out.

        Raises:
            ProgramError: the type is no ROW.
        """
        from flinkish.formats.csv import CsvRowDeserializationSchema

        if not isinstance(type_info, RowTypeInfo):
            raise ProgramError(
                f"the type {type_info!r} has no columns", where="FileSource.csv", expected="Types.ROW_NAMED"
            )
        builder = CsvRowDeserializationSchema.Builder(type_info).set_field_delimiter(delimiter).set_strict(True)
        schema = (builder.set_ignore_parse_errors(True) if ignore_parse_errors else builder).build()
        stream_format = StreamFormat(
            schema,
            skip_blank=True,
            first_lines=1 if header else 0,
            check_header=schema.check_header if header else None,
            spanning=schema.records,
        )
        return FileSource(stream_format, paths)

    @staticmethod
    def parquet(*paths: str, type_info: TypeInformation, columns: Sequence[str] | None = None) -> FileSource:
        """A source of Parquet files. Only the declared columns are read: the fields of a ROW_NAMED, as Rows; or
        ``columns`` with the types of a TUPLE, as tuples, which are faster.

        Raises:
            ProgramError: the columns have no names, or there are not as many of them as the type has fields.
        """
        if columns is None and isinstance(type_info, RowTypeInfo):
            columns = type_info.get_field_names()
        if columns is None:
            raise ProgramError(
                f"the columns of {type_info!r} have no names",
                where="FileSource.parquet",
                expected="a ROW_NAMED, or columns=[...]",
            )
        return FileSource(BulkFormat(type_info, tuple(columns)), paths)

    def monitor(self, discovery_interval: Duration = DISCOVERY_INTERVAL) -> FileSource:
        """An unbounded source of the same files and of those that appear later. It lists the files again before an
        epoch if ``discovery_interval`` has passed."""
        return FileSource(self._content, self._paths, discovery_interval)

    @property
    def bounded(self) -> bool:
        return self._discovery_interval is None

    @property
    def produced_type(self) -> TypeInformation:
        return self._content.produced_type

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        interval = self._discovery_interval
        interval_s = None if interval is None else interval.to_nanos() / 1e9
        known = [split.id for split in restored]
        if isinstance(self._content, StreamFormat):
            whole_files = self._content.spanning is not None
            return LineFileEnumerator(self._paths, interval_s, known, whole_files=whole_files)
        if isinstance(self._content, AvroFormat):
            return AvroFileEnumerator(self._paths, interval_s, known)
        columns = self._content.columns
        return ParquetFileEnumerator(columns, self._paths, interval_s, known, columns if self._nullable else ())

    def create_reader(self) -> SplitReader:
        systems = FileSystems(folders_of(self._paths))
        if isinstance(self._content, StreamFormat):
            return LineSplitReader(self._content, systems)
        if isinstance(self._content, AvroFormat):
            return AvroSplitReader(self._content, systems)
        if isinstance(self._content, AvroParquetFormat):
            return AvroParquetSplitReader(self._content, systems)
        return RowSplitReader(self._content, systems)

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """Check that the paths exist, and name the files that are to be read on.

        Raises:
            ProgramError: a path does not exist, a brace in it is not closed, or a pattern of a bounded source matches
                nothing.
            FinalOperationError: the position leads to a file that the paths do not name.
            SavepointError: the position is none of a FileSource.
            ConnectionFailedError: a file system does not answer.
        """
        found = [find_roots(path, must_match=self.bounded) for path in self._paths]
        if position is not None:
            check_position(position, found)
        return dict(known)


class FileSourceBuilder:
    """PyFlink's builder of :class:`FileSource`."""

    def __init__(self, content: StreamFormat | BulkFormat | AvroParquetFormat, paths: Sequence[str]) -> None:
        self._content = content
        self._paths = paths
        self._discovery_interval: Duration | None = None

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Make the source unbounded: it also reads files that appear later. It lists the files again before an epoch if
        the interval has passed."""
        self._discovery_interval = discovery_interval
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Make the source bounded (default): it reads the files that exist when the job starts."""
        self._discovery_interval = None
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Has no effect, and warns of that: every file is a split, which is read in ranges."""
        warn_without_effect("set_file_enumerator", "every file is a split, read in ranges")
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Has no effect, and warns of that: the next file is assigned to the subtask that has read least."""
        warn_without_effect("set_split_assigner", "the next file goes to the subtask that has read least")
        return self

    def build(self) -> FileSource:
        return FileSource(self._content, self._paths, self._discovery_interval)


class FileEnumeratorProvider:
    """PyFlink's choice of a file enumerator, for `FileSourceBuilder.set_file_enumerator`; has no effect."""

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        return FileEnumeratorProvider()

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        return FileEnumeratorProvider()


class FileSplitAssignerProvider:
    """PyFlink's choice of a split assigner, for `FileSourceBuilder.set_split_assigner`; has no effect."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        return FileSplitAssignerProvider()
