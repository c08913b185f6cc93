"""Deserializes JSON objects to typed Rows and serializes Rows to JSON objects (Flink's legacy ``JsonRow...Schema``, the
one that PyFlink offers).

Rule upheld here: a type is compiled once into one small function per field; no type is examined per record. The
conversions are Flink's, which read more than the type says (docs/connectors.md has the table); ``strict()`` refuses
what they would change. What does not fit raises a :class:`MalformedRecordError` that quotes the message, unless
``ignore_parse_errors`` is set.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from operator import attrgetter, itemgetter
from typing import Annotated, Any

from flinkish.common.arguments import check_instance
from flinkish.common.serialization import DeserializationSchema, SerializationSchema
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.types import _create_rows, check_inserts_only
from flinkish.errors import ArgumentTypeError, ArgumentValueError, MalformedRecordError
from flinkish.formats._json_values import (
    Finality,
    JsonReading,
    JsonWriting,
    finality,
    json_reader,
    json_writer,
    needs_exact_numbers,
)
from flinkish.formats._values import Reader, malformed

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]

#: What gives the values of all fields of a decoded object; None: it is a sequence of them.
_Values = Callable[[Any], Sequence[Any]] | None
#: Decodes messages to objects, or their values, if it is told how: None for messages left to `PlainRows`, whose places
#: join the set.
_Decode = Callable[[list[Any], set[int], _Values], list[Any]]
#: A field whose decoded values need a look: its place, when they are final, and the reader.
_Look = tuple[int, Finality | None, Reader]
#: What gives the values of an object, all of them, and each of them.
_Getters = tuple[_Values, list[Callable[[Any], Any]]]
_Decoder = tuple[_Decode, list[_Look], _Getters]


class JsonRowDeserializationSchema(DeserializationSchema):
    """Deserializes a message, which is one JSON object in UTF-8, to a Row. Made by :meth:`builder`.

    A field that is absent is None, unless ``fail_on_missing_field`` is set; unknown fields are ignored, and so is what
    follows the object. A message that cannot be read raises MalformedRecordError, unless ``ignore_parse_errors`` is
    set: then a field (or an element of an array or a map) that cannot be read is None, and a message that is no JSON
    object gives no record.

    >>> from flinkish.common import Types
    >>> schema = JsonRowDeserializationSchema.builder().type_info(
    ...     Types.ROW_NAMED(["user", "n"], [Types.STRING(), Types.INT()])).build()
    >>> schema.deserialize(b'{"n": 1, "user": "ann"}')
    Row(user='ann', n=1)
    """

    def __init__(self, type_info: RowTypeInfo, how: JsonReading) -> None:
        self._type_info = type_info
        self._how = how
        self._rows = fastest_rows(type_info, how)

    def __getstate__(self) -> dict[str, Any]:
        # a worker makes its own readers, which are C objects and closures
        return {name: value for name, value in vars(self).items() if name != "_rows"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._rows = fastest_rows(self._type_info, self._how)

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        return JsonRowDeserializationSchema.Builder()

    def get_produced_type(self) -> TypeInformation:
        return self._type_info

    def deserialize(self, message: bytes | None) -> Any:
        return self._rows.read([message])[0]

    def deserialize_batch(self, messages: list[bytes | None]) -> list[Any]:
        return self._rows.read(messages)

    class Builder:
        """Builder of :class:`JsonRowDeserializationSchema`."""

        def __init__(self) -> None:
            self._type_info: RowTypeInfo | None = None
            self._how = JsonReading()

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """Set the type of the records, a ROW.

            Raises:
                TypeError: the type is no ROW.
            """
            self._type_info = _row_type(type_info)
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Take the type of the records from a JSON schema (as text) of the type ``object``.

            Raises:
                TypeError: ``json_schema`` is no str, or a schema of another type than ``object``.
                ValueError: it is no JSON schema, or has a part that no type can express.
            """
            check_instance(
                json_schema, str, "the json_schema is", "JsonRowDeserializationSchema.builder()", "give its text"
            )
            self._type_info = _row_type(_type_of_json_schema(json_schema))
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Make an absent field an error; one that is null is None all the same."""
            self._how = replace(self._how, fail_on_missing_field=True)
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Read None where a field cannot be read, and no record where a message is no JSON object."""
            self._how = replace(self._how, ignore_parse_errors=True)
            return self

        def strict(self) -> JsonRowDeserializationSchema.Builder:
            """Make it a parse error if a value does not fit its type but Flink would change it so that it does (PyFlink
            has no such setting): a fraction under INT or LONG, which Flink cuts off; anything but true and false under
            BOOLEAN, which is false for Flink; what is no text under bytes or no object under MAP; ``null`` instead of
            an object, or text behind it."""
            self._how = replace(self._how, strict=True)
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """The deserialization schema.

            Raises:
                ValueError: no type is set, or both ``fail_on_missing_field`` and ``ignore_parse_errors`` are.
            """
            if self._type_info is None:
                raise ArgumentValueError(
                    "the JSON schema has no type",
                    where="JsonRowDeserializationSchema.builder()",
                    expected="type_info(...) or json_schema(...) before build()",
                    hint="call type_info(Types.ROW_NAMED(names, types))",
                )
            if self._how.fail_on_missing_field and self._how.ignore_parse_errors:
                raise ArgumentValueError(
                    "JSON format doesn't support failOnMissingField and ignoreParseErrors are both enabled.",
                    where="JsonRowDeserializationSchema.builder()",
                    expected="at most one of fail_on_missing_field() and ignore_parse_errors()",
                    hint="leave one out",
                )
            return JsonRowDeserializationSchema(self._type_info, self._how)


class JsonRowSerializationSchema(SerializationSchema):
    """Serializes a Row to one JSON object in UTF-8, without white space between its tokens. Made by :meth:`builder`.

    Raises (when it serializes):
        TypeMismatchError: the record does not fit the type.
    """

    def __init__(self, type_info: TypeInformation, how: JsonWriting = JsonWriting()) -> None:  # noqa: B008 - it is frozen
        self._type_info = type_info
        self._how = how
        self._write = json_writer(type_info, how)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_write"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._write = json_writer(self._type_info, self._how)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        return JsonRowSerializationSchema.Builder()

    def serialize(self, value: Any) -> bytes | None:
        return JsonRowSerializationSchema.serialize_batch(self, [value])[0]

    def serialize_batch(self, values: list[Any]) -> list[bytes | None]:
        convert, write = self._type_info.batch_converter("JsonRowSerializationSchema"), self._write
        rows = values if convert is None else convert(values)
        check_inserts_only(values, "JsonRowSerializationSchema")
        # half of a surrogate pair has no UTF-8: the handler's form of it, \ud83d, is JSON's too
        return [write(row).encode("utf-8", "backslashreplace") for row in rows]

    class Builder:
        """Builder of :class:`JsonRowSerializationSchema`."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Set the type of the records, a ROW.

            Raises:
                TypeError: the type is no ROW.
            """
            self._type_info = _row_type(type_info)
            return self

        def build(self) -> JsonRowSerializationSchema:
            """The serialization schema.

            Raises:
                TypeError: no type is set.
            """
            if self._type_info is None:
                raise ArgumentTypeError(
                    "Typeinfo should be set.",
                    where="JsonRowSerializationSchema.builder()",
                    expected="with_type_info(...) before build()",
                    hint="call with_type_info(Types.ROW_NAMED(names, types))",
                )
            return JsonRowSerializationSchema(self._type_info)


def _row_type(type_info: TypeInformation) -> RowTypeInfo:
    if not isinstance(type_info, RowTypeInfo):
        raise ArgumentTypeError(
            f"the type is {type_info!r}",
            where="formats.json",
            expected="a ROW, such as Types.ROW_NAMED(names, types)",
            hint="a JSON object is a Row with names",
        )
    return type_info


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class PlainRows:
    """Reads messages one by one with the decoder of the standard library and the reader of the type. This defines what
    a message means, and which error it raises."""

    def __init__(self, type_info: RowTypeInfo, how: JsonReading) -> None:
        self._type_info = type_info
        self._how = how
        decoder = _decoder(type_info, how)
        # unlike decode, raw_decode ignores what follows the object
        self._decode = decoder.decode if how.strict else lambda text: decoder.raw_decode(text.lstrip(" \t\r\n"))[0]
        self._read = json_reader(type_info, how)

    def read(self, messages: list[bytes | None]) -> list[Any]:
        return list(map(self.read_one, messages))

    def read_one(self, message: bytes | None) -> Any:
        if message is None:
            return None
        try:
            node = self._decode(str(message, "utf-8").removeprefix("\ufeff"))
            return None if node is None and not self._how.strict else self._read(node)
        except (Mismatch, ValueError, RecursionError) as error:  # a ValueError if it is no JSON or no UTF-8
            if not self._how.ignore_parse_errors:
                raise self._malformed(message, error) from None
            return None

    def _malformed(self, message: bytes, error: Exception) -> MalformedRecordError:
        return malformed(
            "JSON message",
            message,
            error,
            "JsonRowDeserializationSchema",
            f"a JSON object that fits {self._type_info!r}",
            "mend the input, or set ignore_parse_errors(): then None stands for what cannot be read",
        )


class FastRows:
    """Gives what `PlainRows` gives, faster: the fields of all messages are decoded in C (``by``: `by_scanner` or
    `by_msgspec`), then those that need a look are read. A message with anything unusual is left to `PlainRows`."""

    def __init__(self, type_info: RowTypeInfo, how: JsonReading, by: Callable[..., _Decoder]) -> None:
        self.plain = PlainRows(type_info, how)
        self._names = type_info.get_field_names()
        self._decode, self._looks, (self._values_of, self._getters) = by(type_info, how)

    def read(self, messages: list[bytes | None]) -> list[Any]:
        left: set[int] = set()
        rows: Iterable[Sequence[Any]] = self._decode(messages, left, self._values_of)
        if self._looks and messages:
            columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
            self._look_at(columns, left)
            rows = zip(*columns, strict=True)
        records = _create_rows(self._names, rows)
        for place in sorted(left):
            records[place] = self.plain.read_one(messages[place])
        return records

    def columns(self, messages: list[bytes | None], unread: Collection[int] = ()) -> tuple[list[Any], set[int]]:
        """The values of each field, and the places of messages that are left to `plain`, where they mean nothing. The
        fields ``unread`` have the decoded values, which may be no values of the type."""
        left: set[int] = set()
        objects = self._decode(messages, left, None)
        columns: list[Any] = [list(map(get, objects)) for get in self._getters]
        self._look_at(columns, left, unread)
        return columns, left

    def _look_at(self, columns: list[Sequence[Any]], left: set[int], unread: Collection[int] = ()) -> None:
        for place, final, read_field in self._looks:
            if place not in unread and (final is None or not final.holds_for(columns[place])):
                columns[place] = read_column(columns[place], read_field, left)


def read_column(values: Sequence[Any], read_field: Reader, left: set[int]) -> list[Any]:
    """The values of a field, of which a reader makes values of the type; where it cannot, the place joins ``left``."""
    column: list[Any] = []
    for value in values:
        try:
            column.append(value if value is None else read_field(value))
        except Mismatch:
            left.add(len(column))
            column.append(None)
    return column


def by_scanner(type_info: RowTypeInfo, how: JsonReading) -> _Decoder:
    """Decode with the scanner of the standard library, which is called directly."""
    scan, names = _decoder(type_info, how).scan_once, type_info.get_field_names()  # type: ignore[attr-defined]
    pick = itemgetter(*names) if len(names) > 1 else lambda node: [node[name] for name in names]

    def decode(messages: list[Any], left: set[int], values_of: _Values) -> list[Sequence[Any]]:
        decoded: list[Sequence[Any]] = []
        for message in messages:
            try:
                text = bytes.decode(message)  # a TypeError if the message is None
                node, end = scan(text, 0)
                if type(node) is not dict or how.strict and end != len(text):
                    raise ValueError
                try:
                    decoded.append(pick(node))
                except KeyError:
                    if how.fail_on_missing_field:
                        raise ValueError from None
                    decoded.append(list(map(node.get, names)))
            except (TypeError, ValueError, StopIteration, RecursionError):
                left.add(len(decoded))
                decoded.append((None,) * len(names))
        return decoded

    types = type_info.get_field_types()
    looks = [(place, finality(field), json_reader(field, how)) for place, field in enumerate(types)]
    return decode, looks, (None, list(map(itemgetter, range(len(types)))))


def by_msgspec(type_info: RowTypeInfo, how: JsonReading) -> _Decoder:
    """Decode a struct that has the fields of the type. What msgspec takes is what the scanner gives, or for a ``float``
    a whole number, but it passes over fields that the type does not have without reading them.

    Raises:
        ValueError: msgspec has no struct with these names.
    """
    import msgspec

    def kind_of(final: Finality | None) -> Any:
        if final is None or final.bits is None:
            return Any if final is None else final.cls | None
        limit = 1 << (final.bits - 1)
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)] | None

    types = type_info.get_field_types()
    finals, fields = list(map(finality, types)), [f"f{place}" for place in range(len(types))]
    default = () if how.fail_on_missing_field else (None,)
    struct = msgspec.defstruct(
        "Fields",
        [(field, kind_of(final), *default) for field, final in zip(fields, finals, strict=True)],
        rename=dict(zip(fields, type_info.get_field_names(), strict=True)),
        gc=False,
    )
    decode_struct = msgspec.json.Decoder(struct, float_hook=_float_reader(type_info, how)).decode
    values_of = attrgetter(*fields) if len(fields) > 1 else msgspec.structs.astuple
    nothing = struct(*(None,) * len(fields))
    # Python refuses whole numbers of more digits; a longer run of them has one in some place that is looked at
    most_digits = getattr(sys, "get_int_max_str_digits", int)() or sys.maxsize

    def decode(messages: list[Any], left: set[int], values_of: _Values) -> list[Any]:
        is_ascii, decoded = bytes.isascii, list[Any]()
        try:
            if all(map(is_ascii, messages)) and max(map(len, messages), default=0) <= most_digits:
                decoded_structs = map(decode_struct, messages)
                return list(decoded_structs if values_of is None else map(values_of, decoded_structs))
        except (TypeError, ValueError, RecursionError):
            pass  # one by one
        for message in messages:
            try:
                if not is_ascii(message):  # a TypeError if the message is None
                    str(message, "utf-8")
                if len(message) > most_digits and re.search(rb"\d", message[::most_digits]):
                    raise ValueError
                decoded.append(decode_struct(message))
            except (TypeError, ValueError, RecursionError):
                left.add(len(decoded))
                decoded.append(nothing)
        return decoded if values_of is None else list(map(values_of, decoded))

    looks: list[_Look] = [(i, None, json_reader(types[i], how)) for i, final in enumerate(finals) if final is None]
    return decode, looks, (values_of, list(map(attrgetter, fields)))


def fastest_rows(type_info: RowTypeInfo, how: JsonReading) -> FastRows:
    """The fastest reader that there is here."""
    try:
        return FastRows(type_info, how, by_msgspec)
    except (ImportError, ValueError):  # msgspec is optional
        return FastRows(type_info, how, by_scanner)


def _decoder(type_info: TypeInformation, how: JsonReading) -> json.JSONDecoder:
    return json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_float_reader(type_info, how))


def _float_reader(type_info: TypeInformation, how: JsonReading) -> Callable[[str], Any] | None:
    """What makes numbers of texts with a point or an exponent; None: they are floats."""
    return _exact_number if how.times or needs_exact_numbers(type_info) else None


def _exact_number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the exponent of {text[:40]} is out of range") from None


# --- types of JSON schemas ----------------------------------------------------------------------------------------
# As in Flink's JsonRowSchemaConverter, a keyword that makes a union of types or extends one (anyOf, not, ...) is an
# error; other keywords that no type can express (minimum, required, if, ...) are ignored.

_FORMATS = {"date": Types.SQL_DATE, "time": Types.SQL_TIME, "date-time": Types.SQL_TIMESTAMP}
_SIMPLE = {"boolean": Types.BOOLEAN, "integer": Types.BIG_DEC, "number": Types.BIG_DEC}
_UNSUPPORTED = ("anyOf", "allOf", "not", "extends", "disallow")
#: The parts of a schema that Jackson reads beyond JSON: comments, and texts and names in single or without quotes.
_BEYOND_JSON = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|/\*.*?\*/|//[^\n]*|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<name>[A-Za-z_$][\w$]*)(?=\s*:)""",
    re.DOTALL,
)


def _type_of_json_schema(text: str) -> TypeInformation:
    """The type that a JSON schema describes: objects are ROWs, integers and numbers BIG_DEC. As in Flink, the text may
    have comments, and texts and names in single or without quotes.

    Raises:
        ValueError: the text is no JSON, or the schema has a part that no type can express.
    """
    try:
        root = json.loads(_BEYOND_JSON.sub(_as_json, text))
    except ValueError as error:
        raise ValueError(f"the JSON schema is not JSON: {error}") from None
    try:
        return _type_of("<root>", root, root)
    except RecursionError:
        raise ValueError("the JSON schema refers to itself, for which there is no type") from None


def _as_json(found: re.Match[str]) -> str:
    if found["single"] is not None:
        return json.dumps(found["single"].replace("\\'", "'"))
    return found["text"] or (f'"{found["name"]}"' if found["name"] else " ")


def _type_of(where: str, node: Any, root: Any) -> TypeInformation:
    types = set(_types_of(where, node, root))
    if len(types) != 1:
        raise ValueError(f"the JSON schema allows {len(types)} types at {where}; expected one, or one and null")
    return types.pop()


def _types_of(where: str, node: Any, root: Any) -> list[TypeInformation]:
    """The types that a node allows, without null; those of the node that it refers to are the fallback."""
    if not isinstance(node, dict):
        raise ValueError(f"the JSON schema has {node!r} at {where}; expected an object")
    for keyword in _UNSUPPORTED:
        if keyword in node:
            raise ValueError(f"the JSON schema has '{keyword}' at {where}, for which there is no type")
    if "type" not in node and "oneOf" not in node and "$ref" in node:
        return _types_of(where, _referenced(where, node["$ref"], root), root)
    kinds = node.get("type", [])
    types = [
        _type_of_kind(where, kind, node, root)
        for kind in (kinds if isinstance(kinds, list) else [kinds])
        if kind != "null"
    ]
    for choice in node.get("oneOf", []):
        types += _types_of(f"{where}/oneOf", choice, root)
    return types


def _type_of_kind(where: str, kind: Any, node: dict[str, Any], root: Any) -> TypeInformation:
    if kind == "object":
        properties = node.get("properties", {})
        types = [_type_of(f"{where}/{name}", item, root) for name, item in properties.items()]
        return Types.ROW_NAMED(list(properties), types)
    if kind == "array":
        return _array(where, node, root)
    if kind == "string":
        return _string(where, node)
    if kind in _SIMPLE:
        return _SIMPLE[kind]()
    raise ValueError(
        f"the JSON schema has the type {kind!r} at {where}; expected object, array, string, {', '.join(_SIMPLE)}"
    )


def _array(where: str, node: dict[str, Any], root: Any) -> TypeInformation:
    items = node.get("items")
    if isinstance(items, dict):
        return Types.OBJECT_ARRAY(_type_of(f"{where}/items", items, root))
    raise ValueError(f"the JSON schema has an array at {where} without one type of 'items'")


def _string(where: str, node: dict[str, Any]) -> TypeInformation:
    if "format" in node:
        return _FORMATS.get(str(node["format"]), Types.STRING)()
    encoding = node.get("contentEncoding", "base64")
    if encoding != "base64":
        raise ValueError(f"the JSON schema has the contentEncoding {encoding!r} at {where}; expected base64")
    return Types.PRIMITIVE_ARRAY(Types.BYTE()) if "contentEncoding" in node else Types.STRING()


def _referenced(where: str, reference: str, root: Any) -> Any:
    if not reference.startswith("#"):
        raise ValueError(f"the JSON schema refers to {reference!r} at {where}; expected a place in the same document")
    node = root
    for part in reference[1:].strip("/").split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or (part and part not in node):
            raise ValueError(f"the JSON schema refers to {reference!r} at {where}, which is not there")
        node = node[part] if part else node
    return node
