"""The planner: from queries as they are written (`syntax`) to relations with columns, types and changes (`plan`).

Rule upheld here: what Flink refuses is refused in Flink's words, and what is not there by a sentence with the place and
the nearest names. There is no optimizer: `pruning` leaves out columns that nobody uses and joins neighbouring
projections, and that is all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from flinkish.errors import ProgramError
from flinkish.table import aggregates, inserts, syntax, windows
from flinkish.table.catalog import Catalog, name_of, nearest
from flinkish.table.declared import gives_changes, is_bounded
from flinkish.table.logical_types import LogicalType, common
from flinkish.table.plan import (
    Changes,
    Field,
    Limit,
    Relation,
    Rows,
    Scan,
    Sink,
    TimeAttribute,
    Union,
    Watermarks,
)
from flinkish.table.projections import ONE_ROW, project, prune
from flinkish.table.resolved import AGGREGATES, Constant, Node, resolve_expression
from flinkish.table.schema import TableDescriptor
from flinkish.table.syntax import Call, Cast, Column, Expression, Insert, Literal, Query, Star, TableDefinition
from flinkish.table.tokens import where_of

T = TypeVar("T")


class Planned(NamedTuple):
    """A relation and how a query names its columns: unlike the names of fields, these may be equal. ``qualifier``: the
    name or alias of the table."""

    relation: Relation
    names: tuple[str, ...]
    qualifier: str | None = None


def resolve(query: Query, catalog: Catalog, statement: str = "") -> Relation:
    """The relation that a query means. ``statement``: its text, for errors.

    Raises:
        ProgramError: a table, column or function is not there, types do not fit, or Flink or flinkish refuses it.
    """
    return _planned(Planner(catalog, statement), lambda planner: planner.resolved(query))


def resolve_insert(insert: Insert, catalog: Catalog, statement: str = "") -> Sink:
    """The plan of an INSERT. Raises ProgramError, as `resolve` does, or because the table cannot take the rows."""
    return _planned(Planner(catalog, statement), lambda planner: inserts.sink_of(planner, insert))


def pruned(sinks: Sequence[Sink]) -> list[Sink]:
    """Inserts that run as one job, without what nobody uses, and with one scan of each table (`prune`)."""
    inputs = prune([sink.input for sink in sinks])
    return [replace(sink, input=one) for sink, one in zip(sinks, inputs, strict=True)]


def _planned(planner: Planner, work: Callable[[Planner], T]) -> T:
    try:
        return work(planner)
    except RecursionError:
        raise planner.error("the query is nested too deeply", "some hundred steps", "name parts by views") from None


class Planner:
    def __init__(self, catalog: Catalog, statement: str = "") -> None:
        self.catalog = catalog
        self._statement = statement
        self._views: dict[str, Planned] = {}
        self._declared: dict[str, Relation] = {}

    # --- errors -----------------------------------------------------------------------------------------------------

    def error(self, what: str, expected: str = "", hint: str = "", at: syntax.Position | None = None) -> ProgramError:
        where = where_of(self._statement) if self._statement else "the Table API"
        return ProgramError(what, where=f"{at}, {where}" if at else where, expected=expected, hint=hint)

    def no_column(self, column: Column, names: Sequence[str]) -> ProgramError:
        name = ".".join(column.path)
        return self.error(f"there is no column '{name}'", *nearest(column.path[-1], names), at=column.at)

    # --- queries ----------------------------------------------------------------------------------------------------

    def resolved(self, query: Query) -> Relation:
        relation = self.whole(query)
        untyped = next((field.name for field in relation.fields if field.type.root == "NULL"), None)
        if untyped is not None:
            raise self.error(f"Illegal use of 'NULL' in the column '{untyped}'", "a type", "CAST(NULL AS STRING)")
        return relation

    def whole(self, query: Query) -> Relation:
        """The relation of a whole query, whose fields have the names that they have in the query."""
        found = self.query(query)
        renamed = found.names != tuple(found.relation.names)
        return self.calc(found.relation, _all(found)).relation if renamed else found.relation

    def query(self, query: Query) -> Planned:
        match query:
            case syntax.TableName():
                return self._table(query)
            case syntax.Resolved():
                return Planned(query.relation, tuple(query.relation.names))
            case syntax.Named():
                return self._named(query)
            case syntax.Windowed():
                source = self.query(query.query)
                return windows.table_function(self, query, source, Names(self, source))
            case syntax.Select():
                return self._select(query)
            case syntax.UnionAll():
                return self._union([self.query(part) for part in query.queries])
            case syntax.Values():
                return self._values(query)
            case syntax.With():
                return self._with(query)

    def _table(self, table: syntax.TableName) -> Planned:
        qualifier = name_of(table.name).rpartition(".")[2]
        if table.name in self._views:
            return self._views[table.name]._replace(qualifier=qualifier)
        found = self.catalog.table(table.name)
        if found is None:
            names = [*self._views, *self.catalog.tables]
            raise self.error(f"there is no table '{table.name}'", *nearest(table.name, names, "a table"), at=table.at)
        if isinstance(found, TableDescriptor):
            if table.name not in self._declared:
                self._declared[table.name] = self.declared(found, table.name)
            found = self._declared[table.name]
        return Planned(found, tuple(found.names), qualifier)

    def _named(self, query: syntax.Named) -> Planned:
        found = self.query(query.query)
        return self._renamed(found, query.columns)._replace(qualifier=query.name)

    def _renamed(self, found: Planned, columns: Sequence[str]) -> Planned:
        if columns and len(columns) != len(found.names):
            raise self.error(
                "List of column aliases must have same degree as table; "
                f"table has {len(found.names)} columns, whereas alias list has {len(columns)} columns",
                f"a name for each of {', '.join(found.names)}",
            )
        return found._replace(names=tuple(columns)) if columns else found

    def _with(self, query: syntax.With) -> Planned:
        outer = dict(self._views)
        for name, columns, view in query.views:
            self._views[name] = self._renamed(self.query(view), columns)
        try:
            return self.query(query.query)
        finally:
            self._views = outer

    def _select(self, query: syntax.Select) -> Planned:
        source = Planned(ONE_ROW, ()) if query.source is None else self.query(query.source)
        names = Names(self, source)
        items = self._items(query.columns, names)
        where = None if query.where is None else names(query.where)
        if where is not None:
            self.no_aggregate(where, "Aggregate expression is illegal in WHERE clause")
            kept = [(field.name, Column((field.name,))) for field in source.relation.fields]
            source = source._replace(relation=self.calc(source.relation, kept, where).relation)
        having = None if query.having is None else names(query.having)
        keys = None if query.group_by is None else [names(key) for key in query.group_by]
        expressions = [*(expression for _, expression in items), *([] if having is None else [having])]
        if keys is not None or having is not None or any(self.aggregate_in(each) for each in expressions):
            found = aggregates.grouped(self, source.relation, keys or [], items, having)
        else:
            found = self.calc(source.relation, items)
        if query.distinct:
            every = _all(found)
            found = aggregates.grouped(self, found.relation, [column for _, column in every], every)
        return found if query.limit is None else self._limited(found, query.limit)

    def _items(self, columns: Sequence[Expression], names: Names) -> list[tuple[str, Expression]]:
        items: list[tuple[str, Expression]] = []
        for column in columns:
            if isinstance(column, Star):
                items += names.all(column)
            elif isinstance(column, syntax.Alias):
                items.append((column.name, names(column.operand)))
            else:
                name = column.path[-1] if isinstance(column, Column) else f"EXPR${len(items)}"
                items.append((name, names(column)))
        return items

    def _limited(self, found: Planned, count: int) -> Planned:
        relation = found.relation
        if not relation.bounded:
            raise self.error(
                "LIMIT of an unbounded table is not supported",
                "a bounded table, such as VALUES, from_elements() or files without source.monitor-interval",
                "to_data_stream(table) and a function that counts",
            )
        limit = Limit(relation.fields, relation.changes, relation.unique_key, True, relation, count)
        return found._replace(relation=limit)

    def _union(self, queries: Sequence[Planned]) -> Planned:
        names = queries[0].names
        for other in queries[1:]:
            if len(other.names) != len(names):
                raise self.error(
                    "Column count mismatch in UNION ALL",
                    f"columns for ({', '.join(names)})",
                    f"the other query has ({', '.join(other.names)})",
                )
        columns = list(zip(*(query.relation.fields for query in queries), strict=True))
        types = [
            self._common([f.type for f in column], f"column {at} of UNION ALL") for at, column in enumerate(columns, 1)
        ]
        parts = []
        for query in queries:
            pairs = zip(columns, query.relation.fields, types, strict=True)
            items: list[tuple[str, Expression]] = []
            for column, field, type_ in pairs:
                found = Column((field.name,))
                items.append((column[0].name, found if field.type == type_ else Cast(found, type_)))
            parts.append(self.calc(query.relation, items).relation)
        times = [{field.time for field in column} for column in zip(*(part.fields for part in parts), strict=True)]
        fields = [
            field if len(each) == 1 else field._replace(time=None)
            for each, field in zip(times, parts[0].fields, strict=True)
        ]
        changes = max((part.changes for part in parts), key=list(Changes).index)
        bounded = all(part.bounded for part in parts)
        return Planned(Union(tuple(fields), changes, (), bounded, tuple(parts)), names)

    def _common(self, types: Sequence[LogicalType], where: str) -> LogicalType:
        found = common(*types)
        if found is None:
            texts = ", ".join(dict.fromkeys(map(str, types)))
            raise self.error(f"Type mismatch in {where}: {texts}", "types that fit", f"CAST(x AS {types[0]})")
        return found

    def _values(self, query: syntax.Values) -> Planned:
        width = len(query.rows[0])
        if any(len(row) != width for row in query.rows):
            raise self.error("Values passed to VALUES operator must have compatible types", f"{width} in each row")
        rows = [[resolve_expression(value, self, {}) for value in row] for row in query.rows]
        columns = list(zip(*rows, strict=True))
        types = [
            self._common([each.type for each in column], f"column {at + 1} of VALUES")
            for at, column in enumerate(columns)
        ]
        names = tuple(f"EXPR${at}" for at in range(width))
        if not all(value.deterministic for row in rows for value in row):
            # what a function of the program returns is known in the job only
            parts = [self.calc(ONE_ROW, list(zip(names, row, strict=True))) for row in query.rows]
            return self._union(parts) if len(parts) > 1 else parts[0]
        batch, now_ms = ONE_ROW.columns.to_batches()[0], time.time_ns() // 1_000_000

        def value(row: int, at: int) -> Any:
            made = rows[row][at]
            if made.type != types[at]:
                made = resolve_expression(Cast(query.rows[row][at], types[at]), self, {})
            return made.value if isinstance(made, Constant) else made(batch, now_ms).as_py()

        data = [pa.array([value(row, at) for row in range(len(rows))], types[at].arrow) for at in range(width)]
        fields = tuple(Field(name, type_) for name, type_ in zip(names, types, strict=True))
        return Planned(Rows(fields, Changes.INSERT, (), True, pa.Table.from_arrays(data, list(names))), names)

    # --- projections and aggregates ---------------------------------------------------------------------------------

    def calc(
        self, relation: Relation, items: Sequence[tuple[str, Expression]], condition: Expression | None = None
    ) -> Planned:
        """The rows of which the condition is true, with these columns, whose expressions name fields."""
        of = relation.of
        tested: Node | None = None if condition is None else resolve_expression(condition, self, of)
        if tested is not None and tested.type.root not in ("BOOLEAN", "NULL"):
            raise self.error(f"a condition of type {tested.type}: {tested.text}", "BOOLEAN")
        outputs: list[tuple[str, Node]] = [(name, resolve_expression(each, self, of)) for name, each in items]
        return Planned(project(relation, outputs, tested), tuple(name for name, _ in items))

    def aggregate_in(self, expression: Expression) -> Call | None:
        found = syntax.found_in(expression, self.is_aggregate)
        return found if isinstance(found, Call) else None

    def is_aggregate(self, expression: Expression) -> bool:
        if not isinstance(expression, Call) or expression.name not in AGGREGATES or expression.function is not None:
            return False
        return self.catalog.function(expression.name) is None

    def no_aggregate(self, expression: Expression, what: str) -> None:
        """Refuses an aggregate function in an expression."""
        found = self.aggregate_in(expression)
        if found is not None:
            raise self.error(
                what, "an expression of one row", "HAVING tests results of aggregate functions", at=found.at
            )

    # --- tables -----------------------------------------------------------------------------------------------------

    def declared(self, table: TableDescriptor, name: str) -> Relation:
        """The stored columns of a table, its computed columns, and its watermarks."""
        definition, bounded = table.definition, is_bounded(table)
        stored = tuple(Field(each.name, each.type) for each in definition.columns if each.type is not None)
        changes = Changes.RETRACT if gives_changes(table) else Changes.INSERT
        return self.completed(Scan(stored, changes, definition.primary_key, bounded, name, table), definition)

    def completed(self, relation: Relation, definition: TableDefinition) -> Relation:
        """The columns of a relation and the computed ones of a definition, and its watermarks."""
        if relation.names != [column.name for column in definition.columns]:
            items = [(each.name, each.expression or Column((each.name,))) for each in definition.columns]
            relation = self.calc(relation, items).relation
        return relation if definition.watermark is None else self._watermarks(relation, *definition.watermark)

    def _watermarks(self, relation: Relation, column: str, expression: Expression) -> Relation:
        of = relation.of
        if column not in of:
            raise self.no_column(Column((column,)), list(of))
        if of[column].type.root not in ("TIMESTAMP", "TIMESTAMP_LTZ") or of[column].type.sizes[0] > 3:
            raise self.error(
                f"Invalid data type of time field for watermark definition. The field '{column}' is {of[column].type}",
                "TIMESTAMP(p) or TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3",
                "declare ts AS TO_TIMESTAMP_LTZ(ms, 3), or CAST(... AS TIMESTAMP(3))",
            )
        own, computed = Column((column,)), None
        match expression:
            case Call("-", (operand, Literal(int(delay_ms), kind))) if operand == own and kind.root == "INTERVAL_DAY":
                pass
            case _:
                delay_ms, computed = 0, None if expression == own else resolve_expression(expression, self, of)
        fields = tuple(
            field._replace(time=TimeAttribute.ROWTIME) if field.name == column else field for field in relation.fields
        )
        if self.catalog.is_batch() and relation.bounded:
            # all windows are fired at the end, and no row is late
            return replace(relation, fields=fields)
        key, bounded = relation.unique_key, relation.bounded
        return Watermarks(fields, relation.changes, key, bounded, relation, column, delay_ms, computed)


class Names:
    """What the names of columns mean behind the FROM of a query: it makes expressions whose columns are named as the
    fields of the relation."""

    def __init__(self, planner: Planner, found: Planned) -> None:
        self._planner, self._found = planner, found
        self._fields: dict[str, list[str]] = {}
        # a query without FROM has a row, and no name for its column
        for name, field in zip(found.names, found.relation.fields, strict=False):
            self._fields.setdefault(name, []).append(field.name)

    def __call__(self, expression: Expression) -> Expression:
        """The expression with the names of fields."""
        return syntax.rebuilt(expression, self._renamed)

    def all(self, star: Star) -> list[tuple[str, Expression]]:
        """The columns that a ``*`` stands for."""
        if star.table in (None, self._found.qualifier):
            return [(name, self(Column((name,)))) for name in self._found.names]
        of = self._found.relation.of
        fields = [of[name] for name in self._fields.get(star.table or "", []) if of[name].type.root == "ROW"]
        if not fields:
            expected = f"{self._found.qualifier or ''}.*"
            raise self._planner.error(f"Unknown identifier '{star.table}'", expected)
        return [(name, Column((field.name, name))) for field in fields for name in field.type.names]

    def _renamed(self, expression: Expression) -> Expression | None:
        if isinstance(expression, syntax.Alias):
            return self(expression.operand)
        if not isinstance(expression, Column):
            return None
        path = expression.path
        if len(path) > 1 and path[0] == self._found.qualifier and path[1] in self._fields:
            path = path[1:]
        fields = self._fields.get(path[0], [])
        if not fields:
            raise self._planner.no_column(expression, self._found.names)
        if len(fields) > 1:
            raise self._planner.error(
                f"Column '{path[0]}' is ambiguous", "columns of different names", f"{path[0]} AS a", at=expression.at
            )
        return Column((fields[0], *path[1:]), expression.at)


def _all(found: Planned) -> list[tuple[str, Expression]]:
    return [(name, Column((field.name,))) for name, field in zip(found.names, found.relation.fields, strict=True)]
