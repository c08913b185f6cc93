"""Random queries of SQL over a table of random rows, and their texts.

A query is syntax (`flinkish.table.syntax`), which `tests.support.plan_interpreter` gives its meaning; `text_of` writes
it as
SQL, so that tokens, parser, planner and operators are tested. Only what has one answer is written: sums of DOUBLE,
FIRST_VALUE, LAST_VALUE and LISTAGG stand over rows that arrive in one order, never over changes.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from flinkish.table.logical_types import LogicalType
from flinkish.table.syntax import (
    Alias,
    Call,
    Cast,
    Column,
    Expression,
    Literal,
    Named,
    Query,
    Select,
    TableName,
    UnionAll,
    Windowed,
)

STRING, BIGINT, DOUBLE, BOOLEAN = (
    LogicalType("VARCHAR", (2147483647,)),
    LogicalType("BIGINT"),
    LogicalType("DOUBLE"),
    LogicalType("BOOLEAN"),
)
DATE, DECIMAL = LogicalType("DATE"), LogicalType("DECIMAL", (10, 2))
#: the types of SUM and AVG of `DECIMAL`
DECIMAL_SUM, DECIMAL_AVG = LogicalType("DECIMAL", (38, 2)), LogicalType("DECIMAL", (38, 6))
#: the columns of the table ``t``; ``ts`` is its event time
COLUMNS = {"k": STRING, "s": STRING, "n": BIGINT, "m": BIGINT, "x": DOUBLE, "b": BOOLEAN, "e": DATE, "d": DECIMAL}
DELAY_MS = 5_000


def random_rows(dice: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows of ``t``, whose times rise but for some that are early or late."""
    rows, now = [], 1_704_067_200_000
    for _ in range(count):
        now += dice.choice((0, 1, 500, 1_000, 3_000, 20_000))
        row: dict[str, Any] = {
            "k": dice.choice(("a", "b", "c", "", "ä", "key 6", None)),
            "s": dice.choice(("x", "Yy", "", "ßz", "long text of more than twelve bytes", None)),
            "n": dice.choice((0, 1, -1, 2, 7, 10, 2**62, -(2**63), None))
            if dice.random() < 0.7
            else dice.randrange(100),
            "m": dice.choice((1, 2, 3, -5, None)),
            "x": dice.choice((0.0, 0.1, 0.2, -1.5, 1e16, 3.3, None)),
            "b": dice.choice((True, False, None)),
            "e": dice.choice((datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None)),
            "d": dice.choice((Decimal("0.00"), Decimal("-0.05"), Decimal("99999999.99"), Decimal("1.10"), None)),
            "ts": now - dice.choice((0, 0, 0, 2_000, 4_999, 5_000, 9_000, 40_000)),
        }
        rows.append(row)
    return rows


def column(name: str) -> Column:
    return Column((name,))


def call(name: str, *args: Expression, **more: Any) -> Call:
    return Call(name, args, **more)


def number(value: int) -> Expression:
    return Cast(Literal(value, LogicalType("INT")), BIGINT)


@dataclass(frozen=True)
class Relation:
    """A query with its columns. ``stable``: its rows come in one order, and none is taken back; ``time``: its column of
    event time."""

    query: Query
    columns: dict[str, LogicalType]
    stable: bool = True
    time: str | None = None


class Writer:
    """Writes random queries."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        #: how many aggregates and windows there are: they name their columns by it
        self._number = 0

    def query(self) -> Relation:
        """A query of some levels."""
        return self._relation(self._dice.choice((1, 2, 2, 3)))

    def _relation(self, depth: int) -> Relation:
        table = Relation(TableName("t"), COLUMNS, True, "ts")
        inner = self._relation(depth - 1) if depth > 1 else table
        kinds: list[Callable[[Relation], Relation]] = [self._projection, self._groups, self._groups, self._distinct]
        if inner.time is not None:
            kinds += [self._windows] * 3
        if depth > 1:
            kinds.append(self._union)
        return self._dice.choice(kinds)(inner)

    def _named(self, inner: Relation) -> Query:
        return inner.query if isinstance(inner.query, TableName) else Named(inner.query, "q")

    def _projection(self, inner: Relation) -> Relation:
        types = self._dice.choices((STRING, BIGINT, DOUBLE, BOOLEAN, DATE, DECIMAL), k=self._dice.randint(1, 3))
        made = {f"c{at}": (self._expression(kind, inner.columns), kind) for at, kind in enumerate(types)}
        keeps = inner.time if inner.time is not None and self._dice.random() < 0.8 else None
        columns: list[Expression] = [Alias(expression, name) for name, (expression, _) in made.items()]
        if keeps:
            columns.append(column(keeps))
        select = Select(tuple(columns), self._named(inner), where=self._condition(inner.columns))
        return Relation(select, {name: kind for name, (_, kind) in made.items()}, inner.stable, keeps)

    def _condition(self, columns: dict[str, LogicalType]) -> Expression | None:
        return self._expression(BOOLEAN, columns) if self._dice.random() < 0.5 else None

    def _distinct(self, inner: Relation) -> Relation:
        types = self._dice.choices((STRING, BIGINT, BOOLEAN, DATE, DECIMAL), k=self._dice.randint(1, 2))
        columns = tuple(Alias(self._expression(kind, inner.columns), f"c{at}") for at, kind in enumerate(types))
        select = Select(columns, self._named(inner), where=self._condition(inner.columns), distinct=True)
        return Relation(select, {f"c{at}": kind for at, kind in enumerate(types)}, False)

    def _union(self, inner: Relation) -> Relation:
        names = list(inner.columns)
        one = Select(tuple(column(name) for name in names), self._named(inner))
        made = tuple(Alias(self._expression(inner.columns[name], COLUMNS), name) for name in names)
        other = Select(made, TableName("t"), where=self._condition(COLUMNS))
        return Relation(UnionAll((one, other)), inner.columns, False)

    def _groups(self, inner: Relation) -> Relation:
        return self._aggregated(inner, self._named(inner), (), {}, inner.stable)

    def _windows(self, inner: Relation) -> Relation:
        assert inner.time is not None
        kind = self._dice.choice(("TUMBLE", "HOP", "CUMULATE", "SESSION"))
        unit = self._dice.choice((1_000, 2_000, 10_000))
        intervals = {
            "TUMBLE": (unit,),
            "HOP": (unit, unit * self._dice.choice((1, 2, 3))),
            "CUMULATE": (unit, unit * self._dice.choice((1, 2, 3))),
            "SESSION": (unit,),
        }[kind]
        keys: tuple[Column, ...] = ()
        if kind == "SESSION":
            names = [name for name, of in inner.columns.items() if of in (STRING, BIGINT, BOOLEAN, DATE, DECIMAL)]
            keys = tuple(column(name) for name in self._dice.sample(names, min(len(names), self._dice.randint(0, 2))))
        offset = self._dice.choice((0, 0, 500, -500)) if kind != "SESSION" else 0
        windowed = Windowed(kind, inner.query, column(inner.time), intervals, offset, keys)
        self._number += 1
        times = {name: f"{name[7:]}_{self._number}" for name in ("window_start", "window_end", "window_time")}
        made = self._aggregated(inner, windowed, keys, times, inner.stable, kind)
        return Relation(made.query, made.columns, False, times["window_time"])

    def _aggregated(
        self,
        inner: Relation,
        source: Query,
        also: tuple[Column, ...],
        times: dict[str, str],
        stable: bool,
        window: str = "",
    ) -> Relation:
        """GROUP BY of some expressions, of the columns ``also``, and of those of ``times``, which get other names."""
        count = 0 if window == "SESSION" else self._dice.choice((0, 1, 1, 2))
        types = self._dice.choices((STRING, STRING, BIGINT, BOOLEAN, DOUBLE, DATE, DECIMAL), k=count)
        keys = [(self._key(kind, inner.columns), kind) for kind in types]
        calls = [self._aggregate(inner.columns, stable) for _ in range(self._dice.randint(1, 4))]
        self._number += 1
        columns: list[Expression] = [Alias(column(name), other) for name, other in times.items()]
        columns += also
        named = {one.path[0]: inner.columns[one.path[0]] for one in also}
        for at, (key, kind) in enumerate(keys):
            columns.append(Alias(key, f"g{self._number}_{at}"))
            named[f"g{self._number}_{at}"] = kind
        for at, (aggregate, kind) in enumerate(calls):
            columns.append(Alias(aggregate, f"a{self._number}_{at}"))
            named[f"a{self._number}_{at}"] = kind
        having = None
        if self._dice.random() < 0.3:
            having = call(self._dice.choice(("<", ">=", "<>")), call("COUNT"), number(self._dice.randint(1, 4)))
        group_by = (*map(column, times), *also, *(key for key, _ in keys))
        where = self._condition(inner.columns)
        select = Select(tuple(columns), source, where, group_by or None, having if group_by else None)
        return Relation(select, named, False)

    def _key(self, kind: LogicalType, columns: dict[str, LogicalType]) -> Expression:
        """A key, which is a column most of the time: expressions of literals alone are no keys in SQL."""
        names = [name for name, of in columns.items() if of == kind]
        if names and self._dice.random() < 0.7:
            return column(self._dice.choice(names))
        name = self._dice.choice(list(columns))
        if kind == BOOLEAN:
            return call("IS NULL", column(name))
        if kind in (DOUBLE, DATE, DECIMAL):
            return call("CASE", call("IS NULL", column(name)), self._literal(kind), self._literal(kind))
        if kind == BIGINT:
            return call("CASE", call("IS NULL", column(name)), number(self._dice.randint(0, 3)), number(5))
        return (
            call("COALESCE", Cast(column(name), STRING), Literal("none", STRING))
            if columns[name] != DOUBLE
            else (
                call(
                    "CASE",
                    call(">", column(name), Cast(number(1), DOUBLE)),
                    Literal("big", STRING),
                    Literal("no", STRING),
                )
            )
        )

    def _aggregate(self, columns: dict[str, LogicalType], stable: bool) -> tuple[Expression, LogicalType]:
        more: dict[str, Any] = {}
        if self._dice.random() < 0.25:
            more["condition"] = self._expression(BOOLEAN, columns)
        name = self._dice.choice(
            ("COUNT", "COUNT", "SUM", "SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LISTAGG")
        )
        if name == "COUNT":
            if self._dice.random() < 0.4:
                return call("COUNT", **more), BIGINT
            kind = self._dice.choice((STRING, BIGINT, BOOLEAN, DATE, DECIMAL))
            return call("COUNT", self._expression(kind, columns), distinct=self._dice.random() < 0.5, **more), BIGINT
        if name in ("FIRST_VALUE", "LAST_VALUE", "LISTAGG") and not stable:
            name = "MAX"
        if name == "LISTAGG":
            return call("LISTAGG", self._expression(STRING, columns), **more), STRING
        if name in ("SUM", "AVG"):
            kind = self._dice.choice((BIGINT, DECIMAL, DOUBLE) if stable else (BIGINT, DECIMAL))
            distinct = kind != DOUBLE and self._dice.random() < 0.2
            result = kind if kind != DECIMAL else DECIMAL_SUM if name == "SUM" else DECIMAL_AVG
            return call(name, self._expression(kind, columns), distinct=distinct, **more), result
        kind = self._dice.choice((STRING, BIGINT, DOUBLE, DATE, DECIMAL))
        return call(name, self._expression(kind, columns), **more), kind

    # --- expressions ------------------------------------------------------------------------------------------------

    def _expression(self, kind: LogicalType, columns: dict[str, LogicalType], depth: int = 2) -> Expression:
        names = [name for name, of in columns.items() if of == kind]
        if depth == 0 or self._dice.random() < 0.3:
            return column(self._dice.choice(names)) if names and self._dice.random() < 0.8 else self._literal(kind)

        def of(other: LogicalType) -> Expression:
            return self._expression(other, columns, depth - 1)

        shared: list[Callable[[], Expression]] = [
            lambda: call("CASE", of(BOOLEAN), of(kind), of(kind)),
            lambda: call("COALESCE", of(kind), of(kind)),
            lambda: call("IF", of(BOOLEAN), of(kind), of(kind)),
            lambda: call("NULLIF", of(kind), of(kind)),
        ]
        own: dict[LogicalType, list[Callable[[], Expression]]] = {
            BIGINT: [
                lambda: call(self._dice.choice("+-*"), of(BIGINT), of(BIGINT)),
                lambda: call(self._dice.choice("/%"), of(BIGINT), number(self._dice.choice((2, 3, 7)))),
                lambda: call("ABS", of(BIGINT)),
                lambda: Cast(call("CHAR_LENGTH", of(STRING)), BIGINT),
                lambda: call("NEG", of(BIGINT)),
            ],
            DOUBLE: [
                lambda: call(self._dice.choice("+-*"), of(DOUBLE), of(DOUBLE)),
                lambda: Cast(of(BIGINT), DOUBLE),
                lambda: call("NEG", of(DOUBLE)),
            ],
            STRING: [
                lambda: call("||", of(STRING), of(STRING)),
                lambda: call(self._dice.choice(("UPPER", "LOWER")), of(STRING)),
                lambda: call("SUBSTRING", of(STRING), *(Literal(at, LogicalType("INT")) for at in (1, 2))),
                lambda: Cast(of(BIGINT), STRING),
                lambda: Cast(of(BOOLEAN), STRING),
            ],
            BOOLEAN: [
                lambda: call(self._dice.choice(("AND", "OR")), of(BOOLEAN), of(BOOLEAN)),
                lambda: call("NOT", of(BOOLEAN)),
                lambda: self._comparison(of),
                lambda: self._comparison(of),
                lambda: call(self._dice.choice(("IS NULL", "IS NOT NULL")), of(self._any())),
                lambda: call(self._dice.choice(("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE")), of(BOOLEAN)),
                lambda: call("BETWEEN", of(BIGINT), of(BIGINT), of(BIGINT)),
                lambda: call("IN", of(BIGINT), *(number(self._dice.randint(0, 9)) for _ in range(3))),
                lambda: call("LIKE", of(STRING), Literal(self._dice.choice(("a%", "x%", "%")), STRING)),
            ],
        }
        return self._dice.choice(shared + own.get(kind, []) * 2)()

    def _any(self) -> LogicalType:
        return self._dice.choice((STRING, BIGINT, DOUBLE, DATE, DECIMAL))

    def _comparison(self, of: Callable[[LogicalType], Expression]) -> Expression:
        kind = self._any()
        names = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
        return call(self._dice.choice(names), of(kind), of(kind))

    def _literal(self, kind: LogicalType) -> Expression:
        if self._dice.random() < 0.1:
            return Cast(Literal(None, LogicalType("NULL")), kind)
        if kind == BIGINT:
            return number(self._dice.randint(0, 9))
        if kind == DOUBLE:
            return Literal(self._dice.choice((0.5, 2.0, 0.1)), DOUBLE)
        if kind == BOOLEAN:
            return Literal(self._dice.random() < 0.5, BOOLEAN)
        if kind.root == "DECIMAL":
            return Cast(number(self._dice.randint(-3, 3)), kind)
        text = "2024-02-29" if kind == DATE else self._dice.choice(("a", "it's", "xyz"))
        return Cast(Literal(text, LogicalType("CHAR", (len(text),))), kind)


# --- texts ----------------------------------------------------------------------------------------------------------


def text_of(query: Query) -> str:
    """The query as SQL."""
    match query:
        case TableName():
            return f"SELECT * FROM {query.name}"
        case UnionAll():
            return " UNION ALL ".join(map(text_of, query.queries))
        case Select():
            assert query.source is not None
            parts = ["SELECT DISTINCT" if query.distinct else "SELECT", ", ".join(map(written, query.columns))]
            parts += ["FROM", _from(query.source)]
            if query.where is not None:
                parts += ["WHERE", written(query.where)]
            if query.group_by:
                parts += ["GROUP BY", ", ".join(map(written, query.group_by))]
            if query.having is not None:
                parts += ["HAVING", written(query.having)]
            return " ".join(parts)
    raise TypeError(f"no text for {type(query).__name__}")


def _from(query: Query) -> str:
    match query:
        case TableName():
            return query.name
        case Named():
            return f"({text_of(query.query)}) AS {query.name}"
        case Windowed():
            inner = f"TABLE {query.query.name}" if isinstance(query.query, TableName) else f"({text_of(query.query)})"
            if query.partition:
                inner += f" PARTITION BY ({', '.join(map(written, query.partition))})"
            parts = [inner, f"DESCRIPTOR({written(query.time)})", *map(_interval, query.intervals)]
            if query.offset_ms:
                parts.append(_interval(query.offset_ms))
            return f"TABLE({query.kind}({', '.join(parts)}))"
    raise TypeError(f"no text for {type(query).__name__}")


def _interval(milliseconds: int) -> str:
    sign = "-" if milliseconds < 0 else ""
    seconds, rest = divmod(abs(milliseconds), 1000)
    return f"INTERVAL {sign}'{seconds}.{rest:03}' SECOND(3)" if rest else f"INTERVAL {sign}'{seconds}' SECOND"


_INFIX = {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||", "LIKE"} | {
    "IS DISTINCT FROM",
    "IS NOT DISTINCT FROM",
}


def written(expression: Expression) -> str:
    """An expression as SQL, with all its parentheses."""
    match expression:
        case Column():
            return ".".join(f"`{name}`" for name in expression.path)
        case Literal():
            return _constant(expression)
        case Alias():
            return f"{written(expression.operand)} AS {expression.name}"
        case Cast():
            name = "STRING" if expression.type == STRING else str(expression.type)
            return f"CAST({written(expression.operand)} AS {name})"
        case Call():
            return _call(expression, [written(one) for one in expression.args])
    raise TypeError(f"no text for {type(expression).__name__}")


def _constant(literal: Literal) -> str:
    if literal.value is None or isinstance(literal.value, bool):
        return "NULL" if literal.value is None else str(literal.value).upper()
    if isinstance(literal.value, str):
        return "'" + literal.value.replace("'", "''") + "'"
    return f"{literal.value}e0" if isinstance(literal.value, float) else str(literal.value)


def _call(expression: Call, args: list[str]) -> str:
    name = expression.name
    if name in _INFIX:
        return "(" + f" {name} ".join(args) + ")"
    if name.startswith("IS "):
        return f"({args[0]} {name})"
    match name:
        case "NOT":
            return f"(NOT {args[0]})"
        case "NEG":
            return f"(- {args[0]})"
        case "BETWEEN":
            return f"({args[0]} BETWEEN {args[1]} AND {args[2]})"
        case "IN":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        case "CASE":
            whens = " ".join(f"WHEN {a} THEN {b}" for a, b in zip(args[:-1:2], args[1::2], strict=True))
            return f"CASE {whens} ELSE {args[-1]} END"
    listed = ", ".join(args) if args else "*"
    text = f"{name}({'DISTINCT ' if expression.distinct else ''}{listed})"
    return text if expression.condition is None else f"{text} FILTER (WHERE {written(expression.condition)})"
