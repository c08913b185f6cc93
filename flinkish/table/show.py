"""What SHOW and DESCRIBE show of a catalog."""

from __future__ import annotations

from collections.abc import Iterator

from flinkish.common.types import Row
from flinkish.errors import HIDDEN, ProgramError, is_secret
from flinkish.table import planner
from flinkish.table.catalog import Catalog, name_of
from flinkish.table.plan import Calc, Relation, TimeAttribute, Watermarks
from flinkish.table.syntax import TableDefinition
from flinkish.table.table_result import type_text

DESCRIBED = ("name", "type", "null", "key", "extras", "watermark")


def described(name: str, catalog: Catalog) -> tuple[tuple[str, ...], list[Row]]:
    """The columns of a table or view: the names of what is shown, and a row for each."""
    relation, definition = _declared(name, catalog)
    extras, marks = _extras(relation, definition)
    comments = {column.name: column.comment for column in definition.columns}
    commented = any(comments.values())
    rows = []
    for field in relation.fields:
        key = f"PRI({', '.join(definition.primary_key)})" if field.name in definition.primary_key else ""
        never = field.name in definition.required or field.time is TimeAttribute.PROCTIME
        values = [field.name, type_text(field), str(not never).upper(), key, extras.get(field.name, "")]
        values.append(marks if definition.watermark is not None and definition.watermark[0] == field.name else "")
        rows.append(Row(*values, *([comments.get(field.name, "")] if commented else [])))
    return (*DESCRIBED, "comment") if commented else DESCRIBED, rows


def create_statement(name: str, catalog: Catalog) -> str:
    """The CREATE TABLE of a table, without the values of options that may be secrets, or the text of a view."""
    view = catalog.texts.get(name_of(name))
    if view is not None:
        return view
    relation, definition = _declared(name, catalog)
    if not definition.columns and not definition.options:
        what = f"the view '{name_of(name)}' has no text"
        raise ProgramError(what, where="SHOW CREATE", expected="one of CREATE VIEW")
    parts = "".join(_parts(relation, definition))
    return f"CREATE TABLE `default_catalog`.`default_database`.`{name_of(name)}` (\n{parts}"


def _parts(relation: Relation, definition: TableDefinition) -> Iterator[str]:
    extras, marks = _extras(relation, definition)
    lines = []
    for column in definition.columns:
        kind = f" {column.type}" if column.type is not None else ""
        never = " NOT NULL" if column.name in definition.required else ""
        extra = f" {extras[column.name]}" if column.name in extras else ""
        lines.append(f"  `{column.name}`{kind}{never}{extra}{_comment(column.comment)}")
    if definition.watermark is not None:
        lines.append(f"  WATERMARK FOR `{definition.watermark[0]}` AS {marks}")
    if definition.primary_key:
        names = ", ".join(f"`{name}`" for name in definition.primary_key)
        lines.append(f"  CONSTRAINT `PK_{'_'.join(definition.primary_key)}` PRIMARY KEY ({names}) NOT ENFORCED")
    yield ",\n".join(lines) + "\n)\n"
    if definition.comment:
        yield f"{_comment(definition.comment).strip()}\n"
    options = {key: HIDDEN if is_secret(key) else value for key, value in definition.options.items()}
    listed = ",\n".join(f"  {_quoted(key)} = {_quoted(value)}" for key, value in options.items())
    yield f"WITH (\n{listed}\n)\n"


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _comment(text: str) -> str:
    return f" COMMENT {_quoted(text)}" if text else ""


def _declared(name: str, catalog: Catalog) -> tuple[Relation, TableDefinition]:
    found = catalog.known(name)
    if isinstance(found, Relation):
        return found, TableDefinition()
    return planner.Planner(catalog).declared(found, name_of(name)), found.definition


def _extras(relation: Relation, definition: TableDefinition) -> tuple[dict[str, str], str]:
    """What columns are besides stored ones, and the text of the watermark."""
    marks = ""
    if isinstance(relation, Watermarks):
        delay = f" - INTERVAL '{relation.delay_ms / 1_000:g}' SECOND" if relation.delay_ms else ""
        marks = relation.watermark.text if relation.watermark is not None else f"`{relation.time}`{delay}"
        relation = relation.input
    texts = {}
    if isinstance(relation, Calc):
        texts = {field.name: output.text for field, output in zip(relation.fields, relation.outputs, strict=True)}
    found = {}
    for column in definition.columns:
        if column.expression is not None:
            found[column.name] = f"AS {texts.get(column.name, '')}"
        elif column.metadata is not None:
            source = f" FROM {_quoted(column.metadata)}" if column.metadata != column.name else ""
            found[column.name] = f"METADATA{source}{' VIRTUAL' * column.virtual}"
    return found, marks
