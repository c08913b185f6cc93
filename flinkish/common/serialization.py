"""Schemas between records and bytes, encoders of text files, and bulk writers: file formats that do not simply write
one record after another, such as columnar ones.

Rule upheld here: a schema works on whole lists (``*_batch``) because the engine does; the form for one record and the
form for a list always agree: whoever calls the latter asks `form_for_lists` for it, since a class of the program may
override the former only. None in a list of deserialized records means *no record*: it keeps the list aligned with
the offsets and timestamps of the messages until the source drops that place.
"""

from __future__ import annotations

import abc
import codecs
import copy
from collections.abc import Callable
from typing import Any

from flinkish.common.arguments import abbreviated as abbreviated
from flinkish.common.arguments import check_instance, form_for_lists, result_of_each
from flinkish.common.detach import handing_over
from flinkish.common.no_effect import supply_names
from flinkish.common.text import text_writer
from flinkish.common.typeinfo import PickledBytesTypeInfo, TypeInformation, Types
from flinkish.common.typeinfo.composite import RowTypeInfo
from flinkish.common.types import Row
from flinkish.errors import ArgumentValueError, MalformedRecordError, TypeMismatchError

__all__ = [
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowDataBulkWriterFactory",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class BulkWriter(abc.ABC):
    """Encodes the records of one file.

    Rule: the file holds what a subtask writes in one epoch.
    """

    @abc.abstractmethod
    def add_batch(self, values: list[Any]) -> None:
        """Add these records to the file."""

    @abc.abstractmethod
    def finish(self) -> bytes:
        """The content of the whole file. The writer is not used again."""


class BulkWriterFactory(abc.ABC):
    """Creates bulk writers in the workers. Subclass it in plain Python; it must be picklable."""

    #: the end of the names of the files, by which readers know the format, such as ``.parquet``
    file_suffix: str = ""

    @abc.abstractmethod
    def create(self) -> BulkWriter:
        """A new writer for one file."""

    def bind(self, type_info: TypeInformation) -> BulkWriterFactory:
        """A factory for records of this type; the sink calls this once. Itself, unless the format needs the type."""
        return self


class RowDataBulkWriterFactory(BulkWriterFactory):
    """Base of the factories for columnar files, whose records are Rows or tuples of the given row type."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        check_instance(
            row_type,
            RowTypeInfo,
            "the row type is",
            type(self).__name__,
            "DataTypes of the Table API and Types of the DataStream API will both do",
            "DataTypes.ROW([...]) or Types.ROW_NAMED(...)",
        )
        self._row_type = row_type

    def get_row_type(self) -> RowTypeInfo:
        """The row type of the records."""
        return self._row_type


supply_names(__name__, "formats.json", "formats.csv", "formats.avro")


class SerializationSchema(abc.ABC):
    """Turns records into bytes. Subclass it in plain Python; it must be picklable."""

    @abc.abstractmethod
    def serialize(self, value: Any) -> bytes | None:
        """The bytes of one record; None is a null message (a tombstone in Kafka)."""

    def serialize_batch(self, values: list[Any]) -> list[bytes | None]:
        """The bytes of many records, in order."""
        what = f"{type(self).__name__}.serialize()"
        messages = result_of_each(self.serialize, values, what)
        if set(map(type, messages)) <= {bytes, type(None)}:
            return messages
        return [_bytes_of(message, what) for message in messages]

    def bind(self, type_info: TypeInformation) -> SerializationSchema:
        """A schema for records of this type; the sink calls this once. Itself, unless the bytes depend on the type."""
        return self


class DeserializationSchema(abc.ABC):
    """Turns bytes into records. Subclass it in plain Python; it must be picklable."""

    @abc.abstractmethod
    def deserialize(self, message: bytes | None) -> Any:
        """The record of one message; None if the message holds no record.

        Raises:
            MalformedRecordError: the bytes do not have the declared format.
        """

    def deserialize_batch(self, messages: list[bytes | None]) -> list[Any]:
        """The records of many messages, in order, with None where a message holds no record."""
        return result_of_each(handing_over(self.deserialize), messages, f"{type(self).__name__}.deserialize()")

    def get_produced_type(self) -> TypeInformation:
        """The type of the records; if not overridden, any Python object."""
        return Types.PICKLED_BYTE_ARRAY()


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text. Bytes that are not valid in the charset are an error (Java replaces them by U+FFFD without notice).

    In a sink of a stream whose declared type is not STRING, the text of a record is that of :mod:`flinkish.common.text`
    (in PyFlink this fails). Without a declared type, the records must be texts.

    >>> SimpleStringSchema().deserialize("ä".encode())
    'ä'
    """

    #: the type whose values are written as text; None: records must be texts
    _text_of: TypeInformation | None = None
    # a class of the program may leave out the call of __init__
    _charset: str = "UTF-8"

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = _known_charset(charset)

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else self._encoded(value, text_writer(self._text_of) if self._text_of else None)

    def serialize_batch(self, values: list[Any]) -> list[bytes | None]:
        text = text_writer(self._text_of) if self._text_of else None
        return [None if value is None else self._encoded(value, text) for value in values]

    def _encoded(self, value: Any, text: Callable[[Any], str] | None) -> bytes:
        written: Any = value if text is None else text(value)
        if not isinstance(written, str):
            raise TypeMismatchError(
                f"the record {abbreviated(value)} is of type {type(value).__name__}",
                where="SimpleStringSchema",
                expected="a text (str)",
                hint="map the records to text first, or use another schema",
            )
        try:
            return written.encode(self._charset)
        except UnicodeEncodeError as error:
            raise _unencodable(error, self._charset, "SimpleStringSchema") from None

    def bind(self, type_info: TypeInformation) -> SerializationSchema:
        if type_info == Types.STRING() or isinstance(type_info, PickledBytesTypeInfo):
            return self
        # a copy, and not an object of another class, since the class may be the program's
        bound = copy.copy(self)
        bound._text_of = type_info
        return bound

    def deserialize(self, message: bytes | None) -> str | None:
        if message is None:
            return None
        try:
            return str(message, self._charset)
        except UnicodeDecodeError as error:
            raise MalformedRecordError(
                f"the message {abbreviated(bytes(message))} is not {self._charset} text: {error.reason}"
                f" at byte {error.start}",
                where="SimpleStringSchema",
                expected=f"text in {self._charset}",
                hint="name the charset it is written in, or read it with ByteArraySchema",
            ) from None

    def deserialize_batch(self, messages: list[bytes | None]) -> list[Any]:
        charset = self._charset
        try:
            return [None if message is None else str(message, charset) for message in messages]
        except UnicodeDecodeError:
            return [SimpleStringSchema.deserialize(self, message) for message in messages]  # its error names it

    def get_produced_type(self) -> TypeInformation:
        return Types.STRING()


def batch_deserializer(schema: DeserializationSchema) -> Callable[[list[bytes | None]], list[Any]]:
    """The function that deserializes many messages as ``schema.deserialize`` does one by one."""
    return form_for_lists(schema, "deserialize", DeserializationSchema.deserialize_batch)


def batch_serializer(schema: SerializationSchema) -> Callable[[list[Any]], list[bytes | None]]:
    """The function that serializes many records as ``schema.serialize`` does one by one."""
    return form_for_lists(schema, "serialize", SerializationSchema.serialize_batch)


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Passes bytes on as they are, in both directions."""

    def serialize(self, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise TypeMismatchError(
            f"the record {abbreviated(value)} is of type {type(value).__name__}",
            where="ByteArraySchema",
            expected="bytes",
            hint="map the records to bytes first, or use another schema",
        )

    def deserialize(self, message: bytes | None) -> bytes | None:
        return None if message is None else bytes(message)

    def get_produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """Serializes a Row to one of its fields, which must hold bytes; for the key or the value of a Kafka record. None,
    of the field or instead of the Row, becomes empty bytes as in Flink, and so no tombstone.

    Raises:
        ValueError: the index is negative.
    """

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ArgumentValueError(
                f"Field index must be non-negative, got: {field_index}",
                where="RowFieldExtractorSchema",
                expected="the position of a field, from 0",
                hint="count from the beginning of the Row",
            )
        self._field_index = field_index

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return b""
        if not isinstance(value, (Row, tuple)) or len(value) <= self._field_index:
            raise TypeMismatchError(
                f"the record {abbreviated(value)} has no field {self._field_index}",
                where="RowFieldExtractorSchema",
                expected=f"a Row with at least {self._field_index + 1} fields",
            )
        field = value[self._field_index]
        if field is None or isinstance(field, (bytes, bytearray)):
            return b"" if field is None else bytes(field)
        raise TypeMismatchError(
            f"field {self._field_index} of the record {abbreviated(value)} is of type {type(field).__name__}",
            where="RowFieldExtractorSchema",
            expected="bytes or None",
            hint="declare the field as Types.PRIMITIVE_ARRAY(Types.BYTE()) and encode it first",
        )


class Encoder(abc.ABC):
    """Writes records to a row-format file. Subclass it in plain Python; it must be picklable."""

    @abc.abstractmethod
    def encode(self, value: Any) -> bytes:
        """All bytes of one record, including its end of line."""

    def encode_batch(self, values: list[Any]) -> bytes:
        """The bytes of many records, in order."""
        what = f"{type(self).__name__}.encode()"
        lines = result_of_each(self.encode, values, what)
        try:
            return b"".join(lines)
        except TypeError:
            return b"".join([_bytes_of(line, what, none="") or b"" for line in lines])

    def bind(self, type_info: TypeInformation) -> Encoder:
        """An encoder for records of this type; the sink calls this once. Itself, unless the encoding needs the type."""
        return self

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """An encoder of one line of text per record, ended by ``\\n``; :mod:`flinkish.common.text` defines the text."""
        return _SimpleStringEncoder(_known_charset(charset_name), None)


class _SimpleStringEncoder(Encoder):
    def __init__(self, charset: str, type_info: TypeInformation | None) -> None:
        self._charset = charset
        self._type_info = type_info

    def encode(self, value: Any) -> bytes:
        return _SimpleStringEncoder.encode_batch(self, [value])

    def encode_batch(self, values: list[Any]) -> bytes:
        text = text_writer(self._type_info)
        try:
            return "".join([text(value) + "\n" for value in values]).encode(self._charset)
        except UnicodeEncodeError as error:
            raise _unencodable(error, self._charset, "Encoder.simple_string_encoder") from None

    def bind(self, type_info: TypeInformation) -> Encoder:
        bound = copy.copy(self)
        bound._type_info = type_info
        return bound


def _bytes_of(result: Any, what: str, none: str = " or None") -> bytes | None:
    """What a method of the program has given as the bytes of a record. ``what`` names the method.

    Raises:
        TypeMismatchError: it is neither bytes nor None; or None, if ``none`` does not say that it may be.
    """
    if result.__class__ is bytes or result is None and none:
        return result  # type: ignore[no-any-return, unused-ignore]
    if isinstance(result, (bytes, bytearray, memoryview)):
        return bytes(result)
    raise TypeMismatchError(
        f"{what} returned {abbreviated(result)} of type {type(result).__name__}",
        where=what,
        expected=f"bytes{none}",
        hint="a text becomes bytes by text.encode()" if isinstance(result, str) else "return the bytes of the record",
    )


def _unencodable(error: UnicodeEncodeError, charset: str, where: str) -> TypeMismatchError:
    around = error.object[max(0, error.start - 50) : error.end + 50]
    return TypeMismatchError(
        f"the text {around!r} has no form in {charset}: {error.reason}",
        where=where,
        expected=f"characters that {charset} has",
        hint=f"replace the others, as Java does: text.encode({charset!r}, 'replace').decode({charset!r})",
    )


def _known_charset(charset: str) -> str:
    try:
        codecs.lookup(charset)
    except LookupError:
        raise ArgumentValueError(
            f"unknown charset {charset!r}",
            where="SimpleStringSchema or Encoder",
            expected="a name such as 'UTF-8' or 'ISO-8859-1'",
            hint="leave it out for UTF-8",
        ) from None
    return charset
