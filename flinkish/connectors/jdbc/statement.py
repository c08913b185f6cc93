"""The SQL statement that is executed for each row: the user's own, or an upsert made from the type's field names; its
placeholders, and how they are rewritten for psycopg.

A ``?`` inside a literal, a quoted identifier, a dollar-quoted string or a comment is no placeholder; ``??`` is how JDBC
writes PostgreSQL's operator ``?``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flinkish.common.types import Row
from flinkish.errors import ProgramError

_TOKEN = re.compile(
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

_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_]\w*)'
# a statement whose first placeholders are values for columns of a table, in their order
_INSERT = re.compile(
    rf"\s*INSERT\s+(?:OR\s+\w+\s+)?INTO\s+(?P<table>{_NAME}(?:\s*\.\s*{_NAME})*)(?:\s+AS\s+{_NAME})?\s*"
    rf"(?:\(\s*(?P<columns>{_NAME}(?:\s*,\s*{_NAME})*)\s*\)\s*)?VALUES\s*\((?P<values>\s*\?(?:\s*,\s*\?)*\s*)\)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class JdbcStatement:
    """A statement that is executed for each row. ``sql`` has ``width`` placeholders ``?``, one per field of the row.

    If it is an insert, the first ``values`` of the placeholders are values for the ``columns`` of the table ``target``
    (the parts of its name); without ``columns``, for the first columns of the table. ``key_positions`` (the indices of
    the key in ``columns``) are set for an upsert only."""

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
    def deletion(self) -> str:
        """The statement that deletes the row of a key; its placeholders are the key columns."""
        conditions = " AND ".join(f"{quoted(column)} = ?" for column in self.key_columns)
        return f"DELETE FROM {self.table} WHERE {conditions}"

    @property
    def table(self) -> str:
        """The target, quoted for SQL."""
        return ".".join(map(quoted, self.target))

    def key_of(self, row: Any) -> tuple[Any, ...]:
        """The values of the key columns of a row."""
        return tuple(row[position] for position in self.key_positions)


def user_statement(sql: str, width: int) -> JdbcStatement:
    """The user's own statement, for rows of ``width`` fields.

    Raises:
        ProgramError: the number of placeholders is not the number of fields.
    """
    count = count_placeholders(sql)
    if count != width:
        raise ProgramError(
            f"the statement has {count} placeholders (?) and the type has {width} fields",
            where=f"JdbcSink, {sql!r}",
            expected="one placeholder per field, in the order of the fields",
        )
    insert = _INSERT.match(sql)
    if insert is None:
        return JdbcStatement(sql, width)
    return JdbcStatement(
        sql, width, _names(insert["table"]), _names(insert["columns"] or ""), values=insert["values"].count("?")
    )


def _names(text: str) -> tuple[str, ...]:
    """The identifiers in a text; those without quotes become lower case, as in PostgreSQL.

    >>> _names('Shop . "Counts"')
    ('shop', 'Counts')
    """
    found = re.findall(_NAME, text)
    return tuple(name[1:-1].replace('""', '"') if name[0] == '"' else name.lower() for name in found)


def upsert_statement(table: str, columns: Sequence[str], key_columns: Sequence[str]) -> JdbcStatement:
    """The statement that inserts a row, or updates the row that has the same key.

    Raises:
        ProgramError: there is no key column, one that is named twice, or one that is no field.

    >>> print(upsert_statement("counts", ["page", "n"], ["page"]).sql)
    INSERT INTO "counts" ("page", "n") VALUES (?, ?) ON CONFLICT ("page") DO UPDATE SET "n" = excluded."n"
    """
    unknown = [key for key in key_columns if key not in columns]
    if unknown or not key_columns or len(set(key_columns)) != len(key_columns):
        raise ProgramError(
            f"key columns {list(key_columns)}",
            where=f"JdbcSink.upsert into {table}",
            expected=f"at least one, each once, out of the fields {list(columns)}",
        )
    names = ", ".join(map(quoted, columns))
    marks = ", ".join("?" * len(columns))
    target = tuple(table.split("."))
    sql = f"INSERT INTO {'.'.join(map(quoted, target))} ({names}) VALUES ({marks}) {on_conflict(columns, key_columns)}"
    positions = tuple(columns.index(key) for key in key_columns)
    return JdbcStatement(sql, len(columns), target, tuple(columns), positions, len(columns))


def on_conflict(columns: Sequence[str], key_columns: Sequence[str]) -> str:
    """The clause that makes an insert an upsert. If all columns belong to the key, there is nothing to update, and the
    conflict is ignored."""
    others = [quoted(column) for column in columns if column not in key_columns]
    action = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "NOTHING"
    return f"ON CONFLICT ({', '.join(map(quoted, key_columns))}) DO {action}"


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier, which keeps its case."""
    return '"' + name.replace('"', '""') + '"'


def parted(rows: Sequence[Any]) -> tuple[list[Row], Sequence[Any]]:
    """The committables of an upsert: the Rows, whose keys are to be deleted, and apart from them the tuples, which are
    rows to be written."""
    deletions = [row for row in rows if type(row) is Row]
    return deletions, [row for row in rows if type(row) is not Row] if deletions else rows


def count_placeholders(sql: str) -> int:
    """The number of placeholders of a statement.

    >>> count_placeholders("INSERT INTO t VALUES (?, '?', ?) -- ?")
    2
    """
    return sum(match[0] == "?" for match in _TOKEN.finditer(sql))


def without_end(sql: str) -> str:
    """A query without the semicolons at its end, and without the blanks and comments between and behind them.

    >>> without_end("SELECT ';' AS a -- all;\\n; /* done; */ ;")
    "SELECT ';' AS a -- all;"
    """
    tokens = list(_TOKEN.finditer(sql))
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


def psycopg_placeholders(sql: str) -> str:
    """The statement in psycopg's syntax: ``%s`` for each placeholder, and every other ``%`` doubled.

    >>> psycopg_placeholders("UPDATE t SET a = ? WHERE b LIKE '5%?' AND c ?? 'k'")
    "UPDATE t SET a = %s WHERE b LIKE '5%%?' AND c ? 'k'"
    """
    return _TOKEN.sub(_rewritten, sql.replace("%", "%%"))


def _rewritten(match: re.Match[str]) -> str:
    return {"?": "%s", "??": "?"}.get(match[0], match[0])
