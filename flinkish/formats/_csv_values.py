"""The dialect of CSV lines (``CsvDialect``), and the conversion of a single field to a value and back.

An array, a list or a nested Row is one field, whose elements are separated by the array element delimiter; bytes are
base64. An empty field is read as an empty array; an array of one empty string is written as an empty field too, since
CSV cannot tell the two apart.
"""

from __future__ import annotations

import base64
import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

from flinkish.common.arguments import abbreviated, check_instance
from flinkish.common.typeinfo import PrimitiveArrayTypeInfo, RowTypeInfo, TypeInformation
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.typeinfo.basic import BasicType, BasicTypeInfo
from flinkish.common.typeinfo.collections import _SequenceTypeInfo
from flinkish.common.types import _create_row
from flinkish.errors import ArgumentTypeError, ArgumentValueError, TypeMismatchError
from flinkish.formats._values import Reader, read_bytes, text_of_temporal, text_reader, unwrapped

#: The line terminator of the csv module.
LINE_END = "\r\n"


@dataclass(frozen=True)
class CsvDialect:
    """The characters with which CSV lines are written and read. An empty quote or escape character means that there is
    none. With ``null_literal`` None, no text is read as None, and None is written as an empty field."""

    field_delimiter: str = ","
    array_element_delimiter: str = ";"
    quote_character: str = '"'
    escape_character: str = ""
    null_literal: str | None = None
    line_delimiter: str = "\n"

    def having(self, **changes: str) -> CsvDialect:
        """A copy with changes.

        Raises:
            TypeError: a value is no str.
            ValueError: the field delimiter, the quote or the escape character is not one character; only the quote
                character may be empty.
        """
        for name, value in changes.items():
            check_instance(value, str, f"the {name.replace('_', ' ')} is", "formats.csv", "leave the call out")
        for name in ("field_delimiter", "quote_character", "escape_character"):
            text = changes.get(name)
            if text is not None and len(text) != 1 and not (name == "quote_character" and not text):
                raise ArgumentValueError(
                    f"the {name.replace('_', ' ')} is {text!r}",
                    where="formats.csv",
                    expected="one character",
                    hint="such as ',' or ';'",
                )
        return replace(self, **changes)

    def reader_options(self) -> dict[str, Any]:
        return {
            "delimiter": self.field_delimiter,
            "quotechar": self.quote_character or None,
            "escapechar": self.escape_character or None,
            "quoting": csv.QUOTE_MINIMAL if self.quote_character else csv.QUOTE_NONE,
        }

    def writer_options(self) -> dict[str, Any]:
        # csv quotes a field that holds a character of the terminator; the schema removes the terminator again
        return {**self.reader_options(), "lineterminator": LINE_END}

    def line(self, texts: list[str], quoting: int = csv.QUOTE_MINIMAL) -> str:
        """The line of these fields, without its end."""
        if not self.quote_character:
            return self.field_delimiter.join(texts)
        buffer = StringIO()
        csv.writer(buffer, **{**self.writer_options(), "quoting": quoting}).writerow(texts)
        return buffer.getvalue().removesuffix(LINE_END)

    def records(self, comments: bool) -> CsvRecords | None:
        """What cuts the content of a file into records; None: each line is a record, since nothing can hide the end of
        a line. ``comments``: whether a line that begins with ``#`` is a comment, whatever follows."""
        special = tuple(mark.encode() for mark in (self.quote_character, self.escape_character) if mark)
        if not special:
            return None
        record = _record_pattern(self, comments)
        return CsvRecords(special, re.compile(record), re.compile(record + rb"|[\s\S]+"))


@dataclass(frozen=True)
class CsvRecords:
    """Cuts the content of a CSV file, in UTF-8, into records, which may span lines: a line end inside quotes or behind
    the escape character belongs to its field. A record is cut where the csv module would end it.

    Args:
        special: the characters without which each line is a record.
        record: matches one record with its line end.
        cuts: the same; or, where no whole record begins, all that is left.
    """

    special: tuple[bytes, ...]
    record: re.Pattern[bytes]
    cuts: re.Pattern[bytes]

    def whole_in(self, data: bytes) -> list[bytes] | None:
        """The whole records at the beginning of the data, which begins where a record does, with their line ends. None:
        each line of the data is a record."""
        if not any(character in data for character in self.special):
            return None
        found: list[bytes] = self.cuts.findall(data)
        if found and self.record.fullmatch(found[-1]) is None:
            found.pop()
        return found


def _record_pattern(dialect: CsvDialect, comments: bool) -> bytes:
    """The pattern of one record with its line end. There is only one way in which it can match, so a search that fails
    takes no longer than one that succeeds."""
    delimiter, quote, escape = (
        re.escape(mark.encode())
        for mark in (dialect.field_delimiter, dialect.quote_character, dialect.escape_character)
    )
    escaped = rb"%b[\s\S]" % escape if escape else b""
    plain = _repeated(_any_but(rb"\r\n", delimiter, escape), escaped)
    field = plain
    if quote:
        # two quotes inside of quotes are one that belongs to the text; behind the last one, csv reads on as if plain
        inside = _repeated(_any_but(b"", quote, escape), *filter(None, (escaped, quote * 2)))
        field = rb"(?:%b%b%b(?!%b)%b|(?!%b)%b)" % (quote, inside, quote, quote, plain, quote, plain)
    record = rb"%b(?:%b%b)*" % (field, delimiter, field)
    if comments:
        record = rb"(?:[^\S\r\n]*#[^\r\n]*|(?![^\S\r\n]*#)%b)" % record
    # a \r at the very end of the data may be the first half of a \r\n
    return record + rb"(?:\r\n|\n|\r(?=[^\n]))"


def _any_but(control: bytes, *texts: bytes) -> bytes:
    """The pattern of a byte that is none of the control characters and begins none of the texts."""
    several = b"|".join(filter(None, texts))
    if all(len(text.replace(b"\\", b"")) <= 1 for text in texts):
        return rb"[^%b%b]" % (control, b"".join(texts))
    return rb"(?:(?!%b)%b)" % (several, rb"[^%b]" % control if control else rb"[\s\S]")


def _repeated(plain: bytes, *others: bytes) -> bytes:
    """The pattern of any sequence of bytes and of the other texts."""
    found = [other for other in others if other]
    return rb"%b*(?:(?:%b)%b*)*" % (plain, b"|".join(found), plain) if found else plain + b"*"


def field_reader(type_info: TypeInformation, dialect: CsvDialect) -> Reader:
    """The function that reads the text of a field as a value of the type; it raises Mismatch if the text does not fit.

    Raises:
        TypeError: the type has no form in CSV.
    """
    type_info = unwrapped(type_info)
    if isinstance(type_info, PrimitiveArrayTypeInfo) and type_info._is_binary:
        return read_bytes
    if isinstance(type_info, _SequenceTypeInfo):
        read_element = _element(field_reader(type_info.elem_type, dialect), dialect)
        return lambda text: [read_element(part) for part in text.split(dialect.array_element_delimiter)] if text else []
    if isinstance(type_info, RowTypeInfo):
        return _nested_row_reader(type_info, dialect)
    reader = text_reader(type_info)
    if reader is None:
        raise ArgumentTypeError(
            f"{type_info!r} has no form in CSV",
            where="formats.csv",
            expected="a basic or time type, an array, a LIST or a ROW",
            hint="map the field to a text before",
        )
    return reader


def field_writer(type_info: TypeInformation, dialect: CsvDialect) -> Callable[[Any], str]:
    """The function that writes a (converted) value of the type, or None, as the text of a field.

    Raises:
        TypeError: the type has no form in CSV.
    """
    write = _writer(unwrapped(type_info), dialect)
    null_literal = dialect.null_literal or ""
    return lambda value: null_literal if value is None else write(value)


def _writer(type_info: TypeInformation, dialect: CsvDialect) -> Callable[[Any], str]:
    if isinstance(type_info, PrimitiveArrayTypeInfo) and type_info._is_binary:
        return lambda value: base64.b64encode(value).decode("ascii")
    if isinstance(type_info, _SequenceTypeInfo):
        write_element = field_writer(type_info.elem_type, dialect)
        return lambda value: _joined([write_element(item) for item in value], dialect)
    if isinstance(type_info, RowTypeInfo):
        writers = [field_writer(item, dialect) for item in type_info.get_field_types()]
        return lambda value: _joined([write(item) for write, item in zip(writers, value, strict=True)], dialect)
    if text_reader(type_info) is None:
        raise ArgumentTypeError(
            f"{type_info!r} has no form in CSV",
            where="formats.csv",
            expected="a basic or time type, an array, a LIST or a ROW",
            hint="map the field to a text before",
        )
    if isinstance(type_info, BasicTypeInfo):
        kind = type_info._basic_type
        if kind is BasicType.BOOLEAN:
            return lambda value: "true" if value else "false"
        return text_of_temporal if kind is BasicType.INSTANT else str
    return text_of_temporal


def _joined(parts: list[str], dialect: CsvDialect) -> str:
    delimiter = dialect.array_element_delimiter
    for part in parts:
        if delimiter in part:
            raise TypeMismatchError(
                f"the element {abbreviated(part)} holds the array element delimiter {delimiter!r}",
                where="CsvRowSerializationSchema",
                expected="elements without it, since CSV cannot tell it from a delimiter",
                hint="choose another one with set_array_element_delimiter",
            )
    return delimiter.join(parts)


def _element(read: Reader, dialect: CsvDialect) -> Reader:
    return lambda text: None if text == dialect.null_literal else read(text)


def _nested_row_reader(type_info: RowTypeInfo, dialect: CsvDialect) -> Reader:
    names = type_info.get_field_names()
    readers = [_element(field_reader(item, dialect), dialect) for item in type_info.get_field_types()]

    def read(text: str) -> Any:
        parts = text.split(dialect.array_element_delimiter)
        if len(parts) != len(readers):
            raise Mismatch(text, f"{len(readers)} fields between {dialect.array_element_delimiter!r}")
        return _create_row(names, [reader(part) for reader, part in zip(readers, parts, strict=True)])

    return read
