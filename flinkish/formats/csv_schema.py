"""``CsvSchema``: the columns of CSV files, and the dialect in which they are written and read.

Rule upheld here: a schema is a ROW type and a dialect. A setting of Jackson's schemas that these cannot express is
refused when it is set, never ignored.
"""

from __future__ import annotations

from typing import Any

from flinkish.common.bulk_writer import BulkWriter, BulkWriterFactory, RowDataBulkWriterFactory
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.composite import RowTypeInfo
from flinkish.errors import ArgumentValueError, ProgramError
from flinkish.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema

_WHERE = "CsvSchema"


class CsvSchema:
    """The columns of a CSV file with their types, and the dialect of its lines. Made by :meth:`builder`.

    >>> len(CsvSchema.builder().add_number_column("id").add_string_column("name").build())
    2
    """

    def __init__(self, columns: dict[str, TypeInformation], settings: dict[str, Any]) -> None:
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
        return Types.ROW_NAMED(list(self._columns), list(self._columns.values()))

    @property
    def _header(self) -> str | None:
        """The header line, which has the names of the columns; None if the schema has no header."""
        return self._reader().header if self._settings.get("header") else None

    def _reader(self) -> CsvRowDeserializationSchema:
        settings = self._settings
        builder = CsvRowDeserializationSchema.Builder(self._row_type)
        builder.set_field_delimiter(settings.get("delimiter", ","))
        builder.set_array_element_delimiter(settings.get("array", ";"))
        builder.set_allow_comments(settings.get("comments", False))
        builder.set_quote_character(settings.get("quote", '"'))
        if settings.get("escape"):
            builder.set_escape_character(settings["escape"])
        if settings.get("null") is not None:
            builder.set_null_literal(settings["null"])
        return builder.build()

    def _writer(self) -> CsvRowSerializationSchema:
        settings = self._settings
        builder = CsvRowSerializationSchema.Builder(self._row_type)
        builder.set_field_delimiter(settings.get("delimiter", ","))
        builder.set_array_element_delimiter(settings.get("array", ";"))
        builder.set_quote_character(settings.get("quote", '"'))
        builder.set_line_delimiter(settings.get("line", "\n"))
        if settings.get("escape"):
            builder.set_escape_character(settings["escape"])
        if settings.get("null") is not None:
            builder.set_null_literal(settings["null"])
        return builder._build_for_files()


class CsvSchemaBuilder:
    """Builder of :class:`CsvSchema`. The columns are in the order in which they are added; a name that is added twice
    raises ProgramError."""

    def __init__(self) -> None:
        self._columns: dict[str, TypeInformation] = {}
        self._settings: dict[str, Any] = {}

    def build(self) -> CsvSchema:
        """The schema.

        Raises:
            ProgramError: there are no columns.
        """
        if not self._columns:
            raise ProgramError(
                "a schema without columns",
                where=_WHERE,
                expected="one column or more",
                hint="call add_string_column(name), add_number_column(name), ...",
            )
        return CsvSchema(dict(self._columns), dict(self._settings))

    # --- columns ------------------------------------------------------------------------------------------------

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of lists of strings, or of ``element_type``. All array columns of a schema must have the same
        separator, or ProgramError is raised."""
        self.set_array_element_separator(separator)
        return self._add(name, Types.LIST(element_type or Types.STRING()))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        return self._add(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: TypeInformation | None = None) -> CsvSchemaBuilder:
        """Add a column of longs, or of ``number_type``."""
        return self._add(name, number_type or Types.LONG())

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        return self._add(name, Types.STRING())

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

    def _add(self, name: str, column: TypeInformation) -> CsvSchemaBuilder:
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
        """Set the separator between the elements of all array columns.

        Raises:
            ProgramError: another separator was set before.
        """
        given = self._settings.get("array", separator)
        if given != separator:
            raise ProgramError(
                f"the array separators {given!r} and {separator!r}", where=_WHERE, expected="one for all array columns"
            )
        return self._set("array", separator)

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Always raises ProgramError: arrays without a separator could not be read again."""
        raise self._refused("disable_array_element_separator", "declare a STRING column")

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Always raises ProgramError: an array without a separator could not be read again."""
        raise self._refused("remove_array_element_separator", "declare a STRING column")

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
        """Raises ProgramError for True: a file may be read in several ranges, and the reader of a range cannot tell
        which line is the first one of the file."""
        if skip:
            raise self._refused("set_skip_first_data_row", "use set_use_header() for a line with the columns' names")
        return self

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Has no effect: headers are always strict. A first line with other names than those of the schema is read as a
        record, and refused unless it fits the types."""
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Set whether files have a header: the line with the names of all columns, in their order. It is written at the
        beginning of each file, and a first line that equals it is no record."""
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
        header = schema._header
        line_end = schema._settings.get("line", "\n")
        self._lines: list[bytes | None] = [] if header is None else [(header + line_end).encode()]

    def add_batch(self, values: list[Any]) -> None:
        self._lines += self._schema.serialize_batch(values)

    def finish(self) -> bytes:
        return b"".join(line for line in self._lines if line is not None)


class _CsvFileWriterFactory(RowDataBulkWriterFactory):
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
