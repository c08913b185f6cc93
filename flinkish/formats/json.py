"""Deserializes JSON objects to typed Rows and serializes Rows to JSON objects (Flink's legacy ``JsonRow...Schema``, the
one that PyFlink offers).

Rule upheld here: a type is compiled once into one small function per field; no type is examined per record. The
conversions are Flink's, which read more than the type says (docs/connectors.md has the table); ``strict()`` refuses
what they would change. What does not fit raises a :class:`MalformedRecordError` that quotes the message, unless
``ignore_parse_errors`` is set.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from flinkish.common.arguments import abbreviated, check_instance
from flinkish.common.serialization import DeserializationSchema, SerializationSchema
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.types import check_inserts_only
from flinkish.errors import ArgumentTypeError, ArgumentValueError, MalformedRecordError
from flinkish.formats._json_schema import type_of_json_schema
from flinkish.formats._json_values import JsonReading, json_reader, json_writer, needs_exact_numbers

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]


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

    def __init__(self, type_info: TypeInformation, how: JsonReading) -> None:
        self._type_info = type_info
        self._how = how
        self._compile()

    def _compile(self) -> None:
        # the decoder is a C object and the reader a closure: neither can be pickled, so a worker makes its own
        parse_float = Decimal if needs_exact_numbers(self._type_info) else None
        decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=parse_float)
        # unlike decode, raw_decode ignores what follows the object
        self._decode = (
            decoder.decode if self._how.strict else lambda text: decoder.raw_decode(text.lstrip(" \t\r\n"))[0]
        )
        self._read = json_reader(self._type_info, self._how)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self._type_info, self._how)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._type_info, self._how = state
        self._compile()

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        return JsonRowDeserializationSchema.Builder()

    def get_produced_type(self) -> TypeInformation:
        return self._type_info

    def deserialize(self, message: bytes | None) -> Any:
        return self.deserialize_batch([message])[0]

    def deserialize_batch(self, messages: list[bytes | None]) -> list[Any]:
        decode, read, strict = self._decode, self._read, self._how.strict
        records: list[Any] = []
        for message in messages:
            if message is None:
                records.append(None)
                continue
            try:
                node = decode(str(message, "utf-8").removeprefix("\ufeff"))
                records.append(None if node is None and not strict else read(node))
            except (Mismatch, ValueError, RecursionError) as error:  # a ValueError if it is no JSON or no UTF-8
                if not self._how.ignore_parse_errors:
                    raise self._malformed(message, error) from None
                records.append(None)
        return records

    def _malformed(self, message: bytes, error: Exception) -> MalformedRecordError:
        path, expected, reason = "", f"a JSON object that fits {self._type_info!r}", str(error)
        if isinstance(error, Mismatch):
            path = ", ".join(error.path)
            expected, reason = error.expected, f"there is {abbreviated(error.value, 60)}"
        return MalformedRecordError(
            f"the JSON message {_quoted(message)} cannot be read: {reason}",
            where=", ".join(part for part in ("JsonRowDeserializationSchema", path) if part),
            expected=expected,
            hint="mend the input, or set ignore_parse_errors(): then None stands for what cannot be read",
        )

    class Builder:
        """Builder of :class:`JsonRowDeserializationSchema`."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None
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
            self._type_info = _row_type(type_of_json_schema(json_schema))
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

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = type_info
        self._write = json_writer(type_info)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self._type_info,)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        (self._type_info,) = state
        self._write = json_writer(self._type_info)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        return JsonRowSerializationSchema.Builder()

    def serialize(self, value: Any) -> bytes | None:
        return self.serialize_batch([value])[0]

    def serialize_batch(self, values: list[Any]) -> list[bytes | None]:
        convert = self._type_info.batch_converter("JsonRowSerializationSchema")
        rows = values if convert is None else convert(values)
        check_inserts_only(values, "JsonRowSerializationSchema")
        write = self._write
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


def _quoted(message: bytes) -> str:
    return abbreviated(str(message, "utf-8", "backslashreplace"))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
