"""The conversion of a single field of CSV to a value and back, and the dialect of CSV lines: how the content of a file
is cut into records, a record into fields, and how fields are put in quotes.

The conversions are those of Flink's ``CsvRowDeserializationSchema`` and ``CsvRowSerializationSchema``
(docs/connectors.md has them as a table). An array, a list or a nested
Row is one field, whose elements are separated by the array element delimiter and are scalar; bytes are base64. An empty
field is read as an empty array; an array of one empty string is written as an empty field too, since CSV cannot tell
the two apart.

Rule upheld here: lines are taken apart and quoted as Jackson does, which Flink uses.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from typing import Any

from flinkish.common.arguments import abbreviated, check_instance
from flinkish.common.text import text_writer
from flinkish.common.time import Instant
from flinkish.common.typeinfo import PrimitiveArrayTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.typeinfo.basic import BasicType, DecimalTypeInfo
from flinkish.common.typeinfo.collections import _SequenceTypeInfo
from flinkish.common.types import _create_row
from flinkish.errors import ArgumentTypeError, ArgumentValueError, TypeMismatchError
from flinkish.formats._values import (
    BITS,
    BLANKS,
    Reader,
    Temporal,
    basic_readers,
    in_utc,
    instant_of,
    is_canonical_date,
    microseconds,
    read_bytes,
    read_decimal,
    scalar_kind,
    smart_datetime,
    table_readers,
    table_writers,
    text_of_seconds,
    trimmed,
    unwrapped,
    without_zeros,
)

#: What Jackson reads for some characters behind the escape character; the others stand for themselves.
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


@dataclass(frozen=True)
class CsvDialect:
    """The characters with which CSV lines are written and read. An empty quote or escape character means that there is
    none. With ``null_literal`` None, no text is read as None, and None is written as an empty field. With ``strict``,
    what is written can be taken apart again, or it is refused. ``times``: what stands between date and time in texts of
    Flink's formats of tables; empty: times are those of the DataStream API."""

    field_delimiter: str = ","
    array_element_delimiter: str = ";"
    quote_character: str = '"'
    escape_character: str = ""
    null_literal: str | None = None
    line_delimiter: str = "\n"
    strict: bool = False
    times: str = ""

    def having(self, **changes: str) -> CsvDialect:
        """A copy with changes.

        Raises:
            TypeError: a value is no str.
            ValueError: the field delimiter, the quote or the escape character is not one character (only the quote
                character may be empty), or the array element delimiter is empty.
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
        if changes.get("array_element_delimiter") == "":
            raise ArgumentValueError(
                "the array element delimiter is empty",
                where="formats.csv",
                expected="one character or more",
                hint="declare a STRING instead of an array whose elements nothing separates",
            )
        return replace(self, **changes)  # type: ignore[arg-type]

    def splitter(self, strict: bool) -> Callable[[str], list[str]]:
        """The function that takes the fields of the first record of a text apart, as Jackson does; it raises Mismatch
        if a quote is not closed, or if text follows a closing quote. What stands behind the record is ignored; with
        ``strict`` it raises Mismatch."""
        delimiter, quote, escape = self.field_delimiter, self.quote_character, self.escape_character
        next_field = _field_pattern(self).match
        inside, outside = _unescaper(escape, quote), _unescaper(escape, "") if escape else None

        def split(text: str) -> list[str]:
            fields: list[str] = []
            at = 0
            while True:
                found = next_field(text, at)
                if found is None:
                    raise Mismatch(text[at:], "a field whose quotes stand in pairs at its ends")
                quoted, plain, end = found.groups()
                fields.append(inside(quoted) if plain is None else outside(plain) if outside else plain)
                at = found.end()
                if end != delimiter:
                    if strict and at < len(text):
                        raise Mismatch(text, "one record of CSV, with nothing behind it")
                    return fields

        if escape:
            return split

        def split_plain(text: str) -> list[str]:
            # nearly all lines have neither quotes nor line breaks inside
            line = text[:-1] if text.endswith("\n") else text
            line = line[:-1] if line.endswith("\r") else line
            if "\n" in line or "\r" in line or (quote and quote in line):
                return split(text)
            return line.split(delimiter)

        return split_plain

    def text_field(self) -> Callable[[str], str]:
        """The function that puts a text in quotes where Jackson does: if it is longer than 24 characters, or has one
        that is not higher than the field delimiter, the quote and the line end, or the escape character (without one, a
        backslash). So nearly all punctuation is quoted."""
        quote, escape = self.quote_character, self.escape_character
        if not quote:
            return refusing(rf"[{re.escape(self.field_delimiter)}\r\n]") if self.strict else str
        highest = max(self.field_delimiter, quote, *self.line_delimiter)
        special = re.compile(f"[\0-{re.escape(highest)}{re.escape(escape or chr(92))}]").search

        def write(text: str) -> str:
            if len(text) <= 24 and special(text) is None:
                return text
            return self.quoted(text)

        return write

    def quoted(self, text: str) -> str:
        """The text in quotes."""
        quote, escape = self.quote_character, self.escape_character
        if escape:
            text = text.replace(escape, escape * 2)
        return f"{quote}{text.replace(quote, quote * 2)}{quote}"

    def line(self, texts: list[str]) -> str:
        """The line of these texts, without its end."""
        return self.field_delimiter.join(map(self.text_field(), texts))

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


def _field_pattern(dialect: CsvDialect) -> re.Pattern[str]:
    """The pattern of a field and what ends it: the text inside of quotes, or the text without quotes, and the
    delimiter, a line end or nothing. Blanks may stand between a closing quote and the end."""
    delimiter, quote, escape = map(
        re.escape, (dialect.field_delimiter, dialect.quote_character, dialect.escape_character)
    )
    escaped = rf"{escape}[\s\S]" if escape else r"(?!)"
    plain = rf"[^{delimiter}{escape}\r\n]*(?:{escaped}[^{delimiter}{escape}\r\n]*)*"
    end = rf"({delimiter}|\r\n|\n|\r|\Z)"
    if not quote:
        return re.compile(rf"(?:((?!))|({plain})){end}")
    inside = rf"[^{quote}{escape}]*(?:(?:{escaped}|{quote}{quote})[^{quote}{escape}]*)*"
    return re.compile(rf"(?:{quote}({inside}){quote}(?:(?!{delimiter})[ \t])*|(?!{quote})({plain})){end}")


def _unescaper(escape: str, quote: str) -> Callable[[str], str]:
    """The function that removes the escape characters, and the doubling of quotes, from the text of a field. Either may
    be empty: then there are none."""
    if not escape:
        return lambda text: text.replace(quote * 2, quote) if quote else text
    doubled = f"({re.escape(quote)}){re.escape(quote)}" if quote else "((?!))"
    escaped = re.compile(rf"{re.escape(escape)}([\s\S])|{doubled}")
    return lambda text: escaped.sub(lambda found: found[2] or _ESCAPED.get(found[1], found[1]), text)


def refusing(delimiters: str) -> Callable[[str], str]:
    """The function that returns the text that it gets, unless the pattern of the delimiters occurs in it.

    Raises (when it is called):
        TypeMismatchError: it does, so that a reader would cut the text there.
    """
    special = re.compile(delimiters)

    def check(text: str) -> str:
        if special.search(text):
            raise TypeMismatchError(
                f"the text {abbreviated(text)} cannot be written so that it can be read again: it holds a delimiter",
                where="CsvRowSerializationSchema",
                expected="texts without delimiters",
                hint="set a quote character or another delimiter, or map the field first",
            )
        return text

    return check


_text_of_double = text_writer(Types.DOUBLE())
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})", re.ASCII)
_TIMESTAMP = re.compile(rf"{_DATE.pattern} {_TIME.pattern}(?:\.(\d{{1,9}}))?", re.ASCII)
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{0,9}))?Z", re.ASCII)
#: The usual timestamps, which Python can parse.
_USUAL_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True)
class CsvReading:
    """How a schema reads: whether what cannot be read is None, whether lines that begin with ``#`` are comments, and
    whether what Flink reads although it does not fit is an error (``strict``)."""

    ignore_parse_errors: bool = False
    allow_comments: bool = False
    strict: bool = False


def field_reader(type_info: TypeInformation, dialect: CsvDialect, how: CsvReading) -> Reader:
    """The function that reads the text of a field as a value of the type; it raises Mismatch if the text does not fit.

    Raises:
        TypeError: the type has no form in CSV.
    """
    type_info = unwrapped(type_info)
    if isinstance(type_info, RowTypeInfo):
        return _nested_row_reader(type_info, dialect, how)
    if isinstance(type_info, _SequenceTypeInfo) and not _is_bytes(type_info):
        read_element = _element_reader(type_info.elem_type, dialect, how)
        delimiter = dialect.array_element_delimiter
        return lambda text: [read_element(part) for part in text.split(delimiter)] if text else []
    return _scalar_reader(type_info, dialect, how)


def field_writer(type_info: TypeInformation, dialect: CsvDialect) -> Callable[[Any], str]:
    """The function that writes a (converted) value of the type, or None, as the text of a field, in quotes if it needs
    them.

    Raises:
        TypeError: the type has no form in CSV.
    """
    type_info = unwrapped(type_info)
    null_literal = dialect.null_literal or ""
    if isinstance(type_info, RowTypeInfo):
        writers = [_element_writer(item, dialect) for item in type_info.get_field_types()]
        write = _joined(lambda row: [write(item) for write, item in zip(writers, row, strict=True)], dialect)
    elif isinstance(type_info, _SequenceTypeInfo) and not _is_bytes(type_info):
        write_element = _element_writer(type_info.elem_type, dialect)
        write = _joined(lambda items: [write_element(item) for item in items], dialect)
    else:
        write = _scalar_writer(type_info, dialect)
        if scalar_kind(type_info) not in _UNQUOTED:
            text_field, write_text = dialect.text_field(), write
            write = (lambda value: text_field(write_text(value))) if write_text is not str else text_field
    return lambda value: null_literal if value is None else write(value)


# --- reading ----------------------------------------------------------------------------------------------------


def _scalar_reader(type_info: TypeInformation, dialect: CsvDialect, how: CsvReading) -> Reader:
    if _is_bytes(type_info):
        return read_bytes
    kind = None if isinstance(type_info, TupleTypeInfo) else scalar_kind(type_info)
    if kind is None:
        raise _no_form(type_info, "a basic or time type, an array, a LIST or a ROW")
    if isinstance(type_info, DecimalTypeInfo):
        return lambda text: type_info.rounded(read_decimal(text))
    if dialect.times and kind in (of_tables := table_readers(dialect.times, of_csv=True)):
        return of_tables[kind]
    return _TIME_READERS[kind] if kind in _TIME_READERS else basic_readers(how.strict)[kind]  # type: ignore[index]


def _element_reader(type_info: TypeInformation, dialect: CsvDialect, how: CsvReading) -> Reader:
    """The reader of an element of an array or a field of a nested Row, which are scalar."""
    read = _scalar_reader(_scalar(type_info), dialect, how)
    null_literal, ignore_parse_errors = dialect.null_literal, how.ignore_parse_errors

    def read_element(text: str) -> Any:
        if text == null_literal:
            return None
        try:
            return read(text)
        except Mismatch:
            if not ignore_parse_errors:
                raise
            return None

    return read_element


def _nested_row_reader(type_info: RowTypeInfo, dialect: CsvDialect, how: CsvReading) -> Reader:
    names = type_info.get_field_names()
    readers = [_element_reader(item, dialect, how) for item in type_info.get_field_types()]
    delimiter, ignore_parse_errors = dialect.array_element_delimiter, how.ignore_parse_errors

    def read(text: str) -> Any:
        if not text:
            return None
        parts: list[Any] = text.split(delimiter)
        if len(parts) != len(readers) and not ignore_parse_errors:
            raise Mismatch(text, f"{len(readers)} fields between {delimiter!r}")
        values = [reader(part) for reader, part in zip(readers, parts)]
        return _create_row(names, values + [None] * (len(readers) - len(values)))

    return read


def _read_date(text: str) -> date:
    try:
        if is_canonical_date(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    found = _DATE.fullmatch(text)
    try:
        if found:
            return _lenient(*found.groups()).date()
    except (ValueError, OverflowError):
        pass
    raise Mismatch(text, "a date such as 2026-01-31")


def _read_time(text: str) -> time:
    found = _TIME.fullmatch(text)
    if found is None:
        raise Mismatch(text, "a time such as 12:30:00, without a fraction of a second")
    return _lenient("2000", "1", "1", *found.groups()).time()


def _read_timestamp(text: str) -> datetime:
    usual = _USUAL_TIMESTAMP.fullmatch(text)
    try:
        if usual:
            digits = usual[2]
            return datetime.fromisoformat(f"{usual[1]}.{digits[:6]:0<6}" if digits else text)
    except ValueError:
        pass
    found = _TIMESTAMP.fullmatch(text.strip(BLANKS))
    try:
        if found:
            *parts, digits = found.groups()
            return _lenient(*parts).replace(microsecond=microseconds(digits))
    except (ValueError, OverflowError):
        pass
    raise Mismatch(text, "a timestamp such as 2026-01-31 12:30:00.5")


def _lenient(year: str, month: str, day: str, hour: str = "0", minute: str = "0", second: str = "0") -> datetime:
    """The point in time of these parts as ``java.sql`` reads them: what is too much for a part is carried over, such as
    February 30 into March; a month or a day beyond 31 is not.

    Raises:
        ValueError: the year, the month or the day is out of its range.
    """
    days = int(day)
    if not 1 <= days <= 31:
        raise ValueError("the day is not 1 to 31")
    carried = timedelta(days=days - 1, hours=int(hour), minutes=int(minute), seconds=int(second))
    return datetime(int(year), int(month), 1) + carried


def _read_instant(text: str) -> Instant:
    found = _INSTANT.fullmatch(text)
    try:
        if found:
            return instant_of(smart_datetime(found[1], found[2]), found[2])
    except (ValueError, OverflowError):
        pass
    raise Mismatch(text, "a point in time in UTC such as 2026-01-31 12:30:00.5Z")


_TIME_READERS: dict[BasicType | Temporal, Reader] = {
    BasicType.INSTANT: _read_instant,
    Temporal.DATE: _read_date,
    Temporal.TIME: _read_time,
    Temporal.LOCAL_TIME: _read_time,
    Temporal.TIMESTAMP: _read_timestamp,
    Temporal.LOCAL_TIMESTAMP: _read_timestamp,
}


# --- writing ----------------------------------------------------------------------------------------------------


def _scalar_writer(type_info: TypeInformation, dialect: CsvDialect) -> Callable[[Any], str]:
    if _is_bytes(type_info):
        return lambda value: base64.b64encode(value).decode("ascii")
    kind = None if isinstance(type_info, TupleTypeInfo) else scalar_kind(type_info)
    if kind is None:
        raise _no_form(type_info, "a basic or time type, an array, a LIST or a ROW")
    if isinstance(type_info, DecimalTypeInfo):
        return lambda value: str(without_zeros(value))
    if dialect.times and kind in (of_tables := table_writers(dialect.times)):
        return of_tables[kind]
    return _SCALAR_WRITERS.get(kind, str)


def _element_writer(type_info: TypeInformation, dialect: CsvDialect) -> Callable[[Any], str]:
    write = _scalar_writer(_scalar(type_info), dialect)
    null_literal = dialect.null_literal or ""
    return lambda value: null_literal if value is None else write(value)


def _joined(parts_of: Callable[[Any], list[str]], dialect: CsvDialect) -> Callable[[Any], str]:
    """The writer of an array or a nested Row, whose parts are joined."""
    text_field, delimiter = dialect.text_field(), dialect.array_element_delimiter
    check = refusing(re.escape(delimiter)) if dialect.strict else None

    def write(value: Any) -> str:
        parts = parts_of(value)
        if check is not None:
            parts = list(map(check, parts))
        return text_field(delimiter.join(parts))

    return write


def _write_double(value: float) -> str:
    return float.__repr__(value) if 0.001 <= value < 1e7 else _text_of_double(value)  # Python's text is Java's there


def _write_timestamp(value: datetime) -> str:
    text = in_utc(value).isoformat(" ")
    return trimmed(text) if value.microsecond else f"{text}.0"


def _write_instant(value: Instant) -> str:
    digits = f".{value.nanos:09}".rstrip("0") if value.nanos else ""
    return f"{text_of_seconds(value, ' ')}{digits}Z"


_SCALAR_WRITERS: dict[BasicType | Temporal, Callable[[Any], str]] = {
    BasicType.BOOLEAN: lambda value: "true" if value else "false",
    BasicType.FLOAT: text_writer(Types.FLOAT()),
    BasicType.DOUBLE: _write_double,
    BasicType.INSTANT: _write_instant,
    Temporal.DATE: lambda value: str(value.isoformat()),
    # java.sql.Time has no fraction of a second
    Temporal.TIME: lambda value: str(value.replace(tzinfo=None).isoformat("seconds")),
    Temporal.LOCAL_TIME: lambda value: trimmed(value.replace(tzinfo=None).isoformat()),
    Temporal.TIMESTAMP: _write_timestamp,
    Temporal.LOCAL_TIMESTAMP: lambda value: trimmed(in_utc(value).isoformat(" ")),
}
#: The kinds whose texts are never put in quotes.
_UNQUOTED = {*BITS, BasicType.BOOLEAN, BasicType.FLOAT, BasicType.DOUBLE, BasicType.BIG_INT, BasicType.BIG_DEC}


def _is_bytes(type_info: TypeInformation) -> bool:
    return isinstance(type_info, PrimitiveArrayTypeInfo) and type_info._is_binary


def _scalar(type_info: TypeInformation) -> TypeInformation:
    """The type, which is that of a part of a field and cannot have parts itself.

    Raises:
        TypeError: it has parts.
    """
    type_info = unwrapped(type_info)
    if scalar_kind(type_info) is None and not _is_bytes(type_info):
        raise _no_form(type_info, "a basic or time type inside of an array, a LIST or a ROW")
    return type_info


def _no_form(type_info: TypeInformation, expected: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{type_info!r} has no form in CSV",
        where="formats.csv",
        expected=expected,
        hint="map the field to a text before",
    )
