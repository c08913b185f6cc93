"""Deserializes records of CSV to typed Rows and serializes Rows to records (``CsvRow...Schema``). One message is one
record, which is one line unless a quoted field holds line breaks.

Rule upheld here: each message is parsed alone, so that a quote left open in one message cannot swallow the next; a
message that is not exactly one record with the declared number of fields is malformed, and its fields are never shifted
or padded.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from io import StringIO
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.common.serialization import DeserializationSchema, SerializationSchema
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.types import _create_row, check_inserts_only
from flinkish.errors import ArgumentTypeError, ArgumentValueError, MalformedRecordError, TypeMismatchError
from flinkish.formats._csv_values import LINE_END, CsvDialect, CsvRecords, field_reader, field_writer

__all__ = ["CsvRecords", "CsvRowDeserializationSchema", "CsvRowSerializationSchema"]

# the csv module refuses longer fields than 128 KiB by default; the largest limit is a C long
csv.field_size_limit(2**31 - 1)

#: The beginnings of lines that mean something else in a file: a blank line, a comment, a byte order mark.
_MEANS_ELSE = re.compile(r"\s*(?:#|\Z)|\ufeff")


class CsvRowDeserializationSchema(DeserializationSchema):
    """Deserializes a message, which is one line of CSV in UTF-8, to a Row. Made by
    :class:`CsvRowDeserializationSchema.Builder`.

    A message that cannot be read raises MalformedRecordError; with ``set_ignore_parse_errors(True)`` it gives no
    record.

    >>> from flinkish.common import Types
    >>> type_info = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.INT()])
    >>> CsvRowDeserializationSchema.Builder(type_info).build().deserialize(b'"ann, b",1')
    Row(user='ann, b', n=1)
    """

    def __init__(
        self, type_info: RowTypeInfo, dialect: CsvDialect, allow_comments: bool, ignore_parse_errors: bool
    ) -> None:
        self._type_info = type_info
        self._dialect = dialect
        self._allow_comments = allow_comments
        self._ignore_parse_errors = ignore_parse_errors
        self._compile()

    def _compile(self) -> None:
        self._readers = [field_reader(item, self._dialect) for item in self._type_info.get_field_types()]

    def __getstate__(self) -> tuple[Any, ...]:
        return (self._type_info, self._dialect, self._allow_comments, self._ignore_parse_errors)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._type_info, self._dialect, self._allow_comments, self._ignore_parse_errors = state
        self._compile()

    def get_produced_type(self) -> TypeInformation:
        return self._type_info

    @property
    def records(self) -> CsvRecords | None:
        """What cuts the content of a file into messages; None: each line is one."""
        return self._dialect.records(self._allow_comments)

    @property
    def header(self) -> str:
        """The line with the names of the fields, without its end."""
        return self._dialect.line(self._type_info.get_field_names())

    def deserialize(self, message: bytes | None) -> Any:
        if message is None:
            return None
        try:
            # a message that was cut from a file may begin with a byte order mark
            text = str(message, "utf-8").removeprefix("\ufeff")
            if self._allow_comments and text.lstrip().startswith("#"):
                return None
            return self._row(self._fields(text))
        except (Mismatch, ValueError, csv.Error) as error:
            if self._ignore_parse_errors:
                return None
            raise self._malformed(message, error) from None

    def _fields(self, text: str) -> list[str]:
        if not text.strip("\r\n"):
            return [""]  # the csv module ignores an empty line; for a Row of one field it is an empty field
        # newline="": a line feed inside quotes belongs to the field
        lines = list(csv.reader(StringIO(text, newline=""), strict=True, **self._dialect.reader_options()))
        if len(lines) != 1:
            raise Mismatch(text, f"one line of CSV, not {len(lines)}")
        return lines[0]

    def _row(self, fields: list[str]) -> Any:
        names = self._type_info.get_field_names()
        if len(fields) != len(names):
            raise Mismatch(fields, f"{len(names)} fields, not {len(fields)}")
        values: list[Any] = []
        for name, read, text in zip(names, self._readers, fields, strict=True):
            try:
                values.append(None if text == self._dialect.null_literal else read(text))
            except Mismatch as mismatch:
                raise mismatch.inside(f"field '{name}'") from None
        return _create_row(names, values)

    def _malformed(self, message: bytes, error: Exception) -> MalformedRecordError:
        message = message.rstrip(b"\r\n")
        path, expected, reason = "", f"a line of CSV that fits {self._type_info!r}", str(error)
        if isinstance(error, Mismatch):
            path = ", ".join(error.path)
            expected, reason = error.expected, f"there is {abbreviated(error.value, 60)}"
        return MalformedRecordError(
            f"the CSV line {abbreviated(str(message, 'utf-8', 'backslashreplace'))} cannot be read: {reason}",
            where=", ".join(part for part in ("CsvRowDeserializationSchema", path) if part),
            expected=expected,
            hint="mend the input, or set_ignore_parse_errors(True) to pass over such lines",
        )

    class Builder:
        """Builder of :class:`CsvRowDeserializationSchema`.

        Raises:
            TypeError: the type is not a ROW.
        """

        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = _row_type(type_info)
            self._dialect = CsvDialect()
            self._allow_comments = False
            self._ignore_parse_errors = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            self._dialect = self._dialect.having(field_delimiter=delimiter)
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether lines that begin with ``#`` are comments, and so no records (default: they are records)."""
            self._allow_comments = allow_comments
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            self._dialect = self._dialect.having(array_element_delimiter=delimiter)
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            self._dialect = self._dialect.having(quote_character=c)
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            self._dialect = self._dialect.having(escape_character=c)
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that is read as None; by default no text is."""
            self._dialect = self._dialect.having(null_literal=null_literal)
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            self._ignore_parse_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            return CsvRowDeserializationSchema(
                self._type_info, self._dialect, self._allow_comments, self._ignore_parse_errors
            )


class CsvRowSerializationSchema(SerializationSchema):
    """Serializes a Row to one line of CSV in UTF-8, with the line delimiter. Made by
    :class:`CsvRowSerializationSchema.Builder`.

    Raises (when it serializes):
        TypeMismatchError: the record does not fit the type, or the dialect cannot express it.
    """

    def __init__(self, type_info: RowTypeInfo, dialect: CsvDialect, in_file: bool = False) -> None:
        """
        Args:
            in_file: whether the lines are those of a file, whose reader passes over blank lines and comments.
        """
        self._type_info = type_info
        self._dialect = dialect
        self._in_file = in_file
        self._compile()

    def _compile(self) -> None:
        self._writers: list[Callable[[Any], str]] = [
            field_writer(item, self._dialect) for item in self._type_info.get_field_types()
        ]

    def __getstate__(self) -> tuple[Any, ...]:
        return (self._type_info, self._dialect, self._in_file)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._type_info, self._dialect, self._in_file = state
        self._compile()

    def serialize(self, value: Any) -> bytes | None:
        return self.serialize_batch([value])[0]

    def serialize_batch(self, values: list[Any]) -> list[bytes | None]:
        convert = self._type_info.batch_converter("CsvRowSerializationSchema")
        buffer = StringIO()
        line = csv.writer(buffer, **self._dialect.writer_options())
        lines: list[bytes | None] = []
        check_inserts_only(values, "CsvRowSerializationSchema")
        for row in values if convert is None else convert(values):
            buffer.seek(0)
            buffer.truncate()
            fields = [write(item) for write, item in zip(self._writers, row, strict=True)]
            try:
                if fields != [""]:
                    line.writerow(fields)
                text = buffer.getvalue().removesuffix(LINE_END)
                if self._in_file and _MEANS_ELSE.match(text):
                    text = self._quoted(fields)
                lines.append((text + self._dialect.line_delimiter).encode())
            except (csv.Error, UnicodeEncodeError) as error:
                names = self._type_info.get_field_names()
                field = next((f", field '{name}'" for name, text in zip(names, fields) if not _has_utf8(text)), "")
                raise TypeMismatchError(
                    f"the record {abbreviated(row)} cannot be written so that it can be read again: {error}",
                    where=f"CsvRowSerializationSchema{field}",
                    expected="fields that the dialect can express",
                    hint="set a quote or an escape character, or map the field first",
                ) from None
        return lines

    def _quoted(self, fields: list[str]) -> str:
        """The line of a record with all fields in quotes.

        Raises:
            csv.Error: there is no quote character.
        """
        if not self._dialect.quote_character:
            raise csv.Error("a reader of the file would take its line for a blank line or a comment")
        return self._dialect.line(fields, csv.QUOTE_ALL)

    class Builder:
        """Builder of :class:`CsvRowSerializationSchema`.

        Raises:
            TypeError: the type is not a ROW.
        """

        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = _row_type(type_info)
            self._dialect = CsvDialect(null_literal="")

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            self._dialect = self._dialect.having(field_delimiter=c)
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the line delimiter: ``\\n`` (default), ``\\r``, ``\\r\\n`` or the empty string.

            Raises:
                ValueError: another delimiter.
            """
            if delimiter not in ("\n", "\r", "\r\n", ""):
                raise ArgumentValueError(
                    f"the line delimiter is {delimiter!r}",
                    where="CsvRowSerializationSchema",
                    expected="'\\n', '\\r', '\\r\\n' or ''",
                    hint="'\\n' is the default",
                )
            self._dialect = self._dialect.having(line_delimiter=delimiter)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            self._dialect = self._dialect.having(array_element_delimiter=delimiter)
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            self._dialect = self._dialect.having(quote_character="")
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            self._dialect = self._dialect.having(quote_character=c)
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            self._dialect = self._dialect.having(escape_character=c)
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text that is written for None; by default the field is empty."""
            self._dialect = self._dialect.having(null_literal=s)
            return self

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(self._type_info, self._dialect)

        def _build_for_files(self) -> CsvRowSerializationSchema:
            """A schema of the lines of files, of which a reader passes over blank ones and comments."""
            return CsvRowSerializationSchema(self._type_info, self._dialect, in_file=True)


def _has_utf8(text: str) -> bool:
    """Whether the text has no half of a surrogate pair."""
    return text == text.encode(errors="ignore").decode()


def _row_type(type_info: TypeInformation) -> RowTypeInfo:
    if not isinstance(type_info, RowTypeInfo):
        raise ArgumentTypeError(
            f"type_info must be RowTypeInfo, but is {type_info!r}",
            where="formats.csv",
            expected="a RowTypeInfo",
            hint="make one with Types.ROW_NAMED(names, types)",
        )
    return type_info
