"""SQLite connections. SQLite has one writer at a time: a transaction takes the write lock when it begins, and the other
transactions wait for it."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from flinkish.connectors.jdbc.database import CLAIM, CREATE_MARKER_TABLE, Database, Failure, claim_values
from flinkish.connectors.jdbc.location import DatabaseLocation
from flinkish.connectors.jdbc.statement import JdbcStatement
from flinkish.connectors.jdbc.writer import is_deletion
from flinkish.core.sink import CommitContext

#: how long a subtask waits for the transactions of the others, in seconds
BUSY_TIMEOUT_S = 120


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

    def begin(self) -> None:
        if _identity(self._path) != self._file:
            # SQLite would go on writing to the removed file, which nobody can read
            raise sqlite3.OperationalError(f"unable to open {self._path}: the file was removed or replaced")
        self._connection.execute("BEGIN IMMEDIATE")

    def claim(self, context: CommitContext) -> bool:
        return self._connection.execute(CLAIM, claim_values(context)).rowcount == 1

    def write(self, statement: JdbcStatement, rows: Sequence[tuple[Any, ...]], batch_size: int) -> None:
        deleted = [statement.key_of(row) for row in rows if is_deletion(row)]
        if deleted:
            self._connection.executemany(statement.deletion, deleted)
            rows = [row for row in rows if not is_deletion(row)]
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
        return Failure.ROW
    if not isinstance(error, sqlite3.Error):
        return None
    # Python 3.10 does not give SQLite's error codes, only its fixed messages
    text = str(error)
    if re.match("(database|database table|database schema) is locked", text):
        return Failure.CONFLICT
    if any(word in text for word in ("no such", "syntax error", "has no column", "values for", "does not match any")):
        return Failure.STATEMENT
    if "unable to open" in text or "disk I/O" in text:
        return Failure.CONNECTION_LOST
    if any(word in text for word in ("readonly", "disk is full", "malformed", "not a database", "authorization")):
        return Failure.OPERATOR
    return Failure.ROW
