"""Functions of dates, times and intervals.

Times of a TIMESTAMP are local, those of a TIMESTAMP_LTZ are moments, which are read in the session's zone. Patterns are
those of Java's DateTimeFormatter; a letter that is not known here is refused when the query is planned.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.table import casts, operators
from flinkish.table import logical_types as sql
from flinkish.table.functions import VARIES, Argument, Run, Values, by_numpy, row
from flinkish.table.logical_types import BIGINT, DATE, INT, INTERVAL_DAY, INTERVAL_MONTH, STRING, LogicalType
from flinkish.table.time_patterns import beginning_parsed, formatted, parsed, parts_of

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
