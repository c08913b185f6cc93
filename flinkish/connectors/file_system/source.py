"""``FileSource``: records out of files, each of which is a split.

Rule upheld here: no line and no column becomes null unnoticed. JSON and CSV are not parsed by Spark: its parsers
take the first of two objects in a line, cut off what follows, and put null where a text does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flinkish.common.no_effect import warn_without_effect
from flinkish.common.time import Duration
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.connectors.file_system.avro import AvroFileEnumerator, AvroFormat, AvroSplitReader
from flinkish.connectors.file_system.avro_parquet import AvroParquetFormat, AvroParquetSplitReader
from flinkish.connectors.file_system.lines import LineFileEnumerator, LineSplitReader
from flinkish.connectors.file_system.listing import find_roots, folder_of, single_paths
from flinkish.connectors.file_system.parquet import ParquetFileEnumerator, RowSplitReader
from flinkish.connectors.file_system.paths import FileSystems, absolute
from flinkish.connectors.file_system.stream_format import BulkFormat, StreamFormat
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitReader, SplitSource
from flinkish.errors import ProgramError

#: How often a monitored source looks for new files unless the program says otherwise (Flink's default).
DISCOVERY_INTERVAL = Duration.of_seconds(1)


class FileSource(SplitSource):
    """Records out of files. Directories are read with all that is below them; names that begin with ``.`` or ``_``
    and files without content are left out. Paths may have wildcards (``*``, ``?``, ``[a-c]``, ``{a,b}``) and lie on
    several file systems, which the workers and the driver must both reach with pyarrow.fs.

    Bounded (the files that are there when the job starts), unless it monitors its paths: then new files are taken in as
    they appear. Files are read one after the other in the order (modification time, path), by whichever subtask is
    free; large ones over several epochs, except compressed ones. A file must stay as it is until it has been read.

    Restore: exact. Files that the savepoint knows go on where they were, others are new.

    Made by :meth:`for_record_stream_format` (PyFlink's) or by :meth:`text`, :meth:`csv`, :meth:`json`, :meth:`parquet`.

    Raises (when the job starts):
        ProgramError: a path does not exist; a declared column is not in a Parquet file.
    """

    def __init__(
        self,
        content: StreamFormat | BulkFormat | AvroFormat | AvroParquetFormat,
        paths: Sequence[str],
        discovery_interval: Duration | None = None,
    ) -> None:
        self._content = content
        self._paths = single_paths([absolute(path) for path in paths])
        self._discovery_interval = discovery_interval

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat | AvroParquetFormat, *paths: str) -> FileSourceBuilder:
        """Read lines.

        >>> source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/data/in").build()
        >>> source.bounded
        True
        """
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """Read columns."""
        return FileSourceBuilder(bulk_format, paths)

    @staticmethod
    def text(*paths: str, charset: str = "UTF-8") -> FileSource:
        """Each line is a text (type STRING)."""
        return FileSource(StreamFormat.text_line_format(charset), paths)

    @staticmethod
    def json(*paths: str, type_info: TypeInformation, ignore_parse_errors: bool = False) -> FileSource:
        """Each line is a JSON object; ``type_info`` is a ROW_NAMED. Blank lines are no records.

        A line that is not such an object ends the job with MalformedRecordError (file and text), unless
        ``ignore_parse_errors``: then it is passed over. An absent field is None.
        """
        from flinkish.formats.json import JsonRowDeserializationSchema

        builder = JsonRowDeserializationSchema.builder().type_info(type_info)
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
        """Each line is a record (no line breaks inside of quotes); ``type_info`` is a ROW. Blank lines are no records.

        With ``header`` the lines that hold the field names of the type, joined by the delimiter, are no records.
        Errors as for :meth:`json`.
        """
        from flinkish.formats.csv import CsvRowDeserializationSchema

        if not isinstance(type_info, RowTypeInfo):
            raise ProgramError(
                f"the type {type_info!r} has no columns", where="FileSource.csv", expected="Types.ROW_NAMED"
            )
        builder = CsvRowDeserializationSchema.Builder(type_info).set_field_delimiter(delimiter)
        schema = (builder.set_ignore_parse_errors(True) if ignore_parse_errors else builder).build()
        names = delimiter.join(type_info.get_field_names()) if header else None
        return FileSource(StreamFormat(schema, skip_blank=True, header=names), paths)

    @staticmethod
    def parquet(*paths: str, type_info: TypeInformation, columns: Sequence[str] | None = None) -> FileSource:
        """Only the declared columns are read: those of a ROW_NAMED (gives Rows), or ``columns`` of a TUPLE (gives
        tuples, which are faster).
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
        """The same source, unbounded: files that appear later are read as well."""
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
            return LineFileEnumerator(self._paths, interval_s, known)
        if isinstance(self._content, AvroFormat):
            return AvroFileEnumerator(self._paths, interval_s, known)
        return ParquetFileEnumerator(self._content.columns, self._paths, interval_s, known)

    def create_reader(self) -> SplitReader:
        systems = FileSystems([folder_of(path)[0] for path in self._paths])
        if isinstance(self._content, StreamFormat):
            return LineSplitReader(self._content, systems)
        if isinstance(self._content, AvroFormat):
            return AvroSplitReader(self._content, systems)
        if isinstance(self._content, AvroParquetFormat):
            return AvroParquetSplitReader(self._content, systems)
        return RowSplitReader(self._content, systems)

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """
        Raises:
            ProgramError: a path does not exist.
            ConnectionFailedError: a file system does not answer.
        """
        for path in self._paths:
            find_roots(path, must_match=self.bounded)
        return dict(known)


class FileSourceBuilder:
    """PyFlink's builder of :class:`FileSource`."""

    def __init__(self, content: StreamFormat | BulkFormat | AvroParquetFormat, paths: Sequence[str]) -> None:
        self._content = content
        self._paths = paths
        self._discovery_interval: Duration | None = None

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Unbounded: files that appear later are read as well. New ones are looked for before an epoch, if the
        interval has passed."""
        self._discovery_interval = discovery_interval
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Bounded: the files that are there when the job starts."""
        self._discovery_interval = None
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Changes nothing, and says so: every file is a split, read in ranges."""
        warn_without_effect("set_file_enumerator", "every file is a split, read in ranges")
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Changes nothing, and says so: the next file goes to the subtask that has read least."""
        warn_without_effect("set_split_assigner", "the next file goes to the subtask that has read least")
        return self

    def build(self) -> FileSource:
        return FileSource(self._content, self._paths, self._discovery_interval)


class FileEnumeratorProvider:
    """Kept for PyFlink; has no effect."""

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        return FileEnumeratorProvider()

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        return FileEnumeratorProvider()


class FileSplitAssignerProvider:
    """Kept for PyFlink; has no effect."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        return FileSplitAssignerProvider()
