"""What a query of SQL means, in plain Python: row by row, without columns, operators, state or a plan.

It walks over the syntax of a query (`flinkish.table.syntax`), the same that the planner resolves, and knows nothing of
how the planner or the operators work. It has the part of SQL that `tests.support.random_queries` writes: BIGINT,
DOUBLE, DECIMAL, STRING, BOOLEAN, DATE and TIMESTAMP, NULL in all of them; projections, filters, UNION ALL, DISTINCT,
GROUP BY with HAVING, window table functions. The answer is the table that is left when all changes are applied; as in
a streaming environment of Flink, an aggregate of no rows is no row, even without GROUP BY.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    Star,
    TableName,
    UnionAll,
    Windowed,
)

EXACT = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)
MIN_WATERMARK = -(2**63)
AGGREGATES = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LISTAGG"})


@dataclass(frozen=True)
class Record:
    """A row with the watermark that its operator had before it came: names to values; times are milliseconds.
    ``slice``: of a window that shares rows with others, the stretch of time that it lies in."""

    values: Mapping[str, Any]
    watermark: int = MIN_WATERMARK
    slice: int = 0


def source(rows: Iterable[Mapping[str, Any]], time: str, delay_ms: int) -> list[Record]:
    """The rows of a table with ``WATERMARK FOR time AS time - delay``."""
    records, watermark = [], MIN_WATERMARK
    for row in rows:
        records.append(Record(row, watermark))
        watermark = max(watermark, row[time] - delay_ms)
    return records


def answer(query: Query, tables: Mapping[str, list[Record]]) -> list[tuple[Any, ...]]:
    """The rows of a query over these tables, in no order that means something."""
    return [tuple(record.values.values()) for record in _records(query, tables)]


def _records(query: Query, tables: Mapping[str, list[Record]]) -> list[Record]:
    match query:
        case TableName():
            return tables[query.name]
        case Named():
            return _records(query.query, tables)
        case UnionAll():
            parts = [_records(one, tables) for one in query.queries]
            names = list(parts[0][0].values) if parts[0] else []
            return [_renamed(record, names) for part in parts for record in part]
        case Windowed():
            return _windowed(query, _records(query.query, tables))
        case Select():
            return _selected(query, tables)
    raise TypeError(f"no meaning for {type(query).__name__}")


def _renamed(record: Record, names: Sequence[str]) -> Record:
    return Record(dict(zip(names, record.values.values(), strict=True)), record.watermark) if names else record


# --- SELECT ---------------------------------------------------------------------------------------------------------


def _selected(select: Select, tables: Mapping[str, list[Record]]) -> list[Record]:
    source, where = select.source, select.where
    assert source is not None
    if isinstance(source, Windowed) and where is not None:
        # as in Flink, a condition on rows is applied before they get windows: it divides sessions
        source = replace(source, query=Select((Star(),), source.query, where=where))
        where = None
    records = _records(source, tables)
    if where is not None:
        records = [record for record in records if value_of(where, record.values) is True]
    if select.group_by is not None or any(map(_aggregates, select.columns)):
        return _grouped(select, records)
    made = [Record(_projected(select.columns, record), record.watermark) for record in records]
    if select.distinct:
        made = list({tuple(record.values.values()): record for record in reversed(made)}.values())
    return made


def _projected(columns: Sequence[Expression], record: Record) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for number, column in enumerate(columns):
        if isinstance(column, Star):
            values.update(record.values)
        else:
            values[_name(column, number)] = value_of(column, record.values)
    return values


def _name(column: Expression, number: int) -> str:
    if isinstance(column, Alias):
        return column.name
    return column.path[-1] if isinstance(column, Column) else f"EXPR${number}"


def _aggregates(expression: Expression) -> bool:
    match expression:
        case Alias() | Cast():
            return _aggregates(expression.operand)
        case Call():
            return expression.name in AGGREGATES or any(map(_aggregates, expression.args))
    return False


def _grouped(select: Select, records: list[Record]) -> list[Record]:
    keys = select.group_by or ()
    hopping = isinstance(select.source, Windowed) and select.source.kind == "HOP"
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        key = tuple(value_of(one, record.values) for one in keys)
        groups.setdefault(key, []).append(record)
    made = []
    for key, members in groups.items():
        group = _Group(dict(zip(keys, key, strict=True)), members, hopping)
        if select.having is None or group.value(select.having) is True:
            made.append(Record({_name(c, n): group.value(c) for n, c in enumerate(select.columns)}))
    return made


@dataclass
class _Group:
    """The rows of a key: what aggregate functions mean. ``hopping``: sums and texts of slices are put together from
    the last to the first one, as in Flink."""

    keys: Mapping[Expression, Any]
    records: Sequence[Record]
    hopping: bool

    def value(self, expression: Expression) -> Any:
        if expression in self.keys:
            return self.keys[expression]
        if isinstance(expression, Call) and expression.name in AGGREGATES:
            return self._aggregate(expression)
        return value_of(expression, {}, self.value)

    def _aggregate(self, call: Call) -> Any:
        rows = [r for r in self.records if call.condition is None or value_of(call.condition, r.values) is True]
        if not call.args:
            return len(rows)
        parts: dict[int, list[Any]] = {}
        for row in rows:
            if (value := value_of(call.args[0], row.values)) is not None:
                parts.setdefault(row.slice, []).append(value)
        slices = list(parts.values())
        values = [value for of_slice in slices for value in of_slice]
        if self.hopping:
            slices.reverse()
        if call.distinct:
            values = list(dict.fromkeys(values))
        if call.name == "COUNT":
            return len(values)
        if not values:
            return None
        match call.name:
            case "SUM":
                return _sum(values if call.distinct else [_sum(of_slice) for of_slice in slices])
            case "AVG":
                total = _sum(values if call.distinct else [_sum(of_slice) for of_slice in slices])
                if isinstance(total, decimal.Decimal):
                    return _rounded(EXACT.divide(total, len(values)), 6)
                return total / len(values) if isinstance(total, float) else _quotient(total, len(values))
            case "MIN":
                return min(values)
            case "MAX":
                return max(values)
            case "FIRST_VALUE":
                return values[0]
            case "LAST_VALUE":
                return values[-1]
        separator = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], Literal) else ","
        return separator.join(value for of_slice in slices for value in of_slice)


def _sum(values: Sequence[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return _wrapped(total) if isinstance(total, int) else total


# --- windows --------------------------------------------------------------------------------------------------------


def _windowed(query: Windowed, records: list[Record]) -> list[Record]:
    """A row for each window of each row, but for the windows that the watermark had passed when the row came."""
    if query.kind == "SESSION":
        return _sessions(query, records)
    made = []
    for record in records:
        time = record.values[query.time.path[0]]
        windows = _aligned(query.kind, query.intervals, query.offset_ms, time)
        width = math.gcd(*query.intervals) if len(query.intervals) > 1 else 0
        part = (time - query.offset_ms) // width if width else 0
        made += [_in_window(record, start, end, part) for start, end in windows if end - 1 > record.watermark]
    # the rows of a window are added up slice by slice
    return sorted(made, key=lambda record: record.slice)


def _in_window(record: Record, start: int, end: int, part: int = 0) -> Record:
    times = {"window_start": start, "window_end": end, "window_time": end - 1}
    return Record({**record.values, **times}, MIN_WATERMARK, part)


def _aligned(kind: str, intervals: Sequence[int], offset: int, time: int) -> list[tuple[int, int]]:
    if kind == "CUMULATE":
        step, size = intervals
        start = time - (time - offset) % size
        first = start + ((time - start) // step + 1) * step
        return [(start, end) for end in range(first, start + size + 1, step)]
    slide, size = (intervals[0], intervals[-1])
    last = time - (time - offset) % slide
    return [(start, start + size) for start in range(last, time - size, -slide)]


def _sessions(query: Windowed, records: list[Record]) -> list[Record]:
    (gap,) = query.intervals
    #: by key: the open sessions, as [start, end, rows]
    open_sessions: dict[tuple[Any, ...], list[list[Any]]] = {}
    made: list[Record] = []
    for record in records:
        time = record.values[query.time.path[0]]
        for of_key in open_sessions.values():
            made += _closed(of_key, record.watermark)
        sessions = open_sessions.setdefault(tuple(record.values[c.path[0]] for c in query.partition), [])
        joined = [one for one in sessions if one[0] <= time + gap and time <= one[1]]
        start, end = min([time, *(one[0] for one in joined)]), max([time + gap, *(one[1] for one in joined)])
        if end - 1 <= record.watermark:
            continue
        sessions[:] = [one for one in sessions if one not in joined]
        sessions.append([start, end, [row for one in joined for row in one[2]] + [record]])
    for of_key in open_sessions.values():
        made += _closed(of_key, 2**63)
    return made


def _closed(sessions: list[list[Any]], watermark: int) -> list[Record]:
    closed = [one for one in sessions if one[1] - 1 <= watermark]
    sessions[:] = [one for one in sessions if one[1] - 1 > watermark]
    return [_in_window(record, start, end) for start, end, rows in closed for record in rows]


# --- expressions ----------------------------------------------------------------------------------------------------


def value_of(expression: Expression, row: Mapping[str, Any], inner: Callable[[Expression], Any] | None = None) -> Any:
    """The value of an expression over a row. ``inner``: gives the values of its parts, in place of this function."""
    value = inner or (lambda one: value_of(one, row))
    match expression:
        case Column():
            return row[expression.path[-1]]
        case Literal():
            return expression.value
        case Alias():
            return value(expression.operand)
        case Cast():
            return _cast(value(expression.operand), expression.type)
        case Call():
            special = _SPECIAL.get(expression.name)
            if special is not None:
                return special(expression.args, value)
            values = [value(one) for one in expression.args]
            return None if None in values else _STRICT[expression.name](*values)
    raise TypeError(f"no meaning for {type(expression).__name__}")


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _quotient(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return _wrapped(quotient if (a < 0) == (b < 0) else -quotient)


def _cast(value: Any, of: LogicalType) -> Any:
    if value is None:
        return None
    match of.root:
        case "DOUBLE":
            return float(value)
        case "BIGINT":
            return int(value)
        case "DATE":
            return datetime.date.fromisoformat(value)
        case "DECIMAL":
            return _rounded(value, of.scale)
    return str(value).upper() if isinstance(value, bool) else str(value)


def _rounded(value: Any, scale: int) -> decimal.Decimal:
    return EXACT.quantize(decimal.Decimal(value), decimal.Decimal((0, (1,), -scale)))


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def compute(a: Any, b: Any) -> Any:
        result = function(float(a), float(b)) if isinstance(a, float) or isinstance(b, float) else function(a, b)
        return _wrapped(result) if isinstance(result, int) else result

    return compute


def _case(args: Sequence[Expression], value: Callable[[Expression], Any]) -> Any:
    for condition, result in zip(args[:-1:2], args[1::2], strict=True):
        if value(condition) is True:
            return value(result)
    return value(args[-1])


def _and(args: Sequence[Expression], value: Callable[[Expression], Any]) -> bool | None:
    values = [value(one) for one in args]
    return False if False in values else None if None in values else True


def _or(args: Sequence[Expression], value: Callable[[Expression], Any]) -> bool | None:
    values = [value(one) for one in args]
    return True if True in values else None if None in values else False


def _in(args: Sequence[Expression], value: Callable[[Expression], Any]) -> bool | None:
    first, *rest = [value(one) for one in args]
    if first is None:
        return None
    return True if first in rest else None if None in rest else False


def _coalesce(args: Sequence[Expression], value: Callable[[Expression], Any]) -> Any:
    return next((found for one in args if (found := value(one)) is not None), None)


_SPECIAL: dict[str, Callable[[Sequence[Expression], Callable[[Expression], Any]], Any]] = {
    "AND": _and,
    "OR": _or,
    "BETWEEN": lambda args, value: _and([Call(">=", (args[0], args[1])), Call("<=", (args[0], args[2]))], value),
    "CASE": _case,
    "IF": lambda args, value: value(args[1]) if value(args[0]) is True else value(args[2]),
    "IN": _in,
    "COALESCE": _coalesce,
    "NULLIF": lambda args, value: None if value(args[0]) == value(args[1]) else value(args[0]),
    "IS NULL": lambda args, value: value(args[0]) is None,
    "IS NOT NULL": lambda args, value: value(args[0]) is not None,
    "IS TRUE": lambda args, value: value(args[0]) is True,
    "IS NOT TRUE": lambda args, value: value(args[0]) is not True,
    "IS FALSE": lambda args, value: value(args[0]) is False,
    "IS NOT FALSE": lambda args, value: value(args[0]) is not False,
    "IS DISTINCT FROM": lambda args, value: value(args[0]) != value(args[1]),
    "IS NOT DISTINCT FROM": lambda args, value: value(args[0]) == value(args[1]),
}

_STRICT: dict[str, Callable[..., Any]] = {
    "+": _arithmetic(lambda a, b: a + b),
    "-": _arithmetic(lambda a, b: a - b),
    "*": _arithmetic(lambda a, b: a * b),
    "/": lambda a, b: _quotient(a, b) if isinstance(a, int) and isinstance(b, int) else float(a) / float(b),
    "%": lambda a, b: int(math.fmod(a, b)) if abs(a) < 2**53 else a - _quotient(a, b) * b,
    "NEG": lambda a: _wrapped(-a) if isinstance(a, int) else -a,
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "NOT": lambda a: not a,
    "||": lambda a, b: a + b,
    "UPPER": str.upper,
    "LOWER": str.lower,
    "CHAR_LENGTH": len,
    "SUBSTRING": lambda text, start, length: text[start - 1 : start - 1 + length],
    "ABS": lambda a: _wrapped(abs(a)) if isinstance(a, int) else abs(a),
    "LIKE": lambda text, pattern: text.startswith(pattern[:-1]),
}
