"""SQLite connections. SQLite has one writer at a time: a transaction takes the write lock when it begins, and the other
transactions wait for it."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from flinkish.common.no_effect import warn_without_effect
from flinkish.common.time import Instant
from flinkish.connectors.jdbc.catalogue import Column, Rule, integers, texts
from flinkish.connectors.jdbc.database import (
    CLAIM,
    CREATE_MARKER_TABLE,
    LAST_EPOCH,
    Database,
    DatabaseLocation,
    Dialect,
    Failure,
    claim_values,
    moment_of,
)
from flinkish.connectors.jdbc.statement import JdbcStatement, parted
from flinkish.core.sink import CommitContext
from flinkish.errors import ConfigurationError

#: how long a subtask waits for the transactions of the others, in seconds
BUSY_TIMEOUT_S = 120

_OF_STATEMENTS = ("no such", "syntax error", "has no column", "values for", "values were", "does not match any")


class SqliteDatabase(Database):
    """A connection to an SQLite database file."""

    def __init__(self, location: DatabaseLocation) -> None:
        # Autocommit mode: a transaction begins only where begin() is called. check_same_thread is off because an idle
        # connection may be closed by another thread than the one that opened it.
        self._path = location.parameters["path"]
        self._connection = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        # WAL, so that readers do not block the writer; the mode is stored in the file
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._file = _identity(self._path)

    def ensure_marker_table(self) -> None:
        self._connection.execute(CREATE_MARKER_TABLE)

    def columns(self, statement: JdbcStatement) -> list[Column]:
        target = statement.target
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
        return bool(self._connection.execute(CLAIM, claim_values(context)).rowcount == 1)

    def last_epoch(self, job_id: str, sink_uid: str, subtask: int | None = None) -> int | None:
        found: int | None = self._connection.execute(LAST_EPOCH, (job_id, sink_uid, subtask)).fetchone()[0]
        return found

    def write(self, statement: JdbcStatement, rows: Sequence[tuple[Any, ...]], batch_size: int) -> None:
        if statement.is_upsert:
            deletions, rows = parted(rows)
            deletion = f"DELETE FROM {statement.table} WHERE {statement.of_key}"
            self._connection.executemany(deletion, [statement.key_of(row) for row in deletions])
        self._connection.executemany(statement.sql, rows)

    def commit(self) -> None:
        self._connection.execute("COMMIT")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_INT64, _TEXTS = integers("q"), texts(None, zero=True)
_BYTES = frozenset((bytes, bytearray, memoryview))
#: types of columns -> the values that fit; a column of no known type takes values of all classes that SQLite stores
_RULES = {
    "integer": Rule(frozenset((bool,)), {int: _INT64}),
    "real": Rule(frozenset((float, bool)), {int: _INT64}),
    "text": Rule(limited={str: _TEXTS}),
    "blob": Rule(_BYTES),
}
_ANY = Rule(_BYTES | {bool, float}, {int: _INT64, str: _TEXTS})


class SqliteDialect(Dialect):
    """SQLite's; the only parameter of its locations is the ``path`` of the file. Parameters of a URL have no effect."""

    scheme = "sqlite:"
    forms = "jdbc:sqlite:/path/file.db or sqlite:///path/file.db"
    # SQLite has neither decimals nor dates: they become exact texts, which sort
    adapters = {
        Instant: lambda value: moment_of(value).isoformat(" "),
        Decimal: str,
        datetime: lambda value: value.isoformat(" "),
        date: date.isoformat,
        time: time.isoformat,
    }

    def location(self, plain: str, url: str, user: str | None, password: str | None) -> DatabaseLocation:
        # sqlite:/x, sqlite:///x and (SQLAlchemy's) sqlite:////x are all the file /x
        path, _, parameters = plain.removeprefix("sqlite:").partition("?")
        path = re.sub("^//+", "/", path)
        if parameters:
            warn_without_effect(
                f"?{parameters} in the URL of an SQLite database", "its connections have settings of their own"
            )
        if path in ("", "/", ":memory:"):
            raise ConfigurationError(
                f"the database URL '{url}' names no file",
                where="JdbcSink",
                expected="jdbc:sqlite:/path/file.db: all subtasks write to one file, so it cannot be in memory",
            )
        # the workers may have another working directory
        path = os.path.abspath(path)
        return DatabaseLocation(self, f"SQLite {path}", {"path": path})

    def rule(self, column: Column) -> Rule:
        return _RULES.get(column.type, _ANY)

    def connect(self, location: DatabaseLocation) -> Database:
        return SqliteDatabase(location)

    def select(self, location: DatabaseLocation, sql: str, parameters: Sequence[Any]) -> list[Any]:
        uri = f"file:{quote(location.parameters['path'])}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return connection.execute(sql, parameters).fetchall()

    def classify(self, error: Exception) -> Failure | None:
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


SQLITE = SqliteDialect()
