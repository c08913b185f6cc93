"""Compiles types into functions that read or write one JSON value.

The conversions are those of Flink's ``JsonRowDeserializationSchema`` (docs/connectors.md has them as a table): what
Jackson's tree of the message gives for the type, or else what Java's parser makes of the text of the node. Bytes are
base64, NaN and the infinities are strings, times are those of RFC 3339 in UTC.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from flinkish.common.text import text_writer
from flinkish.common.time import Instant
from flinkish.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.typeinfo.collections import _SequenceTypeInfo
from flinkish.common.types import _create_row
from flinkish.errors import ArgumentTypeError
from flinkish.formats._values import (
    BITS,
    Reader,
    Temporal,
    basic_readers,
    in_utc,
    instant_of,
    is_canonical_date,
    read_bytes,
    scalar_kind,
    smart_datetime,
    table_readers,
    table_writers,
    text_of_seconds,
    trimmed,
    unwrapped,
    within,
    without_zeros,
)

Writer = Callable[[Any], str]
_OfKinds = dict[BasicType | Temporal, Writer]

_quote: Writer = json.encoder.encode_basestring  # the C version; keeps characters beyond ASCII as they are
_text_of_double = text_writer(Types.DOUBLE())
_text_of_float = text_writer(Types.FLOAT())
_repr_of_float = float.__repr__  # not repr: a subclass of float, such as numpy's, has another one

_TIME = re.compile(r"\d\d:\d\d:\d\d(?:\.0{0,9})?Z", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{0,9}))?Z", re.ASCII)
_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d{0,9}))?(?:[Zz]|([+-])(\d\d)(?::?(\d\d))?)", re.ASCII
)


@dataclass(frozen=True)
class JsonReading:
    """How a schema reads: whether an absent field is an error, whether a field that cannot be read is None, and whether
    a value that Flink would change so that it fits its type is an error (``strict``). ``times``: what stands between
    date and time in the texts of Flink's formats of tables, in which the text of a number is that which it has; empty:
    times are those of RFC 3339."""

    fail_on_missing_field: bool = False
    ignore_parse_errors: bool = False
    strict: bool = False
    times: str = ""


#: The classes of the decoded values that are values of the type as they are.
_FINAL_CLASSES = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.DOUBLE: float,
    BasicType.BIG_INT: int,
} | dict.fromkeys(BITS, int)


def json_reader(type_info: TypeInformation, how: JsonReading) -> Reader:
    """The function that converts a decoded JSON value other than null to a value of the type; it raises Mismatch if the
    value does not fit.

    Raises:
        TypeError: the type has no form in JSON.
    """
    type_info = unwrapped(type_info)
    if isinstance(type_info, RowTypeInfo):
        return _row_reader(type_info, how)
    if isinstance(type_info, MapTypeInfo):
        key_kind = _key_kind(type_info)
        read_key = None if key_kind is BasicType.STRING else json_reader(type_info._key_type_info, how)
        return _map_reader(read_key, json_reader(type_info._value_type_info, how), how)
    if _is_bytes(type_info):
        return _from_text(read_bytes, "bytes in base64") if how.strict else _bytes_or_none
    if isinstance(type_info, _SequenceTypeInfo):
        return _list_reader(json_reader(type_info.elem_type, how), type_info._nullable_elements, how)
    kind = None if isinstance(type_info, TupleTypeInfo) else scalar_kind(type_info)
    if kind is None:
        raise _no_form(type_info)
    read = _scalar_reader(kind, how)
    return (lambda node: type_info.rounded(read(node))) if isinstance(type_info, DecimalTypeInfo) else read


@dataclass(frozen=True)
class Finality:
    """What decoded values of a scalar type are the values of the type as they are: those of ``cls``, and None; if there
    are ``bits``, only whole numbers of so many bits."""

    cls: type
    bits: int | None

    def holds_for(self, values: Sequence[Any]) -> bool:
        found = set(map(type, values)) - {type(None)}
        if found - {self.cls}:
            return False
        if self.bits is None or not found:
            return True
        numbers = [value for value in values if value is not None] if None in values else values
        limit = 1 << (self.bits - 1)
        return bool(-limit <= min(numbers) and max(numbers) < limit)


def finality(type_info: TypeInformation) -> Finality | None:
    """Which decoded values :func:`json_reader` returns as they are; None: it depends on more than their class."""
    type_info = unwrapped(type_info)
    kind = type_info._basic_type if isinstance(type_info, BasicTypeInfo) else None
    return Finality(_FINAL_CLASSES[kind], BITS.get(kind)) if kind in _FINAL_CLASSES else None


@dataclass(frozen=True)
class JsonWriting:
    """How a schema writes: ``times`` as in `JsonReading`, whether fields that are None are left out, and whether
    decimals have no exponent."""

    times: str = ""
    ignore_null_fields: bool = False
    plain_decimals: bool = False


def json_writer(type_info: TypeInformation, how: JsonWriting = JsonWriting()) -> Writer:
    """The function that writes a (converted) value of the type, or None, as JSON text.

    Raises:
        TypeError: the type has no form in JSON.
    """
    writers = _SCALAR_WRITERS
    if how.times:
        writers = writers | {kind: _quoting(write) for kind, write in table_writers(how.times).items()}
        form = "f" if how.plain_decimals else ""
        writers[BasicType.BIG_DEC] = lambda value: format(without_zeros(value), form)
    return _nullable(_writer(unwrapped(type_info), _Writers(writers, how.ignore_null_fields)))


class _Writers(NamedTuple):
    """The writers of the kinds of scalar values, and whether fields that are None are left out."""

    of_kinds: _OfKinds
    ignore_null_fields: bool


def _quoting(write: Writer) -> Writer:
    return lambda value: f'"{write(value)}"'


def needs_exact_numbers(type_info: TypeInformation) -> bool:
    """Whether a BIG_DEC occurs anywhere in the type, so that a float would not be exact enough."""
    type_info = unwrapped(type_info)
    if isinstance(type_info, BasicTypeInfo):
        return type_info._basic_type is BasicType.BIG_DEC
    if isinstance(type_info, RowTypeInfo):
        return any(map(needs_exact_numbers, type_info.get_field_types()))
    if isinstance(type_info, MapTypeInfo):
        return needs_exact_numbers(type_info._value_type_info)
    return isinstance(type_info, _SequenceTypeInfo) and needs_exact_numbers(type_info.elem_type)


# --- reading ----------------------------------------------------------------------------------------------------


def _row_reader(type_info: RowTypeInfo, how: JsonReading) -> Reader:
    names = type_info.get_field_names()
    fields = [
        (name, json_reader(field_type, how))
        for name, field_type in zip(names, type_info.get_field_types(), strict=True)
    ]
    fail_on_missing_field, ignore_parse_errors = how.fail_on_missing_field, how.ignore_parse_errors

    def read(node: Any) -> Any:
        if type(node) is not dict:
            raise Mismatch(node, "a JSON object")
        values: list[Any] = []
        for name, read_field in fields:
            item = node.get(name)
            if item is None:
                if fail_on_missing_field and name not in node:
                    raise Mismatch(node, f"the field '{name}', which is missing")
                values.append(None)
                continue
            try:
                values.append(read_field(item))
            except Mismatch as mismatch:
                if not ignore_parse_errors:
                    raise mismatch.inside(f"field '{name}'") from None
                values.append(None)
        return _create_row(names, values)

    return read


def _map_reader(read_key: Reader | None, read_value: Reader, how: JsonReading) -> Reader:
    """The reader of an object; ``read_key`` is None if its names are the keys as they are."""
    if how.ignore_parse_errors:
        read_key, read_value = read_key and _or_none(read_key), _or_none(read_value)

    def read(node: Any) -> Any:
        if type(node) is dict:
            values = {key: None if item is None else read_value(item) for key, item in node.items()}
            return values if read_key is None else dict(zip(map(read_key, values), values.values(), strict=True))
        if how.strict:
            raise Mismatch(node, "a JSON object")
        return {}  # Jackson's nodes of another kind are taken for objects without fields

    return read


def _list_reader(read_element: Reader, nullable: bool, how: JsonReading) -> Reader:
    read_element = _or_none(read_element) if how.ignore_parse_errors and nullable else read_element

    def read(node: Any) -> Any:
        if type(node) is not list:
            raise Mismatch(node, "a JSON array")
        if not nullable and None in node:
            raise Mismatch(node, "a JSON array without null")
        return [None if item is None else read_element(item) for item in node]

    return read


def _or_none(read: Reader) -> Reader:
    def read_or_none(node: Any) -> Any:
        try:
            return read(node)
        except Mismatch:
            return None

    return read_or_none


def _scalar_reader(kind: BasicType | Temporal, how: JsonReading) -> Reader:
    strict = how.strict
    if how.times and kind in (of_tables := table_readers(how.times)):
        return _from_text(of_tables[kind], "a text")
    if isinstance(kind, Temporal):
        return _from_text(_TEMPORAL_READERS[kind], "a text")
    if kind is BasicType.STRING:
        return _read_exactly if how.times else _read_string
    if kind is BasicType.INSTANT:
        return _read_instant
    read_text = basic_readers(strict)[kind]
    if kind is BasicType.CHAR:
        return _from_text(read_text, "a text")
    if kind is BasicType.BOOLEAN:
        if strict:
            return lambda node: node if type(node) is bool else read_text(_text_of_scalar(node, "true or false"))
        return lambda node: node if type(node) is bool else type(node) is str and read_text(node)
    if kind in BITS or kind is BasicType.BIG_INT:
        return _whole_reader(kind, read_text, strict)
    if kind is BasicType.BIG_DEC:
        return lambda node: without_zeros(node) if type(node) is Decimal else read_text(_text_of_scalar(node))
    if kind is BasicType.DOUBLE:
        return lambda node: node if type(node) is float else _read_real(node, float, read_text)
    convert = BasicTypeInfo.FLOAT_TYPE_INFO()._convert
    return lambda node: _read_real(node, convert, read_text)


def _read_real(node: Any, convert: Callable[[Any], Any], read_text: Reader) -> Any:
    if type(node) is Decimal:
        return convert(without_zeros(node))
    return convert(node) if type(node) is float else read_text(_text_of_scalar(node))


def _whole_reader(kind: BasicType, read_text: Reader, strict: bool) -> Reader:
    bits = BITS.get(kind)
    limit = None if bits is None else 1 << (bits - 1)
    cut = kind in (BasicType.INT, BasicType.LONG)

    def read(node: Any) -> int:
        if type(node) is int:
            return within(node, limit, bits)
        if type(node) is str:
            return int(read_text(node))
        if type(node) is Decimal and not cut:
            return int(read_text(_text_of_scalar(node)))
        if type(node) in (float, Decimal) and limit is not None and cut:
            # Java compares a double with the nearest double of the highest number
            highest = float(limit - 1) if type(node) is float else limit - 1
            if -limit <= node <= highest and (not strict or node == int(node)):
                return min(int(node), limit - 1)
        raise Mismatch(node, "a whole number" if bits is None else f"a whole number of {bits} bits")

    return read


def _read_string(node: Any) -> str:
    if type(node) is str:
        return node
    return _text_of_node(node) if type(node) in (dict, list) else _text_of_scalar(node)


def _read_exactly(node: Any) -> str:
    """The same, with the digits that a number has."""
    return str(node) if type(node) is Decimal else _read_string(node)


def _text_of_node(node: Any) -> str:
    """A decoded value as compact JSON with the numbers that Java writes."""
    if type(node) is dict:
        return "{" + ",".join([f"{_quote(key)}:{_text_of_node(item)}" for key, item in node.items()]) + "}"
    if type(node) is list:
        return "[" + ",".join(map(_text_of_node, node)) + "]"
    if type(node) is str:
        return _quote(node)
    return _write_double(node) if type(node) is float else "null" if node is None else _text_of_scalar(node)


def _text_of_scalar(node: Any, expected: str = "a number") -> str:
    """The text of a node that is no object and no array, as Java writes it."""
    kind = type(node)
    if kind is str or kind is int:
        return str(node)
    if kind is float:
        return _text_of_double(node)
    if kind is Decimal:
        return str(without_zeros(node))
    if kind is bool:
        return "true" if node else "false"
    raise Mismatch(node, expected)


def _from_text(read_text: Reader, expected: str) -> Reader:
    def read(node: Any) -> Any:
        if type(node) is not str:
            raise Mismatch(node, expected)
        return read_text(node)

    return read


def _bytes_or_none(node: Any) -> bytes | None:
    return read_bytes(node) if type(node) is str else None


def _read_date(text: str) -> date:
    try:
        if is_canonical_date(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise Mismatch(text, "a date such as 2026-01-31")


def _read_time(text: str) -> time:
    try:
        if _TIME.fullmatch(text):
            return time(0) if text.startswith("24:00:00") else time.fromisoformat(text[:8])
    except ValueError:
        pass
    raise Mismatch(text, "a time such as 12:30:00Z, in UTC and without a fraction of a second")


def _read_timestamp(text: str) -> datetime:
    found = _TIMESTAMP.fullmatch(text)
    try:
        if found:
            return smart_datetime(found[1], found[2])
    except (ValueError, OverflowError):
        pass
    raise Mismatch(text, "a point in time in UTC such as 2026-01-31T12:30:00Z")


def _read_instant(node: Any) -> Instant:
    """A text of RFC 3339 with any offset, or the number of seconds since 1970."""
    if type(node) in (int, float, Decimal):
        number = Decimal(repr(node)) if type(node) is float else Decimal(node)
        if number.copy_abs() < 1 << 53:
            # moves the point; arithmetic would round
            minus, whole, exponent = number.as_tuple()
            nanos = math.floor(Decimal((minus, whole, int(exponent) + 9)))
            return Instant(*divmod(nanos, 1_000_000_000))
    found = _INSTANT.fullmatch(node) if type(node) is str else None
    try:
        if found:
            seconds_text, digits, sign, hours, minutes = found.groups()
            point = smart_datetime(seconds_text.upper(), None)
            if sign:
                offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
                point = point - offset if sign == "+" else point + offset
            return instant_of(point, digits)
    except (ValueError, OverflowError):  # an OverflowError if the year in UTC is not 1 to 9999
        pass
    raise Mismatch(node, "a point in time such as 2026-01-31T12:30:00Z")


_TEMPORAL_READERS: dict[Temporal, Reader] = {
    Temporal.DATE: _read_date,
    Temporal.TIME: _read_time,
    Temporal.LOCAL_TIME: _read_time,
    Temporal.TIMESTAMP: _read_timestamp,
    Temporal.LOCAL_TIMESTAMP: _read_timestamp,
}


# --- writing ----------------------------------------------------------------------------------------------------


def _writer(type_info: TypeInformation, writers: _Writers) -> Writer:
    type_info = unwrapped(type_info)
    if isinstance(type_info, RowTypeInfo):
        return _row_writer(type_info, writers)
    if isinstance(type_info, MapTypeInfo):
        write_key = _key_writer(_key_kind(type_info), writers)
        write_value = _nullable(_writer(type_info._value_type_info, writers))
        return lambda value: (
            "{" + ",".join([f"{write_key(key)}:{write_value(item)}" for key, item in value.items()]) + "}"
        )
    if _is_bytes(type_info):
        return _write_bytes
    if isinstance(type_info, _SequenceTypeInfo):
        write_element = _nullable(_writer(type_info.elem_type, writers))
        return lambda value: "[" + ",".join([write_element(item) for item in value]) + "]"
    kind = scalar_kind(type_info)
    if kind is None:
        raise _no_form(type_info)
    return writers.of_kinds.get(kind, str)


def _key_writer(kind: BasicType | Temporal, writers: _Writers) -> Writer:
    """The function that writes a key as the name of a field, which is a text also if the key is a number."""
    write = writers.of_kinds.get(kind, str)

    def write_key(key: Any) -> str:
        text = write(key)
        return text if text.startswith('"') else f'"{text}"'

    return _quote if kind is BasicType.STRING else write_key


def _row_writer(type_info: RowTypeInfo, writers: _Writers) -> Writer:
    pairs = zip(type_info.get_field_names(), type_info.get_field_types(), strict=True)
    fields = [(_quote(name) + ":", _nullable(_writer(field_type, writers))) for name, field_type in pairs]
    if writers.ignore_null_fields:
        return lambda row: (
            "{" + ",".join([key + write(item) for (key, write), item in zip(fields, row) if item is not None]) + "}"
        )

    def write(row: Any) -> str:
        texts = [key + write_field(item) for (key, write_field), item in zip(fields, row, strict=True)]
        return "{" + ",".join(texts) + "}"

    return write


def _nullable(write: Writer) -> Writer:
    return lambda value: "null" if value is None else write(value)


def _write_double(value: float) -> str:
    if 0.001 <= value < 1e7:
        return _repr_of_float(value)  # Python's text is Java's here
    return _text_of_double(value) if math.isfinite(value) else f'"{_text_of_double(value)}"'


def _write_float(value: float) -> str:
    return _text_of_float(value) if math.isfinite(value) else f'"{_text_of_float(value)}"'


def _write_bytes(value: bytes) -> str:
    return '"' + base64.b64encode(value).decode("ascii") + '"'


def _write_instant(value: Instant) -> str:
    # Java writes no digits behind the point, or 3, 6 or 9 of them
    digits = f"{value.nanos:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f'"{text_of_seconds(value, "T")}{"." * bool(digits)}{digits}Z"'


_SCALAR_WRITERS: _OfKinds = {
    BasicType.STRING: _quote,
    BasicType.CHAR: _quote,
    BasicType.BOOLEAN: lambda value: "true" if value else "false",
    BasicType.FLOAT: _write_float,
    BasicType.DOUBLE: _write_double,
    BasicType.INSTANT: _write_instant,
    Temporal.DATE: lambda value: f'"{value.isoformat()}"',
    # java.sql.Time has no fraction of a second
    Temporal.TIME: lambda value: f'"{value.replace(tzinfo=None).isoformat("seconds")}Z"',
    Temporal.LOCAL_TIME: lambda value: f'"{trimmed(value.replace(tzinfo=None).isoformat())}Z"',
    Temporal.TIMESTAMP: lambda value: f'"{trimmed(in_utc(value).isoformat())}Z"',
    Temporal.LOCAL_TIMESTAMP: lambda value: f'"{trimmed(in_utc(value).isoformat())}Z"',
}


def _is_bytes(type_info: TypeInformation) -> bool:
    return isinstance(type_info, PrimitiveArrayTypeInfo) and type_info._is_binary


def _key_kind(type_info: MapTypeInfo) -> BasicType | Temporal:
    kind = scalar_kind(unwrapped(type_info._key_type_info))
    if kind is None:
        raise ArgumentTypeError(
            f"{type_info!r} has no form in JSON",
            where="formats.json",
            expected="a MAP whose keys are texts, numbers or times, since they are the names of an object",
            hint="map the keys to texts before",
        )
    return kind


def _no_form(type_info: TypeInformation) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{type_info!r} has no form in JSON",
        where="formats.json",
        expected="a ROW, MAP, LIST, array, basic or time type",
        hint="map the field to a text before",
    )
