"""Deserializes records of CSV to typed Rows and serializes Rows to records (``CsvRow...Schema``). One message is one
record, which is one line unless a quoted field holds line breaks.

Rule upheld here: each message is parsed alone, so that a quote left open in one message cannot swallow the next; fields
are never shifted. The conversions and the quotes are Flink's (docs/connectors.md has the table); ``set_strict`` refuses
what Flink reads although it does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.common.serialization import DeserializationSchema, SerializationSchema
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.types import _create_row, check_inserts_only
from flinkish.errors import ArgumentTypeError, ArgumentValueError, MalformedRecordError, TypeMismatchError
from flinkish.formats._csv_values import CsvDialect, CsvReading, CsvRecords, field_reader, field_writer
from flinkish.formats._values import BLANKS, malformed

__all__ = ["CsvRecords", "CsvRowDeserializationSchema", "CsvRowSerializationSchema"]

#: The beginnings of lines that mean something else in a file: a blank line, a comment, a byte order mark.
_MEANS_ELSE = re.compile(r"\s*(?:#|\Z)|\ufeff")
#: The comments at the beginning of a message.
_COMMENTS = re.compile(r"\A(?:[^\S\r\n]*#[^\r\n]*(?:\r\n|\n|\r|\Z))+")


class CsvRowDeserializationSchema(DeserializationSchema):
    """Deserializes a message, which is one line of CSV in UTF-8, to a Row. Made by
    :class:`CsvRowDeserializationSchema.Builder`.

    A message that cannot be read raises MalformedRecordError; with ``set_ignore_parse_errors(True)`` a field that
    cannot be read is None, and a message with too many fields gives no record.

    >>> from flinkish.common import Types
    >>> type_info = Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.INT()])
    >>> CsvRowDeserializationSchema.Builder(type_info).build().deserialize(b'"ann, b",1')
    Row(user='ann, b', n=1)
    """

    def __init__(
        self,
        type_info: RowTypeInfo,
        dialect: CsvDialect,
        how: CsvReading,
        array_delimiters: tuple[str, ...] | None = None,
        used: Collection[str] | None = None,
    ) -> None:
        """
        Args:
            array_delimiters: the array element delimiter of each field; None: that of the dialect for all.
            used: the fields that are read, while the others are None; None: all.
        """
        self._type_info = type_info
        self._dialect = dialect
        self._how = how
        self._used = used
        self._array_delimiters = array_delimiters
        self._compile()

    def _compile(self) -> None:
        dialects = _dialects(self._type_info, self._dialect, self._array_delimiters)
        self._fields = [
            (
                name,
                field_reader(field_type, dialect, self._how) if self._used is None or name in self._used else _passed,
            )
            for name, field_type, dialect in zip(
                self._type_info.get_field_names(), self._type_info.get_field_types(), dialects, strict=True
            )
        ]
        self._split = self._dialect.splitter(self._how.strict)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_fields", "_split")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    def get_produced_type(self) -> TypeInformation:
        return self._type_info

    @property
    def records(self) -> CsvRecords | None:
        """What cuts the content of a file into messages; None: each line is one."""
        return self._dialect.records(self._how.allow_comments)

    def check_header(self, message: bytes) -> None:
        """Check that a line has the names of the fields, in their order.

        Raises:
            MalformedRecordError: it has others.
        """
        names = self._type_info.get_field_names()
        try:
            found = [name.strip(BLANKS) for name in self._split(str(message, "utf-8").removeprefix("\ufeff"))]
        except (Mismatch, ValueError) as error:
            raise self._malformed(message, error) from None
        if found != names:
            raise self._malformed(message, Mismatch(found, f"a header with the names {', '.join(names)}"))

    def deserialize(self, message: bytes | None) -> Any:
        if message is None:
            return None
        try:
            # a message that was cut from a file may begin with a byte order mark
            text = str(message, "utf-8").removeprefix("\ufeff")
            if self._how.allow_comments and "#" in text:
                text = _COMMENTS.sub("", text)
                if not text:
                    return None
            if not text:
                raise Mismatch(text, "a line of CSV")
            return self._row(self._split(text))
        except (Mismatch, ValueError) as error:
            if self._how.ignore_parse_errors:
                return None
            raise self._malformed(message, error) from None

    def _row(self, texts: list[str]) -> Any:
        fields, null_literal = self._fields, self._dialect.null_literal
        if len(texts) != len(fields):
            texts = self._fitted(texts)
        values: list[Any] = []
        for (name, read), text in zip(fields, texts):
            try:
                values.append(None if text == null_literal else read(text))
            except Mismatch as mismatch:
                if not self._how.ignore_parse_errors:
                    raise mismatch.inside(f"field '{name}'") from None
                values.append(None)
        if len(values) < len(fields):
            values += [None] * (len(fields) - len(values))
        return _create_row(self._type_info.get_field_names(), values)

    def _fitted(self, texts: list[str]) -> list[str]:
        """The texts of a record that has not as many as there are fields. An empty one behind the last is a delimiter
        too many, which Jackson allows; if there are too few, those that are missing are parse errors.

        Raises:
            Mismatch: there are too many, or too few and parse errors are not ignored.
        """
        expected = len(self._fields)
        if len(texts) == expected + 1 and not texts[-1].strip(BLANKS) and not self._how.strict:
            return texts[:-1]
        if len(texts) > expected or not self._how.ignore_parse_errors:
            raise Mismatch(texts, f"{expected} fields, not {len(texts)}")
        return texts

    def _malformed(self, message: bytes, error: Exception) -> MalformedRecordError:
        return malformed(
            "CSV line",
            message.rstrip(b"\r\n"),
            error,
            "CsvRowDeserializationSchema",
            f"a line of CSV that fits {self._type_info!r}",
            "mend the input, or set_ignore_parse_errors(True): then None stands for what cannot be read",
        )

    class Builder:
        """Builder of :class:`CsvRowDeserializationSchema`.

        Raises:
            TypeError: the type is not a ROW.
        """

        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = _row_type(type_info)
            self._dialect = CsvDialect()
            self._how = CsvReading()
            self._array_delimiters: tuple[str, ...] | None = None

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            self._dialect = self._dialect.having(field_delimiter=delimiter)
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether lines that begin with ``#`` are comments, and so no records (default: they are records)."""
            self._how = replace(self._how, allow_comments=allow_comments)
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
            """Set whether None is read where a field cannot be read or a line has too few of them. A line with too many
            fields, or whose quotes do not stand in pairs, then gives no record."""
            self._how = replace(self._how, ignore_parse_errors=ignore_parse_errors)
            return self

        def set_strict(self, strict: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether it is a parse error that a line does not fit where Flink reads it all the same (PyFlink has
            no such setting): anything but true and false under BOOLEAN, which is false for Flink; a delimiter behind
            the last field; a second line in one message, which Flink ignores."""
            self._how = replace(self._how, strict=strict)
            return self

        def build(self) -> CsvRowDeserializationSchema:
            return CsvRowDeserializationSchema(self._type_info, self._dialect, self._how, self._array_delimiters)

        def _set_array_delimiters(self, delimiters: tuple[str, ...]) -> CsvRowDeserializationSchema.Builder:
            """Set the array element delimiter of each field."""
            self._array_delimiters = delimiters
            return self


def _passed(text: str) -> None:
    """What is read of a field that is not used."""


class CsvRowSerializationSchema(SerializationSchema):
    """Serializes a Row to one line of CSV in UTF-8, with the line delimiter. Made by
    :class:`CsvRowSerializationSchema.Builder`.

    Raises (when it serializes):
        TypeMismatchError: the record does not fit the type, or has half of a surrogate pair, which has no UTF-8.
    """

    def __init__(
        self,
        type_info: RowTypeInfo,
        dialect: CsvDialect,
        array_delimiters: tuple[str, ...] | None = None,
        in_file: bool = False,
    ) -> None:
        """
        Args:
            array_delimiters: the array element delimiter of each field; None: that of the dialect for all.
            in_file: whether the lines are those of a file, whose reader passes over blank lines and comments.
        """
        self._type_info = type_info
        self._dialect = dialect
        self._array_delimiters = array_delimiters
        self._in_file = in_file
        self._compile()

    def _compile(self) -> None:
        dialects = _dialects(self._type_info, self._dialect, self._array_delimiters)
        self._writers: list[Callable[[Any], str]] = [
            field_writer(item, dialect)
            for item, dialect in zip(self._type_info.get_field_types(), dialects, strict=True)
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_writers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    @property
    def header(self) -> bytes:
        """The line with the names of the fields."""
        return (self._dialect.line(self._type_info.get_field_names()) + self._dialect.line_delimiter).encode()

    def serialize(self, value: Any) -> bytes | None:
        return CsvRowSerializationSchema.serialize_batch(self, [value])[0]

    def serialize_batch(self, values: list[Any]) -> list[bytes | None]:
        convert = self._type_info.batch_converter("CsvRowSerializationSchema")
        check_inserts_only(values, "CsvRowSerializationSchema")
        writers, delimiter, end = self._writers, self._dialect.field_delimiter, self._dialect.line_delimiter
        lines: list[bytes | None] = []
        for row in values if convert is None else convert(values):
            fields = [write(item) for write, item in zip(writers, row, strict=True)]
            line = delimiter.join(fields)
            if self._in_file and self._dialect.quote_character and _MEANS_ELSE.match(line):
                line = delimiter.join([self._dialect.quoted(fields[0]), *fields[1:]])
            try:
                lines.append((line + end).encode())
            except UnicodeEncodeError as error:
                names = self._type_info.get_field_names()
                field = next((f", field '{name}'" for name, text in zip(names, fields) if not _has_utf8(text)), "")
                raise TypeMismatchError(
                    f"the record {abbreviated(row)} cannot be written in UTF-8: {error}",
                    where=f"CsvRowSerializationSchema{field}",
                    expected="texts without half of a surrogate pair",
                    hint="map the field first",
                ) from None
        return lines

    class Builder:
        """Builder of :class:`CsvRowSerializationSchema`.

        Raises:
            TypeError: the type is not a ROW.
        """

        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = _row_type(type_info)
            self._dialect = CsvDialect(null_literal="")
            self._array_delimiters: tuple[str, ...] | None = None

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

        def set_strict(self, strict: bool) -> CsvRowSerializationSchema.Builder:
            """Set whether a record is refused with TypeMismatchError if a reader would take it apart otherwise (PyFlink
            has no such setting): an element of an array that holds the array element delimiter, or, without a quote
            character, a text that holds the field delimiter or a line break. Flink writes them as they are."""
            self._dialect = replace(self._dialect, strict=strict)
            return self

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(self._type_info, self._dialect)

        def _build_for_files(self, array_delimiters: tuple[str, ...]) -> CsvRowSerializationSchema:
            """A schema of the lines of files, of which a reader passes over blank ones and comments, with the array
            element delimiter of each field."""
            return CsvRowSerializationSchema(self._type_info, self._dialect, array_delimiters, in_file=True)


def _dialects(row_type: RowTypeInfo, dialect: CsvDialect, array_delimiters: tuple[str, ...] | None) -> list[CsvDialect]:
    """The dialect of each field: they differ in the array element delimiter."""
    if array_delimiters is None:
        return [dialect] * len(row_type.get_field_types())
    return [dialect.having(array_element_delimiter=delimiter) for delimiter in array_delimiters]


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
