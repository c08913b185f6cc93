"""``CsvSchema``: the columns of CSV files, and the dialect in which they are written and read.

Rule upheld here: a schema is a ROW type and a dialect. A setting of Jackson's schemas that these cannot express is
refused when it is set, never ignored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flinkish.common.serialization import BulkWriter, BulkWriterFactory, RowDataBulkWriterFactory
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.composite import RowTypeInfo
from flinkish.errors import ArgumentValueError, ProgramError
from flinkish.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema

_WHERE = "CsvSchema"


class _Column(NamedTuple):
    """The type of a column. A column of arrays may have a separator of its own: ``is_array`` says that it needs one."""

    type_info: TypeInformation
    separator: str = ""
    is_array: bool = False


class CsvSchema:
    """The columns of a CSV file with their types, and the dialect of its lines. Made by :meth:`builder`.

    >>> len(CsvSchema.builder().add_number_column("id").add_string_column("name").build())
    2
    """

    def __init__(self, columns: dict[str, _Column], settings: dict[str, Any]) -> None:
        self._columns = columns
        self._settings = settings

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """A builder of a schema without columns."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """The number of columns."""
        return len(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def _row_type(self) -> RowTypeInfo:
        return Types.ROW_NAMED(list(self._columns), [column.type_info for column in self._columns.values()])

    @property
    def _array_delimiters(self) -> tuple[str, ...]:
        default = self._settings.get("array", ";")
        # of a column that is no array the separator has no meaning
        return tuple(column.separator or default or ";" for column in self._columns.values())

    def _reader(self) -> CsvRowDeserializationSchema:
        builder = CsvRowDeserializationSchema.Builder(self._row_type)
        self._set_dialect(builder)
        builder.set_allow_comments(self._settings.get("comments", False))
        return builder._set_array_delimiters(self._array_delimiters).build()

    def _writer(self) -> CsvRowSerializationSchema:
        builder = CsvRowSerializationSchema.Builder(self._row_type)
        self._set_dialect(builder)
        builder.set_line_delimiter(self._settings.get("line", "\n"))
        return builder._build_for_files(self._array_delimiters)

    def _set_dialect(self, builder: CsvRowDeserializationSchema.Builder | CsvRowSerializationSchema.Builder) -> None:
        settings = self._settings
        builder.set_field_delimiter(settings.get("delimiter", ","))
        builder.set_quote_character(settings.get("quote", '"'))
        if settings.get("escape"):
            builder.set_escape_character(settings["escape"])
        if settings.get("null") is not None:
            builder.set_null_literal(settings["null"])


class CsvSchemaBuilder:
    """Builder of :class:`CsvSchema`. The columns are in the order in which they are added; a name that is added twice
    raises ProgramError."""

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}
        self._settings: dict[str, Any] = {}

    def build(self) -> CsvSchema:
        """The schema.

        Raises:
            ProgramError: there are no columns, or nothing separates the elements of an array.
        """
        if not self._columns:
            raise ProgramError(
                "a schema without columns",
                where=_WHERE,
                expected="one column or more",
                hint="call add_string_column(name), add_number_column(name), ...",
            )
        for name, column in self._columns.items():
            if column.is_array and not (column.separator or self._settings.get("array", ";")):
                raise ProgramError(
                    f"no separator for the elements of the array column '{name}'",
                    where=_WHERE,
                    expected="add_array_column(name, separator) or set_array_element_separator(separator)",
                    hint="declare a STRING column instead of an array whose elements nothing separates",
                )
        return CsvSchema(dict(self._columns), dict(self._settings))

    # --- columns ------------------------------------------------------------------------------------------------

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of lists of strings, or of ``element_type``. If the separator is empty, that of
        :meth:`set_array_element_separator` separates the elements."""
        return self._add(name, _Column(Types.LIST(element_type or Types.STRING()), separator, is_array=True))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        return self._add(name, _Column(Types.BOOLEAN()))

    def add_number_column(self, name: str, number_type: TypeInformation | None = None) -> CsvSchemaBuilder:
        """Add a column of longs, or of ``number_type``."""
        return self._add(name, _Column(number_type or Types.LONG()))

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        return self._add(name, _Column(Types.STRING()))

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add all columns of another schema; its other settings are not taken over."""
        for name, column in schema._columns.items():
            self._add(name, column)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        self._columns.clear()
        return self

    def size(self) -> int:
        """The number of columns that have been added."""
        return len(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def _add(self, name: str, column: _Column) -> CsvSchemaBuilder:
        if name in self._columns:
            raise ProgramError(f"the column '{name}' twice", where=_WHERE, expected="a name of its own for each column")
        self._columns[name] = column
        return self

    # --- dialect ------------------------------------------------------------------------------------------------

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Set whether lines that begin with ``#`` are comments, and so no records."""
        return self._set("comments", allow)

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Always raises ProgramError: a Row cannot have a field for all columns beyond the declared ones."""
        raise self._refused("set_any_property_name", "declare all columns")

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the separator between the elements of the array columns that have none of their own."""
        return self._set("array", separator)

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Set no separator for the array columns that have none of their own."""
        return self._set("array", "")

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Take the separator of its own from the column at ``index``, so that it has that of all array columns.

        Raises:
            ProgramError: there is no such column.
        """
        if not 0 <= index < len(self._columns):
            raise ProgramError(
                f"there is no column {index}", where=_WHERE, expected=f"0 to {len(self._columns) - 1}, by its position"
            )
        name = list(self._columns)[index]
        self._columns[name] = self._columns[name]._replace(separator="")
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        return self._set("delimiter", _single(char, "Column separator"))

    def disable_escape_char(self) -> CsvSchemaBuilder:
        return self._set("escape", "")

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        return self._set("escape", _single(char, "Escape char"))

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the line separator of files that are written. Lines that are read may end with ``\\n``, ``\\r\\n`` or
        ``\\r``.

        Raises:
            ProgramError: the separator is empty, so that the records could not be told apart.
        """
        if not separator:
            raise self._refused("set_line_separator('')", "leave the call out for '\\n'")
        return self._set("line", separator)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text that None is written as and read from."""
        return self._set("null", null_value)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        return self._set("quote", "")

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        return self._set("quote", _single(char, "Quote char"))

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Set whether the first line of a file, after the header if there is one, is no record."""
        return self._set("skip", skip)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Set whether the header of a file must have the names of all columns, in their order; otherwise its text has
        no meaning. Without :meth:`set_use_header` it has no effect."""
        return self._set("strict", strict)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Set whether files have a header: the first line of a file that is read is no record, whatever it says
        (:meth:`set_strict_headers`), and files are written with a line of the names of all columns."""
        return self._set("header", use)

    def _set(self, name: str, value: Any) -> CsvSchemaBuilder:
        self._settings[name] = value
        return self

    @staticmethod
    def _refused(call: str, hint: str) -> ProgramError:
        return ProgramError(f"{call} is not possible here", where=_WHERE, expected="a schema without it", hint=hint)


def _single(char: str, what: str) -> str:
    if not isinstance(char, str) or len(char) != 1:
        raise ArgumentValueError(
            f"{what} must be a single char, got {char!r}", where=_WHERE, expected="one character", hint="such as ','"
        )
    return char


class _CsvFileWriter(BulkWriter):
    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema._writer()
        self._lines: list[bytes | None] = [self._schema.header] if schema._settings.get("header") else []

    def add_batch(self, values: list[Any]) -> None:
        self._lines += self._schema.serialize_batch(values)

    def finish(self) -> bytes:
        return b"".join(line for line in self._lines if line is not None)


class _CsvFileWriterFactory(RowDataBulkWriterFactory):
    file_suffix = ".csv"

    def __init__(self, schema: CsvSchema) -> None:
        super().__init__(schema._row_type)
        self._schema = schema
        # made here only so that an error in the schema is raised before the job starts
        schema._writer()

    def create(self) -> BulkWriter:
        return _CsvFileWriter(self._schema)


class CsvBulkWriters:
    """Bulk writers of CSV files for `FileSink`. Example::

    sink = FileSink.for_bulk_format("/data/out", CsvBulkWriters.for_schema(schema)).build()
    """

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """A writer of CSV files with one line per Row, and a header if the schema has one."""
        return _CsvFileWriterFactory(schema)
