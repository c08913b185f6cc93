"""SQLite: one writer at a time. The transaction takes the write lock at its beginning and others wait for it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from flinkish.connectors.jdbc.database import CLAIM, CREATE_MARKER_TABLE, Database, Failure, claim_values
from flinkish.connectors.jdbc.location import DatabaseLocation
from flinkish.connectors.jdbc.statement import JdbcStatement
from flinkish.core.sink import CommitContext

#: how long a subtask waits for the others' transactions
BUSY_TIMEOUT_S = 120


class SqliteDatabase(Database):
    """A connection to a database file."""

    def __init__(self, location: DatabaseLocation) -> None:
        # autocommit: transactions begin where begin() is called and nowhere else.
        # Another thread than the one that opened it may close it when it is idle.
        self._connection = sqlite3.connect(
            location.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        # readers do not block the writer; the mode is a property of the file and stays
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._path = location.path
        self._file = _identity(self._path)

    def ensure_marker_table(self) -> None:
        self._connection.execute(CREATE_MARKER_TABLE)

    def begin(self) -> None:
        if _identity(self._path) != self._file:
            # SQLite would go on writing to the file that is gone, for nobody
            raise sqlite3.OperationalError(f"unable to open {self._path}: the file was removed or replaced")
        self._connection.execute("BEGIN IMMEDIATE")

    def claim(self, context: CommitContext) -> bool:
        return self._connection.execute(CLAIM, claim_values(context)).rowcount == 1

    def write(self, statement: JdbcStatement, rows: Sequence[tuple[Any, ...]], batch_size: int) -> None:
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
    """What an error of sqlite3 means."""
    if isinstance(error, OverflowError):  # an int of more than 64 bits
        return Failure.ROW
    if not isinstance(error, sqlite3.Error):
        return None
    # Python 3.10 gives no error codes, only SQLite's fixed texts
    text = str(error)
    if "locked" in text or "busy" in text:
        return Failure.CONFLICT
    if "unable to open" in text or "disk I/O" in text:
        return Failure.CONNECTION_LOST
    if any(word in text for word in ("readonly", "disk is full", "malformed", "not a database", "authorization")):
        return Failure.OPERATOR
    if any(word in text for word in ("no such", "syntax error", "has no column", "values for", "does not match any")):
        return Failure.STATEMENT
    return Failure.ROW
