"""The SQL statement that is executed for each row: the user's own, or an upsert made from the type's field names; its
placeholders, and how they are rewritten for drivers that want ``%s``.

A ``?`` inside a literal, a quoted identifier, a dollar-quoted string or a comment is no placeholder; ``??`` is how JDBC
writes PostgreSQL's operator ``?``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flinkish.common.types import Row
from flinkish.errors import ProgramError

if TYPE_CHECKING:
    from flinkish.connectors.jdbc.database import Dialect

#: The parts of standard SQL that matter here: where no placeholder is, and placeholders.
TOKEN = re.compile(
    r"""
      (?<![\w$])[eE]'(?:[^'\\]|\\.|'')*'      # literal with escapes
    | '(?:[^']|'')*'                          # literal
    | "(?:[^"]|"")*"                          # quoted identifier
    | (?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag)   # dollar-quoted text
    | (?P<comment>--[^\n]*|/\*.*?\*/)
    | \?\?
    | \?
    """,
    re.VERBOSE | re.DOTALL,
)

_NAME = r'(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`|[A-Za-z_]\w*)'


def insert_pattern(verb: str) -> re.Pattern[str]:
    """What a statement begins with whose first placeholders are values for columns of a table, in their order."""
    return re.compile(
        rf"\s*{verb}\s+(?P<table>{_NAME}(?:\s*\.\s*{_NAME})*)(?:\s+AS\s+{_NAME})?\s*"
        rf"(?:\(\s*(?P<columns>{_NAME}(?:\s*,\s*{_NAME})*)\s*\)\s*)?"
        r"VALUES?\s*(?P<row>\((?P<values>\s*\?(?:\s*,\s*\?)*\s*)\))",
        re.IGNORECASE,
    )


@dataclass(frozen=True)
class JdbcStatement:
    """A statement that is executed for each row. ``sql`` has ``width`` placeholders ``?``, one per field of the row.

    If it is an insert, the first ``values`` of the placeholders are values for the ``columns`` of the table ``target``
    (the parts of its name); without ``columns``, for the first columns of the table. ``key_positions`` (the indices of
    the key in ``columns``) are set for an upsert only."""

    dialect: Dialect
    sql: str
    width: int
    target: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    key_positions: tuple[int, ...] = ()
    values: int = 0

    @property
    def is_upsert(self) -> bool:
        return bool(self.key_positions)

    @property
    def key_columns(self) -> list[str]:
        """The columns of the key of an upsert, in the order of ``key_positions``."""
        return [self.columns[position] for position in self.key_positions]

    @property
    def of_key(self) -> str:
        """The condition that a row has a key; its placeholders are the key columns."""
        return " AND ".join(f"{self.dialect.quoted(column)} = ?" for column in self.key_columns)

    @property
    def table(self) -> str:
        """The target, quoted for SQL."""
        return ".".join(map(self.dialect.quoted, self.target))

    def key_of(self, row: Any) -> tuple[Any, ...]:
        """The values of the key columns of a row."""
        return tuple(row[position] for position in self.key_positions)


def user_statement(sql: str, width: int, dialect: Dialect) -> JdbcStatement:
    """The user's own statement, for rows of ``width`` fields.

    Raises:
        ProgramError: the number of placeholders is not the number of fields, or the database would commit the
            transaction of the epoch with the statement.
    """
    count = count_placeholders(sql, dialect.token)
    if count != width:
        raise ProgramError(
            f"the statement has {count} placeholders (?) and the type has {width} fields",
            where=f"JdbcSink, {sql!r}",
            expected="one placeholder per field, in the order of the fields",
        )
    if dialect.commits is not None and dialect.commits.match(sql):
        raise ProgramError(
            "the statement commits the transaction that holds the rows of an epoch and its marker",
            where=f"JdbcSink, {sql!r}",
            expected="a statement that changes rows",
            hint="create, alter or empty the table before the job",
        )
    insert = dialect.insert.match(sql)
    if insert is None:
        return JdbcStatement(dialect, sql, width)
    table, columns = (
        tuple(map(dialect.identifier, re.findall(_NAME, insert[part] or ""))) for part in ("table", "columns")
    )
    return JdbcStatement(dialect, sql, width, table, columns, values=insert["values"].count("?"))


def upsert_statement(table: str, columns: Sequence[str], key_columns: Sequence[str], dialect: Dialect) -> JdbcStatement:
    """The statement that inserts a row, or updates the row that has the same key.

    Raises:
        ProgramError: there is no key column, one that is named twice, or one that is no field.
    """
    unknown = [key for key in key_columns if key not in columns]
    if unknown or not key_columns or len(set(key_columns)) != len(key_columns):
        raise ProgramError(
            f"key columns {list(key_columns)}",
            where=f"JdbcSink.upsert into {table}",
            expected=f"at least one, each once, out of the fields {list(columns)}",
        )
    target = tuple(table.split("."))
    sql = f"{insert_of(target, columns, dialect)} {dialect.on_conflict(columns, key_columns)}"
    positions = tuple(columns.index(key) for key in key_columns)
    return JdbcStatement(dialect, sql, len(columns), target, tuple(columns), positions, len(columns))


def insert_of(target: Sequence[str], columns: Sequence[str], dialect: Dialect) -> str:
    """The statement that inserts a row; its placeholders are the columns."""
    names, marks = ", ".join(map(dialect.quoted, columns)), ", ".join("?" * len(columns))
    return f"INSERT INTO {'.'.join(map(dialect.quoted, target))} ({names}) VALUES ({marks})"


def parted(rows: Sequence[Any]) -> tuple[list[Row], Sequence[Any]]:
    """The committables of an upsert: the Rows, whose keys are to be deleted, and apart from them the tuples, which are
    rows to be written."""
    deletions = [row for row in rows if type(row) is Row]
    return deletions, [row for row in rows if type(row) is not Row] if deletions else rows


def count_placeholders(sql: str, token: re.Pattern[str] = TOKEN) -> int:
    """The number of placeholders of a statement.

    >>> count_placeholders("INSERT INTO t VALUES (?, '?', ?) -- ?")
    2
    """
    return sum(match[0] == "?" for match in token.finditer(sql))


def without_end(sql: str, token: re.Pattern[str] = TOKEN) -> str:
    """A query without the semicolons at its end, and without the blanks and comments between and behind them.

    >>> without_end("SELECT ';' AS a -- all;\\n; /* done; */ ;")
    "SELECT ';' AS a -- all;"
    """
    tokens = list(token.finditer(sql))
    end = cut = len(sql.rstrip())
    while end:
        if tokens and tokens[-1].end() >= end and tokens[-1].start() < end:
            if tokens[-1]["comment"] is None:
                break
            end = len(sql[: tokens.pop().start()].rstrip())
        elif sql[end - 1] == ";":
            end = cut = len(sql[: end - 1].rstrip())
        else:
            break
    return sql[:cut].strip()


def format_placeholders(sql: str, token: re.Pattern[str] = TOKEN) -> str:
    """The statement for drivers whose placeholders are ``%s``: every other ``%`` is doubled.

    >>> format_placeholders("UPDATE t SET a = ? WHERE b LIKE '5%?' AND c ?? 'k'")
    "UPDATE t SET a = %s WHERE b LIKE '5%%?' AND c ? 'k'"
    """
    return token.sub(_rewritten, sql.replace("%", "%%"))


def _rewritten(match: re.Match[str]) -> str:
    return {"?": "%s", "??": "?"}.get(match[0], match[0])
