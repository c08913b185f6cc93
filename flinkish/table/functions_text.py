"""Functions of texts and bytes.

Positions count characters from 1, as in Flink. Regular expressions are Java's, as far as Python reads them alike
(`regex`); what is left is that ``.`` matches a carriage return here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flinkish.table import logical_types as sql
from flinkish.table.functions import Argument, Kernel, Run, Values, by_value, check_size, plain, row
from flinkish.table.logical_types import BOOLEAN, BYTES, INT, STRING, LogicalType


def _fixed(*values: Values) -> bool:
    return all(isinstance(value, pa.Scalar) and value.is_valid for value in values)


def _is_ascii(values: Values) -> bool:
    return pc.all(pc.string_is_ascii(values)).as_py() is not False


def _cased(ascii_kernel: Kernel, python: Callable[[str], str], run: Run, text: Values) -> Values:
    """Java knows letters that become two (ß, SS), as Python does and Arrow does not."""
    return ascii_kernel(text) if _is_ascii(text) else run.each(python, text)


def _varying(arguments: Sequence[Argument]) -> LogicalType:
    return sql.varchar(arguments[0].type.precision)


def _joined_type(arguments: Sequence[Argument]) -> LogicalType:
    types = [argument.type for argument in arguments]
    size = sum(of.precision for of in types)
    return sql.char(size) if all(of.root == "CHAR" for of in types) else sql.varchar(size)


def _trimmed(kernel: Kernel, python: Callable[..., str], run: Run, text: Values, *characters: Values) -> Values:
    if _fixed(*characters):
        return kernel(text, characters[0].as_py() if characters else " ")
    return run.each(python, text, *characters)


def _substring(text: str, start: int, length: int | None = None) -> str | None:
    if length is not None and length < 0:
        return None
    size = len(text)
    first = start - 1 if start > 0 else size + start if start < 0 else 0
    return text[first : size if length is None else first + length] if first >= 0 else ""


def _sliced(run: Run, text: Values, *given: Values) -> Values:
    if not _fixed(*given) or min(part.as_py() for part in given) < 0:
        return run.each(_substring, text, *given)
    start, *length = (part.as_py() for part in given)
    first = max(start, 1) - 1
    return pc.utf8_slice_codeunits(text, first, first + length[0] if length else None)


def _joined_with(run: Run, separator: Values, *texts: Values) -> Values:
    if not texts:
        return run.each(lambda separator: "", separator)
    # Arrow leaves out the rows in which all texts are NULL
    first = pc.if_else(reduce(pc.or_, map(pc.is_valid, texts)), texts[0], "")
    return pc.binary_join_element_wise(first, *texts[1:], separator, null_handling="skip")


def _padded(left: bool, text: str, size: int, by: str) -> str | None:
    missing = size - len(text)
    if size < 0 or (not by and missing > 0):
        return None
    if missing <= 0:
        return text[:size]
    check_size(size)
    filling = (by * (missing // len(by) + 1))[:missing]
    return filling + text if left else text + filling


def _overlaid(text: str, new: str, start: int, length: int | None = None) -> str:
    if start <= 0 or start > len(text):
        return text
    size = len(new) if length is None else length
    return text[: start - 1] + new + (text[start - 1 + size :] if size >= 0 else text[start - 1 :])


def _repeated(text: str, count: int) -> str:
    check_size(len(text) * count)
    return text * count


def _replaced(run: Run, text: Values, old: Values, new: Values) -> Values:
    if _fixed(old, new) and old.as_py() and len(new.as_py()) <= 64:  # no text becomes much longer
        return pc.replace_substring(text, old.as_py(), new.as_py())

    def replaced(text: str, old: str, new: str) -> str:
        check_size(len(text) + text.count(old) * (len(new) - len(old)) if old else 0)
        return text.replace(old, new) if old else text

    return run.each(replaced, text, old, new)


def _replaced_matches(text: str, pattern: str, new: str) -> str:
    check_size(len(text) + len(regex(pattern).findall(text)) * len(new) if len(new) > 1 else 0)
    return regex(pattern).sub(lambda found: new, text)


def _position(run: Run, part: Values, text: Values, *start: Values) -> Values:
    if not start and _fixed(part) and _is_ascii(text):
        return pc.cast(pc.add(pc.find_substring(text, part.as_py()), 1), pa.int32())
    return run.each(lambda part, text, n=1: text.find(part, n - 1) + 1 if n > 0 else 0, part, text, *start)


def _split_index(text: str, separator: str | int, index: int) -> str | None:
    by = chr(separator) if isinstance(separator, int) else separator
    parts = text.split(by) if by else [text]
    return parts[index] if 0 <= index < len(parts) and text else None


def _pairs(text: str, between: str = ",", inside: str = "=") -> list[tuple[str, str | None]]:
    found: dict[str, str | None] = {}
    for pair in regex(between).split(text) if text else ():
        key, *rest = regex(inside).split(pair, maxsplit=1)
        found[key] = rest[0] if rest else None
    return list(found.items())


for _name, _arrow, _python in (("UPPER", pc.ascii_upper, str.upper), ("LOWER", pc.ascii_lower, str.lower)):
    row(_name, "text", partial(_cased, _arrow, _python), 0)
for _name, _arrow, _trim in (
    ("TRIM", pc.utf8_trim, str.strip), ("BTRIM", pc.utf8_trim, str.strip),
    ("LTRIM", pc.utf8_ltrim, str.lstrip), ("RTRIM", pc.utf8_rtrim, str.rstrip),
):  # fmt: skip
    row(_name, "text text?", partial(_trimmed, _arrow, _trim), STRING if _name == "BTRIM" else _varying)
row("INITCAP", "text", by_value(partial(re.sub, r"[A-Za-z0-9]+", lambda word: word[0].capitalize())), 0)
row("SUBSTRING", "text int int?", _sliced, _varying)
row("LEFT", "text int", by_value(lambda text, n: text[: max(n, 0)]), _varying)
row("RIGHT", "text int", by_value(lambda text, n: text[-n:] if n > 0 else ""), _varying)
row("||", "text text*", plain(lambda *texts: pc.binary_join_element_wise(*texts, "")), _joined_type)
row("CONCAT", "text text*", plain(lambda *texts: pc.binary_join_element_wise(*texts, "")), STRING)
row("CONCAT_WS", "text text*", _joined_with, STRING)
row("CHAR_LENGTH", "text", plain(lambda text: pc.cast(pc.utf8_length(text), pa.int32())), INT)
row("REVERSE", "text", plain(pc.utf8_reverse), STRING)
row("REPEAT", "text int", by_value(_repeated), STRING)
row("LPAD", "text int text", by_value(partial(_padded, True)), STRING)
row("RPAD", "text int text", by_value(partial(_padded, False)), STRING)
row(
    "OVERLAY", "text text int int?", by_value(_overlaid),
    lambda args: sql.varchar(args[0].type.precision + args[1].type.precision),
)  # fmt: skip
row("REPLACE", "text text text", _replaced, STRING)
row("STARTSWITH", "text text", by_value(str.startswith), BOOLEAN)
row("ENDSWITH", "text text", by_value(str.endswith), BOOLEAN)
row("POSITION", "text text", _position, INT)
row("LOCATE", "text text int?", _position, INT)
row("INSTR", "text text", lambda run, text, part: _position(run, part, text), INT)
row("SPLIT_INDEX", "text text int|text int int", by_value(_split_index), STRING)
row("SPLIT", "text text", by_value(lambda text, by: text and text.split(by) or []), sql.array(STRING))
row("STR_TO_MAP", "text text? text?", by_value(_pairs), sql.map_of(STRING, STRING))


def _charset(name: str) -> str:
    return "utf-16-be" if name.upper() == "UTF-16" else name


def _from_base64(text: str) -> str | None:
    with suppress(binascii.Error):
        return base64.b64decode(text, validate=True).decode("utf-8", "replace")
    return None


def _digest(algorithm: str, text: str) -> str:
    return hashlib.new(algorithm, text.encode()).hexdigest()


row("TO_BASE64", "text", by_value(lambda text: base64.b64encode(text.encode()).decode()), STRING)
row("TO_BASE64", "bytes", by_value(lambda data: base64.b64encode(data).decode()), STRING)
row("FROM_BASE64", "text", by_value(_from_base64), STRING)
row("ASCII", "text", by_value(lambda text: (c - 256 if (c := text.encode()[0]) > 127 else c) if text else 0), INT)
row("CHR", "long", by_value(lambda n: "" if n < 0 else chr(n & 0xFF)), STRING)
row("ENCODE", "text text", by_value(lambda text, charset: text.encode(_charset(charset), "replace")), BYTES)
row("DECODE", "bytes text", by_value(lambda data, charset: data.decode(_charset(charset), "replace")), STRING)
for _name in ("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"):
    row(_name, "text", by_value(partial(_digest, _name.lower())), sql.char(len(_digest(_name.lower(), ""))))


#: What Java's regular expressions have and Python's have not, or mean otherwise.
_OTHER = re.compile(r"\\[pPQEGZzRXhHvVkKc0]|&&|\[[^\]]*\[|\(\?<(?![=!a-zA-Z])|\(\?[a-zA-Z]*[dUxu]")
_CLASSES = {
    r"\h": r"[ \t]", r"\R": r"(?:\r\n|[\n\r])", r"\p{Alpha}": "[a-zA-Z]", r"\p{Digit}": "[0-9]",
    r"\p{Alnum}": "[a-zA-Z0-9]", r"\p{Upper}": "[A-Z]", r"\p{Lower}": "[a-z]", r"\p{Space}": r"[ \t\n\x0b\f\r]",
}  # fmt: skip


@lru_cache(maxsize=1024)
def regex(pattern: str) -> re.Pattern[str]:
    r"""A regular expression of Java; ValueError: it is none, or means something else in Python.

    >>> regex(r"(?<year>\d+)").sub(r"\g<year>!", "in 1999")
    'in 1999!'
    """
    made = reduce(lambda text, java: text.replace(java, _CLASSES[java]), _CLASSES, pattern)
    with suppress(re.error):
        if not _OTHER.search(made):
            # \d, \w and \s are of ASCII in Java
            return re.compile(re.sub(r"\(\?<(?=[a-zA-Z])", "(?P<", made), re.ASCII)
    raise ValueError(
        f"'{pattern}' is no regular expression that Java and Python read alike: write it otherwise, or a UDF"
    )


def _extracted(text: str, pattern: str, group: int = 0) -> str | None:
    found = regex(pattern).search(text)
    return found[group] if found and 0 <= group <= found.re.groups else None


for _name, _signature, _function, _result in (
    ("REGEXP", "text text", lambda text, pattern: regex(pattern).search(text) is not None, BOOLEAN),
    ("REGEXP_EXTRACT", "text text int?", _extracted, STRING),
    ("REGEXP_REPLACE", "text text text", _replaced_matches, STRING),
    ("REGEXP_COUNT", "text text", lambda text, pattern: len(regex(pattern).findall(text)), INT),
    ("REGEXP_SUBSTR", "text text", _extracted, STRING),
):
    row(_name, _signature, by_value(_function), _result, check=regex)


#: Stand for % and _ of a pattern.
_ANY, _ONE = "\0%", "\0_"


@lru_cache(maxsize=1024)
def _like_parts(pattern: str, escape: str | None = None) -> tuple[str, ...]:
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if character not in ("%", "_", escape):
                raise ValueError(f"Invalid escape sequence '{pattern}'")
            parts.append(character)
        else:
            parts.append({"%": _ANY, "_": _ONE}.get(character, character))
    return tuple(parts)


def _like(run: Run, text: Values, *given: Values) -> Values:
    if not _fixed(*given):
        return run.each(lambda *values: _like(run, *map(pa.scalar, values)).as_py(), text, *given)
    parts = _like_parts(*(part.as_py() for part in given))
    begins, ends = parts[:1] != (_ANY,), parts[-1:] != (_ANY,)
    if _ONE not in parts and _ANY not in parts[not begins : len(parts) - (not ends)]:
        compare: Any = pc.starts_with if begins else pc.ends_with if ends else pc.match_substring
        return (pc.equal if begins and ends else compare)(text, "".join(part for part in parts if part != _ANY))
    made = "".join({_ANY: ".*", _ONE: "."}.get(part) or "\\" * (part in r"\.^$*+?()[]{}|") + part for part in parts)
    return pc.match_substring_regex(text, f"(?s)^{made}$")


def _similar(text: str, pattern: str, escape: str | None = None) -> bool:
    made, in_class, characters = "", False, iter(pattern)
    for character in characters:
        if character == escape:
            made += re.escape(next(characters, ""))
        elif in_class:
            made, in_class = made + character, character != "]"
        else:
            made, in_class = made + {"%": ".*", "_": "."}.get(character, character), character == "["
    try:
        return re.fullmatch(made, text, re.DOTALL | re.ASCII) is not None
    except re.error as error:
        raise ValueError(f"Invalid regular expression: {pattern} ({error})") from None


row("LIKE", "text text text?", _like, BOOLEAN)
row("SIMILAR TO", "text text text?", by_value(_similar), BOOLEAN)
