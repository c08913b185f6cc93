"""SQLite connections. SQLite has one writer at a time: a transaction takes the write lock when it begins, and the other
transactions wait for it."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from flinkish.connectors.jdbc.catalogue import Column
from flinkish.connectors.jdbc.database import (
    CLAIM,
    CREATE_MARKER_TABLE,
    LAST_EPOCH,
    Database,
    Failure,
    claim_values,
)
from flinkish.connectors.jdbc.location import DatabaseLocation
from flinkish.connectors.jdbc.statement import JdbcStatement, parted
from flinkish.core.sink import CommitContext

#: how long a subtask waits for the transactions of the others, in seconds
BUSY_TIMEOUT_S = 120

_OF_STATEMENTS = ("no such", "syntax error", "has no column", "values for", "values were", "does not match any")


class SqliteDatabase(Database):
    """A connection to an SQLite database file."""

    def __init__(self, location: DatabaseLocation) -> None:
        # Autocommit mode: a transaction begins only where begin() is called. check_same_thread is off because an idle
        # connection may be closed by another thread than the one that opened it.
        self._connection = sqlite3.connect(
            location.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        # WAL, so that readers do not block the writer; the mode is stored in the file
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._path = location.path
        self._file = _identity(self._path)

    def ensure_marker_table(self) -> None:
        self._connection.execute(CREATE_MARKER_TABLE)

    def columns(self, target: Sequence[str]) -> list[Column]:
        table, schema = target[-1], target[-2] if len(target) > 1 else None
        # a table that is not strict takes values of all classes in all columns but the key
        strict = (
            sqlite3.sqlite_version_info >= (3, 37)
            and self._connection.execute("SELECT 1 FROM pragma_table_list(?) WHERE strict", (table,)).fetchone()
        )
        found = self._connection.execute(
            "SELECT name, lower(type), [notnull], dflt_value, pk FROM pragma_table_info(?, ?)", (table, schema)
        ).fetchall()
        single_key = sum(pk > 0 for *_, pk in found) == 1
        columns = []
        for name, kind, required, default, pk in found:
            is_row_id = bool(pk) and single_key and kind == "integer"
            known = {"int": "integer"}.get(kind, kind) if strict or is_row_id else ""
            nullable = is_row_id or not required
            columns.append(Column(name, known, None, nullable, not nullable and default is None))
        return columns

    def begin(self) -> None:
        if _identity(self._path) != self._file:
            # SQLite would go on writing to the removed file, which nobody can read
            raise sqlite3.OperationalError(f"unable to open {self._path}: the file was removed or replaced")
        self._connection.execute("BEGIN IMMEDIATE")

    def claim(self, context: CommitContext) -> bool:
        return self._connection.execute(CLAIM, claim_values(context)).rowcount == 1

    def last_epoch(self, job_id: str, sink_uid: str, subtask: int | None = None) -> int | None:
        found: int | None = self._connection.execute(LAST_EPOCH, (job_id, sink_uid, subtask)).fetchone()[0]
        return found

    def write(self, statement: JdbcStatement, rows: Sequence[tuple[Any, ...]], batch_size: int) -> None:
        if statement.is_upsert:
            deletions, rows = parted(rows)
            self._connection.executemany(statement.deletion, [statement.key_of(row) for row in deletions])
        self._connection.executemany(statement.sql, rows)

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.rollback()

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def classify(error: Exception) -> Failure | None:
    """The kind of failure of an error of sqlite3; None if it is none of sqlite3's."""
    # an int of more than 64 bits; what a constraint refuses, whatever the names in its message
    if isinstance(error, (OverflowError, sqlite3.IntegrityError)):
        return Failure.OTHER_ROWS if re.match("(UNIQUE|FOREIGN KEY) constraint", str(error)) else Failure.ROW
    if not isinstance(error, sqlite3.Error):
        return None
    # Python 3.10 does not give SQLite's error codes, only its fixed messages
    text = str(error)
    if re.match("(database|database table|database schema) is locked", text):
        return Failure.CONFLICT
    if any(word in text for word in _OF_STATEMENTS):
        return Failure.STATEMENT
    if "unable to open" in text or "disk I/O" in text:
        return Failure.CONNECTION_LOST
    if any(word in text for word in ("readonly", "disk is full", "malformed", "not a database", "authorization")):
        return Failure.OPERATOR
    return Failure.ROW
