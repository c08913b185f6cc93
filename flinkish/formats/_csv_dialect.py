"""The dialect of CSV lines: how the content of a file is cut into records, a record into fields, and how fields are put
in quotes.

Rule upheld here: lines are taken apart and quoted as Jackson does, which Flink uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from flinkish.common.arguments import abbreviated, check_instance
from flinkish.common.typeinfo.base import Mismatch
from flinkish.errors import ArgumentValueError, TypeMismatchError

#: What Jackson reads for some characters behind the escape character; the others stand for themselves.
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


@dataclass(frozen=True)
class CsvDialect:
    """The characters with which CSV lines are written and read. An empty quote or escape character means that there is
    none. With ``null_literal`` None, no text is read as None, and None is written as an empty field. With ``strict``,
    what is written can be taken apart again, or it is refused."""

    field_delimiter: str = ","
    array_element_delimiter: str = ";"
    quote_character: str = '"'
    escape_character: str = ""
    null_literal: str | None = None
    line_delimiter: str = "\n"
    strict: bool = False

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
