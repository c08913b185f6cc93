"""The SQL statement that is executed for each row: the user's own, or an upsert made from the type's field names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flinkish.connectors.jdbc.placeholders import count_placeholders
from flinkish.errors import ProgramError


@dataclass(frozen=True)
class JdbcStatement:
    """A statement that is executed for each row. ``sql`` has ``width`` placeholders ``?``, one per field of the row.
    ``table``, ``columns`` and ``key_positions`` (the indices of the key in ``columns``) are set for an upsert only."""

    sql: str
    width: int
    table: str = ""
    columns: tuple[str, ...] = ()
    key_positions: tuple[int, ...] = ()

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
        return f"DELETE FROM {quoted_table(self.table)} WHERE {conditions}"

    def key_of(self, row: Sequence[Any]) -> tuple[Any, ...]:
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
    return JdbcStatement(sql, width)


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
    sql = f"INSERT INTO {quoted_table(table)} ({names}) VALUES ({marks}) {on_conflict(columns, key_columns)}"
    positions = tuple(columns.index(key) for key in key_columns)
    return JdbcStatement(sql, len(columns), table, tuple(columns), positions)


def on_conflict(columns: Sequence[str], key_columns: Sequence[str]) -> str:
    """The clause that makes an insert an upsert. If all columns belong to the key, there is nothing to update, and the
    conflict is ignored."""
    others = [quoted(column) for column in columns if column not in key_columns]
    action = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "NOTHING"
    return f"ON CONFLICT ({', '.join(map(quoted, key_columns))}) DO {action}"


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier, which keeps its case."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: str) -> str:
    """The name of a table, ``schema.table`` or ``table``, with each part quoted.

    >>> quoted_table("shop.counts")
    '"shop"."counts"'
    """
    return ".".join(map(quoted, table.split(".")))
