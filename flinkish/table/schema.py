"""The declarations of tables, as programs build them (``pyflink.table.Schema``, ``TableDescriptor``) and as CREATE
TABLE makes them: both hold a `TableDefinition`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flinkish.common.arguments import check_instance
from flinkish.common.no_effect import supply_names
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.errors import ProgramError
from flinkish.table.expression import logical_type, node_of
from flinkish.table.refusals import refusing
from flinkish.table.sql import parse_expression
from flinkish.table.syntax import ColumnDefinition, Expression, TableDefinition

__all__ = ["FormatDescriptor", "Schema", "TableDescriptor"]


@dataclass(frozen=True)
class Schema:
    """The columns of a table, its event time and its primary key.

    Example::

        Schema.new_builder().column("id", DataTypes.BIGINT()).column("ts", "TIMESTAMP(3)").watermark(
            "ts", "ts - INTERVAL '5' SECOND").build()
    """

    definition: TableDefinition = TableDefinition()

    @staticmethod
    def new_builder() -> Schema.Builder:
        return Schema.Builder()

    class Builder:
        """Builder of :class:`Schema`. Types are DataTypes or their SQL texts; expressions are those of the Table API,
        or SQL texts."""

        def __init__(self) -> None:
            self._parts = TableDefinition()

        def from_schema(self, unresolved_schema: Schema) -> Schema.Builder:
            """Take over all columns, the watermark and the primary key of a schema."""
            given, own = unresolved_schema.definition, self._parts
            watermark, key = given.watermark or own.watermark, given.primary_key or own.primary_key
            return self._with(columns=(*own.columns, *given.columns), watermark=watermark, primary_key=key)

        def from_row_data_type(self, data_type: Any) -> Schema.Builder:
            """Add the fields of a ROW as columns."""
            where, hint = "from_row_data_type()", "such as DataTypes.ROW([...])"
            check_instance(data_type, RowTypeInfo, "the type is", where, hint)
            return self.from_fields(data_type.get_field_names(), data_type.get_field_types())

        def from_fields(self, field_names: Sequence[str], field_data_types: Sequence[Any]) -> Schema.Builder:
            if len(field_names) != len(field_data_types):
                what = f"{len(field_names)} names and {len(field_data_types)} types"
                raise ProgramError(what, where="Schema.Builder.from_fields()", expected="as many types as names")
            for name, data_type in zip(field_names, field_data_types, strict=True):
                self.column(name, data_type)
            return self

        def column(self, column_name: str, data_type: TypeInformation | str) -> Schema.Builder:
            required = isinstance(data_type, str) and data_type.upper().split()[-2:] == ["NOT", "NULL"]
            return self._add(ColumnDefinition(column_name, logical_type(data_type), required=required))

        def column_by_expression(self, column_name: str, expr: Any) -> Schema.Builder:
            return self._add(ColumnDefinition(column_name, expression=_expression(expr)))

        def column_by_metadata(
            self, column_name: str, data_type: Any, metadata_key: str | None = None, is_virtual: bool = False
        ) -> Schema.Builder:
            """Add a column of what the connector knows of a record, such as its time. The key is that of the
            connector's metadata, or the name of the column; a column that ``is_virtual`` is not written."""
            kind = logical_type(data_type)
            return self._add(ColumnDefinition(column_name, kind, None, metadata_key or column_name, is_virtual))

        def watermark(self, column_name: str, watermark_expr: Any) -> Schema.Builder:
            """Make a column the event time; the expression is its watermark."""
            return self._with(watermark=(column_name, _expression(watermark_expr)))

        def primary_key(self, *column_names: str) -> Schema.Builder:
            return self._with(primary_key=column_names)

        def primary_key_named(self, constraint_name: str, *column_names: str) -> Schema.Builder:
            """The primary key; the name of the constraint has no effect."""
            return self.primary_key(*column_names)

        def build(self) -> Schema:
            """The schema. Raises ProgramError if two columns have one name."""
            return Schema(checked(self._parts, "Schema.new_builder()", complete=False))

        def _add(self, column: ColumnDefinition) -> Schema.Builder:
            check_instance(column.name, str, "the name of the column is", "Schema.Builder", "give a text")
            return self._with(columns=(*self._parts.columns, column))

        def _with(self, **parts: Any) -> Schema.Builder:
            self._parts = replace(self._parts, **parts)
            return self


def _expression(expr: Any) -> Expression:
    return parse_expression(expr) if isinstance(expr, str) else node_of(expr)


@dataclass(frozen=True)
class FormatDescriptor:
    """A format with its options, which may be passwords."""

    _format: str
    _options: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def for_format(format: str) -> FormatDescriptor.Builder:
        return FormatDescriptor.Builder(format)

    def get_format(self) -> str:
        return self._format

    def get_options(self) -> dict[str, str]:
        return dict(self._options)

    def __repr__(self) -> str:
        return f"FormatDescriptor({self._format!r}, options {[key for key, _ in self._options]})"

    class Builder:
        """Builder of :class:`FormatDescriptor`. The keys of options have no prefix."""

        def __init__(self, format: str) -> None:
            self._format = format
            self._options: dict[str, str] = {}

        def option(self, key: Any, value: Any) -> FormatDescriptor.Builder:
            self._options |= _option(key, value)
            return self

        def build(self) -> FormatDescriptor:
            return FormatDescriptor(self._format, tuple(self._options.items()))


@dataclass(frozen=True)
class TableDescriptor:
    """A table without its name: its schema, and the options of its connector. It may have no columns.

    Raises:
        ProgramError: its parts do not fit together.

    Example::

        TableDescriptor.for_connector("kafka").schema(schema).option("topic", "t").format("json").build()
    """

    definition: TableDefinition

    def __post_init__(self) -> None:
        checked(self.definition, "the declaration of a table", complete=bool(self.definition.columns))

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        return TableDescriptor.Builder(connector)

    @property
    def options(self) -> Mapping[str, str]:
        """The options of the connector. Their values may be passwords."""
        return self.definition.options

    def get_schema(self) -> Schema:
        return Schema(replace(self.definition, options={}, comment=""))

    def get_options(self) -> dict[str, str]:
        return dict(self.options)

    def get_partition_keys(self) -> list[str]:
        return []

    def get_comment(self) -> str | None:
        return self.definition.comment or None

    class Builder:
        """Builder of :class:`TableDescriptor`."""

        def __init__(self, connector: str) -> None:
            self._definition = TableDefinition()
            self._options = _option("connector", connector)

        def schema(self, schema: Schema) -> TableDescriptor.Builder:
            check_instance(schema, Schema, "the schema is", "TableDescriptor", "such as Schema.new_builder()...build()")
            self._definition = replace(schema.definition, comment=self._definition.comment)
            return self

        def option(self, key: Any, value: Any) -> TableDescriptor.Builder:
            self._options |= _option(key, value)
            return self

        def format(self, format: str | FormatDescriptor, format_option: Any = None) -> TableDescriptor.Builder:
            """The format of the records, with its options; ``format_option`` is the option that names it, if that is
            not ``format``, such as ``key.format``."""
            given = FormatDescriptor(format) if isinstance(format, str) else format
            [(key, name)] = _option("format" if format_option is None else format_option, given.get_format()).items()
            prefix = f"{key.removesuffix('format')}{name}."
            self._options |= {key: name, **{prefix + option: text for option, text in given.get_options().items()}}
            return self

        partitioned_by = refusing("PARTITIONED", "TableDescriptor.partitioned_by()")

        def comment(self, comment: str) -> TableDescriptor.Builder:
            self._definition = replace(self._definition, comment=comment)
            return self

        def build(self) -> TableDescriptor:
            """The table. Raises ProgramError if its parts do not fit together."""
            return TableDescriptor(replace(self._definition, options=dict(self._options)))


def _option(key: Any, value: Any) -> dict[str, str]:
    """An option, whose key is a text or a ConfigOption."""
    name = key if isinstance(key, str) else str(key.key)
    return {name: str(value).lower() if isinstance(value, bool) else str(value)}


def checked(definition: TableDefinition, where: str, complete: bool = True) -> TableDefinition:
    """The definition. Raises ProgramError if its parts do not fit together (`TableDefinition.fault`)."""
    if fault := definition.fault(complete):
        raise ProgramError(fault, where=where, expected=f"columns among {definition.names[:50]}, one of each name")
    return definition


def like(definition: TableDefinition, base: TableDefinition, where: str) -> TableDefinition:
    """What CREATE TABLE ... LIKE declares: columns, watermark, key and options of the base table, then its own. Unless
    its rules say otherwise, all is included, and its options replace those of the base table.

    Raises:
        ProgramError: both declare what may be there once, or the parts do not fit together.
    """
    rules = definition.like_rules
    rules = rules if "ALL" in rules else {"OPTIONS": "OVERWRITING", **rules}

    def rule(feature: str) -> str:
        return rules.get(feature, rules.get("ALL", "INCLUDING"))

    def kept(column: ColumnDefinition) -> bool:
        feature = "GENERATED" if column.expression is not None else "METADATA" if column.metadata is not None else ""
        replaced = rule(feature) == "OVERWRITING" and column.name in definition.names
        return not feature or rule(feature) != "EXCLUDING" and not replaced

    twice = sorted(base.options.keys() & definition.options.keys())
    for feature, what, both in (
        ("WATERMARKS", "a watermark", definition.watermark and base.watermark),
        ("CONSTRAINTS", "a primary key", definition.primary_key and base.primary_key),
        ("OPTIONS", f"the option '{(*twice, '')[0]}'", twice),
    ):
        if both and (rule(feature) == "INCLUDING" or feature == "CONSTRAINTS" and rule(feature) != "EXCLUDING"):
            what = f"the table and the one that it is LIKE both have {what}"
            hint = f"write LIKE t (EXCLUDING {feature}), or declare it once"
            raise ProgramError(what, where=where, expected="one of them", hint=hint)
    watermark = definition.watermark or (base.watermark if rule("WATERMARKS") != "EXCLUDING" else None)
    key = definition.primary_key or (base.primary_key if rule("CONSTRAINTS") != "EXCLUDING" else ())
    options = {**(base.options if rule("OPTIONS") != "EXCLUDING" else {}), **definition.options}
    columns = (*filter(kept, base.columns), *definition.columns)
    return checked(TableDefinition(columns, watermark, key, options, comment=definition.comment), where)


supply_names(__name__)
