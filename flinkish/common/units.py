"""Parses configuration values (durations, memory sizes, booleans, lists and maps) as Flink does.

Rule upheld here: a text that Flink refuses is refused here, with a :class:`ValueError` that says what was expected;
the caller adds the key to the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from flinkish.common.time import Duration

_NUMBER_AND_UNIT = re.compile(r"\s*(\d+)\s*(\S*)\s*", re.ASCII)

_NANOS_PER_UNIT: dict[str, int] = {
    unit: nanos
    for nanos, units in (
        (86_400 * 10**9, ("d", "day", "days")),
        (3_600 * 10**9, ("h", "hour", "hours")),
        (60 * 10**9, ("min", "m", "minute", "minutes")),
        (10**9, ("s", "sec", "secs", "second", "seconds")),
        (10**6, ("", "ms", "milli", "millis", "millisecond", "milliseconds")),
        (10**3, ("µs", "micro", "micros", "microsecond", "microseconds")),
        (1, ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
    )
    for unit in units
}

_BYTES_PER_UNIT: dict[str, int] = {
    unit: 1024**power
    for power, units in enumerate(
        (
            ("", "b", "bytes"),
            ("k", "kb", "kibibytes"),
            ("m", "mb", "mebibytes"),
            ("g", "gb", "gibibytes"),
            ("t", "tb", "tebibytes"),
        )
    )
    for unit in units
}

#: what makes a text need quotes as an item of a list ("- " begins the items of YAML's block form) or of a map
_SPECIAL_IN_LISTS = (";", "'", '"', "[", "]", "- ")
_SPECIAL_IN_MAPS = tuple(",:;'\"{}[]")


def parse_duration(text: str) -> Duration:
    """Read ``"10 s"``, ``"200ms"``, ``"1 min"``; a bare number is milliseconds (Flink's ``TimeUtils.parseDuration``).

    >>> parse_duration("1 min").to_millis()
    60000
    """
    number, unit = _number_and_unit(text, "a duration such as '200 ms', '10 s' or '1 min'")
    if unit not in _NANOS_PER_UNIT:
        raise ValueError("expected a duration with one of the units d, h, min, s, ms, µs, ns")
    return Duration(number * _NANOS_PER_UNIT[unit])


def parse_memory(text: str) -> int:
    """Read ``"64mb"``, ``"1 g"``; a bare number is bytes (Flink's ``MemorySize.parseBytes``). Returns bytes.

    >>> parse_memory("64mb")
    67108864
    """
    number, unit = _number_and_unit(text, "a memory size such as '64mb' or '1g'")
    if unit not in _BYTES_PER_UNIT:
        raise ValueError("expected a memory size with one of the units b, kb, mb, gb, tb")
    return number * _BYTES_PER_UNIT[unit]


def _number_and_unit(text: str, expected: str) -> tuple[int, str]:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        raise ValueError(f"expected {expected}")
    return int(match[1]), match[2].lower().replace("\u03bc", "\u00b5")  # two letters mu look the same


def parse_boolean(text: str) -> bool:
    """Read ``true`` or ``false`` in any case; nothing else (no ``yes``, no ``1``)."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("expected true or false")
    return lowered == "true"


def parse_list(text: str) -> list[str]:
    """Read ``"a;b"``, the YAML flow form ``"[a, b]"`` or the YAML block form of lines that begin with ``- ``.

    >>> parse_list("[a.jar, 'b.jar']"), parse_list("a.jar;b.jar"), parse_list("")
    (['a.jar', 'b.jar'], ['a.jar', 'b.jar'], [])
    """
    text = text.strip()
    if not text:
        return []
    if text.startswith("[") and text.endswith("]"):
        return [unquote(item) for item in _split(text[1:-1], ",") if item.strip()]
    lines = text.split("\n")
    if all(line.lstrip().startswith("- ") for line in lines if line.strip()):
        return [unquote(line.lstrip()[2:]) for line in lines if line.strip()]
    return [unquote(item) for item in _split(text, ";") if item.strip()]


def format_list(items: Iterable[object]) -> str:
    """The inverse of :func:`parse_list`, in the form ``"a;b"``.

    >>> format_list(["a;b", "c"])
    "'a;b';c"
    """
    return ";".join(_quote(str(item), _SPECIAL_IN_LISTS) for item in items)


def parse_map(text: str) -> dict[str, str]:
    """Read ``"k1:v1,k2:v2"`` (Flink's form of a map) or the same in ``{}``; an item with ``,`` or ``:`` is quoted.

    >>> parse_map("user:ann,url:'http://x'")
    {'user': 'ann', 'url': 'http://x'}
    """
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    result: dict[str, str] = {}
    for item in _split(text, ","):
        if not item.strip():
            continue
        parts = _split(item, ":", maximum=2)
        if len(parts) != 2:
            raise ValueError("expected a map such as 'key1:value1,key2:value2'")
        result[unquote(parts[0])] = unquote(parts[1])
    return result


def format_map(values: dict[str, str]) -> str:
    """The inverse of :func:`parse_map`."""
    return ",".join(
        f"{_quote(str(key), _SPECIAL_IN_MAPS)}:{_quote(str(value), _SPECIAL_IN_MAPS)}" for key, value in values.items()
    )


def _quote(text: str, special: tuple[str, ...]) -> str:
    if text and text == text.strip() and not any(part in text for part in special):
        return text
    return "'" + text.replace("'", "''") + "'"


def unquote(text: str) -> str:
    """Strip surrounding blanks, then one pair of quotes; a doubled quote inside stands for a single one."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].replace(text[0] * 2, text[0])
    return text


def _split(text: str, separator: str, maximum: int = 0) -> list[str]:
    """Split at ``separator`` outside quotes, into at most ``maximum`` parts if that is not 0.

    A quote opens only where an item begins (at the start or after a separator of any kind): ``it's`` is plain text.
    A doubled quote closes and opens again, so it needs no care here.
    """
    parts: list[str] = []
    start, quote, item_begins = 0, "", True
    for position, char in enumerate(text):
        if quote:
            if char == quote:
                quote = ""
                item_begins = text[position + 1 : position + 2] == char
            continue
        if char in "'\"" and item_begins:
            quote = char
        elif char == separator and (not maximum or len(parts) < maximum - 1):
            parts.append(text[start:position])
            start = position + 1
        if not char.isspace():
            item_begins = char in ",:;"
    return [*parts, text[start:]]
