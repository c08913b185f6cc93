"""INSERT: what a table stores of the rows of a query, in the columns of the table and with their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from flinkish.errors import ProgramError
from flinkish.table.catalog import name_of, nearest
from flinkish.table.declared import takes_changes
from flinkish.table.explain import CATALOG, no_changes_for
from flinkish.table.functions import Run, Values
from flinkish.table.logical_types import NULL, LogicalType
from flinkish.table.plan import Calc, Changes, Relation, Sink
from flinkish.table.resolved import Node, implicitly
from flinkish.table.schema import TableDescriptor
from flinkish.table.syntax import Cast, Column, Expression, Insert, Literal, TableDefinition

if TYPE_CHECKING:
    from flinkish.table.planner import Planner


def sink_of(planner: Planner, insert: Insert) -> Sink:
    """The rows of a query as a table stores them."""
    name = name_of(insert.target)
    table = planner.catalog.table(insert.target)
    if not isinstance(table, TableDescriptor):
        if table is not None:
            raise planner.error(f"'{name}' is a view", "a table of CREATE TABLE as the target of INSERT")
        raise planner.error(f"there is no table '{name}'", *nearest(name, planner.catalog.tables, "a table"))
    stored = persisted(table.definition)
    relation = planner.whole(insert.query)
    key = [column for column in table.definition.required if column in stored]
    given = _targets(planner, insert.columns, list(stored), key, name) if insert.columns else list(stored)
    if len(given) != len(relation.fields):
        raise _misfit(planner, name, "Different number of columns", relation, stored, given)
    items: list[tuple[str, Expression]] = []
    of = dict(zip(given, relation.fields, strict=True))
    for at, (column, kind) in enumerate(stored.items(), 1):
        field = of.get(column)
        if field is None:
            items.append((column, Cast(Literal(None, NULL), kind)))
        elif not implicitly(field.type, kind):
            cause = f"Incompatible types for sink column '{column}' at position {at}"
            raise _misfit(planner, name, cause, relation, stored, given)
        else:
            same = field.type == kind or (field.type.is_text and kind.is_text)
            items.append((column, Column((field.name,)) if same else Cast(Column((field.name,)), kind)))
    if relation.changes is Changes.RETRACT:
        changed = [column for column, field in of.items() if field.name in relation.unique_key]
        _check_changes(planner, relation, table, name, changed)
    return Sink(name, table, _keyed(planner.calc(relation, items).relation, key))


def _check_changes(
    planner: Planner, relation: Relation, table: TableDescriptor, name: str, changed: Sequence[str]
) -> None:
    """Refuses updates that the table does not take. ``changed``: the columns of the key by which rows change."""
    key = table.definition.primary_key
    if not takes_changes(table):
        raise planner.error(
            no_changes_for(f"Table sink '{CATALOG}{name}'", relation),
            "a table that takes updates: print, blackhole, or jdbc, delta and upsert-kafka with a PRIMARY KEY",
            f"declare PRIMARY KEY (...) NOT ENFORCED in CREATE TABLE {name}, or aggregate in windows",
        )
    if changed and key and set(changed) != set(key):
        raise planner.error(
            f"The rows of the query change by the columns ({', '.join(changed)}), the PRIMARY KEY of '{name}' is "
            f"({', '.join(key)})",
            "the same columns",
            f"declare PRIMARY KEY ({', '.join(changed)}) NOT ENFORCED in CREATE TABLE {name}",
        )


def _targets(
    planner: Planner, columns: Sequence[str], stored: Sequence[str], key: Sequence[str], name: str
) -> list[str]:
    absent = next((column for column in key if column not in columns), None)
    if absent is not None:
        what = f"Column '{absent}' has no default value and does not allow NULLs"
        raise planner.error(what, f"the columns of '{name}' that are NOT NULL too", f"({', '.join(key)}, ...)")
    unknown = next((column for column in columns if column not in stored), None)
    if unknown is not None:
        raise planner.error(f"Unknown target column '{unknown}' of '{name}'", *nearest(unknown, stored))
    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise planner.error(f"Target column '{twice}' is assigned more than once", "each column once")
    return list(columns)


def _misfit(
    planner: Planner, name: str, cause: str, relation: Relation, stored: Mapping[str, LogicalType], given: Sequence[str]
) -> ProgramError:
    query = ", ".join(f"{field.name}: {field.type}" for field in relation.fields)
    sink = ", ".join(f"{column}: {stored[column]}" for column in given)
    return planner.error(
        f"Column types of query result and sink for '{CATALOG}{name}' do not match. Cause: {cause}. "
        f"Query schema: [{query}] Sink schema: [{sink}]",
        "the columns of the table in their order, or INSERT INTO t (a, b) ...",
        "CAST(x AS type) converts a column",
    )


def _keyed(relation: Relation, key: Sequence[str]) -> Relation:
    """The relation whose columns of the primary key, and those that are NOT NULL, must not be NULL."""
    if not key or not isinstance(relation, Calc):
        return relation
    names = relation.names
    outputs = tuple(
        Required(each.type, name, args=(each,)) if name in key else each
        for name, each in zip(names, relation.outputs, strict=True)
    )
    return replace(relation, outputs=outputs)


def persisted(definition: TableDefinition) -> dict[str, LogicalType]:
    """The columns that a table stores: neither computed ones, nor metadata that is only read."""
    stored = (each for each in definition.columns if each.expression is None and not each.virtual)
    return {each.name: each.type for each in stored if each.type is not None}


@dataclass(frozen=True, eq=False)
class Required(Node):
    """A column that is NOT NULL, such as those of a primary key."""

    column: str

    def _text(self, args: list[str]) -> str:
        return args[0]

    def _compute(self, run: Run, columns: pa.RecordBatch, args: list[Values]) -> Values:
        run.fail(
            pc.is_null(args[0]), f"Column '{self.column}' is NOT NULL, however, a null value is being written into it"
        )
        return args[0]
