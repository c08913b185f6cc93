"""Compiles types into functions that read or write one JSON value.

The conversions are those of Flink's legacy JSON format: a JSON string that holds a number is read as a number, a number
under STRING becomes its text, bytes are base64, and NaN and the infinities are strings.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from flinkish.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.typeinfo.collections import _SequenceTypeInfo
from flinkish.common.types import _create_row
from flinkish.errors import ArgumentTypeError
from flinkish.formats._values import (
    BITS,
    Reader,
    read_bytes,
    read_decimal,
    text_of_temporal,
    text_reader,
    unwrapped,
    within,
)

Writer = Callable[[Any], str]

_quote: Writer = json.encoder.encode_basestring  # the C version; keeps characters beyond ASCII as they are


def json_reader(type_info: TypeInformation, fail_on_missing_field: bool) -> Reader:
    """The function that converts a decoded JSON value other than null to a value of the type; it raises Mismatch if the
    value does not fit.

    Raises:
        TypeError: the type has no form in JSON.
    """
    type_info = unwrapped(type_info)
    if isinstance(type_info, RowTypeInfo):
        return _row_reader(type_info, fail_on_missing_field)
    if isinstance(type_info, MapTypeInfo):
        _require_text_keys(type_info)
        return _map_reader(json_reader(type_info._value_type_info, fail_on_missing_field))
    if _is_bytes(type_info):
        return _from_text(read_bytes, "bytes in base64")
    if isinstance(type_info, _SequenceTypeInfo):
        nullable = type_info._nullable_elements
        return _list_reader(json_reader(type_info.elem_type, fail_on_missing_field), nullable)
    read_text = text_reader(type_info)
    if read_text is None or isinstance(type_info, TupleTypeInfo):
        raise ArgumentTypeError(
            f"{type_info!r} has no form in JSON",
            where="formats.json",
            expected="a ROW, MAP, LIST, array, basic or time type",
            hint="map the field to a text before",
        )
    if isinstance(type_info, BasicTypeInfo):
        return _basic_reader(type_info._basic_type, read_text)
    return _from_text(read_text, "a text")


def json_writer(type_info: TypeInformation) -> Writer:
    """The function that writes a (converted) value of the type, or None, as JSON text.

    Raises:
        TypeError: the type has no form in JSON.
    """
    return _nullable(_writer(unwrapped(type_info)))


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


def _row_reader(type_info: RowTypeInfo, fail_on_missing_field: bool) -> Reader:
    names = type_info.get_field_names()
    fields = [
        (name, json_reader(field_type, fail_on_missing_field))
        for name, field_type in zip(names, type_info.get_field_types(), strict=True)
    ]

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
                raise mismatch.inside(f"field '{name}'") from None
        return _create_row(names, values)

    return read


def _map_reader(read_value: Reader) -> Reader:
    def read(node: Any) -> Any:
        if type(node) is not dict:
            raise Mismatch(node, "a JSON object")
        return {key: None if item is None else read_value(item) for key, item in node.items()}

    return read


def _list_reader(read_element: Reader, nullable: bool) -> Reader:
    def read(node: Any) -> Any:
        if type(node) is not list:
            raise Mismatch(node, "a JSON array")
        if not nullable and None in node:
            raise Mismatch(node, "a JSON array without null")
        return [None if item is None else read_element(item) for item in node]

    return read


def _from_text(read_text: Reader, expected: str) -> Reader:
    def read(node: Any) -> Any:
        if type(node) is not str:
            raise Mismatch(node, expected)
        return read_text(node)

    return read


def _basic_reader(kind: BasicType, read_text: Reader) -> Reader:
    if kind is BasicType.STRING:
        return _read_string
    if kind in BITS or kind is BasicType.BIG_INT:
        return _whole_reader(BITS.get(kind), read_text)
    if kind is BasicType.BIG_DEC:
        return lambda node: read_decimal(_text_of_scalar(node, "a number"))
    if kind is BasicType.DOUBLE:
        return lambda node: node if type(node) is float else read_text(_text_of_scalar(node, "a number"))
    if kind is BasicType.BOOLEAN:
        return lambda node: node if type(node) is bool else read_text(_text_of_scalar(node, "true or false"))
    if kind is BasicType.FLOAT:
        return lambda node: read_text(_text_of_scalar(node, "a number"))
    return _from_text(read_text, "a text")


def _read_string(node: Any) -> str:
    if type(node) is str:
        return node
    if isinstance(node, Decimal):
        return str(node)
    return json.dumps(node, ensure_ascii=False, separators=(",", ":"), default=float)


def _whole_reader(bits: int | None, read_text: Reader) -> Reader:
    limit = None if bits is None else 1 << (bits - 1)

    def read(node: Any) -> int:
        if type(node) is int:
            return within(node, limit, bits)
        if isinstance(node, (float, Decimal)) and math.isfinite(node) and node == int(node):
            return within(int(node), limit, bits)
        return int(read_text(_text_of_scalar(node, "a whole number")))

    return read


def _text_of_scalar(node: Any, expected: str) -> str:
    if isinstance(node, bool) or not isinstance(node, (str, int, float, Decimal)):
        raise Mismatch(node, expected)
    return str(node)


# --- writing ----------------------------------------------------------------------------------------------------


def _writer(type_info: TypeInformation) -> Writer:
    type_info = unwrapped(type_info)
    if isinstance(type_info, RowTypeInfo):
        return _row_writer(type_info)
    if isinstance(type_info, MapTypeInfo):
        _require_text_keys(type_info)
        write_value = _nullable(_writer(type_info._value_type_info))
        return lambda value: "{" + ",".join([f"{_quote(key)}:{write_value(item)}" for key, item in value.items()]) + "}"
    if _is_bytes(type_info):
        return _write_bytes
    if isinstance(type_info, _SequenceTypeInfo):
        write_element = _nullable(_writer(type_info.elem_type))
        return lambda value: "[" + ",".join([write_element(item) for item in value]) + "]"
    if text_reader(type_info) is None:
        raise ArgumentTypeError(
            f"{type_info!r} has no form in JSON",
            where="formats.json",
            expected="a ROW, MAP, LIST, array, basic or time type",
            hint="map the field to a text before",
        )
    if isinstance(type_info, BasicTypeInfo):
        return _BASIC_WRITERS.get(type_info._basic_type, str)
    return lambda value: f'"{text_of_temporal(value)}"'


def _row_writer(type_info: RowTypeInfo) -> Writer:
    pairs = zip(type_info.get_field_names(), type_info.get_field_types(), strict=True)
    fields = [(_quote(name) + ":", _nullable(_writer(field_type))) for name, field_type in pairs]

    def write(row: Any) -> str:
        texts = [key + write_field(item) for (key, write_field), item in zip(fields, row, strict=True)]
        return "{" + ",".join(texts) + "}"

    return write


def _nullable(write: Writer) -> Writer:
    return lambda value: "null" if value is None else write(value)


def _write_float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _write_bytes(value: bytes) -> str:
    return '"' + base64.b64encode(value).decode("ascii") + '"'


_BASIC_WRITERS: dict[BasicType, Writer] = {
    BasicType.STRING: _quote,
    BasicType.CHAR: _quote,
    BasicType.BOOLEAN: lambda value: "true" if value else "false",
    BasicType.FLOAT: _write_float,
    BasicType.DOUBLE: _write_float,
    BasicType.INSTANT: lambda value: f'"{text_of_temporal(value)}"',
}


def _is_bytes(type_info: TypeInformation) -> bool:
    return isinstance(type_info, PrimitiveArrayTypeInfo) and type_info._is_binary


def _require_text_keys(type_info: MapTypeInfo) -> None:
    key_type = unwrapped(type_info._key_type_info)
    if not isinstance(key_type, BasicTypeInfo) or key_type._basic_type is not BasicType.STRING:
        raise ArgumentTypeError(
            f"{type_info!r} has no form in JSON",
            where="formats.json",
            expected="a MAP with keys of type STRING",
            hint="map the keys to texts before",
        )
