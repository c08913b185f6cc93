"""Functions of dates, times and intervals, and the patterns of times: those of Java's DateTimeFormatter (``yyyy-MM-dd
HH:mm:ss``).

Times of a TIMESTAMP are local, those of a TIMESTAMP_LTZ are moments, which are read in the session's zone. A letter of
a pattern that is not known here is refused when the query is planned. Texts are made of columns, a letter at a time: a
part of a time has few distinct values.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.table import casts, operators
from flinkish.table import logical_types as sql
from flinkish.table.functions import VARIES, Argument, Run, Values, by_numpy, row
from flinkish.table.logical_types import BIGINT, DATE, INT, INTERVAL_DAY, INTERVAL_MONTH, STRING, LogicalType

#: The pattern of texts of times that have none given.
STANDARD = "yyyy-MM-dd HH:mm:ss"

_DAY_TEXTS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTH_TEXTS = "January February March April May June July August September October November December".split()


class _Letter(NamedTuple):
    """A letter of patterns: the number that it stands for, the greatest count of it, and texts for the numbers from 1
    on, by the count."""

    number: Callable[[Values], Values]
    most: int
    names: dict[int, list[str]] = {}


_DAY_NAMES = {**dict.fromkeys((1, 2, 3), [day[:3] for day in _DAY_TEXTS]), 4: _DAY_TEXTS}
_MONTH_NAMES = {3: [month[:3] for month in _MONTH_TEXTS], 4: _MONTH_TEXTS}
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


# forms of functions of numbers, whose own forms come first
_ = operators

_DAY = 86_400_000_000
_MICROS = {
    "WEEK": 7 * _DAY, "DAY": _DAY, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000,
    "MILLISECOND": 1_000, "MICROSECOND": 1,
}  # fmt: skip
_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}


def _shifted(micros: Any, months: Any) -> Any:
    """Local times some months later, at the last day of a month that is shorter."""
    days, clock = np.divmod(micros, _DAY)
    date = days.astype("M8[D]")
    month = date.astype("M8[M]")
    later = month + months
    first = later.astype("M8[D]")
    length = ((later + 1).astype("M8[D]") - first).astype(np.int64)
    day = np.minimum((date - month.astype("M8[D]")).astype(np.int64), length - 1)
    return (first.astype(np.int64) + day) * _DAY + clock


def _moved(values: Values, by: Values, of: LogicalType, kind: LogicalType, sign: int = 1) -> Values:
    """Times some interval later; by months they are moved in UTC, as for Flink."""
    if kind == INTERVAL_MONTH:
        if of.root == "TIME":
            return values
        unit = _DAY if of == DATE else 1
        return by_numpy(lambda t, n: _shifted(t * unit, sign * n) // unit, of.arrow, values, by)
    if of == DATE:
        return by_numpy(lambda days, n: (days * _DAY + sign * n) // _DAY, of.arrow, values, by)
    if of.root == "TIME":
        return by_numpy(lambda t, n: (t + sign * n) % _DAY, of.arrow, values, by)
    return casts.cut_digits((pc.add if sign > 0 else pc.subtract)(values, by), of.precision)


def _with_interval(sign: int, run: Run, left: Values, right: Values) -> Values:
    one, other = run.types
    if one.is_interval and other.is_interval:
        return (pc.add if sign > 0 else pc.subtract)(left, right)
    return _moved(right, left, other, one) if one.is_interval else _moved(left, right, one, other, sign)


def _first_if_alike(arguments: Sequence[Argument]) -> LogicalType | None:
    left, right = (argument.type for argument in arguments)
    return left if left.is_time_point or left == right else None


row("+", "time interval|interval interval", partial(_with_interval, 1), _first_if_alike)
row("+", "interval time", partial(_with_interval, 1), 1)
row("-", "time interval|interval interval", partial(_with_interval, -1), _first_if_alike)
for _form, _interval in (("interval long", 0), ("long interval", 1)):
    row("*", _form, lambda run, x, y: by_numpy(lambda a, b: a * b, run.result.arrow, x, y), _interval)


_PARTS: dict[str, Callable[[Values], Values]] = {
    "YEAR": pc.year, "QUARTER": pc.quarter, "MONTH": pc.month, "WEEK": pc.iso_week, "DAY": pc.day,
    "DOY": pc.day_of_year, "ISOYEAR": pc.iso_year, "HOUR": pc.hour, "MINUTE": pc.minute, "SECOND": pc.second,
    "DOW": lambda x: pc.add(pc.day_of_week(x, week_start=7), 1),
    "ISODOW": lambda x: pc.add(pc.day_of_week(x), 1),
    "DECADE": lambda x: by_numpy(lambda year: year // 10, pa.int64(), pc.year(x)),
    "CENTURY": lambda x: by_numpy(lambda year: (year + 99) // 100, pa.int64(), pc.year(x)),
    "MILLENNIUM": lambda x: by_numpy(lambda year: (year + 999) // 1000, pa.int64(), pc.year(x)),
    "EPOCH": lambda x: by_numpy(lambda micros: micros // 1_000_000, pa.int64(), x.cast(pa.timestamp("us"))),
    "MILLISECOND": lambda x: by_numpy(lambda micros: micros % 1_000_000 // 1_000, pa.int64(), x),
    "MICROSECOND": lambda x: by_numpy(lambda micros: micros % 1_000_000, pa.int64(), x),
}  # fmt: skip
_OF_CLOCK = {"HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}
_FLOORS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")

#: Functions of one time that are an EXTRACT.
EXTRACTS = {
    **{unit: unit for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND")},
    "DAYOFMONTH": "DAY", "DAYOFWEEK": "DOW", "DAYOFYEAR": "DOY",
}  # fmt: skip


def _unit(value: Any) -> str:
    """The unit of an argument, such as DAY for SQL_TSI_DAY and DAYS."""
    unit = str(value).upper().removeprefix("SQL_TSI_")
    return unit[:-1] if unit.endswith("S") and unit[:-1] in _PARTS else unit


def _known(argument: Argument, units: Sequence[str], where: str) -> str:
    """The unit of an argument; ValueError: it is none of these."""
    unit = _unit(argument.value)
    if unit not in units:
        raise ValueError(f"there is no {where} {unit}: the units are {', '.join(units)}")
    return unit


def _part_type(unit: str, of: LogicalType) -> LogicalType | None:
    return BIGINT if of.root != "TIME" or unit in _OF_CLOCK else None


def _part(unit: str, run: Run, values: Values) -> Values:
    of = run.types[-1]
    if of == DATE and (unit in _OF_CLOCK or unit == "EPOCH"):
        values = pc.cast(values, pa.timestamp("us"))
    return pc.cast(_PARTS[unit](casts.local_if_moment(run, values, of)), pa.int64())


def _to_unit(mode: str, run: Run, values: Values, unit: Values) -> Values:
    of, name = run.types[0], _unit(unit.as_py()).lower()
    if of == DATE and name.upper() in _OF_CLOCK:
        return values
    local = casts.local_if_moment(run, values, of)
    # a week ends with the Sunday on which it begins
    days = pc.floor_temporal(local, unit="day") if mode == "ceil" and name == "week" else local
    found = getattr(pc, f"{mode}_temporal")(days, unit=name, week_starts_monday=False)
    # with the distance to UTC of the moment itself
    return pc.add(values, pc.subtract(found, local)) if of.root == "TIMESTAMP_LTZ" else found


def _floored_type(where: str, arguments: Sequence[Argument]) -> LogicalType:
    _known(arguments[1], _FLOORS, where)
    return arguments[0].type


row(
    "EXTRACT", "unit time", lambda run, unit, values: _part(_unit(unit.as_py()), run, values),
    lambda args: _part_type(_known(args[0], [*_PARTS], "EXTRACT of"), args[1].type),
)  # fmt: skip
for _name, _of in EXTRACTS.items():
    row(_name, "time", partial(_part, _of), lambda args, unit=_of: _part_type(unit, args[0].type))  # type: ignore[misc]
for _name in ("FLOOR", "CEIL"):
    row(_name, "time unit", partial(_to_unit, _name.lower()), partial(_floored_type, f"{_name} TO"))


def _added_type(arguments: Sequence[Argument]) -> LogicalType:
    unit, of = _known(arguments[0], (*_MONTHS, *_MICROS), "TIMESTAMPADD of"), arguments[2].type
    return sql.timestamp(6) if of == DATE and unit not in (*_MONTHS, "DAY", "WEEK") else of


def _added(run: Run, unit: Values, count: Values, values: Values) -> Values:
    name, of = _unit(unit.as_py()), run.result
    if of != DATE and run.types[2] == DATE:
        values = pc.cast(values, pa.timestamp("us"))
    if name in _MONTHS:
        return _moved(values, by_numpy(lambda n: n * _MONTHS[name], pa.int32(), count), of, INTERVAL_MONTH)
    return _moved(values, by_numpy(lambda n: n * _MICROS[name], pa.duration("us"), count), of, INTERVAL_DAY)


def _months_between(earlier: Any, later: Any) -> Any:
    """The whole months from one local time to another."""
    begin, end = ((times // _DAY).astype("M8[D]").astype("M8[M]") for times in (earlier, later))
    count = (end - begin).astype(np.int64)
    reached = _shifted(earlier, count)
    return count - ((count > 0) & (reached > later)) + ((count < 0) & (reached < later))


def _difference_type(arguments: Sequence[Argument]) -> LogicalType | None:
    _known(arguments[0], (*_MONTHS, *_MICROS), "TIMESTAMPDIFF of")
    moments = [argument.type.root == "TIMESTAMP_LTZ" for argument in arguments[1:]]
    return INT if all(moments) == any(moments) else None


def _difference(run: Run, unit: Values, earlier: Values, later: Values) -> Values:
    name = _unit(unit.as_py())
    times = []
    for values, of in zip((earlier, later), run.types[1:], strict=True):
        local = casts.local_if_moment(run, values, of) if name in _MONTHS else values
        times.append(local if of.root == "TIME" else pc.cast(local, pa.timestamp("us")))
    distance = _months_between if name in _MONTHS else lambda a, b: b - a
    size = {**_MONTHS, **_MICROS}[name]

    def whole(a: Any, b: Any) -> Any:
        found = distance(a, b)
        return (np.sign(found) * (np.abs(found) // size)).astype(np.int32)

    return by_numpy(whole, pa.int32(), *times)


row("TIMESTAMPADD", "unit long time", _added, _added_type)
row("TIMESTAMPDIFF", "unit time time", _difference, _difference_type)


_MOMENT = pa.timestamp("us", "UTC")


def _parsed(run: Run, parse: Callable[..., Any], *columns: Values, to: Any = None) -> Values:
    """Texts as local times, NULL for those that cannot be read."""

    def one(*values: str) -> Any:
        with suppress(ValueError):
            return parse(*values)
        return None

    return run.each(one, *columns, to=to or pa.timestamp("us"))


def _date_format(run: Run, values: Values, pattern: Values) -> Values:
    if run.types[0].is_text:
        return formatted(run, _parsed(run, beginning_parsed, values), pattern)
    return formatted(run, pc.cast(casts.local_if_moment(run, values, run.types[0]), pa.timestamp("us")), pattern)


def _or_standard(text: str, pattern: str | None = None) -> datetime.datetime:
    """What is in another pattern than the one that is given may be in the standard one."""
    if pattern is None:
        return casts.parse_timestamp(text)
    with suppress(ValueError):
        return parsed(text, pattern)
    return casts.parse_timestamp(text.strip())


def _to_timestamp(run: Run, *columns: Values) -> Values:
    found = casts.quick_times(columns[0]) if len(columns) == 1 else None
    return casts.cut_digits(_parsed(run, _or_standard, *columns) if found is None else found, 3)


def _moment_of_text(run: Run, text: Values, *more: Values) -> Values:
    return casts.instant(run, _to_timestamp(run, text, *more[:1]), more[1].as_py() if more[1:] else "UTC")


def _moment_of_number(run: Run, values: Values, places: Values | None = None) -> Values:
    digits = 3 if places is None else places.as_py()
    if run.types[0].is_decimal:
        values = pc.cast(pc.round(values, 0, round_mode="towards_zero"), pa.int64(), safe=False)
    if pa.types.is_floating(values.type):
        return pc.cast(run.each(lambda x: int(x * 10 ** (3 - digits)) * 1000, values, to=pa.int64()), _MOMENT)
    # years 0 to 9999, in units of which every number has room
    most, least = min(253_402_300_799 * 10**digits, 2**63 - 1), max(-62_167_219_200 * 10**digits, -(2**63))
    inside = pc.and_(pc.less_equal(values, most), pc.greater_equal(values, least))
    more, fewer = 10 ** max(0, 6 - digits), 10 ** max(0, digits - 6)
    micros = by_numpy(lambda n: n * more // fewer, pa.int64(), values)
    return pc.cast(pc.if_else(inside, micros, pa.scalar(None, pa.int64())), _MOMENT)


def _digits_type(arguments: Sequence[Argument]) -> LogicalType:
    digits = arguments[1].value if len(arguments) > 1 else 3
    if digits is VARIES or digits not in range(10):
        raise ValueError(
            "TO_TIMESTAMP_LTZ(number, digits) takes a literal of 0 (seconds) to 9, such as 3 (milliseconds)"
        )
    return sql.timestamp_ltz(max(3, digits))


def _to_date(run: Run, *columns: Values) -> Values:
    if len(columns) == 1:
        return _parsed(run, casts.parse_date, *columns, to=pa.date32())
    return pc.cast(pc.floor_temporal(_parsed(run, parsed, *columns), unit="day"), pa.date32())


def _from_unixtime(run: Run, seconds: Values, *pattern: Values) -> Values:
    return formatted(run, casts.local(run, by_numpy(lambda n: n * 1_000_000, _MOMENT, seconds)), *pattern)


def _unix_timestamp(run: Run, *columns: Values) -> Values:
    if not columns:
        return pa.scalar(run.now_ms // 1000, pa.int64())
    times = casts.instant(run, _parsed(run, beginning_parsed, *columns), ambiguous="latest")
    seconds = by_numpy(lambda micros: micros // 1_000_000, pa.int64(), times)
    return pc.if_else(pc.is_valid(columns[0]), pc.fill_null(seconds, -(2**63)), pa.scalar(None, pa.int64()))


def _convert_zone(run: Run, text: Values, source: Values, target: Values) -> Values:
    def one(value: str, old: str, new: str) -> str:
        time = pa.scalar(beginning_parsed(value), pa.timestamp("us"))
        moved = casts.local(run, casts.instant(run, time, _known_zone(old)), _known_zone(new))
        return str(formatted(run, moved).as_py())

    return _parsed(run, one, text, source, target, to=pa.string())


def _known_zone(name: str) -> str:
    """The zone; one that there is not is UTC, as for Java."""
    with suppress(pa.ArrowInvalid):
        pc.local_timestamp(pa.scalar(0, pa.timestamp("us", casts.zone_name(name))))
        return name
    return "UTC"


def _now(run: Run) -> Values:
    moment, kind = pa.scalar(run.now_ms * 1000, pa.int64()).cast(_MOMENT), sql.timestamp_ltz(3)
    return casts.cast(run, moment, kind, run.result)


row("DATE_FORMAT", "ts text|text text", _date_format, STRING, check=parts_of)
row("TO_TIMESTAMP", "text text?", _to_timestamp, sql.timestamp(3), check=parts_of)
row("TO_TIMESTAMP_LTZ", "text text? text?", _moment_of_text, sql.timestamp_ltz(3), check=parts_of)
row("TO_TIMESTAMP_LTZ", "number long?", _moment_of_number, _digits_type)
row("TO_DATE", "text text?", _to_date, DATE, check=parts_of)
row("FROM_UNIXTIME", "long text?", _from_unixtime, STRING, check=parts_of)
row("UNIX_TIMESTAMP", "text? text?", _unix_timestamp, BIGINT, constant=False, check=parts_of)
row("CONVERT_TZ", "text text text", _convert_zone, STRING)
for _name, _type in {
    "CURRENT_TIMESTAMP": sql.timestamp_ltz(3), "PROCTIME": sql.timestamp_ltz(3), "LOCALTIMESTAMP": sql.timestamp(3),
    "CURRENT_DATE": DATE, "CURRENT_TIME": sql.time(0), "LOCALTIME": sql.time(0),
}.items():  # fmt: skip
    row(_name, "", _now, _type, constant=False)
