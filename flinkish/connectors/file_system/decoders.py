"""What the worker does with a batch of lines, or with a batch of paths of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flinkish.connectors.columns import RecordReader
from flinkish.connectors.file_system.paths import file_system_of, readable
from flinkish.connectors.file_system.stream_format import BulkFormat, StreamFormat
from flinkish.core.source import RecordDecoder
from flinkish.errors import MalformedRecordError, ProgramError, RetryableError

if TYPE_CHECKING:
    import pyarrow

#: records that the worker hands on at a time (larger batches were slower)
BATCH_RECORDS = 10_000

#: records that the worker takes from a Parquet file at a time: dictionaries are decoded once for so many
READ_RECORDS = 131072

#: A dictionary with more texts than this share of the records costs more than it spares (measured: 0.8 still pays).
DICTIONARY_SHARE = 1.0


class LineDecoder(RecordDecoder):
    """Batches with the columns ``line`` (bytes) and ``file`` (URI)."""

    def __init__(self, stream_format: StreamFormat) -> None:
        self._format = stream_format

    def decode(self, batch: pyarrow.RecordBatch) -> tuple[list[Any], list[int] | None]:
        lines = self._lines(batch.column(0).to_pylist())
        try:
            records = self._format.schema.deserialize_batch(lines)
        except MalformedRecordError:
            raise self._located(batch) from None
        if type(None) in set(map(type, records)):
            # what the schema was told to pass over (ignore_parse_errors)
            records = [record for record in records if record is not None]
        return records, None

    def _lines(self, lines: list[bytes]) -> list[bytes | None]:
        kept: list[bytes | None] = list(lines)
        if self._format.skip_blank:
            kept = [line for line in lines if line and not line.isspace()]
        if self._format.header is not None:
            header = self._format.header.encode()
            kept = [line for line in kept if line != header and line != b"\xef\xbb\xbf" + header]
        return kept

    def _located(self, batch: pyarrow.RecordBatch) -> Exception:
        """The error again, with the file: which line it was is asked of the schema one by one."""
        for line, file in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            try:
                self._format.schema.deserialize_batch(self._lines([line]))
            except MalformedRecordError as error:
                return MalformedRecordError(
                    error.what,
                    where=", ".join(part for part in (f"file {readable(file)}", error.where) if part),
                    expected=error.expected,
                    hint=error.hint,
                )
        return ProgramError(
            "the schema refuses a batch of lines and none of its lines", where=type(self._format.schema).__name__
        )


class ParquetFileDecoder(RecordDecoder):
    """Batches with the column ``path``: the worker reads these files itself, part by part."""

    def __init__(self, bulk_format: BulkFormat) -> None:
        self._format = bulk_format
        #: columns of texts that are read as dictionaries, until one turns out to hold too many texts
        self._encoded: list[str] | None = None

    def decode(self, batch: pyarrow.RecordBatch) -> tuple[list[Any], list[int] | None]:
        return [value for values, _ in self.decode_many(batch) for value in values], None

    def decode_many(self, batch: pyarrow.RecordBatch) -> Iterator[tuple[list[Any], list[int] | None]]:
        for path in batch.column(0).to_pylist():
            yield from self._read(path)

    def _read(self, path: str) -> Iterator[tuple[list[Any], list[int] | None]]:
        import pyarrow as pa

        reader = RecordReader(self._format.type_info, f"file {readable(path)}")
        try:
            for part in self._parts(path):
                records = reader.read(part)
                for start in range(0, len(records), BATCH_RECORDS):
                    yield records[start : start + BATCH_RECORDS], None
        except pa.ArrowInvalid as error:
            raise MalformedRecordError(
                f"the file is not Parquet: {error}", where=f"file {readable(path)}", expected="a complete Parquet file"
            ) from error
        except OSError as error:
            raise RetryableError(f"the file cannot be read: {error}", where=f"file {readable(path)}") from error

    def _parts(self, path: str) -> Iterator[pyarrow.RecordBatch]:
        from pyarrow import parquet

        columns = list(self._format.columns)
        system, inside = file_system_of(path)
        with system.open_input_file(inside) as handle:
            names = parquet.read_schema(handle).names
            check_columns(columns, names, readable(path))
            handle.seek(0)
            file = parquet.ParquetFile(handle, read_dictionary=self._text_columns())
            # one thread: the other cores belong to other tasks
            for part in file.iter_batches(READ_RECORDS, columns=columns, use_threads=False):
                batch = part.select(columns)
                self._learn(batch)
                yield batch

    def _text_columns(self) -> list[str]:
        if self._encoded is None:
            import pyarrow as pa

            fields = self._format.type_info.to_arrow_fields()
            pairs = zip(self._format.columns, fields, strict=True)
            self._encoded = [name for name, field in pairs if pa.types.is_string(field.type)]
        return self._encoded

    def _learn(self, batch: pyarrow.RecordBatch) -> None:
        """The next files are read without the dictionaries that did not pay."""
        if batch.num_rows >= BATCH_RECORDS:
            most = DICTIONARY_SHARE * batch.num_rows
            self._encoded = [name for name in self._encoded or () if _dictionary_size(batch.column(name)) <= most]

    def __getstate__(self) -> BulkFormat:
        return self._format

    def __setstate__(self, state: BulkFormat) -> None:
        self.__init__(state)  # type: ignore[misc]


def _dictionary_size(column: pyarrow.Array) -> int:
    """Number of texts in the dictionary of a column; 0 if it has none."""
    dictionary = getattr(column, "dictionary", None)
    return 0 if dictionary is None else len(dictionary)


def check_columns(declared: list[str], found: list[str], file: str) -> None:
    """
    Raises:
        ProgramError: a declared column is not in the file. (Spark would read nulls in its place.)
    """
    missing = [name for name in declared if name not in found]
    if missing:
        raise ProgramError(
            f"the declared column '{missing[0]}' is not in the file",
            where=f"file {file}",
            expected=f"one of its columns {', '.join(found)}",
            hint="correct the names in the type of the source",
        )
