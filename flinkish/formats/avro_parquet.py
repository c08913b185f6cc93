"""Generic Avro records as columns of Parquet, in the layout of parquet-avro: one column per field, and the schema in
the metadata of the file.

Rule upheld here: a record that is read back is the one that Avro itself would give: a dictionary with the schema's
defaults for fields that were left out, and with the Python values of logical types.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from flinkish.common.serialization import BulkWriter, BulkWriterFactory
from flinkish.common.typeinfo.lossless import lossless, unreadable
from flinkish.errors import ProgramError
from flinkish.formats.avro import AvroSchema, fastavro_package, misfit, within_int
from flinkish.formats.columnar import ParquetFileWriter

if TYPE_CHECKING:
    import pyarrow

__all__ = ["AvroColumns", "AvroParquetWriters"]

#: The metadata key under which parquet-avro stores the schema in a file.
SCHEMA_KEY = b"parquet.avro.schema"

#: The most digits of a decimal that a column holds.
_DECIMAL_DIGITS = 38

_Convert = Callable[[Any], Any]


class AvroColumns:
    """The Arrow columns of a record schema, and the conversion of records to these columns and back.

    Raises:
        TypeError: ``schema`` is no AvroSchema.
        ProgramError: the schema is of no record, or has a type that no column holds.
    """

    def __init__(self, schema: AvroSchema) -> None:
        if not isinstance(schema, AvroSchema):
            raise TypeError(f"the schema is {schema!r}; expected an AvroSchema")
        self.schema = schema
        parsed = schema._schema
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise _refused(parsed, "is no record")
        self.names = tuple(name for name, column, _, _ in self._fields if column is not None)
        if not self.names:
            raise _refused(parsed, "has no column")

    def __getstate__(self) -> AvroSchema:
        return self.schema

    def __setstate__(self, schema: AvroSchema) -> None:
        self.__init__(schema)  # type: ignore[misc]

    @cached_property
    def _fields(self) -> list[tuple[str, Any, _Convert, _Convert]]:
        return _record_fields(self.schema._schema, {}, ())

    @property
    def arrow(self) -> pyarrow.Schema:
        """The Arrow schema of the columns, with the Avro schema in its metadata."""
        import pyarrow as pa

        columns = [_field(name, arrow) for name, arrow, _, _ in self._fields if arrow is not None]
        return pa.schema(columns, {SCHEMA_KEY: str(self.schema).encode()})

    def to_columns(self, records: Iterable[Any], where: str) -> pyarrow.Table:
        """Convert records to a table; ``where`` names the writer in errors.

        Raises:
            TypeMismatchError: a record does not fit the schema.
        """
        import pyarrow as pa

        fastavro, parsed = fastavro_package(), self.schema._schema
        rows = []
        for record in records:
            stream = io.BytesIO()
            try:
                # writing and reading the record with Avro fills in defaults and detects what does not fit
                fastavro.schemaless_writer(stream, parsed, record)
                stream.seek(0)
                whole = fastavro.schemaless_reader(stream, parsed, None)
                rows.append({name: write(whole[name]) for name, column, write, _ in self._fields if column is not None})
            except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
                raise misfit(record, self.schema, error, where) from None
        return pa.Table.from_pylist(rows, schema=self.arrow)

    def records(self, batch: pyarrow.RecordBatch, where: str = "") -> list[Any]:
        """Convert rows with these columns, in this order, back to records: the inverse of `to_columns`. ``where`` names
        the reader in errors.

        Raises:
            TypeMismatchError: a column cannot be read as the type that the schema has.
        """
        columns: list[Iterable[Any]] = []
        remaining = iter(batch.columns)
        for name, wanted, _, read in self._fields:
            if wanted is None:
                # fields of type null have no column
                columns.append(repeat(None, batch.num_rows))
                continue
            column = next(remaining)
            try:
                convert = lossless(column.type, wanted.type)
                values = (column if convert is None else convert(column)).to_pylist()
            except (ValueError, ArithmeticError, NotImplementedError) as error:
                expected = "columns of the types of the Avro schema"
                raise unreadable(name, column.type, wanted.type, error, where, expected) from None
            columns.append(map(read, values))
        names = [name for name, *_ in self._fields]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _record_fields(parsed: Any, named: dict[str, Any], inside: tuple[str, ...]) -> list[Any]:
    """The fields of a record with their columns. A field of type null has none (its column is None), as in
    parquet-avro."""
    named[parsed["name"]] = parsed
    return [
        (field["name"], None, _same, _same)
        if _is_null(field["type"])
        else (field["name"], *_column(field["type"], named, (*inside, parsed["name"])))
        for field in parsed["fields"]
    ]


def _is_null(schema: Any) -> bool:
    """Whether None is the only value of a type."""
    return all(map(_is_null, schema)) if isinstance(schema, list) else schema in ("null", {"type": "null"})


def _union(
    branches: list[Any], optional: bool, named: dict[str, Any], inside: tuple[str, ...]
) -> tuple[Any, _Convert, _Convert]:
    """The column of a union of several types besides null: a struct with a field for each type, of which one is set, in
    the layout of parquet-avro."""
    import pyarrow as pa

    columns = [_column(branch, named, inside) for branch in branches]
    fields = [pa.field(f"member{place}", column.type) for place, (column, _, _) in enumerate(columns)]
    fastavro = fastavro_package()
    fits = fastavro.validation.validate
    schemas = [fastavro.parse_schema(_standalone(branch, named, set())) for branch in branches]

    def write(value: Any) -> dict[str, Any]:
        places = [place for place, schema in enumerate(schemas) if fits(value, schema, raise_errors=False)]
        if isinstance(value, dict):
            # of several records that it fits, that whose fields it has
            places.sort(key=lambda place: len(_fields_of(schemas[place])) != len(value))
        if not places:
            raise ValueError(f"{value!r:.200} is of none of the types of the union")
        return {f"member{places[0]}": columns[places[0]][1](value)}

    def read(value: dict[str, Any]) -> Any:
        members = (value[f"member{place}"] for place in range(len(columns)))
        return next((columns[place][2](member) for place, member in enumerate(members) if member is not None), None)

    return pa.field("", pa.struct(fields), optional), _optional(write), _optional(read)


def _same(value: Any) -> Any:
    return value


def _column(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> tuple[Any, _Convert, _Convert]:
    """The column of an Avro type: an Arrow field without a name (its type, and whether it is nullable), the function
    that converts a value to the column's, and the function that converts it back."""
    import pyarrow as pa

    if isinstance(schema, list):
        others = [branch for branch in schema if not _is_null(branch)]
        if not others:
            raise _refused(schema, "has no column")
        if len(others) > 1:
            return _union(others, len(others) < len(schema), named, inside)
        (inner, write, read) = _column(others[0], named, inside)
        return pa.field("", inner.type, len(others) < len(schema) or inner.nullable), _optional(write), _optional(read)
    if isinstance(schema, str):
        if schema in named:
            if schema in inside:
                raise _refused(schema, "holds itself")
            return _column(named[schema], named, inside)
        schema = {"type": schema}
    kind = schema["type"]
    if not isinstance(kind, str):
        return _column(kind, named, inside)
    if "name" in schema:
        named[schema["name"]] = schema
    if kind in ("record", "error"):
        fields = _record_fields(schema, named, inside)
        struct = pa.struct([_field(name, arrow) for name, arrow, _, _ in fields if arrow is not None])
        if not struct.num_fields:
            raise _refused(schema, "has no column")
        return _required(struct), _each_field(fields, 2), _each_field(fields, 3)
    if kind == "array":
        inner, write, read = _column(schema["items"], named, inside)
        return (
            _required(pa.list_(_field("element", inner))),
            lambda values: list(map(write, values)),
            lambda values: list(map(read, values)),
        )
    if kind == "map":
        inner, write, read = _column(schema["values"], named, inside)
        return (
            _required(pa.map_(pa.string(), _field("value", inner))),
            lambda values: [(key, write(value)) for key, value in values.items()],
            lambda pairs: {key: read(value) for key, value in pairs},
        )
    if schema.get("logicalType") == "uuid" and kind == "string":
        return _required(pa.string()), str, uuid.UUID
    if schema.get("logicalType") == "decimal" and schema["precision"] > _DECIMAL_DIGITS:
        raise _refused(schema, f"has more than {_DECIMAL_DIGITS} digits")
    found = _logical(schema) or _primitive(schema)
    if found is None:
        raise _refused(schema, "has no column")
    return _required(found), within_int if kind == "int" else _same, _same


def _primitive(schema: Any) -> Any:
    import pyarrow as pa

    if schema["type"] == "fixed":
        return pa.binary(schema["size"])
    return {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
        "enum": pa.string(),
    }.get(schema["type"])


def _logical(schema: Any) -> Any:
    import pyarrow as pa

    if schema.get("logicalType") == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return {
        "date": pa.date32(),
        "time-millis": pa.time32("ms"),
        "time-micros": pa.time64("us"),
        "timestamp-millis": pa.timestamp("ms", "UTC"),
        "timestamp-micros": pa.timestamp("us", "UTC"),
        "local-timestamp-millis": pa.timestamp("ms"),
        "local-timestamp-micros": pa.timestamp("us"),
    }.get(schema.get("logicalType"))


def _required(arrow: Any) -> Any:
    import pyarrow as pa

    return pa.field("", arrow, False)


def _field(name: str, described: Any) -> Any:
    return described.with_name(name)


def _standalone(schema: Any, named: dict[str, Any], defined: set[str]) -> Any:
    """A part of a schema with the definitions of the names that it refers to."""
    if isinstance(schema, list):
        return [_standalone(branch, named, defined) for branch in schema]
    if isinstance(schema, str):
        return _standalone(named[schema], named, defined) if schema in named and schema not in defined else schema
    defined.add(schema.get("name", ""))
    parts = {key: schema[key] for key in schema if not key.startswith("__")}
    for key in ("type", "items", "values"):
        if not isinstance(parts.get(key, ""), str) or key != "type" and key in parts:
            parts[key] = _standalone(parts[key], named, defined)
    if "fields" in parts:
        fields = [{**field, "type": _standalone(field["type"], named, defined)} for field in parts["fields"]]
        parts["fields"] = fields
    return parts


def _fields_of(schema: Any) -> Any:
    return schema.get("fields", ()) if isinstance(schema, dict) else ()


def _optional(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _each_field(fields: list[Any], which: int) -> _Convert:
    converts = [(entry[0], entry[which]) for entry in fields]
    return lambda value: {name: convert(value.get(name)) for name, convert in converts}


def _refused(schema: Any, why: str) -> ProgramError:
    return ProgramError(
        f"the Avro schema {str(schema)[:200]} {why}",
        where="formats.parquet",
        expected="a record of types with columns in Parquet: no types that hold themselves",
        hint="AvroBulkWriters and AvroInputFormat take any schema",
    )


class AvroParquetWriters:
    """Bulk writers of Parquet files of Avro records for `FileSink`. Example::

    sink = FileSink.for_bulk_format("/data/out", AvroParquetWriters.for_generic_record(schema)).build()
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """A writer of Parquet files of generic records, which are dictionaries that fit the schema. Needs the extra
        ``avro`` (fastavro).

        Raises:
            TypeError: ``schema`` is no AvroSchema.
            ProgramError: the schema is of no record, or has a type that no column holds.
        """
        return _AvroParquetFactory(AvroColumns(schema))


class _AvroParquetFactory(BulkWriterFactory):
    file_suffix = ParquetFileWriter.file_suffix

    def __init__(self, columns: AvroColumns) -> None:
        self._columns = columns

    def create(self) -> BulkWriter:
        return ParquetFileWriter(partial(self._columns.to_columns, where="AvroParquetWriters"))
