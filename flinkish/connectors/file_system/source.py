"""``FileSource``: Spark lists (and mostly reads) the files, the worker makes records of them.

Rule upheld here: no line and no column becomes null unnoticed. JSON and CSV are parsed in the worker, because Spark's
parsers take the first of two objects in a line, cut off what follows, and put null where a text does not fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from flinkish.common.time import Duration
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.connectors.column_decoder import ColumnDecoder
from flinkish.connectors.file_system.decoders import LineDecoder, ParquetFileDecoder, check_columns
from flinkish.connectors.file_system.paths import first_file, one_glob
from flinkish.connectors.file_system.stream_format import BulkFormat, StreamFormat
from flinkish.connectors.spark_types import ddl_of
from flinkish.core.source import DataFrameSource, RecordDecoder, SourceLimits
from flinkish.errors import ConnectionFailedError, ProgramError, SavepointError

# Spark forgets files that are a week older than the newest one: "seen before, or too old to matter". Nothing is here.
_MAX_FILE_AGE = "36500d"
# Spark's own schema of this format, of which it wants to be told
_LISTING = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_LOCAL_ROOT = "^file:/+"
_SAMPLE_BYTES = 64 * 1024


class FileSource(DataFrameSource):
    """Records out of files. Directories are read with all that is below them; names that begin with ``.`` or ``_``
    are left out. Bounded, unless it monitors its paths: then new files are taken in as they appear.

    Restore: files that the savepoint names are not read again. Exact, because an epoch takes in whole files.

    Made by :meth:`for_record_stream_format` (PyFlink's) or by :meth:`text`, :meth:`csv`, :meth:`json`, :meth:`parquet`.

    Raises (when it is loaded):
        ProgramError: a path does not exist; a declared column is not in the (first) Parquet file.
    """

    def __init__(
        self,
        content: StreamFormat | BulkFormat,
        paths: Sequence[str],
        monitored: bool = False,
        read_in_worker: bool = False,
    ) -> None:
        self._content = content
        self._paths = list(paths)
        self._glob = one_glob(self._paths)
        self._monitored = monitored
        self._read_in_worker = read_in_worker

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
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
    def parquet(
        *paths: str, type_info: TypeInformation, columns: Sequence[str] | None = None, read_in_worker: bool = False
    ) -> FileSource:
        """Only the declared columns are read: those of a ROW_NAMED (gives Rows), or ``columns`` of a TUPLE (gives
        tuples, which are faster).

        ``read_in_worker``: Spark only lists the files and the Python worker reads them with pyarrow: faster, if the
        workers can reach the files with pyarrow.fs and there are at least as many files as cores.
        """
        if columns is None and isinstance(type_info, RowTypeInfo):
            columns = type_info.get_field_names()
        if columns is None:
            raise ProgramError(
                f"the columns of {type_info!r} have no names",
                where="FileSource.parquet",
                expected="a ROW_NAMED, or columns=[...]",
            )
        return FileSource(BulkFormat(type_info, tuple(columns)), paths, read_in_worker=read_in_worker)

    def monitor(self) -> FileSource:
        """The same source, unbounded: files that appear later are read as well."""
        return FileSource(self._content, self._paths, True, self._read_in_worker)

    @property
    def bounded(self) -> bool:
        return not self._monitored

    @property
    def produced_type(self) -> TypeInformation:
        return self._content.produced_type

    def decoder(self) -> RecordDecoder:
        if isinstance(self._content, StreamFormat):
            return LineDecoder(self._content)
        if self._read_in_worker:
            return ParquetFileDecoder(self._content)
        return ColumnDecoder(self._content.type_info, f"files {self._glob}")

    def load(self, spark: Any, limits: SourceLimits, start: str | None) -> Any:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        reader = spark.readStream.option("recursiveFileLookup", "true").option("maxFileAge", _MAX_FILE_AGE)
        reader = reader.option("maxBytesPerTrigger", str(self._bytes_per_epoch(limits)))
        content = self._content
        try:
            if isinstance(content, StreamFormat):
                # as bytes: the worker decides what is text
                columns = [f.col("value").cast("binary").alias("line"), f.col("_metadata.file_path").alias("file")]
                frame = reader.format("text").load(self._glob)
            elif self._read_in_worker:
                # of this format's columns only `content` makes Spark open a file
                columns = [f.col("path")]
                frame = reader.format("binaryFile").schema(_LISTING).load(self._glob)
            else:
                columns = [f.col(f"`{name.replace('`', '``')}`") for name in content.columns]
                frame = reader.format("parquet").schema(_ddl(content)).load(self._glob)
        except AnalysisException as error:
            raise ProgramError(
                f"the files cannot be read: {error.desc if hasattr(error, 'desc') else error}",
                where=f"FileSource {self._glob}",
            ) from error
        if start is not None:
            # Spark writes file:/x here and file:///x into its logs
            uri = f.regexp_replace(f.col("_metadata.file_path"), _LOCAL_ROOT, "file:/")
            frame = frame.filter(~uri.isin([re.sub(_LOCAL_ROOT, "file:/", path) for path in _processed(start)]))
        return frame.select(*columns)

    def position(self, spark: Any, end_offset: str, checkpoint: str, index: int) -> str:
        """The files that the query has read, out of the log that Spark keeps of them: offset n is its n-th entry."""
        last = int(json.loads(end_offset)["logOffset"])
        lines = spark.read.text(f"{checkpoint}/sources/{index}").where("value like '{%'").collect()
        entries = (json.loads(line["value"]) for line in lines)
        return json.dumps({"processed": sorted({entry["path"] for entry in entries if entry["batchId"] <= last})})

    def _bytes_per_epoch(self, limits: SourceLimits) -> int:
        """Spark counts bytes of files and not records, so what a record takes is measured on one file."""
        try:
            found = first_file(self._paths)
        except (OSError, ConnectionFailedError):
            found = None  # Spark may reach file systems that pyarrow does not; epochs are then bounded in bytes alone
        if found is None:
            return limits.max_bytes
        system, path, size = found
        if isinstance(self._content, BulkFormat):
            from pyarrow import parquet

            with system.open_input_file(path) as handle:
                file = parquet.ParquetFile(handle)
                check_columns(list(self._content.columns), file.schema_arrow.names, path)
                records, sampled = file.metadata.num_rows, size
        else:
            with system.open_input_file(path) as handle:
                sample = handle.read(_SAMPLE_BYTES)
                records, sampled = sample.count(b"\n"), len(sample)
        if not records:
            return limits.max_bytes
        bytes_max: int = limits.max_records * sampled // records
        return max(1, min(limits.max_bytes, bytes_max))


def _ddl(content: BulkFormat) -> str:
    from flinkish.common.typeinfo import Types
    from flinkish.connectors.columns import field_types

    return ddl_of(Types.ROW_NAMED(list(content.columns), field_types(content.type_info)))


def _processed(start: str) -> list[str]:
    try:
        return list(json.loads(start)["processed"])
    except (ValueError, KeyError, TypeError) as error:
        raise SavepointError(
            f"the offset {start[:200]!r} of a file source cannot be read: {error!r}",
            where="FileSource",
            expected='{"processed": [file, ...]}',
        ) from error


class FileSourceBuilder:
    """PyFlink's builder of :class:`FileSource`."""

    def __init__(self, content: StreamFormat | BulkFormat, paths: Sequence[str]) -> None:
        self._content = content
        self._paths = paths
        self._monitored = False

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Unbounded: files that appear later are read as well. New ones are looked for in each epoch, whatever the
        interval."""
        self._monitored = True
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Bounded: the files that are there when the job starts."""
        self._monitored = False
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Kept for PyFlink: Spark decides what is split."""
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Kept for PyFlink: Spark decides who reads what."""
        return self

    def build(self) -> FileSource:
        return FileSource(self._content, self._paths, self._monitored)


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
