"""Patterns of times: those of Java's DateTimeFormatter (``yyyy-MM-dd HH:mm:ss``).

A letter that is not known here is refused when the query is planned. Texts are made of columns, a letter at a time: a
part of a time has few distinct values.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flinkish.table import casts
from flinkish.table.functions import Run, Values

#: The pattern of texts of times that have none given.
STANDARD = "yyyy-MM-dd HH:mm:ss"

_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "January February March April May June July August September October November December".split()


class _Letter(NamedTuple):
    """A letter of patterns: the number that it stands for, the greatest count of it, and texts for the numbers from 1
    on, by the count."""

    number: Callable[[Values], Values]
    most: int
    names: dict[int, list[str]] = {}


_DAY_NAMES = {**dict.fromkeys((1, 2, 3), [day[:3] for day in _WEEKDAYS]), 4: _WEEKDAYS}
_MONTH_NAMES = {3: [month[:3] for month in _MONTHS], 4: _MONTHS}
_LETTERS = {
    "y": _Letter(pc.year, 9), "u": _Letter(pc.year, 9), "d": _Letter(pc.day, 2), "D": _Letter(pc.day_of_year, 3),
    **dict.fromkeys("ML", _Letter(pc.month, 4, _MONTH_NAMES)), "H": _Letter(pc.hour, 2),
    "h": _Letter(lambda t: pc.if_else(pc.equal(_half_hour(t), 0), 12, _half_hour(t)), 2), "m": _Letter(pc.minute, 2),
    "k": _Letter(lambda t: pc.if_else(pc.equal(pc.hour(t), 0), 24, pc.hour(t)), 2), "s": _Letter(pc.second, 2),
    "K": _Letter(lambda t: _half_hour(t), 2), "E": _Letter(lambda t: pc.add(pc.day_of_week(t), 1), 4, _DAY_NAMES),
    "a": _Letter(lambda t: pc.add(pc.divide(pc.hour(t), 12), 1), 1, {1: ["AM", "PM"]}),
    "S": _Letter(lambda t: pc.add(pc.multiply(pc.millisecond(t), 1000), pc.microsecond(t)), 9),
}  # fmt: skip
_TOKENS = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']+|'")


def _half_hour(times: Values) -> Values:
    return pc.if_else(pc.greater_equal(pc.hour(times), 12), pc.subtract(pc.hour(times), 12), pc.hour(times))


@lru_cache(maxsize=256)
def parts_of(pattern: str) -> tuple[tuple[str, int], ...]:
    """Letters with their counts, and texts with 0; ValueError: there is a letter that is not known here.

    >>> parts_of("yyyy-MM'T'")
    (('y', 4), ('-', 0), ('M', 2), ('T', 0))
    """
    parts: list[tuple[str, int]] = []
    for found in _TOKENS.finditer(pattern):
        token, letter = found[0], found[2]
        if letter and (letter not in _LETTERS or len(token) > _LETTERS[letter].most):
            known = f"{' '.join(_LETTERS)}, and texts in ''"
            raise ValueError(f"the pattern '{pattern}' has '{token}', which is not known here: {known}")
        if token == "'":
            raise ValueError(f"the pattern '{pattern}' has a quote without its end")
        text = token if found[1] is None else found[1].replace("''", "'") or "'"
        parts.append((letter, len(token)) if letter else (text, 0))
    return tuple(parts)


def formatted(run: Run, times: Values, pattern: Values | None = None) -> Values:
    """Local times as texts."""
    if isinstance(pattern, pa.Array):
        return run.each(lambda *both: formatted(run, *map(pa.scalar, both)).as_py(), times, pattern)
    if pattern is not None and not pattern.is_valid:
        return pattern
    parts = parts_of(STANDARD if pattern is None else pattern.as_py())
    if isinstance(times, pa.Scalar):
        return _text(run, times, parts)
    # a batch has few distinct days and minutes
    letters = {letter for letter, count in parts if count}
    unit = next((unit for unit, within in _WITHIN if letters <= within), "microsecond")
    encoded = pc.floor_temporal(times, unit=unit).dictionary_encode()
    return _text(run, encoded.dictionary, parts).take(encoded.indices)


_DATES = frozenset("yuMLdDE")
_WITHIN = (("day", _DATES), ("minute", _DATES | set("HhkKma")), ("second", _DATES | set("HhkKmas")))


def _text(run: Run, times: Values, parts: Sequence[tuple[str, int]]) -> Values:
    pieces = [pc.if_else(pc.is_valid(times), "", pa.scalar(None, pa.string()))]
    for letter, count in parts:
        pieces.append(_piece(run, times, letter, count) if count else pa.scalar(letter))
    return pc.binary_join_element_wise(*pieces, "")


def _piece(run: Run, times: Values, letter: str, count: int) -> Values:
    names = _LETTERS[letter].names.get(count)

    def text(number: int) -> str:
        if names:
            return names[number - 1]
        if letter == "S":
            return f"{number:06}000"[:count]
        return f"{number % 100:02}" if letter in "yu" and count == 2 else f"{number:0{count}}"

    cut = pc.floor_temporal(times, unit="millisecond") if letter == "S" and count <= 3 else times
    return run.each(text, _LETTERS[letter].number(cut), to=pa.string())


@lru_cache(maxsize=256)
def _regex(pattern: str, lenient: bool) -> re.Pattern[str]:
    """A group for each letter."""
    parts = parts_of(pattern)
    made = ""
    for index, (letter, count) in enumerate(parts):
        adjacent = index + 1 < len(parts) and parts[index + 1][1] > 0
        if not count:
            made += re.escape(letter)
        elif names := _LETTERS[letter].names.get(count):
            made += f"({'|'.join(names)})"
        elif adjacent or (letter == "S" and not lenient) or (count == 2 and not lenient):
            made += rf"(\d{{{count}}})"
        else:
            made += rf"(\d{{{1 if lenient else count},9}})"
    return re.compile(made, re.ASCII)


def _number(letter: str, count: int, text: str) -> int:
    names = _LETTERS[letter].names.get(count)
    if names:
        return names.index(text) + 1
    if letter == "S":
        return int(text[:6].ljust(6, "0"))
    return int(text) + 2000 * (letter in "yu" and count == 2)


def parsed(text: str, pattern: str = STANDARD, beginning: bool = False) -> datetime.datetime:
    """The time of a text in a pattern (ValueError: it is in another); what it does not say is that of 1970-01-01
    00:00:00. ``beginning``: it is that with which the text begins, as Java's SimpleDateFormat reads it.

    >>> parsed("31.1.24 03:45 PM", "d.M.yy hh:mm a")
    datetime.datetime(2024, 1, 31, 15, 45)
    """
    made = _regex(pattern, beginning)
    found = made.match(text) if beginning else made.fullmatch(text)
    if not found:
        raise ValueError(f"'{text}' is not in the pattern '{pattern}'")
    letters = [part for part in parts_of(pattern) if part[1]]
    fields = {
        {"u": "y", "L": "M"}.get(letter, letter): _number(letter, count, group)
        for (letter, count), group in zip(letters, found.groups(), strict=True)
    }
    year, month, day = fields.get("y", 1970), fields.get("M", 1), fields.get("d", 1)
    hour = fields.get("H", fields.get("k", 0) % 24)
    if "h" in fields or "K" in fields:
        hour = fields.get("h", fields.get("K", 0)) % 12 + 12 * (fields.get("a", 1) - 1)
    time = casts.time_of(year, month, day, hour, fields.get("m", 0), fields.get("s", 0), fields.get("S", 0))
    return time + datetime.timedelta(fields["D"] - 1) if "D" in fields else time


#: The time with which a text begins.
beginning_parsed = partial(parsed, beginning=True)
