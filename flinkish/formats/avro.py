"""Avro messages, each of which is a Row, and Avro object container files. Needs the extra ``avro`` (fastavro).

Rule upheld here: the schema decides. The fields of a Row are those of the schema, matched by name if the Row has names,
and by position otherwise; a generic record is a dictionary, as in PyFlink.

Rule upheld here: fastavro believes the counts and indices in the data, which somebody else may have written. So each
value that a count stands for must take a byte, and an index must be looked up where a wrong one is an error.
"""

from __future__ import annotations

import copy
import datetime
import io
import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from flinkish.common.arguments import abbreviated, check_instance
from flinkish.common.serialization import BulkWriter, BulkWriterFactory, DeserializationSchema, SerializationSchema
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.base import PickledBytesTypeInfo
from flinkish.common.typeinfo.composite import RowTypeInfo, default_names
from flinkish.common.types import Row, check_inserts_only
from flinkish.errors import EnvironmentVersionError, MalformedRecordError, ProgramError, TypeMismatchError

__all__ = [
    "AvroBulkWriters",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]


class _Members(dict[int, Any]):
    """The symbols of an enum or the members of a union by their indices. A list would take -1 for its last one."""

    def __missing__(self, index: int) -> Any:
        raise ValueError(f"the index of an enum or a union is {index}, and the schema has {len(self)} of them")


def check_indices(schema: Any) -> None:
    """Change the parsed schema of a record in place so that reading with it raises ValueError for an index that is not
    in it."""
    seen: set[int] = set()
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, list):
            stack += list.__iter__(part)
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part.get("symbols"), list):
            part["symbols"] = _Members(enumerate(part["symbols"]))
        for holder, name in ((part, "items"), (part, "values"), *((field, "type") for field in part.get("fields", ()))):
            if isinstance(holder.get(name), list):
                holder[name] = _union_of(holder[name])
            stack.append(holder.get(name))


def _union_of(members: list[Any]) -> list[Any]:
    """A list, as fastavro requires it, that has no negative indices: fastavro adds its length to a negative one, and
    then asks for the item."""
    item = staticmethod(_Members(enumerate(members)).__getitem__)
    union: list[Any] = type("Union", (list,), {"__getitem__": item, "__len__": lambda self: 0})(members)
    return union


def check_bounded(schema: Any) -> bool:
    """Check that what is read by the parsed schema takes as many bytes as it has values; returns whether a record of
    it holds itself, so that a value of it may be nested to any depth.

    Raises:
        ValueError: an array has items without bytes.
    """
    named: dict[str, Any] = {}
    holding_themselves: set[str] = set()

    def size_of(part: Any, inside: frozenset[str]) -> int:
        """The least number of bytes of a value, or a smaller one above 0."""
        if isinstance(part, list):
            return 1 + min((size_of(member, inside) for member in part), default=0)
        kind = part["type"] if isinstance(part, dict) else part
        if isinstance(kind, (dict, list)):
            return size_of(kind, inside)
        if kind == "null":
            return 0
        if kind == "array":
            if size_of(part["items"], inside) == 0:
                raise ValueError(f"the items of the array {abbreviated(part['items'])} have no bytes")
            return 1
        if kind == "map":
            size_of(part["values"], inside)
            return 1
        if kind == "fixed":
            named[part["name"]] = part
            return int(part["size"])
        if kind in ("record", "error"):
            named[part["name"]] = part
            within = inside | {part["name"]}
            return sum([size_of(field["type"], within) for field in part["fields"]])
        if kind in inside:
            holding_themselves.add(kind)
            return 1
        return size_of(named[kind], inside) if kind in named else 1

    size_of(schema, frozenset())
    return bool(holding_themselves)


_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_PRIMITIVES: dict[str, TypeInformation] = {
    "string": Types.STRING(),
    "enum": Types.STRING(),
    "boolean": Types.BOOLEAN(),
    "int": Types.INT(),
    "long": Types.LONG(),
    "float": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "bytes": _BYTES,
    "fixed": _BYTES,
}
_LOGICAL: dict[str, TypeInformation] = {
    "date": Types.SQL_DATE(),
    "time-millis": Types.SQL_TIME(),
    "time-micros": Types.SQL_TIME(),
    "timestamp-millis": Types.SQL_TIMESTAMP(),
    "timestamp-micros": Types.SQL_TIMESTAMP(),
    "local-timestamp-millis": Types.SQL_TIMESTAMP(),
    "local-timestamp-micros": Types.SQL_TIMESTAMP(),
    "decimal": Types.BIG_DEC(),
}
_MARKS = ("__fastavro_parsed", "__named_schemas")
_MOMENTS = ("timestamp-millis", "timestamp-micros")


def fastavro_package() -> Any:
    """The package ``fastavro``, which reads and writes Avro.

    Raises:
        EnvironmentVersionError: it is not installed.
    """
    try:
        import fastavro
        import fastavro._read_py
        import fastavro.schema
    except ImportError:
        raise EnvironmentVersionError(
            "Avro needs the package fastavro",
            where="formats.avro",
            expected="fastavro where the driver and the workers run",
            hint="pip install fastavro, or ship it with env.set_python_requirements",
        ) from None
    return fastavro


class AvroSchema:
    """A parsed Avro schema, made by :meth:`parse_string` or :meth:`parse_file`. Two schemas are equal if their JSON
    texts parse to the same schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Parse a schema from JSON.

        Raises:
            ProgramError: the text is no Avro schema.
        """
        fastavro = fastavro_package()
        try:
            return AvroSchema(fastavro.schema.parse_schema(json.loads(json_schema)))
        except (
            *(ValueError, TypeError, LookupError),
            *(fastavro.schema.SchemaParseException, fastavro.schema.UnknownType),
        ) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ProgramError(
                f"{abbreviated(json_schema)} is no Avro schema: {reason}",
                where="AvroSchema",
                expected="a schema as JSON",
                hint="see the Avro specification; a record has a name and fields",
            ) from error

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Parse a schema from a file of JSON, which is read at once, where the program runs.

        Raises:
            ProgramError: the file cannot be read, or is no Avro schema.
        """
        try:
            return AvroSchema.parse_string(Path(file_path).read_text())
        except OSError as error:
            raise ProgramError(
                f"the Avro schema cannot be read: {error}",
                where="AvroSchema",
                expected="a file of JSON that the driver can read",
                hint="check the path",
            ) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and self._schema == other._schema

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return json.dumps(_without_marks(self._schema))


def _without_marks(schema: Any) -> Any:
    """The parsed schema without the keys that fastavro adds to a record or to the members of a union."""
    if isinstance(schema, list):
        return list(map(_without_marks, schema))
    if isinstance(schema, dict):
        return {key: value for key, value in schema.items() if key not in _MARKS}
    return schema


class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """The type of generic Avro records: dictionaries that fit a schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    def _parts(self) -> tuple[Any, ...]:
        return (str(self._schema),)

    def __repr__(self) -> str:
        return f"GenericRecordAvroTypeInfo({self._schema})"


class AvroRowDeserializationSchema(DeserializationSchema):
    """Deserializes a message, which is one record in Avro's binary encoding without a header, to a Row with the names
    of the schema's fields.

    Args:
        record_class: a class of Java, which is refused; kept for PyFlink.
        avro_schema_string: the schema of a record, as JSON, with which the messages were written.

    Raises:
        ProgramError: there is no schema, it is no schema of a record, or it has a type that flinkish does not have.
        MalformedRecordError: when a message cannot be read.
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema = _record_schema(record_class, avro_schema_string)
        self._type_info = type_of(self._schema._schema)
        try:
            check_bounded(self._schema._schema)
        except ValueError as error:
            raise ProgramError(
                f"{error}, so that a few bytes can claim any number of them",
                where="AvroRowDeserializationSchema",
                expected="arrays of items that have bytes",
                hint="give the record a field, or write the length as a number",
            ) from None

    def get_produced_type(self) -> TypeInformation:
        return self._type_info

    def deserialize(self, message: bytes | None) -> Any:
        if message is None:
            return None
        fastavro, stream = fastavro_package(), io.BytesIO(message)
        try:
            record = fastavro.schemaless_reader(stream, self._written, None)
        except Exception as error:
            # fastavro raises exceptions of many types for malformed data
            reason = f"{type(error).__name__}: {error}"
            raise self._malformed(message, f"{reason}, at byte {stream.tell()}") from None
        if stream.tell() != len(message):
            raise self._malformed(message, f"{len(message) - stream.tell()} bytes are left behind the record")
        return self._read(record)

    @cached_property
    def _read(self) -> Callable[[Any], Any]:
        return _reader(self._schema._schema)

    @cached_property
    def _written(self) -> Any:
        schema = copy.deepcopy(self._schema._schema)
        check_indices(schema)
        return schema

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_read", "_written")}

    def _malformed(self, message: bytes, reason: str) -> MalformedRecordError:
        return MalformedRecordError(
            f"the Avro message {abbreviated(message)} cannot be read: {reason}",
            where="AvroRowDeserializationSchema",
            expected=f"a record of the schema {abbreviated(str(self._schema))}",
            hint="use the schema that the messages were written with",
        )


class AvroRowSerializationSchema(SerializationSchema):
    """Serializes a Row to one record in Avro's binary encoding, without a header.

    Args:
        record_class: a class of Java, which is refused; kept for PyFlink.
        avro_schema_string: the schema of a record, as JSON.

    Raises:
        ProgramError: there is no schema, it is no schema of a record, or it has a type that flinkish does not have.
        TypeMismatchError: when a Row does not fit the schema.
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema = _record_schema(record_class, avro_schema_string)
        self._type_info = type_of(self._schema._schema)

    def serialize(self, value: Any) -> bytes | None:
        check_inserts_only((value,), "AvroRowSerializationSchema")
        fastavro, stream = fastavro_package(), io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, self._schema._schema, self._write(value))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise misfit(value, self._schema, error, "AvroRowSerializationSchema") from None
        return stream.getvalue()

    @cached_property
    def _write(self) -> Callable[[Any], Any]:
        return _writer(self._schema._schema)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_write"}


class AvroBulkWriters:
    """Bulk writers of Avro files for `FileSink`. Example::

    sink = FileSink.for_bulk_format("/data/out", AvroBulkWriters.for_generic_record(schema)).build()
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """A writer of Avro object container files, which hold the schema. The records are dictionaries that fit it.

        Raises:
            TypeError: ``schema`` is no AvroSchema.
        """
        return _AvroFileWriterFactory(schema)


class _AvroFileWriterFactory(BulkWriterFactory):
    file_suffix = ".avro"

    def __init__(self, schema: AvroSchema) -> None:
        check_instance(
            schema, AvroSchema, "the schema is", "AvroBulkWriters.for_generic_record()", "AvroSchema.parse_string(json)"
        )
        self._schema = schema

    def create(self) -> BulkWriter:
        return _AvroFileWriter(self._schema)


class _AvroFileWriter(BulkWriter):
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._stream = io.BytesIO()
        # without it, fastavro writes numbers of more than 32 bits as an int; with it, writing takes five times as long
        validated = '"int"' in str(schema)
        self._file = fastavro_package().write.Writer(self._stream, schema._schema, validator=validated)

    def add_batch(self, values: list[Any]) -> None:
        invalid = fastavro_package().validation.ValidationError
        for value in values:
            try:
                self._file.write(value)
            except (ValueError, TypeError, LookupError, AttributeError, OverflowError, invalid) as error:
                raise misfit(value, self._schema, error, "AvroBulkWriters") from None

    def finish(self) -> bytes:
        self._file.flush()
        return self._stream.getvalue()


def misfit(value: Any, schema: AvroSchema, error: Exception, where: str) -> TypeMismatchError:
    """The error for a record that does not fit its schema."""
    return TypeMismatchError(
        f"the record {abbreviated(value)} does not fit the Avro schema: {error}",
        where=where,
        expected=f"a record of the schema {abbreviated(str(schema))}",
    )


def _record_schema(record_class: str | None, text: str | None) -> AvroSchema:
    if record_class is not None or text is None:
        raise ProgramError(
            "Avro records need a schema; a class of Java cannot be used" if record_class else "no Avro schema is given",
            where="formats.avro",
            expected="avro_schema_string=...",
            hint="give the schema as a JSON text",
        )
    schema = AvroSchema.parse_string(text)
    if not isinstance(type_of(schema._schema), RowTypeInfo):
        raise ProgramError(
            f"the Avro schema {abbreviated(text)} is of no record",
            where="formats.avro",
            expected="a record",
            hint="put the value into a record with one field",
        )
    return schema


def type_of(schema: Any) -> TypeInformation:
    """The type of the values of a parsed schema.

    Raises:
        ProgramError: the schema has a union of several types besides null, or a type that flinkish does not have.
    """
    if isinstance(schema, list):
        return type_of(_not_null(schema))
    kind = schema["type"] if isinstance(schema, dict) else schema
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        fields = schema["fields"]
        return Types.ROW_NAMED([field["name"] for field in fields], [type_of(field["type"]) for field in fields])
    if kind == "array":
        return Types.LIST(type_of(schema["items"]))
    if kind == "map":
        return Types.MAP(Types.STRING(), type_of(schema["values"]))
    if isinstance(kind, (dict, list)):
        return type_of(kind)
    if kind not in _PRIMITIVES:
        raise ProgramError(
            f"the Avro type {abbreviated(kind)} has no type here",
            where="formats.avro",
            expected="records, arrays, maps, enums, primitive types, and unions of null with one of them",
            hint="a record that holds itself, or a name that is used twice, cannot be a Row",
        )
    return _PRIMITIVES[kind]


def _not_null(union: list[Any]) -> Any:
    others = [member for member in union if member != "null"]
    if len(others) != 1:
        raise ProgramError(
            f"the Avro union {abbreviated(union)} has no type here",
            where="formats.avro",
            expected="a union of null with one type",
            hint="use a record with a field for each type",
        )
    return others[0]


def _reader(schema: Any) -> Callable[[Any], Any]:
    """The function that converts a value of fastavro to the value that user code gets: Rows for records, and timestamps
    in UTC without a time zone."""
    inner = _reader_of_present(_not_null(schema) if isinstance(schema, list) else schema)
    return lambda value: None if value is None else inner(value)


def _reader_of_present(schema: Any) -> Callable[[Any], Any]:
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, dict) and schema.get("logicalType") in _MOMENTS:
        return lambda value: value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if isinstance(schema, dict) and schema.get("logicalType") == "uuid":
        return str
    if kind == "record":
        readers = [(field["name"], _reader(field["type"])) for field in schema["fields"]]
        return lambda value: Row(**{name: read(value[name]) for name, read in readers})
    if kind == "array":
        read_item = _reader(schema["items"])
        return lambda value: [read_item(item) for item in value]
    if kind == "map":
        read_value = _reader(schema["values"])
        return lambda value: {key: read_value(item) for key, item in value.items()}
    return lambda value: value


def _writer(schema: Any) -> Callable[[Any], Any]:
    """The inverse of `_reader`."""
    inner = _writer_of_present(_not_null(schema) if isinstance(schema, list) else schema)
    return lambda value: None if value is None else inner(value)


def _writer_of_present(schema: Any) -> Callable[[Any], Any]:
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, dict) and schema.get("logicalType") in _MOMENTS:
        return lambda value: value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
    if kind == "int":
        return within_int
    if kind == "record":
        names = [field["name"] for field in schema["fields"]]
        writers = [_writer(field["type"]) for field in schema["fields"]]
        return lambda value: {
            name: write(item) for name, write, item in zip(names, writers, _fields(value, names), strict=True)
        }
    if kind == "array":
        write_item = _writer(schema["items"])
        return lambda value: [write_item(item) for item in value]
    if kind == "map":
        write_value = _writer(schema["values"])
        return lambda value: {key: write_value(item) for key, item in value.items()}
    return lambda value: value


def within_int(value: Any) -> Any:
    """The value of an Avro ``int``, whose range fastavro does not check; no other reader could read the message.

    Raises:
        ValueError: it is a number of more than 32 bits.
    """
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        raise ValueError(f"{value} is no whole number of 32 bits")
    return value


def _fields(value: Any, names: list[str]) -> list[Any]:
    """The values of a record's fields: by name if the record has names, else by position. The names that records get
    from a type without names are none."""
    own = getattr(value, "_fields", None) if isinstance(value, Row) else None
    if isinstance(value, dict) or own is not None and own != default_names(len(own)):
        return [value[name] for name in names]
    return list(value)
