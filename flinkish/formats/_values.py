"""Reading of the texts that JSON and CSV have in common, as Flink reads them: with Java's parsers.

Rule upheld here: what Java reads is read, with the same value, and what Java refuses raises :class:`Mismatch`. So a
number is never wrapped around (``3000000000`` is no INT), ``nan`` and ``1_0`` are no numbers, and ``NaN`` and ``1d``
are. Python's own parsers read the usual texts, since they are fast; each reader refuses what only Python reads.
Of a fraction of a second, Python's times hold microseconds, so that further digits are cut off; an Instant has
nanoseconds and keeps them.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import datetime
import math
import re
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from enum import Enum
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.common.time import Instant
from flinkish.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    LocalTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from flinkish.common.typeinfo.base import Mismatch
from flinkish.errors import MalformedRecordError

Reader = Callable[[Any], Any]

#: What Java's ``String.trim`` removes.
BLANKS = "".join(map(chr, range(33)))
BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}
#: Removes zeros at the end of a number and rounds nothing.
_normalized = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN).normalize
_ZERO = Decimal(0)
#: The texts of ``Double.parseDouble`` that are no decimal numbers for Python: names, hexadecimal digits, a suffix.
_JAVA_DOUBLE = re.compile(
    r"(?P<number>[+-]?(?:NaN|Infinity|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?\d+)))[fFdD]?",
    re.ASCII,
)


class Temporal(Enum):
    """The kinds of dates and times. Those of ``java.sql`` and ``java.time`` have texts of their own."""

    DATE = "a date"
    TIME = "a time of java.sql"
    TIMESTAMP = "a timestamp of java.sql"
    LOCAL_TIME = "a time of java.time"
    LOCAL_TIMESTAMP = "a timestamp of java.time"


_OF_SQL: dict[type, Temporal] = {
    DateTypeInfo: Temporal.DATE,
    TimeTypeInfo: Temporal.TIME,
    TimestampTypeInfo: Temporal.TIMESTAMP,
}


def unwrapped(type_info: TypeInformation) -> TypeInformation:
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info._type_info
    return type_info


def scalar_kind(type_info: TypeInformation) -> BasicType | Temporal | None:
    """What the values of a scalar type are; None if the type is not scalar."""
    if isinstance(type_info, BasicTypeInfo):
        return type_info._basic_type
    if isinstance(type_info, LocalTimeTypeInfo):
        return (Temporal.DATE, Temporal.LOCAL_TIME, Temporal.LOCAL_TIMESTAMP)[type_info._time_type.value]
    return _OF_SQL.get(type(type_info))


# --- numbers, truth values, bytes -------------------------------------------------------------------------------


def whole_reader(bits: int | None) -> Reader:
    """The function that reads a text as a signed whole number of ``bits`` bits (None: of any size)."""
    limit = None if bits is None else 1 << (bits - 1)

    def read(text: Any) -> int:
        try:
            number = int(text) if "_" not in text and (text.isascii() or _is_trimmed(text)) else None
        except ValueError:
            number = None
        if number is None:
            raise Mismatch(text, "a whole number")
        return within(number, limit, bits)

    return read


def _is_trimmed(text: str) -> bool:
    """Whether Python finds no more blanks at the ends of the text than Java."""
    return text.strip() == text.strip(BLANKS)


def within(number: int, limit: int | None, bits: int | None) -> int:
    if limit is not None and not -limit <= number < limit:
        raise Mismatch(number, f"a whole number of {bits} bits")
    return number


def read_double(text: str) -> float:
    try:
        number = float(text)
        if math.isfinite(number) and "_" not in text and text.isascii():
            return number
    except ValueError:
        pass
    java = _JAVA_DOUBLE.fullmatch(text.strip(BLANKS))
    if java is None:
        raise Mismatch(text, "a number")
    return float.fromhex(java["number"]) if java["hex"] else float(java["number"])


def read_float(text: str) -> Any:
    """The nearest number of 32 bits, which is infinite beyond their range."""
    return BasicTypeInfo.FLOAT_TYPE_INFO()._convert(read_double(text))


def read_decimal(text: str) -> Decimal:
    try:
        number = Decimal(text) if "_" not in text and (text.isascii() or _is_trimmed(text)) else None
    except InvalidOperation:
        number = None
    if number is None or not number.is_finite():
        raise Mismatch(text, "a decimal number")
    return number


def without_zeros(number: Decimal) -> Decimal:
    """The number without zeros at its end, as Jackson reads and writes numbers: 1.50 is 1.5, 10.0 is 1E+1."""
    return _normalized(number) if number else _ZERO


def read_boolean(text: str) -> bool:
    """Java's ``Boolean.parseBoolean``: every text but ``true`` is false."""
    return text.strip(BLANKS).lower() == "true"


def read_exact_boolean(text: str) -> bool:
    """Like :func:`read_boolean`, but only ``false`` is false; another text raises Mismatch."""
    lowered = text.strip(BLANKS).lower()
    if lowered not in ("true", "false"):
        raise Mismatch(text, "true or false")
    return lowered == "true"


def read_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(BLANKS), validate=True)
    except (binascii.Error, ValueError):
        raise Mismatch(text, "bytes in base64") from None


def read_character(text: str) -> str:
    if len(text) != 1:
        raise Mismatch(text, "one character")
    return text


def basic_readers(strict: bool) -> dict[BasicType, Reader]:
    """The functions that read the text of a value of a basic type; there is none for INSTANT, whose text depends on the
    format. With ``strict`` a BOOLEAN is true or false."""
    readers: dict[BasicType, Reader] = {
        BasicType.STRING: str,
        BasicType.CHAR: read_character,
        BasicType.BOOLEAN: read_exact_boolean if strict else read_boolean,
        BasicType.FLOAT: read_float,
        BasicType.DOUBLE: read_double,
        BasicType.BIG_INT: whole_reader(None),
        BasicType.BIG_DEC: read_decimal,
    }
    return readers | {kind: whole_reader(bits) for kind, bits in BITS.items()}


# --- dates and times --------------------------------------------------------------------------------------------


def is_canonical_date(text: str) -> bool:
    """Whether the text has the shape ``2026-01-31``. Python's parser also reads ``20260131`` and ``2026-W05-6`` since
    3.11."""
    return len(text) == 10 and text[4] == "-" and text[7] == "-"


def microseconds(digits: str | None) -> int:
    """The microseconds of the digits behind the point of a second."""
    return int(f"{digits[:6]:0<6}") if digits else 0


def nanoseconds(digits: str | None) -> int:
    return int(f"{digits:0<9}") if digits else 0


def smart_datetime(text: str, digits: str | None) -> datetime.datetime:
    """The point in time of ``2026-01-31T12:30:00`` (any one character between date and time) and the digits behind the
    point, as Java's formatters resolve it: a day beyond the end of its month is the last one, and 24:00:00 is midnight
    of the next day.

    Raises:
        ValueError: a part is out of its range, or the year is not 1 to 9999.
    """
    try:
        return datetime.datetime.fromisoformat(f"{text}.{digits[:6]:0<6}" if digits else text)
    except ValueError:
        year, month, day, hour = int(text[:4]), int(text[5:7]), int(text[8:10]), int(text[11:13])
        midnight = text[11:] == "24:00:00" and not nanoseconds(digits)
        last = calendar.monthrange(year, month)[1] if 1 <= month <= 12 else 31
        day = min(day, last) if day <= 31 else day
        value = datetime.datetime(year, month, day, 0 if midnight else hour, int(text[14:16]), int(text[17:]))
        if midnight:
            value += datetime.timedelta(days=1)
        return value.replace(microsecond=microseconds(digits))


def instant_of(point: datetime.datetime, digits: str | None) -> Instant:
    """The Instant of a point in time in UTC, with the digits behind the point of its second."""
    return Instant(calendar.timegm(point.timetuple()), nanoseconds(digits))


def trimmed(text: str) -> str:
    """The text of a time without zeros at the end of its fraction of a second."""
    return text.rstrip("0") if "." in text else text


def in_utc(value: datetime.datetime) -> datetime.datetime:
    """The time without a time zone: one that has a zone in UTC, another one as it is."""
    return value if value.tzinfo is None else value.astimezone(datetime.timezone.utc).replace(tzinfo=None)


def text_of_seconds(value: Instant, separator: str) -> str:
    """The text of an Instant in UTC up to its whole second."""
    point = datetime.datetime.fromtimestamp(value.seconds, datetime.timezone.utc).replace(tzinfo=None)
    return point.isoformat(separator)


#: The texts of moments in Flink's formats of tables: the date, what stands between, the time, digits, and Z.
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)([ T])(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z?)", re.ASCII)
_TIME_OF_DAY = re.compile(r"(\d\d:\d\d)(:\d\d)?(?:\.(\d{1,9}))?", re.ASCII)


def table_readers(separator: str, of_csv: bool = False) -> dict[BasicType | Temporal, Reader]:
    """The functions that read the texts of times as Flink's formats of tables write them, with ``separator`` between
    date and time. In those ``of_csv`` blanks may stand around them, and a time may have no seconds."""

    def moment(text: str, zone: str, what: str) -> tuple[datetime.datetime, str]:
        match = _MOMENT.fullmatch(text.strip(BLANKS) if of_csv else text)
        try:
            if match is not None and (match[2], match[5]) == (separator, zone):
                return smart_datetime(f"{match[1]} {match[3]}", match[4]), match[4]
        except (ValueError, OverflowError):
            pass
        raise Mismatch(text, f"a {what} such as 2026-01-31{separator}12:30:00.123{zone}")

    def time_of_day(text: str) -> datetime.time:
        match = _TIME_OF_DAY.fullmatch(text)
        try:
            if match is not None and (of_csv or match[2]):
                if not of_csv and text.startswith("24:00:00") and not nanoseconds(match[3]):
                    return datetime.time(0)
                # a TIME has milliseconds
                digits = f"{(match[3] or '')[:3]:0<3}000"
                return datetime.time.fromisoformat(f"{match[1]}{match[2] or ':00'}.{digits}")
        except ValueError:
            pass
        raise Mismatch(text, "a time such as 12:30:00")

    return {
        BasicType.INSTANT: lambda text: instant_of(*moment(text, "Z", "TIMESTAMP_LTZ")),
        **dict.fromkeys((Temporal.TIMESTAMP, Temporal.LOCAL_TIMESTAMP), lambda text: moment(text, "", "TIMESTAMP")[0]),
        **dict.fromkeys((Temporal.TIME, Temporal.LOCAL_TIME), time_of_day),
    }


def table_writers(separator: str) -> dict[BasicType | Temporal, Callable[[Any], str]]:
    """The inverse of `table_readers`."""

    def instant(value: Instant) -> str:
        digits = f".{value.nanos:09}".rstrip("0") if value.nanos else ""
        return f"{text_of_seconds(value, separator)}{digits}Z"

    return {
        BasicType.INSTANT: instant,
        **dict.fromkeys(
            (Temporal.TIMESTAMP, Temporal.LOCAL_TIMESTAMP), lambda value: trimmed(in_utc(value).isoformat(separator))
        ),
        **dict.fromkeys(
            (Temporal.TIME, Temporal.LOCAL_TIME), lambda value: trimmed(value.replace(tzinfo=None).isoformat())
        ),
    }


def malformed(
    what: str, message: bytes, error: Exception, schema: str, expected: str, hint: str
) -> MalformedRecordError:
    """The error for a message that a schema cannot read: ``what`` it is, where the schema stopped and what it expected
    there, which a `Mismatch` says more exactly."""
    path, reason = "", str(error)
    if isinstance(error, Mismatch):
        path = ", ".join(error.path)
        expected, reason = error.expected, f"there is {abbreviated(error.value, 60)}"
    return MalformedRecordError(
        f"the {what} {abbreviated(str(message, 'utf-8', 'backslashreplace'))} cannot be read: {reason}",
        where=", ".join(part for part in (schema, path) if part),
        expected=expected,
        hint=hint,
    )
