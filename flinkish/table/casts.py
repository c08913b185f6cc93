"""CAST and TRY_CAST: which pairs of types there are, and what becomes of each value.

Rule: as in Flink, a number that is too large wraps (integers), is the nearest there is (DOUBLE to INT) or NULL
(DECIMAL); digits and characters that a type has no room for are cut; a text that is none of the type's fails the row.
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkish.common.text import text_writer
from flinkish.common.typeinfo import Types
from flinkish.table.functions import Run, Values, by_numpy, check_size, fit_decimal, holds, rounded
from flinkish.table.logical_types import MAX_LENGTH, STRING, LogicalType, as_decimal, decimal

_Cast = Callable[[Run, Values, LogicalType, LogicalType], Values]


def _family(of: LogicalType) -> str:
    if of.is_integer:
        return "integer"
    return "float" if of.is_float else "text" if of.is_text else "bytes" if of.is_binary else of.root


def castable(source: LogicalType, target: LogicalType) -> bool:
    """Whether there is a CAST."""
    if source.root == "NULL" or source == target or (source.parts and target.is_text):
        return True
    if source.parts or target.parts:
        fits = source.root == target.root and len(source.parts) == len(target.parts)
        return fits and all(map(castable, source.parts, target.parts))
    return (_family(source), _family(target)) in _CASTS


def instead_of(source: LogicalType, target: LogicalType) -> str:
    """What to write for a CAST that there is not."""
    if source.is_numeric and target.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return "TO_TIMESTAMP_LTZ(number, 3) makes a time of milliseconds"
    if source.root in ("TIMESTAMP", "TIMESTAMP_LTZ") and target.is_numeric:
        return "UNIX_TIMESTAMP(CAST(x AS STRING)) is the number of seconds, EXTRACT(... FROM x) a part"
    return f"CAST(CAST(x AS STRING) AS {target}) goes by the text"


def cast(run: Run, values: Values, source: LogicalType, target: LogicalType, lenient: bool = False) -> Values:
    """The values as another type. Those that cannot be converted fail, or are NULL if ``lenient``."""
    if source.root == "NULL":
        return pa.scalar(None, target.arrow)
    if source == target:
        return values
    kernel = _nested if source.parts else _CASTS[_family(source), _family(target)]
    before = len(run.failures)
    found = kernel(run, values, source, target)
    if lenient:
        del run.failures[before:]
    return found if found.type == target.arrow else pc.cast(found, target.arrow, safe=False)


def _as_it_is(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    """What `cast` makes of values with Arrow alone."""
    return values


def _float_to_integer(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    """As Java's cast: to zero, the nearest that there is, and 0 for NaN; a byte or short is cut out of an int."""
    bounds = np.iinfo(np.int64 if target.root == "BIGINT" else np.int32)
    low, high = float(bounds.min), float(bounds.max)

    def cut(numbers: Any) -> Any:
        with np.errstate(invalid="ignore"):
            whole = np.nan_to_num(numbers, nan=0.0, posinf=high, neginf=low)
            inside = np.where(whole <= low, bounds.min, whole.astype(np.int64))
            return np.where(whole >= high, bounds.max, inside)

    return by_numpy(cut, pa.int64(), values)


def _decimal_to_integer(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    whole = pc.round(values, 0, round_mode="towards_zero") if source.scale else values
    if source.precision - source.scale <= 18:
        return pc.cast(whole, pa.int64(), safe=False)
    return run.each(lambda value: (int(value) + (1 << 63)) % (1 << 64) - (1 << 63), whole, to=pa.int64())


def _to_decimal(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    return fit_decimal(pc.cast(values, as_decimal(source).arrow) if source.is_integer else values, target)


def _float_to_decimal(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    text = _FLOAT_TEXT[source.root]

    def one(value: float) -> Decimal | None:
        try:
            return rounded(Decimal(text(value)), target)
        except InvalidOperation:
            raise ValueError(f"Infinite or NaN: {text(value)}") from None

    return run.each(one, values, to=target.arrow)


def _from_boolean(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    number = pc.cast(values, pa.int8())
    return fit_decimal(pc.cast(number, decimal(3, 0).arrow), target) if target.is_decimal else number


_FLOAT_TEXT = {"DOUBLE": text_writer(Types.DOUBLE()), "FLOAT": text_writer(Types.FLOAT())}


def _sized(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    """Texts cut to the length of the type, CHAR filled up with blanks."""
    if target.precision < MAX_LENGTH and (not source.is_text or source.precision > target.precision):
        values = pc.utf8_slice_codeunits(values, 0, target.precision)
    if target.root == "CHAR" and source.sizes != target.sizes:
        check_size(target.precision)
        values = pc.utf8_rpad(values, target.precision, " ")
    return values


def _to_text(text: Callable[[Run, Values, LogicalType], Values]) -> _Cast:
    return lambda run, values, source, target: _sized(run, text(run, values, source), source, target)


def _each_text(text: Callable[[Any], str]) -> _Cast:
    return _to_text(lambda run, values, of: run.each(text, values, to=pa.string()))


def _decimal_text(run: Run, values: Values, of: LogicalType) -> Values:
    if of.scale <= 6:
        return pc.cast(values, pa.string())
    return run.each(lambda value: format(value, "f"), values, to=pa.string())


def _float_text(run: Run, values: Values, of: LogicalType) -> Values:
    if of.root == "FLOAT" or isinstance(values, pa.Scalar):
        return run.each(_FLOAT_TEXT[of.root], values, to=pa.string())
    text = pc.cast(values, pa.string())  # as short as Java's, but whole numbers have no point
    text = pc.if_else(pc.equal(values, pc.trunc(values)), pc.binary_join_element_wise(text, ".0", ""), text)
    size = pc.abs(values)
    other = pc.invert(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)))
    others = run.each(_FLOAT_TEXT["DOUBLE"], values.filter(other), to=pa.string())
    return pc.replace_with_mask(text, pc.fill_null(other, False), others)


def _time_text(run: Run, values: Values, of: LogicalType) -> Values:
    """Dates and times as texts, with the digits of a second that the type has."""
    if of.root == "DATE":
        return pc.cast(values, pa.string())
    digits = of.precision
    unit, shown = ("s", 0) if digits == 0 else ("ms", 3) if digits <= 3 else ("us", 6)
    kind = pa.timestamp(unit) if of.root != "TIME" else pa.time64(unit) if unit == "us" else pa.time32(unit)
    text = pc.cast(pc.cast(local_if_moment(run, values, of), kind, safe=False), pa.string())
    if digits > shown:
        return pc.binary_join_element_wise(text, "0" * (digits - shown), "")
    return pc.utf8_slice_codeunits(text, 0, digits - shown) if digits < shown else text


def _days_text(value: datetime.timedelta) -> str:
    days, rest = divmod(abs(value) // datetime.timedelta(milliseconds=1), 86_400_000)
    clock = f"{rest // 3_600_000:02}:{rest // 60_000 % 60:02}:{rest // 1000 % 60:02}.{rest % 1000:03}"
    return f"{'-' if value.days < 0 else '+'}{days} {clock}"


def _cut_bytes(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    """Bytes cut to the length of the type, those of BINARY filled up with zeros."""
    data = pc.cast(values, pa.binary())
    if target.precision == MAX_LENGTH:
        return data
    if target.root == "BINARY" and source.sizes != target.sizes:
        check_size(target.precision)
        zeros = pa.scalar(bytes(target.precision), data.type)
        data = pc.binary_join_element_wise(data, zeros, pa.scalar(b"", data.type))
    return pc.binary_slice(data, 0, target.precision)


_SPACES = "".join(map(chr, range(0x21)))
_INTEGER = re.compile(r"(?=[+-]?[\d.])([+-]?\d*)(?:\.\d*)?", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"(\d{1,4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
_TIME = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII)
#: The values that CAST to BOOLEAN takes.
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True), **dict.fromkeys(("f", "false", "n", "no", "0"), False)
}  # fmt: skip


def _matched(pattern: re.Pattern[str], part: str, text: str) -> re.Match[str]:
    found = pattern.fullmatch(part)
    if not found:
        raise ValueError(f"For input string: '{text}'.")
    return found


def _plainly(values: Values, pattern: str, to: pa.DataType) -> Values | None:
    """The texts read by Arrow, if all are in a form in which it means what Flink means."""
    if isinstance(values, pa.Array) and pc.all(pc.match_substring_regex(values, pattern)).as_py() is not False:
        with suppress(pa.ArrowInvalid):
            return pc.cast(values, to)
    return None


def _from_text(parse: Callable[[str, LogicalType], Any], plain: Callable[[LogicalType], str] | None = None) -> _Cast:
    """``plain``: the pattern of the texts that Arrow reads as Flink does."""

    def compute(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
        naive = target._replace(root="TIMESTAMP") if target.root == "TIMESTAMP_LTZ" else target
        found = plain and _plainly(values, plain(target), naive.arrow)
        if found is None:
            found = run.each(lambda text: parse(text, target), values, to=naive.arrow)
        return found if naive == target else instant(run, found)

    return compute


def _parse_integer(text: str, of: LogicalType) -> int:
    half = 1 << (of.arrow.bit_width - 1)
    found = _INTEGER.fullmatch(text.strip(_SPACES))
    if found and -half <= (value := int(found[1].strip("+-") and found[1] or 0)) < half:
        return value
    raise ValueError(f"For input string: '{text}'. Invalid character found.")


def _parse_float(text: str, of: LogicalType) -> float:
    stripped = _matched(_FLOAT, text.strip(_SPACES), text)[0]
    return float(stripped.rstrip("fFdD") if stripped[-1] in "fFdD" else stripped)


def _parse_decimal(text: str, of: LogicalType) -> Decimal | None:
    number = Decimal(_matched(_DECIMAL, text.strip(_SPACES), text)[0])
    return None if number and number.adjusted() > 80 else rounded(number, of)


def _parse_boolean(text: str, of: LogicalType) -> bool:
    found = _TRUTHS.get(text.lower())
    if found is None:
        raise ValueError(f"Cannot parse '{text}' as BOOLEAN.")
    return found


def parse_date(text: str, of: LogicalType | None = None) -> datetime.date:
    year, month, day = _matched(_DATE, text.strip().split(" ")[0], text).groups()
    return datetime.date(int(year), int(month or 1), int(day or 1))


def _parse_time(text: str, of: LogicalType) -> datetime.time:
    hour, minute, second, rest = _matched(_TIME, text.strip(), text).groups()
    micros = ((rest or "") + "000000")[: min(6, of.precision)].ljust(6, "0")
    return datetime.time(int(hour), int(minute or 0), int(second or 0), int(micros))


def parse_timestamp(text: str, of: LogicalType | None = None) -> datetime.datetime:
    """The time of a text ``2024-01-31 10:11:12.123``. A day behind the end of its month is the last one."""
    *parts, rest = _matched(_TIMESTAMP, text, text).groups()
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    return time_of(year, month, day, hour, minute, second, int((rest or "")[:6].ljust(6, "0")))


def time_of(year: int, month: int, day: int, hour: int, minute: int, second: int, micros: int) -> datetime.datetime:
    """A local time as Java resolves its parts: the last day of a shorter month, 24:00 as the next day."""
    if day in (29, 30, 31) and 1 <= month <= 12:
        day = min(day, calendar.monthrange(year, month)[1])
    if hour == 24 and not (minute or second or micros):
        return datetime.datetime(year, month, day) + datetime.timedelta(1)
    return datetime.datetime(year, month, day, hour, minute, second, micros)


_QUICK_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"


def quick_times(values: Values) -> Values | None:
    """Texts such as 2024-01-31 10:11:12.123 as TIMESTAMPs, if all are such."""
    return _plainly(values, _QUICK_TIME, pa.timestamp("us"))


def zone_name(zone: str) -> str:
    """A time zone as Arrow names it: GMT+2 is +02:00."""
    found = re.fullmatch(r"(?:GMT|UTC|UT)?([+-])(\d{1,2}):?(\d{2})?", zone)
    return f"{found[1]}{int(found[2]):02}:{found[3] or '00'}" if found else zone


def local(run: Run, values: Values, zone: str = "") -> Values:
    """Moments as times of the session's zone."""
    return pc.local_timestamp(pc.cast(values, pa.timestamp("us", zone_name(zone or run.zone))))


def local_if_moment(run: Run, values: Values, of: LogicalType) -> Values:
    """Times of any type as local ones."""
    return local(run, values) if of.root == "TIMESTAMP_LTZ" else values


def instant(run: Run, values: Values, zone: str = "", ambiguous: str = "earliest") -> Values:
    """Local times as moments. One that is skipped is later by what is skipped."""
    name = zone_name(zone or run.zone)
    found = pc.assume_timezone(values, name, ambiguous=ambiguous, nonexistent="earliest")
    skipped = pc.not_equal(pc.local_timestamp(found), values)
    if holds(skipped):
        utc = pc.cast(pc.cast(found, pa.timestamp("us", "UTC")), pa.timestamp("us"))
        offset = pc.subtract(pc.local_timestamp(found), utc)
        found = pc.if_else(skipped, pc.cast(pc.subtract(values, offset), pa.timestamp("us", name)), found)
    return pc.cast(found, pa.timestamp("us", "UTC"))


def cut_digits(values: Values, digits: int) -> Values:
    """Times without the digits of a second that a type has no room for."""
    if digits >= 6:
        return values
    unit = "second" if digits == 0 else "millisecond" if digits <= 3 else "microsecond"
    return pc.floor_temporal(values, multiple=10 ** (-digits % 3) if digits else 1, unit=unit)


def _retimed(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    """Between times of one kind, or of the two kinds of TIMESTAMP."""
    if source.precision > target.precision:
        values = cut_digits(values, target.precision)
    if source.root == target.root:
        return values
    return local(run, values) if target.root == "TIMESTAMP" else instant(run, values)


def _part_of_timestamp(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    values = local_if_moment(run, values, source)
    if target.root == "DATE":
        return pc.floor_temporal(values, unit="day")
    return cut_digits(pc.cast(values, target.arrow), target.precision)


def _to_timestamp(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    if source.root == "TIME":  # on the first day of the epoch
        values = pc.cast(values, pa.int64())
    found = pc.cast(values, pa.timestamp("us"))
    return instant(run, found) if target.root == "TIMESTAMP_LTZ" else found


def _nested(run: Run, values: Values, source: LogicalType, target: LogicalType) -> Values:
    if target.is_text:
        return _sized(run, run.each(lambda value: text_of(value, source), values, to=pa.string()), source, target)
    inner = Run(run.rows, run.types, run.result, run.now_ms, run.zone)

    def convert(value: Any, old: LogicalType, new: LogicalType) -> Any:
        if value is None:
            return None
        match old.root:
            case "ARRAY":
                return [convert(item, old.parts[0], new.parts[0]) for item in value]
            case "MAP" | "MULTISET":
                return [
                    (convert(k, old.parts[0], new.parts[0]), convert(v, old.parts[-1], new.parts[-1])) for k, v in value
                ]
            case "ROW":
                parts = zip(value.values(), old.parts, new.parts, new.names, strict=True)
                return {name: convert(item, one, other) for item, one, other, name in parts}
        inner.failures.clear()
        found = cast(inner, pa.scalar(value, old.arrow), old, new).as_py()
        if inner.failures:
            raise ValueError(inner.failures[0].why(0))
        return found

    return run.each(lambda value: convert(value, source, target), values, to=target.arrow)


def text_of(value: Any, of: LogicalType) -> str:
    """A value as CAST to STRING writes it: ``[1, 2]``, ``{a=1}``, ``(1, a)``."""
    if value is None:
        return "NULL"
    match of.root:
        case "ARRAY":
            return f"[{', '.join(text_of(item, of.parts[0]) for item in value)}]"
        case "MAP" | "MULTISET":
            return f"{{{', '.join(f'{text_of(k, of.parts[0])}={text_of(v, of.parts[1])}' for k, v in value)}}}"
        case "ROW":
            items = zip(value.values(), of.parts, strict=True)
            return f"({', '.join(text_of(item, part) for item, part in items)})"
    if of.is_text or of.is_integer:
        return str(value)
    run = Run(1, (of,), STRING, 0, "UTC")
    return str(cast(run, pa.scalar(value, of.arrow), of, STRING).as_py())


_STAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ")
_CASTS: dict[tuple[str, str], _Cast] = {
    ("integer", "integer"): _as_it_is, ("integer", "float"): _as_it_is, ("integer", "DECIMAL"): _to_decimal,
    ("float", "float"): _as_it_is, ("float", "integer"): _float_to_integer, ("float", "DECIMAL"): _float_to_decimal,
    ("DECIMAL", "integer"): _decimal_to_integer, ("DECIMAL", "float"): _as_it_is, ("DECIMAL", "DECIMAL"): _to_decimal,
    **dict.fromkeys([("BOOLEAN", to) for to in ("integer", "float", "DECIMAL")], _from_boolean),
    **dict.fromkeys([(of, "BOOLEAN") for of in ("integer", "float", "DECIMAL")],
                    lambda run, x, source, target: pc.not_equal(x, 0)),
    ("text", "text"): _sized, ("integer", "text"): _to_text(lambda run, x, of: pc.cast(x, pa.string())),
    ("float", "text"): _to_text(_float_text), ("DECIMAL", "text"): _to_text(_decimal_text),
    ("BOOLEAN", "text"): _to_text(lambda run, x, of: pc.if_else(x, "TRUE", "FALSE")),
    **dict.fromkeys([(of, "text") for of in ("DATE", "TIME", *_STAMPS)], _to_text(_time_text)),
    ("INTERVAL_DAY", "text"): _each_text(_days_text),
    ("INTERVAL_MONTH", "text"): _each_text(lambda n: f"{'-' if n < 0 else '+'}{abs(n) // 12}-{abs(n) % 12:02}"),
    ("bytes", "text"): _each_text(lambda value: value.decode("utf-8", "replace")),
    ("text", "bytes"): _cut_bytes, ("bytes", "bytes"): _cut_bytes,
    ("text", "integer"): _from_text(_parse_integer, lambda of: rf"^-?[0-9]{{1,{of.arrow.bit_width * 3 // 10 - 1}}}$"),
    ("text", "float"): _from_text(_parse_float, lambda of: r"^-?[0-9]+(\.[0-9]+)?$"),
    ("text", "DECIMAL"): _from_text(_parse_decimal), ("text", "BOOLEAN"): _from_text(_parse_boolean),
    ("text", "DATE"): _from_text(parse_date), ("text", "TIME"): _from_text(_parse_time),
    **dict.fromkeys([("text", to) for to in _STAMPS], _from_text(parse_timestamp, lambda of: _QUICK_TIME)),
    **dict.fromkeys([(of, to) for of in _STAMPS for to in _STAMPS], _retimed), ("TIME", "TIME"): _retimed,
    **dict.fromkeys([(of, to) for of in _STAMPS for to in ("DATE", "TIME")], _part_of_timestamp),
    **dict.fromkeys([(of, to) for of in ("DATE", "TIME") for to in _STAMPS], _to_timestamp),
}  # fmt: skip
