"""The syntax of queries and statements, as plain values: what the SQL parser and the calls of the Table API make alike.

Nothing is known of types and tables here; `planner` resolves it. Names are as they were written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from flinkish.table.logical_types import LogicalType

if TYPE_CHECKING:
    from flinkish.table.plan import Relation
    from flinkish.table.udf import UserFunction

T = TypeVar("T")
R = TypeVar("R")


class Position(NamedTuple):
    """Where something stands in the text of a statement; both count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


# --- expressions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column, or a nested field of it: ``path`` is ("ts",), ("o", "ts") for ``o.ts``, and so on."""

    path: tuple[str, ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Literal:
    """A value with its type. None has the type NULL."""

    value: Any
    type: LogicalType


@dataclass(frozen=True)
class Call:
    """A call of a function, an operator or an aggregate function.

    ``name`` is Flink's name in capital letters: ``UPPER``, ``SUM``, ``CASE`` (condition, value, ..., else), ``IF``;
    operators are ``+ - * / % || = <> < <= > >= AND OR NOT`` (``AND``, ``OR`` and ``||`` may have more than two),
    ``NEG`` (unary minus), ``IS NULL``, ``IS NOT NULL``, ``IS TRUE``, ``IS NOT TRUE``, ``IS FALSE``, ``IS NOT FALSE``,
    ``IS DISTINCT FROM``, ``IS NOT DISTINCT FROM``, ``LIKE``, ``SIMILAR TO``, ``BETWEEN``, ``IN``, ``ITEM`` (``a[1]``),
    ``FIELD`` (of a ROW; the second argument is the literal name), ``ARRAY``, ``MAP``, ``ROW``, ``EXTRACT`` (unit as
    literal text, value), ``FLOOR``/``CEIL`` (value, unit as literal text if there is one),
    ``TIMESTAMPDIFF``/``TIMESTAMPADD`` (unit as literal text, ...), ``BTRIM``/``LTRIM``/``RTRIM`` (value, characters)
    for ``TRIM(BOTH x FROM y)``. ``COUNT(*)`` has a `Star` as its argument.
    """

    name: str
    args: tuple[Expression, ...] = ()
    #: the function of the program; None: a built-in one
    function: UserFunction | None = None
    distinct: bool = False
    #: FILTER (WHERE ...)
    condition: Expression | None = None
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Cast:
    """CAST, or TRY_CAST (``lenient``)."""

    operand: Expression
    type: LogicalType
    lenient: bool = False
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Alias:
    operand: Expression
    name: str


@dataclass(frozen=True)
class Star:
    table: str | None = None


Expression = Column | Literal | Call | Cast | Alias | Star


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Call):
        return expression.args if expression.condition is None else (*expression.args, expression.condition)
    return (expression.operand,) if isinstance(expression, Cast | Alias) else ()


def folded(root: T, parts: Callable[[T], Sequence[T]], make: Callable[[T, tuple[R, ...]], R]) -> R:
    """What is made of a tree from its leaves on. It may be deeper than Python's stack."""
    done: list[R] = []
    work: list[tuple[T, int]] = [(root, -1)]
    while work:
        part, count = work.pop()
        if count < 0:
            inner = parts(part)
            work.append((part, len(inner)))
            work += [(each, -1) for each in reversed(inner)]
        else:
            made = make(part, tuple(done[len(done) - count :]))
            del done[len(done) - count :]
            done.append(made)
    return done[0]


def rebuilt(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """The expression in which each outermost part that ``change`` gives something else for is replaced by that."""
    changed: dict[int, Expression | None] = {}

    def parts(part: Expression) -> tuple[Expression, ...]:
        changed[id(part)] = change(part)
        return parts_of(part) if changed[id(part)] is None else ()

    def make(part: Expression, inner: tuple[Expression, ...]) -> Expression:
        found = changed[id(part)]
        same = all(new is old for new, old in zip(inner, parts_of(part), strict=False))
        return found if found is not None else part if same else _with_parts(part, inner)

    return folded(expression, parts, make)


def _with_parts(expression: Expression, parts: tuple[Expression, ...]) -> Expression:
    if isinstance(expression, Call):
        args = parts if expression.condition is None else parts[:-1]
        return replace(expression, args=args, condition=None if expression.condition is None else parts[-1])
    return replace(expression, operand=parts[0])  # type: ignore[arg-type]


def found_in(expression: Expression, wanted: Callable[[Expression], bool]) -> Expression | None:
    work = [expression]
    while work:
        part = work.pop()
        if wanted(part):
            return part
        work += reversed(parts_of(part))
    return None


# --- queries --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableName:
    name: str
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Resolved:
    """A table of the Table API, which is resolved already."""

    relation: Relation


@dataclass(frozen=True)
class Named:
    """``query AS name``, or ``query AS name (column, ...)``."""

    query: Query
    name: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Windowed:
    """A window table function: TUMBLE, HOP, CUMULATE or SESSION.

    ``intervals`` are in milliseconds: (size), (slide, size), (step, greatest size), (gap); ``offset_ms`` shifts
    windows; ``partition``: the columns of SESSION's PARTITION BY.
    """

    kind: str
    query: Query
    time: Column
    intervals: tuple[int, ...]
    offset_ms: int = 0
    partition: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Select:
    """``group_by`` None: there is no GROUP BY. Old group windows stand in it as calls of TUMBLE, HOP and SESSION (time,
    intervals as literals). ``source`` None: one row without columns."""

    columns: tuple[Expression, ...]
    source: Query | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] | None = None
    having: Expression | None = None
    distinct: bool = False
    #: LIMIT, which bounded tables may have
    limit: int | None = None


@dataclass(frozen=True)
class UnionAll:
    queries: tuple[Query, ...]


@dataclass(frozen=True)
class Values:
    """Rows of expressions without columns."""

    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True)
class With:
    """A query with views of its own: (name, columns or (), query)."""

    views: tuple[tuple[str, tuple[str, ...], Query], ...]
    query: Query


Query = TableName | Resolved | Named | Windowed | Select | UnionAll | Values | With


# --- statements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnDefinition:
    """A column of CREATE TABLE or of a Schema: a physical one, a computed one (``expression``), or one of metadata
    (``metadata`` is its key, such as ``timestamp``; ``virtual``: it is not written)."""

    name: str
    type: LogicalType | None = None
    expression: Expression | None = None
    metadata: str | None = None
    virtual: bool = False
    comment: str = ""
    #: NOT NULL
    required: bool = False


@dataclass(frozen=True)
class TableDefinition:
    """What CREATE TABLE says: columns, watermarks (column, expression), primary key, options, and LIKE."""

    columns: tuple[ColumnDefinition, ...] = ()
    watermark: tuple[str, Expression] | None = None
    primary_key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    like: str | None = None
    comment: str = ""
    #: of LIKE: ALL, CONSTRAINTS, GENERATED, METADATA, OPTIONS, WATERMARKS -> INCLUDING, EXCLUDING or OVERWRITING
    like_rules: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def required(self) -> tuple[str, ...]:
        """The columns into which no NULL is written: those that are NOT NULL, and those of the primary key."""
        return tuple(each.name for each in self.columns if each.required or each.name in self.primary_key)

    def fault(self, complete: bool = True) -> str:
        """What does not fit together: two columns of one name, or, if the table has no columns beside these
        (``complete``), a watermark or a primary key of one that is not there. Empty: all fits."""
        names, known = self.names, set(self.names)
        if len(known) < len(names):
            return f"there are two columns '{next(name for name, count in Counter(names).items() if count > 1)}'"
        named = (*(self.watermark or ())[:1], *self.primary_key) if complete else ()
        return next((f"there is no column '{name}'" for name in named if name not in known), "")


@dataclass(frozen=True)
class CreateTable:
    name: str
    definition: TableDefinition
    if_not_exists: bool = False
    temporary: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class CreateView:
    name: str
    query: Query
    columns: tuple[str, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False
    temporary: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class CreateFunction:
    """CREATE [TEMPORARY] [SYSTEM] FUNCTION name AS 'module.attribute' LANGUAGE PYTHON."""

    name: str
    target: str
    if_not_exists: bool = False


@dataclass(frozen=True)
class Drop:
    """``kind``: TABLE, VIEW or FUNCTION."""

    kind: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class Insert:
    """INSERT INTO; ``columns`` (): all of them."""

    target: str
    query: Query
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class InsertSet:
    """EXECUTE STATEMENT SET BEGIN ... END."""

    inserts: tuple[Insert, ...]


#: What has a plan.
Explained = Query | Insert | InsertSet


@dataclass(frozen=True)
class Explain:
    statement: Explained


@dataclass(frozen=True)
class SetOption:
    """SET 'key' = 'value'; without a key it lists the settings. ``value`` None: RESET of the key (or of all)."""

    key: str | None = None
    value: str | None = None
    reset: bool = False


@dataclass(frozen=True)
class Show:
    """SHOW TABLES, VIEWS, FUNCTIONS, USER FUNCTIONS; DESCRIBE t is ``what`` = COLUMNS."""

    what: str
    name: str = ""


Statement = CreateTable | CreateView | CreateFunction | Drop | Explained | Explain | SetOption | Show
