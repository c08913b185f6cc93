"""The interface of an open database connection, free of SQL: claim an epoch, write rows, commit.

The rule that makes the sink exactly-once is in ``claim``: the marker of (job, sink, subtask) moves to the epoch in the
SAME transaction as the rows, and it only moves forward. A committer that finds it at the epoch has nothing to do; one
that finds it beyond belongs to a driver that was superseded, or to a job directory that is older than the database. The
claim is the first statement of the transaction: a second committer of the same epoch waits for the lock on
the marker's row and then sees the marker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

from flinkish.connectors.jdbc.catalogue import Column
from flinkish.connectors.jdbc.location import SQLITE, DatabaseLocation
from flinkish.connectors.jdbc.statement import JdbcStatement
from flinkish.core.sink import CommitContext
from flinkish.errors import ConnectionFailedError, FinalOperationError, OperationError

MARKER_TABLE = "flinkish_epochs"
CREATE_MARKER_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {MARKER_TABLE} (job_id TEXT NOT NULL, sink_uid TEXT NOT NULL, "
    "subtask INTEGER NOT NULL, epoch BIGINT NOT NULL, PRIMARY KEY (job_id, sink_uid, subtask))"
)
CLAIM = (
    f"INSERT INTO {MARKER_TABLE} (job_id, sink_uid, subtask, epoch) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (job_id, sink_uid, subtask) DO UPDATE SET epoch = excluded.epoch "
    f"WHERE {MARKER_TABLE}.epoch < excluded.epoch"
)
#: the highest marker of a sink, or of one subtask unless that is NULL
LAST_EPOCH = (
    f"SELECT max(epoch) FROM {MARKER_TABLE} WHERE job_id = ? AND sink_uid = ? "
    "AND subtask = coalesce(CAST(? AS INTEGER), subtask)"
)


class Failure(Enum):
    """The kinds of database errors, by what must happen next."""

    CONNECTION_LOST = "the connection is lost"
    UNKNOWN_NAME = "the name of the server cannot be resolved"
    NOT_LET_IN = "the server does not let this user into this database"
    OTHER_SETTINGS = "the settings of the connection do not fit the server"
    CONFLICT = "another transaction was in the way"
    OPERATOR = "the database must be mended"
    STATEMENT = "the statement is wrong, whatever the row"
    ROW = "a row is wrong"
    OTHER_ROWS = "a row does not go with the rows that are there"


#: What fails a connection before it is open, and not by itself for a while: class, what happened, expected, what to do.
_NO_CONNECTION: dict[Failure, tuple[type[OperationError], str, str, str]] = {
    Failure.UNKNOWN_NAME: (
        ConnectionFailedError,
        "the name of the database's server cannot be resolved",
        "a host that this machine finds",
        "correct the host in the URL, or this machine's name service, and start the job again",
    ),
    Failure.NOT_LET_IN: (
        FinalOperationError,
        "the database does not let the job in",
        "a user, a password and a database that the server knows",
        "correct the URL, the user or the password, or have the access granted, and start the job again",
    ),
    Failure.OTHER_SETTINGS: (
        FinalOperationError,
        "the database cannot be connected to in this way",
        "host, port and TLS settings (sslmode, sslrootcert) that fit the server",
        "correct them in the URL, and start the job again",
    ),
}


def no_connection(failure: Failure, error: Exception, where: str) -> OperationError | None:
    """The error for a connection that the server refuses, or that has the wrong settings; None for other failures."""
    if failure not in _NO_CONNECTION:
        return None
    kind, what, expected, hint = _NO_CONNECTION[failure]
    return kind(f"{what}: {' '.join(str(error).split())}", where=where, expected=expected, hint=hint)


class Database(ABC):
    """An open database connection. It is opened in the process that uses it, and used by one thread at a time."""

    @abstractmethod
    def ensure_marker_table(self) -> None:
        """Create the table of markers if it does not exist; many subtasks may do so at the same time."""

    @abstractmethod
    def columns(self, target: Sequence[str]) -> list[Column]:
        """What the catalogue says of the columns of a table, in their order; empty if there is no such table."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def claim(self, context: CommitContext) -> bool:
        """Move the marker to the epoch of the context. False: the marker is there or beyond already."""

    @abstractmethod
    def last_epoch(self, job_id: str, sink_uid: str, subtask: int | None = None) -> int | None:
        """The marker of a subtask of a sink, or (None) the highest one of all its subtasks; None if there is none."""

    @abstractmethod
    def write(self, statement: JdbcStatement, rows: Sequence[tuple[Any, ...]], batch_size: int) -> None:
        """Execute the statement for each row, ``batch_size`` rows per round trip where the database takes batches (0 or
        less: all rows). Of an upsert the deletions come first, so that they make room in unique columns."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the transaction."""

    @abstractmethod
    def rollback(self) -> None:
        """Roll the transaction back; never raises an error of the database or its driver."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; never raises."""


def claim_values(context: CommitContext) -> tuple[Any, ...]:
    """The values for the placeholders of ``CLAIM``."""
    return (context.job_id, context.sink_uid, context.subtask, context.epoch)


def open_database(location: DatabaseLocation) -> Database:
    """Open a connection and make sure that the table of markers exists. Raises the errors of the driver."""
    database = _connect(location)
    try:
        database.ensure_marker_table()
    except BaseException:
        close(database)
        raise
    return database


def close(database: Database) -> None:
    """Roll back the transaction of a connection, whatever state it is in, and close the connection; never raises."""
    # an error here must not replace the one that is being handled
    with suppress(Exception):
        database.rollback()
    with suppress(Exception):
        database.close()


def _connect(location: DatabaseLocation) -> Database:
    if location.kind == SQLITE:
        from flinkish.connectors.jdbc.sqlite import SqliteDatabase

        return SqliteDatabase(location)
    from flinkish.connectors.jdbc.postgresql import PostgresqlDatabase

    return PostgresqlDatabase(location)


def failure_of(location: DatabaseLocation, error: Exception) -> Failure | None:
    """The kind of failure of an error, or None if it does not come from the database or its driver."""
    if isinstance(error, UnicodeEncodeError):  # half of a surrogate pair, which no database takes
        return Failure.ROW
    if location.kind == SQLITE:
        from flinkish.connectors.jdbc.sqlite import classify as classify_sqlite

        return classify_sqlite(error)
    from flinkish.connectors.jdbc.postgresql import classify

    return classify(error)
