"""Conversion of typed field values to and from the texts that JSON and CSV have in common.

Rule upheld here: a text is read as its declared type or refused with :class:`Mismatch`; no number is truncated or
wrapped around (``3000000000`` under INT is malformed input, not -1294967296). Only fractions of a second are cut off,
behind the microseconds, since Python's times hold no more; those of Instants too, as in columns.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

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

Reader = Callable[[Any], Any]

BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}


def unwrapped(type_info: TypeInformation) -> TypeInformation:
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info._type_info
    return type_info


def text_reader(type_info: TypeInformation) -> Reader | None:
    """The function that reads a text as a value of a scalar type, and raises Mismatch if it does not fit; None if the
    type is not scalar."""
    type_info = unwrapped(type_info)
    if isinstance(type_info, BasicTypeInfo):
        kind = type_info._basic_type
        return whole_reader(BITS[kind]) if kind in BITS else _BASIC_READERS[kind]
    temporal = _temporal_kind(type_info)
    return None if temporal is None else _TEMPORAL_READERS[temporal]


def text_of_temporal(value: Any) -> str:
    """The text of a date, time, timestamp or instant in ISO 8601. Times, timestamps (in UTC) and instants end with
    ``Z``, as in Flink's RFC 3339 formats."""
    if isinstance(value, Instant):
        point = datetime.datetime.fromtimestamp(value.seconds, datetime.timezone.utc)
        return text_of_temporal(point.replace(microsecond=value.nanos // 1_000))
    if isinstance(value, datetime.datetime):
        aware = value.tzinfo is not None
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None) if aware else value
        return str(value.isoformat()) + "Z"
    if isinstance(value, datetime.time):
        return value.replace(tzinfo=None).isoformat() + "Z"
    return str(value.isoformat())


def whole_reader(bits: int | None) -> Reader:
    """The function that reads a text as a signed whole number of ``bits`` bits (None: of any size)."""
    limit = None if bits is None else 1 << (bits - 1)

    def read(text: Any) -> int:
        try:
            number = int(text.strip()) if "_" not in text else None
        except ValueError:
            number = None
        if number is None:
            raise Mismatch(text, "a whole number")
        return within(number, limit, bits)

    return read


def within(number: int, limit: int | None, bits: int | None) -> int:
    if limit is not None and not -limit <= number < limit:
        raise Mismatch(number, f"a whole number of {bits} bits")
    return number


def read_number(text: str) -> float:
    try:
        if "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise Mismatch(text, "a number")


def read_decimal(text: str) -> Decimal:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise Mismatch(text, "a decimal number") from None
    if not number.is_finite():
        raise Mismatch(text, "a decimal number")
    return number


def read_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Mismatch(text, "bytes in base64") from None


def _read_boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise Mismatch(text, "true or false")
    return lowered == "true"


def _read_float32(text: str) -> Any:
    number = read_number(text)
    return number if not math.isfinite(number) else BasicTypeInfo.FLOAT_TYPE_INFO()._convert(number)


def _read_character(text: str) -> str:
    if len(text) != 1:
        raise Mismatch(text, "one character")
    return text


def _read_date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text.strip())
    except ValueError:
        raise Mismatch(text, "a date such as 2026-01-31") from None


def _read_time(text: str) -> datetime.time:
    try:
        return datetime.time.fromisoformat(_without_zone(text))
    except ValueError:
        raise Mismatch(text, "a time such as 12:30:00Z") from None


def _read_timestamp(text: str) -> datetime.datetime:
    try:
        value = datetime.datetime.fromisoformat(_without_zone(text))
        return value if value.tzinfo is None else value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError):  # an OverflowError if the year in UTC is not 1 to 9999
        raise Mismatch(text, "a point in time such as 2026-01-31T12:30:00Z") from None


def _read_instant(text: str) -> Instant:
    point = _read_timestamp(text).replace(tzinfo=datetime.timezone.utc)
    seconds = math.floor(point.replace(microsecond=0).timestamp())
    return Instant(seconds, point.microsecond * 1_000)


def _without_zone(text: str) -> str:
    """The text without a final Z, and with a fraction of a second of 6 digits, since Python 3.10 parses only fractions
    of 3 or 6 digits. Further digits are dropped."""
    text = text.strip()
    text = text[:-1] if text.endswith(("Z", "z")) else text
    head, point, tail = text.partition(".")
    if not point:
        return text
    digits = len(tail) - len(tail.lstrip("0123456789"))
    return f"{head}.{tail[:digits][:6]:0<6}{tail[digits:]}"


def _temporal_kind(type_info: TypeInformation) -> type | None:
    if isinstance(type_info, LocalTimeTypeInfo):
        return type_info._python_type
    for declared, kind in (
        (DateTypeInfo, datetime.date),
        (TimeTypeInfo, datetime.time),
        (TimestampTypeInfo, datetime.datetime),
    ):
        if isinstance(type_info, declared):
            return kind
    return None


_BASIC_READERS: dict[BasicType, Reader] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: _read_boolean,
    BasicType.FLOAT: _read_float32,
    BasicType.DOUBLE: read_number,
    BasicType.CHAR: _read_character,
    BasicType.BIG_INT: whole_reader(None),
    BasicType.BIG_DEC: read_decimal,
    BasicType.INSTANT: _read_instant,
}

_TEMPORAL_READERS: dict[type, Reader] = {
    datetime.date: _read_date,
    datetime.time: _read_time,
    datetime.datetime: _read_timestamp,
}
