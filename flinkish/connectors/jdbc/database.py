"""The interface of databases: what a URL means (`DatabaseLocation`), what differs between databases (`Dialect`), and an
open connection (`Database`), which claims an epoch, writes rows and commits. Each database has a module with both.

The rule that makes the sink exactly-once is in ``claim``: the marker of (job, sink, subtask) moves to the epoch in the
SAME transaction as the rows, and it only moves forward. A committer that finds it at the epoch has nothing to do; one
that finds it beyond belongs to a driver that was superseded, or to a job directory that is older than the database. The
claim is the first statement of the transaction: a second committer of the same epoch waits for the lock on
the marker's row and then sees the marker.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Enum
from importlib import import_module
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from flinkish.common.time import Instant
from flinkish.connectors.jdbc.catalogue import Column, Rule
from flinkish.connectors.jdbc.statement import TOKEN, JdbcStatement, insert_pattern
from flinkish.core.sink import CommitContext
from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    EnvironmentVersionError,
    FinalOperationError,
    OperationError,
)

#: seconds after which a server that does not answer is an error, so that the job does not hang
CONNECT_TIMEOUT_S = 10

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
        "host, port and TLS settings (sslmode and its like) that fit the server",
        "correct them in the URL, and start the job again",
    ),
}


def no_connection(failure: Failure, error: Exception, where: str) -> OperationError | None:
    """The error for a connection that the server refuses, or that has the wrong settings; None for other failures."""
    if failure not in _NO_CONNECTION:
        return None
    kind, what, expected, hint = _NO_CONNECTION[failure]
    return kind(f"{what}: {' '.join(str(error).split())}", where=where, expected=expected, hint=hint)


class Dialect(ABC):
    """What differs between databases, beside their connections. A dialect has no state: locations and statements carry
    it to the workers. The SQL here is that of PostgreSQL and SQLite."""

    #: what its URLs begin with, as a regular expression, and how they are written
    scheme: ClassVar[str]
    forms: ClassVar[str]
    #: classes of values that the driver does not take as they are -> conversions
    adapters: ClassVar[Mapping[type, Callable[[Any], Any]]] = {}
    #: where no placeholders are, and placeholders; the group ``comment`` is a comment
    token: ClassVar[re.Pattern[str]] = TOKEN
    insert: ClassVar[re.Pattern[str]] = insert_pattern(r"INSERT\s+(?:OR\s+\w+\s+)?INTO")
    #: the beginnings of statements with which the database commits whatever transaction is open
    commits: ClassVar[re.Pattern[str] | None] = None
    #: whether an insert that names no columns may have less values than the table has columns
    takes_first_columns: ClassVar[bool] = False

    def quoted(self, name: str) -> str:
        """A name as a quoted SQL identifier, which keeps its case."""
        return '"' + name.replace('"', '""') + '"'

    def unquoted(self, name: str) -> str:
        """The name in the catalogue that an identifier without quotes stands for."""
        return name.lower()

    def identifier(self, text: str) -> str:
        """The name in the catalogue that an identifier stands for, with quotes or without."""
        quote = text[:1]
        return text[1:-1].replace(quote * 2, quote) if quote in ('"', "`") else self.unquoted(text)

    def column_key(self, name: str) -> str:
        """The same text for all names of a column that the database takes for the same."""
        return name.lower()

    def on_conflict(self, columns: Sequence[str], key_columns: Sequence[str]) -> str:
        """The clause that makes an insert an upsert. If all columns belong to the key, there is nothing to update, and
        the conflict is ignored."""
        others = [self.quoted(column) for column in columns if column not in key_columns]
        action = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "NOTHING"
        return f"ON CONFLICT ({', '.join(map(self.quoted, key_columns))}) DO {action}"

    @abstractmethod
    def location(self, plain: str, url: str, user: str | None, password: str | None) -> DatabaseLocation:
        """What a URL means, which is ``plain`` without ``jdbc:``. ``user`` and ``password``, if given, replace those of
        the URL of a server.

        Raises:
            ConfigurationError: the URL names no database, or has a parameter that is not known.
        """

    @abstractmethod
    def rule(self, column: Column) -> Rule:
        """Which values surely fit a column."""

    @abstractmethod
    def connect(self, location: DatabaseLocation) -> Database:
        """Open a connection for a sink. Raises the errors of the driver."""

    @abstractmethod
    def select(self, location: DatabaseLocation, sql: str, parameters: Sequence[Any]) -> list[Any]:
        """The rows of a query, read by a connection of its own. Raises the errors of the driver."""

    @abstractmethod
    def classify(self, error: Exception) -> Failure | None:
        """The kind of failure of an error of the driver; None if it is none of the driver's."""


@dataclass(frozen=True)
class DatabaseLocation:
    """Where a database is: the ``label`` by which messages name it, without user and password, and the ``parameters``
    of connections. ``repr`` does not show the parameters, which hold the password."""

    dialect: Dialect
    label: str
    parameters: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """The key under which connections are kept: database, user and all parameters."""
        return (self.label, tuple(sorted(self.parameters.items())))


class ServerUrl(NamedTuple):
    """The parts of the URL of a server. A server is a pair of its host and its port (which may be empty)."""

    servers: list[tuple[str, str]]
    database: str
    user: str
    password: str
    parameters: list[tuple[str, str]]


def split_url(plain: str) -> ServerUrl:
    """The parts of a URL of the form ``kind://user:password@host:port,host:port/database?key=value&...``."""
    parts = urlsplit(plain)
    servers = [_host_and_port(server) for server in parts.netloc.rpartition("@")[2].split(",") if server]
    user, _, password = map(unquote, parts.netloc.rpartition("@")[0].partition(":"))
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    return ServerUrl(servers, unquote(parts.path.lstrip("/")), user, password, parameters)


def _host_and_port(server: str) -> tuple[str, str]:
    match = re.fullmatch(r"(\[[^]]*\]|[^:]*)(?::(\d+))?", server)
    if match is None:
        shown = server.partition(":")[0]  # with a / in it, a part of the password stands behind that
        raise ConfigurationError(f"'{shown}:...' is no server", where="JdbcSink", expected="host or host:port")
    return unquote(match[1].strip("[]")), match[2] or ""


def unknown_parameter(key: str, url: str, known: Collection[str]) -> ConfigurationError:
    """The error for a parameter of a URL that is not known."""
    return ConfigurationError(
        f"the parameter '{key}' of the database URL '{url}' is not known",
        where="JdbcSink",
        expected=f"one of {', '.join(sorted(known))}",
    )


def parse_url(url: str, user: str | None = None, password: str | None = None) -> DatabaseLocation:
    """The location that a database URL means, as users of JDBC or of Python write it. ``user`` and ``password``, if
    given, replace those of the URL of a server.

    Raises:
        ConfigurationError: the kind of database or a parameter is not known, or the URL names no SQLite file.

    >>> parse_url("jdbc:postgresql://db:5433/shop?user=me").parameters
    {'connect_timeout': '10', 'host': 'db', 'port': '5433', 'dbname': 'shop', 'user': 'me'}
    >>> parse_url("sqlite:///var/x.db").label
    'SQLite /var/x.db'
    """
    from flinkish.connectors.jdbc import mysql, postgresql, sqlite

    dialects: list[Dialect] = [postgresql.POSTGRESQL, mysql.MYSQL, sqlite.SQLITE]
    plain = url.removeprefix("jdbc:")
    for dialect in dialects:
        if re.match(dialect.scheme, plain):
            return dialect.location(plain, url, user, password)
    raise ConfigurationError(
        f"the database URL '{re.split('[^a-z]', plain, maxsplit=1)[0]}...' is of no kind that is supported",
        where="JdbcSink",
        expected=", ".join(dialect.forms for dialect in dialects),
    )


def import_driver(module: str, database: str, package: str) -> Any:
    """The module of a database's driver.

    Raises:
        EnvironmentVersionError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise EnvironmentVersionError(
            f"the {database} driver is missing: {error}",
            where="JdbcSink",
            expected=f"the package {package} on the driver and executors",
            hint=f"pip install '{package}'",
        ) from error


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def moment_of(value: Instant) -> datetime:
    """The same point in time, in UTC, with the microseconds that a ``datetime`` has."""
    return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)


class Database(ABC):
    """An open database connection. It is opened in the process that uses it, and used by one thread at a time."""

    #: that of the driver
    _connection: Any

    @abstractmethod
    def ensure_marker_table(self) -> None:
        """Create the table of markers if it does not exist; many subtasks may do so at the same time."""

    @abstractmethod
    def columns(self, statement: JdbcStatement) -> list[Column]:
        """What the catalogue says of the columns of the statement's table, in their order; empty if there is no such
        table."""

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

    def rollback(self) -> None:
        """Roll the transaction back; never raises an error of the database or its driver."""
        with suppress(Exception):
            self._connection.rollback()

    def close(self) -> None:
        """Close the connection; never raises."""
        with suppress(Exception):
            self._connection.close()


def claim_values(context: CommitContext) -> tuple[Any, ...]:
    """The values for the placeholders of ``CLAIM``."""
    return (context.job_id, context.sink_uid, context.subtask, context.epoch)


def open_database(location: DatabaseLocation) -> Database:
    """Open a connection and make sure that the table of markers exists. Raises the errors of the driver."""
    database = location.dialect.connect(location)
    try:
        database.ensure_marker_table()
    except BaseException:
        close(database)
        raise
    return database


def close(database: Database) -> None:
    """Roll back the transaction of a connection, whatever state it is in, and close the connection; never raises."""
    # an error here must not replace the one that is being handled
    database.rollback()
    database.close()


def failure_of(location: DatabaseLocation, error: Exception) -> Failure | None:
    """The kind of failure of an error, or None if it does not come from the database or its driver."""
    if isinstance(error, UnicodeEncodeError):  # half of a surrogate pair, which no database takes
        return Failure.ROW
    return location.dialect.classify(error)
