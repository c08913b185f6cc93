"""Queries and statements of SQL text, as values of `syntax`.

Rule upheld here: whatever the text is, the answer is a statement or a ProgramError with its place, in a time that is
linear in the length of the text. What is not known is refused, and nothing is skipped but comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from flinkish.table import syntax
from flinkish.table.logical_types import LogicalType
from flinkish.table.sql_expressions import expression, named, named_expression, read_type
from flinkish.table.syntax import ColumnDefinition, Expression, Insert, InsertSet, Query, Statement, TableDefinition
from flinkish.table.tokens import MAX_DEPTH, Tokens

T = TypeVar("T")

#: window table functions -> the arguments behind table and time
_WINDOWS = {
    "TUMBLE": ("SIZE", "OFFSET"), "HOP": ("SLIDE", "SIZE", "OFFSET"), "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}  # fmt: skip
_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE", "(")
_LIKE = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")
_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")


def parse(sql: str) -> Statement:
    """The statement of a text.

    Raises:
        ProgramError: it cannot be read, is not supported, or there are none or several.
    """
    return _all(Tokens(sql), _statement)


def parse_query(sql: str) -> Query:
    """The query of a text: SELECT, WITH, VALUES or UNION ALL."""
    return _all(Tokens(sql, where="sql_query()"), query)


def parse_expression(text: str) -> Expression:
    """The expression of a text, which may end with AS and a name."""
    return _all(Tokens(text, "the expression", "an expression"), named_expression)


def parse_type(text: str) -> LogicalType:
    """The type of a text, such as ``ROW<a INT, b ARRAY<STRING>>``."""
    return _all(Tokens(text, "the type", "a type"), read_type)


def _all(tokens: Tokens, read: Callable[[Tokens], T]) -> T:
    """What is read of a text, of which nothing but semicolons is left over."""
    if tokens.next.kind == "end":
        raise tokens.error("there is no statement" if read is _statement else "the text is empty")
    try:
        found = read(tokens)
        while tokens.accept(";"):
            pass
        if tokens.next.kind != "end" and tokens.tokens[tokens.index - 1].upper == ";":
            hint = "call execute_sql() for each, or write EXECUTE STATEMENT SET BEGIN INSERT ...; INSERT ...; END"
            raise tokens.error("there are several statements", tokens.next.start, "one", hint)
        if tokens.next.kind != "end":
            tokens.unexpected("the end of the statement")
    except RecursionError:
        raise tokens.too_deep() from None
    return found


# --- queries --------------------------------------------------------------------------------------------------------


def query(tokens: Tokens) -> Query:
    """A query with its WITH, UNION ALL and LIMIT."""
    tokens.enter()
    views = tokens.listed(lambda: _view(tokens)) if tokens.accept("WITH") else ()
    queries = [_term(tokens)]
    while tokens.accept("UNION ALL"):
        queries.append(_term(tokens))
    found = queries[0] if len(queries) == 1 else syntax.UnionAll(tuple(queries))
    if (limit := _limit(tokens)) is not None:
        found = syntax.Select((syntax.Star(),), found, limit=limit)
    tokens.depth -= 1
    return syntax.With(views, found) if views else found


def _view(tokens: Tokens) -> tuple[str, tuple[str, ...], Query]:
    name, columns = tokens.name("the name of a view"), _names(tokens)
    tokens.expect("AS")
    return name, columns, _subquery(tokens)


def _subquery(tokens: Tokens) -> Query:
    tokens.expect("(")
    found = query(tokens)
    tokens.expect(")")
    return found


def _names(tokens: Tokens) -> tuple[str, ...]:
    return tokens.in_brackets(tokens.name) if tokens.next.upper == "(" else ()


def _term(tokens: Tokens) -> Query:
    if tokens.next.upper == "(":
        return _subquery(tokens)
    match tokens.accept("SELECT", "VALUES", "TABLE"):
        case "SELECT":
            return _select(tokens)
        case "VALUES":
            return syntax.Values(tokens.listed(lambda: _row(tokens)))
        case "TABLE":
            return _table_name(tokens)
    tokens.unexpected("a query: SELECT, WITH, VALUES or TABLE")


def _row(tokens: Tokens) -> tuple[Expression, ...]:
    """The expressions of ``(a, b)``, ``ROW(a, b)`` or ``a``."""
    start, found = tokens.next.upper, expression(tokens)
    is_row = start in ("(", "ROW") and isinstance(found, syntax.Call) and found.name == "ROW"
    return found.args if is_row and isinstance(found, syntax.Call) else (found,)


def _table_name(tokens: Tokens) -> syntax.TableName:
    at = tokens.position(tokens.next.start)
    return syntax.TableName(tokens.path(), at)


def _limit(tokens: Tokens) -> int | None:
    limit = None
    if tokens.accept("LIMIT") and not tokens.accept("ALL"):
        limit = tokens.number("a number of rows")
    elif tokens.accept("FETCH FIRST", "FETCH NEXT"):
        limit = 1 if tokens.next.upper == "ROW" else tokens.number("a number of rows")
        tokens.expect("ROWS ONLY", "ROW ONLY")
    return limit


def _select(tokens: Tokens) -> syntax.Select:
    """A SELECT behind its first word."""
    distinct = tokens.accept("DISTINCT", "ALL") == "DISTINCT"
    columns = tokens.listed(lambda: named_expression(tokens))
    source = _source(tokens) if tokens.accept("FROM") else None
    where = expression(tokens) if tokens.accept("WHERE") else None
    group_by: tuple[Expression, ...] | None = None
    if tokens.accept("GROUP BY"):
        rows = () if tokens.accept("( )") else tokens.listed(lambda: _row(tokens))
        group_by = tuple(key for row in rows for key in row)
    having = expression(tokens) if tokens.accept("HAVING") else None
    return syntax.Select(columns, source, where, group_by, having, distinct, _limit(tokens))


def _source(tokens: Tokens) -> Query:
    """What stands behind FROM."""
    found = _relation(tokens)
    if name := named(tokens):
        found = syntax.Named(found, name, _names(tokens))
    joined = [token.upper for token in tokens.tokens[tokens.index : tokens.index + 4]]
    if joined[0] in (",", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL"):
        tokens.refused(next((word for word in ("LATERAL", "UNNEST") if word in joined), "JOIN"))
    return found


def _relation(tokens: Tokens) -> Query:
    if tokens.next.upper == "(":
        return _subquery(tokens)
    if tokens.next.upper in _WINDOWS and tokens.ahead().upper == "(":
        return _window(tokens)
    if tokens.accept("TABLE") and tokens.accept("("):
        if tokens.next.upper not in _WINDOWS:
            tokens.refused("LATERAL")
        found = _window(tokens)
        tokens.expect(")")
        return found
    name = _table_name(tokens)
    if tokens.next.upper == "(":
        tokens.refused("LATERAL")
    return name


def _window(tokens: Tokens) -> syntax.Windowed:
    """A window table function: TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE), or with names before =>."""
    start = tokens.take()
    names = ("DATA", "TIMECOL", *_WINDOWS[start.upper])
    given: dict[str, Any] = {}
    tokens.expect("(")
    while not given or tokens.accept(","):
        name = names[len(given)] if len(given) < len(names) else ""
        if tokens.ahead().upper == "=>":
            name = tokens.take().text.upper()
            tokens.take()
        if name not in names or name in given:
            tokens.unexpected(f"the arguments {', '.join(names)} of {start.upper}")
        given[name] = _ARGUMENTS.get(name, _milliseconds)(tokens)
    tokens.expect(")")
    missing = [name for name in names if name not in (*given, "OFFSET")]
    if missing:
        raise tokens.error(f"{start.upper} without {' and '.join(missing)}", start.start, f"{', '.join(names)}")
    intervals = tuple(given[name] for name in names[2:] if name != "OFFSET")
    data, partition = given["DATA"]
    return syntax.Windowed(start.upper, data, given["TIMECOL"], intervals, given.get("OFFSET", 0), partition)


def _data(tokens: Tokens) -> tuple[Query, tuple[syntax.Column, ...]]:
    """The table of a window table function, with the columns of its PARTITION BY."""
    found = _table_name(tokens) if tokens.accept("TABLE") and tokens.next.upper != "(" else _subquery(tokens)
    if not tokens.accept("PARTITION BY"):
        return found, ()
    several = tokens.next.upper == "("
    return found, tokens.in_brackets(lambda: _column(tokens)) if several else (_column(tokens),)


def _column(tokens: Tokens) -> syntax.Column:
    found = expression(tokens, MAX_DEPTH)
    return found if isinstance(found, syntax.Column) else tokens.unexpected("a column")


def _descriptor(tokens: Tokens) -> syntax.Column:
    tokens.expect("DESCRIPTOR")
    [found] = tokens.in_brackets(lambda: _column(tokens))[:1]
    return found


def _milliseconds(tokens: Tokens) -> int:
    start, found = tokens.next.start, expression(tokens)
    if isinstance(found, syntax.Literal) and found.type.root == "INTERVAL_DAY":
        return int(found.value)
    raise tokens.error("this argument of a window is no INTERVAL of time", start, "such as INTERVAL '10' MINUTE")


_ARGUMENTS: dict[str, Callable[[Tokens], Any]] = {"DATA": _data, "TIMECOL": _descriptor}


# --- statements -----------------------------------------------------------------------------------------------------


def _statement(tokens: Tokens) -> Statement:
    upper = tokens.next.upper
    if upper in _QUERIES:
        return query(tokens)
    if upper not in _STATEMENTS:
        tokens.unexpected(f"a statement: SELECT, WITH, VALUES, {', '.join(_STATEMENTS)}")
    tokens.take()
    return _STATEMENTS[upper](tokens)


def _insert(tokens: Tokens) -> Insert:
    tokens.expect("INTO")
    tokens.accept("TABLE")
    target = tokens.path()
    columns = () if tokens.ahead().upper in _QUERIES else _names(tokens)
    insert = Insert(target, query(tokens), columns)
    if tokens.accept("ON CONFLICT DO") and not tokens.accept("DEDUPLICATE"):
        tokens.refused("CONFLICT")
    return insert


def _insert_set(tokens: Tokens) -> InsertSet:
    """The inserts of a statement set: BEGIN STATEMENT SET; or EXECUTE STATEMENT SET BEGIN stands before them."""
    tokens.expect("STATEMENT SET BEGIN", "STATEMENT SET ;")
    inserts: list[Insert] = []
    while not tokens.accept("END"):
        tokens.expect("INSERT")
        inserts.append(_insert(tokens))
        tokens.expect(";")
    if not inserts:
        raise tokens.error("the statement set has no INSERT", tokens.next.start, "BEGIN INSERT ...; INSERT ...; END")
    return InsertSet(tuple(inserts))


def _execute(tokens: Tokens) -> Statement:
    """EXECUTE STATEMENT SET, EXECUTE INSERT or EXECUTE SELECT."""
    return _insert_set(tokens) if tokens.starts("STATEMENT SET") else _statement(tokens)


def _explain(tokens: Tokens) -> syntax.Explain:
    if not tokens.accept("PLAN FOR") and tokens.next.upper in _DETAILS:
        tokens.listed(lambda: tokens.expect(*_DETAILS))
    start, explained = tokens.next.start, _execute(tokens)
    if not isinstance(explained, syntax.Explained):
        raise tokens.error("this statement has no plan", start, "EXPLAIN of a query, an INSERT or a STATEMENT SET")
    return syntax.Explain(explained)


def _drop(tokens: Tokens) -> syntax.Drop:
    system = tokens.accept("TEMPORARY SYSTEM", "TEMPORARY") == "TEMPORARY SYSTEM"
    kind = tokens.expect("FUNCTION") if system else tokens.expect("TABLE", "VIEW", "FUNCTION")
    tolerant = bool(tokens.accept("IF EXISTS"))
    return syntax.Drop(kind, tokens.path(f"the name of a {kind.lower()}"), tolerant)


def _setting(tokens: Tokens, reset: bool) -> syntax.SetOption:
    """SET 'key' = 'value' and RESET 'key', or with key and value as they are, as in Flink's SQL client."""
    rest = tokens.sql[tokens.next.start :].rstrip("; \t\r\n")
    tokens.index = len(tokens.tokens) - 1
    parts = [rest] if reset else [part.strip() for part in rest.split("=", 1)]
    found = [re.fullmatch(r"'((?:[^']|'')*)'|([^\s';]+)", part) for part in parts]
    texts = [(match[1] or match[2] or "").replace("''", "'") for match in found if match is not None]
    if not rest:
        return syntax.SetOption(reset=reset)
    if len(texts) != 1 + (not reset):
        raise tokens.error("the setting cannot be read", 0, "SET 'key' = 'value', RESET 'key'")
    return syntax.SetOption(texts[0], None if reset else texts[1], reset)


def _show(tokens: Tokens) -> syntax.Show:
    if tokens.next.upper == "CREATE":
        tokens.refused("declaration")
    what = tokens.expect("TABLES", "VIEWS", "FUNCTIONS", "USER FUNCTIONS", "COLUMNS FROM", "COLUMNS IN")
    return syntax.Show("COLUMNS", tokens.path()) if what.startswith("COLUMNS") else syntax.Show(what)


def _describe(tokens: Tokens) -> syntax.Show:
    tokens.accept("EXTENDED")
    return syntax.Show("COLUMNS", tokens.path())


def _create(tokens: Tokens) -> Statement:
    replace = bool(tokens.accept("OR REPLACE"))
    temporary = tokens.accept("TEMPORARY SYSTEM", "TEMPORARY")
    kind = tokens.expect("FUNCTION") if temporary == "TEMPORARY SYSTEM" else tokens.expect("TABLE", "VIEW", "FUNCTION")
    tolerant = bool(tokens.accept("IF NOT EXISTS"))
    name = tokens.path(f"the name of a {kind.lower()}")
    if kind == "TABLE":
        definition = _definition(tokens)
        if fault := definition.fault(complete=definition.like is None):
            raise tokens.error(fault, expected=f"columns among {definition.names[:50]}, one of each name")
        return syntax.CreateTable(name, definition, tolerant, bool(temporary))
    columns = _names(tokens) if kind == "VIEW" else ()
    _comment(tokens)
    tokens.expect("AS")
    if kind == "VIEW":
        return syntax.CreateView(name, query(tokens), columns, tolerant, replace, bool(temporary))
    target = tokens.text("'module.function'")
    if not tokens.accept("LANGUAGE PYTHON"):
        tokens.refused("language")
    return syntax.CreateFunction(name, target, tolerant)


def _comment(tokens: Tokens) -> str:
    return tokens.text("a comment in quotes") if tokens.accept("COMMENT") else ""


def _definition(tokens: Tokens) -> TableDefinition:
    """What stands behind the name in CREATE TABLE."""
    columns, watermarks, keys = declared = _Elements([], [], [])
    if tokens.next.upper == "(":
        tokens.in_brackets(lambda: declared.read(tokens))
    comment = _comment(tokens)
    options: dict[str, str] = {}
    if tokens.accept("WITH") and not tokens.accept("( )"):
        tokens.private = True
        options = dict(tokens.in_brackets(lambda: _option(tokens)))
        tokens.private = False
    like, rules = None, dict[str, str]()
    if tokens.accept("LIKE"):
        like = tokens.path()
        while tokens.accept("(") or rules and not tokens.accept(")"):
            rule = tokens.expect("INCLUDING", "EXCLUDING", "OVERWRITING")
            rules[tokens.expect(*_LIKE)] = rule
    if tokens.next.upper == "AS":
        tokens.refused("CTAS")
    if not columns and like is None:
        tokens.unexpected("the columns of the table: CREATE TABLE t (a INT, ...) WITH (...)")
    watermark, key = (*watermarks, None)[0], (*keys, ())[0]
    return TableDefinition(tuple(columns), watermark, key, options, like, comment, rules)


def _option(tokens: Tokens) -> tuple[str, str]:
    key = tokens.text("an option 'key' = 'value'")
    tokens.expect("=")
    return key, tokens.text(f"the value of the option '{key}' in quotes")


class _Elements(NamedTuple):
    """The columns, the watermark and the primary key of CREATE TABLE."""

    columns: list[ColumnDefinition]
    watermarks: list[tuple[str, Expression]]
    keys: list[tuple[str, ...]]

    def read(self, tokens: Tokens) -> None:
        """Read the element that comes next."""
        start, behind = tokens.next.start, tokens.ahead().upper
        if behind == "FOR" and tokens.accept("WATERMARK FOR"):
            name = tokens.name("a column")
            tokens.expect("AS")
            self.watermarks.append((name, expression(tokens)))
        elif tokens.next.upper == "UNIQUE" and behind == "(":
            tokens.refused("UNIQUE")
        elif not self._key(tokens):
            self.columns.append(self._column(tokens))
        if len(self.watermarks) > 1:
            raise tokens.error("the table has two watermarks", start, "one")
        if len(self.keys) > 1:
            raise tokens.error("the table has two primary keys", start, "PRIMARY KEY (a, b) NOT ENFORCED")

    def _key(self, tokens: Tokens, *columns: str) -> bool:
        """Read [CONSTRAINT name] PRIMARY KEY, of these columns or of those behind it; whether it comes."""
        if tokens.next.upper == "CONSTRAINT" and tokens.ahead(2).upper == "PRIMARY":
            tokens.index += 2
        if tokens.ahead().upper != "KEY" or not tokens.accept("PRIMARY KEY"):
            return False
        self.keys.append(columns or tokens.in_brackets(lambda: tokens.name("a column")))
        return bool(tokens.accept("NOT ENFORCED")) or tokens.refused("enforced")

    def _column(self, tokens: Tokens) -> ColumnDefinition:
        name = tokens.name("the name of a column")
        if tokens.accept("AS"):
            return ColumnDefinition(name, expression=expression(tokens), comment=_comment(tokens))
        kind = read_type(tokens)
        required = tokens.ahead(-1).upper == "NULL" and tokens.ahead(-2).upper == "NOT"
        self._key(tokens, name)
        key = None
        if tokens.accept("METADATA"):
            key = tokens.text("the key of the metadata in quotes") if tokens.accept("FROM") else name
        virtual = bool(key and tokens.accept("VIRTUAL"))
        return ColumnDefinition(name, kind, None, key, virtual, _comment(tokens), required)


_STATEMENTS: dict[str, Callable[[Tokens], Statement]] = {
    "INSERT": _insert, "CREATE": _create, "DROP": _drop, "EXECUTE": _execute, "BEGIN": _insert_set, "EXPLAIN": _explain,
    "SET": lambda tokens: _setting(tokens, False), "RESET": lambda tokens: _setting(tokens, True), "SHOW": _show,
    "DESCRIBE": _describe, "DESC": _describe,
}  # fmt: skip
