"""Tables of the Table API: each call makes a query of `syntax`, and the planner resolves it at once, so that an error
belongs to the line of the program that made it.

Rule upheld here: unnamed columns get the names that Flink's Table API gives them, and a column's name comes only once.
Windows are ``Tumble.over(lit(10).minutes).on(col("ts")).alias("w")``, ``Slide`` and ``Session``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import check_at_least, check_instance
from flinkish.common.no_effect import supply_names
from flinkish.errors import ProgramError
from flinkish.table import explain, planner, syntax
from flinkish.table.expression import Expression
from flinkish.table.expressions import col
from flinkish.table.logical_types import INTERVAL_DAY
from flinkish.table.plan import Relation
from flinkish.table.projections import prune
from flinkish.table.refusals import refusal, refuse
from flinkish.table.table_result import ResolvedSchema, TableResult, TableSchema, to_pandas
from flinkish.table.udf import UserFunction

if TYPE_CHECKING:
    import pandas as pd

    from flinkish.table.schema import TableDescriptor
    from flinkish.table.table_environment import TableEnvironment

__all__ = ["GroupWindow", "GroupWindowedTable", "GroupedTable", "Session", "Slide", "Table", "TablePipeline", "Tumble"]
__all__ += ["WindowGroupedTable"]

_WHERE = "the Table API"
#: The functions whose unnamed results are called ``EXPR$0`` and so on.
_AGGREGATES = frozenset(
    "COUNT SUM $SUM0 MIN MAX AVG FIRST_VALUE LAST_VALUE STDDEV_POP STDDEV_SAMP VAR_POP VAR_SAMP LISTAGG COLLECT "
    "ARRAY_AGG START END ROWTIME PROCTIME".split()
)


class Table:
    """The rows of a query, or of a table of a connector (``pyflink.table.Table``).

    Example::

        orders = t_env.from_path("orders")
        orders.where(orders.amount > 10).group_by(col("user")).select(col("user"), col("amount").sum.alias("total"))
    """

    def __init__(self, relation: Relation, t_env: TableEnvironment) -> None:
        self._relation = relation
        self._t_env = t_env

    @property
    def _names(self) -> list[str]:
        return self._relation.names

    @property
    def _query(self) -> syntax.Resolved:
        return syntax.Resolved(self._relation)

    def _of(self, query: syntax.Query) -> Table:
        return Table(planner.resolve(query, self._t_env._catalog), self._t_env)

    def _selected(self, columns: Sequence[syntax.Expression], **parts: Any) -> Table:
        return self._of(syntax.Select(tuple(named(columns)), self._query, **parts))

    @property
    def _columns(self) -> dict[str, syntax.Expression]:
        return {name: syntax.Column((name,)) for name in self._names}

    def select(self, *fields: Expression) -> Table:
        """Columns that are computed of those of each row; aggregates give one row for the whole table."""
        return self._selected(_nodes(fields, "select()"))

    def alias(self, field: str, *fields: str) -> Table:
        """The table with these names for its first columns."""
        names = (field, *fields)
        if len(names) > len(self._names):
            what, expected = f"{len(names)} names for {len(self._names)} columns", ", ".join(self._names)
            raise ProgramError(what, where="Table.alias()", expected=f"names for the columns {expected}")
        renamed = map(syntax.Alias, self._columns.values(), names)
        return self._selected([*renamed, *list(self._columns.values())[len(names) :]])

    def where(self, predicate: Expression) -> Table:
        """The rows of which the condition is true."""
        check_instance(predicate, Expression, "the condition is", "Table.where()", "such as col('a') > 1")
        return self._selected([syntax.Star()], where=predicate._node)

    filter = where

    def group_by(self, *fields: Expression) -> GroupedTable:
        """The rows grouped by these columns."""
        return GroupedTable(*self._keys(fields))

    def _keys(self, fields: Sequence[Expression]) -> tuple[Table, tuple[syntax.Expression, ...]]:
        """The table with the keys that have names as columns, and the keys."""
        keys = _nodes(fields, "group_by()")
        added = [key for key in keys if isinstance(key, syntax.Alias)]
        table = self._selected([*self._columns.values(), *added]) if added else self
        return table, tuple(syntax.Column((key.name,)) if isinstance(key, syntax.Alias) else key for key in keys)

    def window(self, window: GroupWindow) -> GroupWindowedTable:
        """The rows in windows: ``table.window(Tumble.over(lit(1).minutes).on(col("ts")).alias("w"))``."""
        where, hint = "Table.window()", "such as Tumble.over(lit(10).minutes).on(col('ts')).alias('w')"
        check_instance(window, GroupWindow, "the window is", where, hint)
        if window.time is None or not window.name or window.kind == "HOP" and len(window.intervals) < 2:
            expected = "a time and a name (of a Slide also an interval)"
            raise ProgramError("the window is not complete", where=where, expected=expected, hint=hint)
        return GroupWindowedTable(self, window)

    def distinct(self) -> Table:
        return self._selected([syntax.Star()], distinct=True)

    def union_all(self, right: Table) -> Table:
        check_instance(right, Table, "the other table is", "Table.union_all()", "such as t_env.from_path('t')")
        if right._t_env is not self._t_env:
            raise ProgramError("the tables are of two table environments", where="Table.union_all()", expected="of one")
        return self._of(syntax.UnionAll((self._query, right._query)))

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """The first rows of a bounded table."""
        check_at_least(fetch, 0, "the number of rows", "Table.limit()", "such as limit(10)")
        if offset:
            raise refusal("OFFSET", "Table.limit()")
        return self._selected([syntax.Star()], limit=fetch)

    fetch = limit

    def add_columns(self, *fields: Expression) -> Table:
        """The table with these columns behind its own."""
        return self._selected([*self._columns.values(), *_nodes(fields, "add_columns()")])

    def add_or_replace_columns(self, *fields: Expression) -> Table:
        """The table with these columns, which replace those of the same names."""
        columns = self._columns
        for node in named(_nodes(fields, "add_or_replace_columns()"), len(columns)):
            columns[_name_of(node)] = node
        return self._selected(list(columns.values()))

    def rename_columns(self, *fields: Expression) -> Table:
        """The table with other names for some columns: ``rename_columns(col("a").alias("b"))``."""
        columns = self._columns
        for node in _nodes(fields, "rename_columns()"):
            if not (isinstance(node, syntax.Alias) and isinstance(node.operand, syntax.Column)):
                where, expected = "Table.rename_columns()", "col('a').alias('b')"
                raise ProgramError(f"the column {Expression(node)}", where=where, expected=expected)
            columns[self._own(node.operand, "rename_columns()")] = node
        return self._selected(list(columns.values()))

    def drop_columns(self, *fields: Expression) -> Table:
        """The table without these columns."""
        dropped = {self._own(node, "drop_columns()") for node in _nodes(fields, "drop_columns()")}
        return self._selected([column for name, column in self._columns.items() if name not in dropped])

    def _own(self, node: syntax.Expression, where: str) -> str:
        name = _name_of(node) if isinstance(node, syntax.Column) else str(Expression(node))
        if name not in self._names:
            raise ProgramError(f"there is no column '{name}'", where=f"Table.{where}", expected=", ".join(self._names))
        return name

    def map(self, func: Expression | UserFunction) -> Table:
        """The results of a UDF: a ROW becomes the columns of the table. A UDF without arguments gets whole rows."""
        if isinstance(func, UserFunction):
            func = Expression(syntax.Call(func.name, tuple(self._columns.values()), func.of_rows(self._names)))
        node = _node(func, "map()")
        if not (isinstance(node, syntax.Call) and node.function is not None):
            raise ProgramError(f"map of {func}", where="Table.map()", expected="a UDF, as map(f) or map(f(col('a')))")
        result, found = node.function.result_type, self._selected([syntax.Alias(node, "f0")])
        if result.root != "ROW":
            return found
        return found._selected([syntax.Alias(syntax.Column(("f0", name)), name) for name in result.names])

    def execute(self) -> TableResult:
        """Start a job whose rows the result gives."""
        return self._t_env._execute_query(self._relation)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a DataFrame; what was updated or deleted is not among them."""
        with self.execute().collect() as rows:
            return to_pandas(self._relation.fields, rows, self._t_env._catalog.zone())

    def execute_insert(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TableResult:
        """Start a job that writes the rows into a table, whose columns they have in their order."""
        return self.insert_into(table_path_or_descriptor, overwrite).execute()

    def insert_into(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TablePipeline:
        """What writes the rows into a table, for `TablePipeline.execute` or `StatementSet.add`."""
        return TablePipeline(self, self._t_env._target(table_path_or_descriptor, overwrite, self._relation))

    def get_resolved_schema(self) -> ResolvedSchema:
        return ResolvedSchema(self._relation.fields)

    def get_schema(self) -> TableSchema:
        """The columns and their types, in the older form."""
        return TableSchema(_fields=self._relation.fields)

    def print_schema(self) -> None:
        print(self.get_resolved_schema())

    def explain(self, *extra_details: Any) -> str:
        return explain.explain(prune([self._relation]))

    def print_explain(self, *extra_details: Any) -> None:
        print(self.explain())

    def __getattr__(self, name: str) -> Any:
        # what Python itself asks for, as in pickling, comes before there are any columns
        names = [] if name.startswith("__") else self._names
        if name not in names:
            listed = ", ".join(names)
            raise AttributeError(f"The current table has no column named '{name}', available columns: [{listed}]")
        return col(name)

    def __str__(self) -> str:
        """The name of a view of the table, which is registered now: ``sql_query(f"SELECT * FROM {table}")``."""
        return self._t_env._catalog.name_for(self._relation)

    def __repr__(self) -> str:
        return f"<Table of {', '.join(self._names)}>"


@dataclass(frozen=True)
class GroupWindow:
    """A window, which needs a time and a name. ``intervals`` are in milliseconds: (size), (slide, size) or (gap)."""

    kind: str
    intervals: tuple[int, ...]
    time: syntax.Column | None = None
    name: str = ""

    def every(self, slide: Expression) -> GroupWindow:
        """The distance between the beginnings of two windows of a `Slide`."""
        return replace(self, intervals=(_millis(slide, "Slide.every()"), *self.intervals[-1:]))

    def on(self, time_field: Expression) -> GroupWindow:
        """The column of the times: of event time, or of processing time."""
        where, hint = "GroupWindow.on()", "such as col('ts')"
        check_instance(time_field, Expression, "the time is", where, hint)
        if not isinstance(time_field._node, syntax.Column):
            raise ProgramError(f"the windows are on {time_field}", where=where, expected="a column", hint=hint)
        return replace(self, time=time_field._node)

    def alias(self, alias: str) -> GroupWindow:
        """The name of the window, which `group_by` takes as a column, with `start` and `end` of it in `select`."""
        check_instance(alias, str, "the name of the window is", "GroupWindow.alias()", "such as alias('w')")
        return replace(self, name=alias)


class Tumble:
    """Windows of one size, one behind the other."""

    @staticmethod
    def over(size: Expression) -> GroupWindow:
        return GroupWindow("TUMBLE", (_millis(size, "Tumble.over()"),))


class Slide:
    """Windows of one size, which begin ``every`` interval."""

    @staticmethod
    def over(size: Expression) -> GroupWindow:
        return GroupWindow("HOP", (_millis(size, "Slide.over()"),))


class Session:
    """Windows that end when there is no row for a gap."""

    @staticmethod
    def with_gap(gap: Expression) -> GroupWindow:
        return GroupWindow("SESSION", (_millis(gap, "Session.with_gap()"),))


def _millis(interval: Any, where: str) -> int:
    expected = "an interval of weeks to milliseconds, such as lit(10).minutes"
    check_instance(interval, Expression, "the interval is", where, "such as lit(10).minutes")
    node = interval._node
    if isinstance(node, syntax.Literal) and node.type == INTERVAL_DAY and node.value > 0:
        return int(node.value)
    raise ProgramError(f"the interval is {interval}", where=where, expected=expected)


@dataclass(frozen=True, eq=False)
class GroupedTable:
    """A table whose rows are grouped: `select` gives a row for each group."""

    _table: Table
    _keys: tuple[syntax.Expression, ...]

    def select(self, *fields: Expression) -> Table:
        """The keys, and aggregates of the other columns."""
        return self._table._selected(_nodes(fields, "select()"), group_by=self._keys)


@dataclass(frozen=True, eq=False)
class GroupWindowedTable:
    """A table in windows, which wants `group_by` with the name of the window."""

    _table: Table
    _window: GroupWindow

    def group_by(self, *fields: Expression) -> WindowGroupedTable:
        """The rows grouped by the window and by columns."""
        table, keys = self._table._keys(fields)
        window = syntax.Column((self._window.name,))
        if keys.count(window) != 1:
            what, expected = "GroupBy must contain exactly one window alias", f"col('{self._window.name}'), and columns"
            raise ProgramError(what, where="GroupWindowedTable.group_by()", expected=expected)
        return WindowGroupedTable(table, self._window, tuple(key for key in keys if key != window))


@dataclass(frozen=True, eq=False)
class WindowGroupedTable:
    """A table grouped by windows: `select` gives a row for each window and group."""

    _table: Table
    _window: GroupWindow
    _keys: tuple[syntax.Expression, ...]

    def select(self, *fields: Expression) -> Table:
        """The keys, aggregates of the other columns, and ``col("w").start`` and ``col("w").end`` of the window."""
        window, name = self._window, syntax.Column((self._window.name,))
        assert window.time is not None
        intervals: list[syntax.Expression] = [syntax.Literal(each, INTERVAL_DAY) for each in window.intervals]
        called = syntax.Call(window.kind, (window.time, *intervals))

        def of_window(part: syntax.Expression) -> syntax.Expression | None:
            if isinstance(part, syntax.Call) and part.args == (name,):
                return syntax.Call(f"{window.kind}_{part.name}", called.args)
            return None

        columns = [syntax.rebuilt(each, of_window) for each in named(_nodes(fields, "select()"))]
        return self._table._selected(columns, group_by=(called, *self._keys))


@dataclass(frozen=True, eq=False)
class TablePipeline:
    """A query and the table that it is written into."""

    _table: Table
    _target: str

    def execute(self) -> TableResult:
        """Start a job that writes the rows into the table."""
        return self._table._t_env.create_statement_set().add(self).execute()

    def explain(self, *extra_details: Any) -> str:
        return self._table._t_env.create_statement_set().add(self).explain()

    print_explain = Table.print_explain

    def get_sink_identifier(self) -> str:
        return f"{explain.CATALOG}{self._target}"


def _nodes(fields: Sequence[Expression], where: str) -> list[syntax.Expression]:
    return [_node(field, where) for field in fields]


def _node(field: Any, where: str) -> syntax.Expression:
    check_instance(field, Expression, "the column is", f"Table.{where}", "such as col('a'), or lit(1)")
    node: syntax.Expression = field._node
    return node


def _name_of(node: syntax.Expression) -> str:
    """The name of a column that has one; else ""."""
    match node:
        case syntax.Column((name,)) | syntax.Alias(name=name):
            return name
    return ""


def named(columns: Sequence[syntax.Expression], first: int = 0) -> list[syntax.Expression]:
    """The columns of a select, of which those without a name have the one that Flink's Table API gives them: ``_c1`` by
    their position, which counts from ``first``, or ``EXPR$0`` and so on for the aggregates.

    Raises:
        ProgramError: two columns have one name.
    """
    found: list[syntax.Expression] = []
    calls: list[syntax.Expression] = []
    for position, node in enumerate(columns, first):
        calls += [call for call in _aggregates(node) if call not in calls]
        is_named = isinstance(node, syntax.Star | syntax.Alias) or bool(_name_of(node))
        found.append(node if is_named else syntax.Alias(node, _unnamed(node, position, calls)))
    names = list(filter(None, map(_name_of, found)))
    for name in names:
        if names.count(name) > 1:
            raise ProgramError(f"Ambiguous column name: {name}", where=_WHERE, expected="names that differ")
    return found


def _unnamed(node: syntax.Expression, position: int, calls: list[syntax.Expression]) -> str:
    match node:
        case syntax.Column(path):
            return "$".join(path)
        case syntax.Call("FIELD", (syntax.Column(path), syntax.Literal(index))):
            return "$".join((*path, f"_{index}"))
        case syntax.Cast(syntax.Column((name,)), kind):
            return f"{name}-{kind}"
        case syntax.Call() if node in calls:
            return f"EXPR${calls.index(node)}"
    return f"_c{position}"


def _aggregates(node: syntax.Expression) -> list[syntax.Call]:
    if isinstance(node, syntax.Call):
        if node.name in _AGGREGATES and node.function is None:
            return [node]
        return [call for arg in node.args for call in _aggregates(arg)]
    return _aggregates(node.operand) if isinstance(node, syntax.Cast | syntax.Alias) else []


refuse(
    Table,
    {
        "JOIN": "join left_outer_join right_outer_join full_outer_join",
        "INTERSECT": "intersect intersect_all",
        "MINUS": "minus minus_all",
        "UNION": "union",
        "LATERAL": "flat_map join_lateral left_outer_join_lateral",
        "ORDER": "order_by",
        "OVER": "over_window",
        "OFFSET": "offset",
        "changelogs": "to_changelog from_changelog",
    },
)
for _class in (Table, GroupedTable, WindowGroupedTable):
    refuse(_class, {"udaf": "aggregate flat_aggregate"})

supply_names(__name__)
