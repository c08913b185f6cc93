"""GROUP BY: what is computed before the groups are made, the aggregate, and what its results are called behind it.

Rule upheld here: an aggregate knows columns only. A projection before it computes keys, arguments and filters; behind
it, the expressions of the query name its results. The name of a call is its text, such as ``SUM(amount)``: so equal
calls are one, and a state is found again by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flinkish.runtime.columns.described import AggregateCall
from flinkish.table import syntax, windows
from flinkish.table.logical_types import BIGINT, LogicalType
from flinkish.table.plan import Aggregate, Changes, Field, Relation
from flinkish.table.projections import column_of, fresh, project
from flinkish.table.resolved import AGGREGATES, Node, aggregate_type, resolve_expression
from flinkish.table.syntax import Call, Column, Expression, Literal

if TYPE_CHECKING:
    from flinkish.table.planner import Planned, Planner

#: Other names of aggregate functions.
_ALIASES = {"STDDEV": "STDDEV_SAMP", "VARIANCE": "VAR_SAMP"}


def grouped(
    planner: Planner,
    relation: Relation,
    keys: Sequence[Expression],
    items: Sequence[tuple[str, Expression]],
    having: Expression | None = None,
) -> Planned:
    """The groups of a relation, and of each the columns of the query. All expressions name fields.

    Raises:
        ProgramError: a column is not grouped, or a function does not take its argument.
    """
    groups = _Groups(planner, windows.of_group(planner, relation, keys))
    behind = [(name, groups.result(expression)) for name, expression in items]
    tested = None if having is None else groups.result(having)
    return planner.calc(groups.relation(), behind, tested)


class _Groups:
    """Collects what an aggregate computes, as the expressions behind it need it."""

    def __init__(self, planner: Planner, window: windows.GroupWindow) -> None:
        self._planner, self._window = planner, window
        self._fields = window.relation.of
        self._taken = set(windows.BOUNDS) if window.window is not None else set[str]()
        self._columns: dict[Expression, tuple[str, Node]] = {}
        self._calls: dict[str, tuple[AggregateCall, LogicalType]] = {}
        for key in window.keys:
            planner.no_aggregate(key, "Aggregate expression is illegal in GROUP BY clause")
            self._no_nested(self._column(key)[1], "a key", key)
        self._keys = {key: self._column(key)[0] for key in window.keys}
        self._time = None if window.time is None else self._column(window.time, windows.TIME)[0]
        self._taken.update(self._keys.values())
        self._heads = {_head(key) for key in (*self._keys, *window.bounds)}

    def result(self, expression: Expression) -> Expression:
        """The expression behind the aggregate, whose columns are keys and results."""
        return syntax.rebuilt(expression, self._replaced)

    def relation(self) -> Relation:
        source, window = self._window.relation, self._window.window
        if self._columns:
            source = project(source, list(self._columns.values()))
        of = source.of
        keys = tuple(dict.fromkeys(self._keys.values()))
        fields = [of[key]._replace(time=None) for key in keys]
        fields += [Field(call.name, kind) for call, kind in self._calls.values()]
        calls = tuple(call for call, _ in self._calls.values())
        once = Changes.INSERT if self._planner.catalog.is_batch() and source.bounded else Changes.RETRACT
        if window is None:
            return Aggregate(tuple(fields), once, keys, source.bounded, source, keys, calls, None)
        window = replace(window, time=self._time)
        fields += [Field(name, BIGINT) for name in windows.BOUNDS]
        key = (*keys, windows.START, windows.END)
        found = Aggregate(tuple(fields), Changes.INSERT, key, source.bounded, source, keys, calls, window)
        return windows.with_times(found, self._window.time_type, window.zone or "UTC", window.time)

    def _no_nested(self, value: Node, what: str, expression: Expression) -> None:
        """Check that values can be told apart: arrays, maps and rows are not."""
        if value.type.arrow.num_fields:
            raise self._planner.error(
                f"{what} of type {value.type}: {value.text}",
                "numbers, texts, times, booleans and bytes",
                "take a field of the row or an element, or to_data_stream(table).key_by(...)",
                at=getattr(expression, "at", None),
            )

    def _column(self, expression: Expression, name: str = "") -> tuple[str, Node]:
        """The column before the aggregate that is this expression. It has this name, or the expression's text."""
        found = self._columns.get(expression)
        if found is None:
            computed: Node = resolve_expression(expression, self._planner, self._fields)
            name = fresh(column_of(computed) or name or computed.text, self._taken)
            found = self._columns[expression] = name, computed
        return found

    def _replaced(self, expression: Expression) -> Expression | None:
        if _head(expression) in self._heads:
            if expression in self._keys:
                return Column((self._keys[expression],))
            if expression in self._window.bounds:
                return self._bound(expression, self._window.bounds[expression])
        if self._planner.is_aggregate(expression):
            assert isinstance(expression, Call)
            return Column((self._call(expression),))
        if isinstance(expression, Call) and (kind := windows.group_window(self._planner, expression, bounds=True)):
            raise self._planner.error(
                f"Call to auxiliary group function '{expression.name}' must have matching call to group function "
                f"'{kind}' in GROUP BY clause",
                f"the same arguments as those of {kind} in GROUP BY",
                at=expression.at,
            )
        if isinstance(expression, Column):
            outer = self._keys.get(Column(expression.path[:1]))
            if outer is not None:
                return Column((outer, *expression.path[1:]))
            raise self._planner.error(
                f"Expression '{'.'.join(expression.path)}' is not being grouped",
                "columns of GROUP BY, and calls of aggregate functions",
                f"add it to GROUP BY, or take MAX({'.'.join(expression.path)})",
                at=expression.at,
            )
        return None

    def _bound(self, expression: Expression, bound: str) -> Expression:
        assert self._window.window is not None
        if bound == windows.TIME and self._time is None and isinstance(expression, Call):
            raise self._planner.error(
                f"{expression.name} of a window of processing time", "a window of event time", at=expression.at
            )
        return Call("PROCTIME") if bound == "PROCTIME" else Column((bound,))

    def _call(self, call: Call) -> str:
        """The column of the result of a call of an aggregate function."""
        function = _ALIASES.get(call.name, call.name)
        args = [arg for arg in call.args if not isinstance(arg, syntax.Star)]
        for arg in args if call.condition is None else (*args, call.condition):
            self._planner.no_aggregate(arg, "Aggregate expressions cannot be nested")
        separator = ","
        match function, args:
            case "LISTAGG", [_, Literal(str(separator))]:
                args.pop()
            case "COUNT", [Literal(value)] if value is not None and not call.distinct:
                args = []
        if len(args) != 1 and (function != "COUNT" or args or call.distinct):
            raise self._planner.error(f"{function} of {len(args)} arguments", f"{function}(x)", at=call.at)
        column, kind, text = None, None, "*"
        if args:
            column, computed = self._column(args[0])
            kind, text = computed.type, computed.text
            if call.distinct:
                self._no_nested(computed, f"{function}(DISTINCT)", call)
        result = aggregate_type(function, kind)
        if result is None:
            raise self._planner.error(
                f"Cannot apply '{function}' to arguments of type '{function}(<{kind}>)'",
                f"{function}(<{AGGREGATES[function]}>)",
                f"{function}(CAST({text} AS {'STRING' if function == 'LISTAGG' else 'DOUBLE'}))",
                at=call.at,
            )
        name = f"{function}({'DISTINCT ' * call.distinct}{text}{f', {separator!r}' if separator != ',' else ''})"
        condition = None
        if call.condition is not None:
            condition, tested = self._column(call.condition)
            if tested.type.root != "BOOLEAN":
                raise self._planner.error(f"a FILTER of type {tested.type}: {tested.text}", "BOOLEAN", at=call.at)
            name += f" FILTER (WHERE {tested.text})"
        if name not in self._calls and name in self._taken:
            name = fresh(name, self._taken)
        self._taken.add(name)
        made = AggregateCall(function, name, column, result.arrow, call.distinct, condition, separator)
        self._calls.setdefault(name, (made, result))
        return name


def _head(expression: Expression) -> tuple[type, str]:
    """What equal expressions have in common, and is found without going through them."""
    return type(expression), expression.name if isinstance(expression, Call) else ""
