"""PostgreSQL connections by psycopg. Statements of the user are executed in pipelined batches of rows; the rows of an
upsert are first copied (COPY) into a temporary table.

COPY is used because an upsert of 150,000 rows takes seconds row by row, as long as the epoch that made them. It is used
for few rows as well, so that the same rules decide what fits a column, however many rows an epoch has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from flinkish.common.time import Instant
from flinkish.connectors.jdbc.catalogue import Column, Rule, between, integers, texts
from flinkish.connectors.jdbc.database import (
    CLAIM,
    CONNECT_TIMEOUT_S,
    CREATE_MARKER_TABLE,
    LAST_EPOCH,
    MARKER_TABLE,
    Database,
    DatabaseLocation,
    Dialect,
    Failure,
    claim_values,
    import_driver,
    moment_of,
    split_url,
    unknown_parameter,
)
from flinkish.connectors.jdbc.statement import JdbcStatement, format_placeholders, parted
from flinkish.core.sink import CommitContext

# The fields of a `Column`. A generated column has no type here, since it takes no values. A type modifier is 4 more
# than the length of a text, or than precision * 65536 + scale of a decimal, whose scale has 11 bits and a sign.
_COLUMNS = """
SELECT a.attname, CASE WHEN a.attgenerated <> '' OR a.attidentity = 'a' THEN '' ELSE t.typname END,
  CASE WHEN a.atttypmod < 4 THEN NULL WHEN t.typname IN ('varchar', 'bpchar') THEN a.atttypmod - 4
    WHEN t.typname = 'numeric' THEN ((a.atttypmod - 4) >> 16) - (((a.atttypmod - 4) & 2047) # 1024) + 1024 END,
  NOT a.attnotnull, a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

# "flinkish" as a number: the advisory lock under which the marker table is created
_LOCK_ID = 0x666C696E6B697368
_CLAIM, _LAST_EPOCH = format_placeholders(CLAIM), format_placeholders(LAST_EPOCH)


def driver() -> Any:
    """The module ``psycopg``."""
    return import_driver("psycopg", "PostgreSQL", "psycopg[binary]")


class PostgresqlDatabase(Database):
    """A connection to a PostgreSQL server."""

    def __init__(self, location: DatabaseLocation) -> None:
        self._connection = driver().connect(autocommit=True, **location.parameters)

    def ensure_marker_table(self) -> None:
        connection = self._connection
        if connection.execute("SELECT to_regclass(%s)", (MARKER_TABLE,)).fetchone()[0] is not None:
            return
        with connection.transaction():
            # CREATE TABLE IF NOT EXISTS fails if two sessions execute it at the same time
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_ID,))
            connection.execute(CREATE_MARKER_TABLE)

    def columns(self, statement: JdbcStatement) -> list[Column]:
        found = self._connection.execute(_COLUMNS, (statement.table,)).fetchall()
        return [Column(*row) for row in found]

    def begin(self) -> None:
        self._connection.execute("BEGIN")

    def claim(self, context: CommitContext) -> bool:
        return bool(self._connection.execute(_CLAIM, claim_values(context)).rowcount == 1)

    def last_epoch(self, job_id: str, sink_uid: str, subtask: int | None = None) -> int | None:
        found: int | None = self._connection.execute(_LAST_EPOCH, (job_id, sink_uid, subtask)).fetchone()[0]
        return found

    def write(self, statement: JdbcStatement, rows: Sequence[tuple[Any, ...]], batch_size: int) -> None:
        if statement.is_upsert:
            self._copy(statement, rows)
            return
        sql = format_placeholders(statement.sql)
        with self._connection.cursor() as cursor:
            batch_size = batch_size if batch_size > 0 else max(len(rows), 1)
            for begin in range(0, len(rows), batch_size):
                cursor.executemany(sql, rows[begin : begin + batch_size])

    def _copy(self, statement: JdbcStatement, rows: Sequence[tuple[Any, ...]]) -> None:
        quoted, target = statement.dialect.quoted, statement.table
        columns = ", ".join(map(quoted, statement.columns))
        # one table per statement, for the life of the connection: a table per epoch would bloat the system catalog
        staging = "flinkish_" + hashlib.md5(statement.sql.encode(), usedforsecurity=False).hexdigest()
        with self._connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TEMPORARY TABLE IF NOT EXISTS {staging} ON COMMIT DELETE ROWS "
                f"AS SELECT {columns} FROM {target} WITH NO DATA"
            )
            deletions, rows = parted(rows)
            if deletions:
                _copy_rows(cursor, f"{staging} ({columns})", deletions)
                same = " AND ".join(f"t.{name} = s.{name}" for name in map(quoted, statement.key_columns))
                cursor.execute(f"DELETE FROM {target} t USING {staging} s WHERE {same}")
                cursor.execute(f"DELETE FROM {staging}")
            _copy_rows(cursor, f"{staging} ({columns})", rows)
            conflict = statement.dialect.on_conflict(statement.columns, statement.key_columns)
            cursor.execute(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {staging} {conflict}")

    def commit(self) -> None:
        self._connection.execute("COMMIT")


def _copy_rows(cursor: Any, target: str, rows: Sequence[Any]) -> None:
    with cursor.copy(f"COPY {target} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


#: What the client library and the server say of a connection that is not opened: it has no SQLSTATE. The first pattern
#: that is found counts; what passes by itself comes first, since there may be several servers. What a server says in
#: another language is taken for a connection that is lost.
_NOT_OPENED = (
    (
        r"refused|timeout expired|timed out|starting up|shutting down|too many|closed the connection|unreachable|"
        r"terminating connection|Temporary failure in name resolution|recovery|SYSCALL error",
        Failure.CONNECTION_LOST,
    ),
    (r"failed to resolve host|could not translate host name", Failure.UNKNOWN_NAME),
    (
        r"(?:password|peer|ident|LDAP|PAM|RADIUS|GSSAPI|SSPI|SCRAM|certificate|OAuth)\S{0,20} authentication failed|"
        r"pg_hba\.conf|no password supplied|(?:role|database) .{0,200} does not exist|"
        r"no such (?:user|database)|permission denied for database|not permitted to log ?in|"
        r"is not currently accepting connections|requires a valid client certificate|"
        r"authentication method .{0,200} not",
        Failure.NOT_LET_IN,
    ),
    (
        r"does not support SSL|SSL negotiation|SSL was required|SSL error|sslmode|certificate|private key file|"
        r"^connection is bad: invalid|invalid (?:port|integer|connection option)",
        Failure.OTHER_SETTINGS,
    ),
)

_BYTES = frozenset((bytes, bytearray, memoryview))
_DATES = frozenset((date, datetime))
_FLOAT32_MAX = 3.4028235e38
#: the types of columns whose values need no size -> the values that fit
_RULES = {
    "int2": Rule(limited={int: integers("h")}),
    "int4": Rule(limited={int: integers("i")}),
    "int8": Rule(limited={int: integers("q")}),
    "float4": Rule(limited=dict.fromkeys((int, float), between(-_FLOAT32_MAX, _FLOAT32_MAX))),
    "float8": Rule(frozenset((float,)), {int: between(-(2**1023), 2**1023)}),
    "bool": Rule(frozenset((bool,))),
    "date": Rule(frozenset((date,))),
    "timestamp": Rule(_DATES),
    "timestamptz": Rule(_DATES),
    "time": Rule(frozenset((time,))),
    "bytea": Rule(_BYTES),
    "uuid": Rule(frozenset((UUID,))),
}

# parameters of the Java driver -> their names in libpq, PostgreSQL's C library
_RENAMED = {
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslrootcert": "sslrootcert",
}
# tuning parameters of the Java driver that have no counterpart here
_IGNORED = {"reWriteBatchedInserts", "prepareThreshold", "defaultRowFetchSize", "tcpKeepAlive", "stringtype"}
_LIBPQ = set(
    "application_name channel_binding client_encoding connect_timeout dbname gssencmode host hostaddr keepalives "
    "keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts options passfile password port "
    "requiressl service sslcert sslcrl sslkey sslmode sslpassword sslrootcert target_session_attrs tcp_user_timeout "
    "user".split()
)


class PostgresqlDialect(Dialect):
    """PostgreSQL's; the parameters of its locations are those of libpq."""

    scheme = "postgres(ql)?:"
    forms = "jdbc:postgresql://host:port/db, postgresql://host:port/db"
    adapters = {Instant: moment_of}
    takes_first_columns = True

    def column_key(self, name: str) -> str:
        return name

    def location(self, plain: str, url: str, user: str | None, password: str | None) -> DatabaseLocation:
        if not re.match(r"\w+:/{2}", plain):  # jdbc:postgresql:database
            plain = "postgresql:///" + plain.split(":", 1)[1].lstrip("/")
        parts, found = split_url(plain), {"connect_timeout": str(CONNECT_TIMEOUT_S)}
        hosts, ports = zip(*parts.servers, strict=True) if parts.servers else ((), ())
        given = {
            "host": ",".join(hosts),
            "port": ",".join(port or "5432" for port in ports) if any(ports) else "",
            "dbname": parts.database,
            "user": parts.user,
            "password": parts.password,
        }
        found.update({key: value for key, value in given.items() if value})
        for key, value in parts.parameters:
            _add_parameter(found, key, value, url)
        found.update({key: value for key, value in (("user", user), ("password", password)) if value is not None})
        label = f"PostgreSQL {found.get('host', 'localhost')}:{found.get('port', '5432')}/{found.get('dbname', '')}"
        return DatabaseLocation(self, label, found)

    def rule(self, column: Column) -> Rule:
        kind, size = column.type, column.size
        if kind == "numeric":
            if size is None:
                return Rule(frozenset((int, float, Decimal)))
            # less one, since the database rounds to the digits behind the point
            return Rule(limited=dict.fromkeys((int, float, Decimal), between(1 - 10**size, 10**size - 1)))
        if kind in ("text", "varchar", "bpchar"):
            return Rule(limited={str: texts(size, zero=False)})
        return _RULES.get(kind, Rule())

    def connect(self, location: DatabaseLocation) -> Database:
        return PostgresqlDatabase(location)

    def select(self, location: DatabaseLocation, sql: str, parameters: Sequence[Any]) -> list[Any]:
        with driver().connect(autocommit=True, **location.parameters) as connection:
            rows: list[Any] = connection.execute(format_placeholders(sql), parameters).fetchall()
            return rows

    def classify(self, error: Exception) -> Failure | None:
        psycopg = driver()
        if not isinstance(error, psycopg.Error):
            return None
        errors = psycopg.errors
        if isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)):
            return Failure.CONFLICT
        if isinstance(error, (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)):
            return Failure.OPERATOR
        code = error.sqlstate
        # SQLSTATE class 42 is syntax and unknown names; but 42804, a parameter of the wrong type, is the row's fault
        if code is not None and code.startswith("42") and code != "42804":
            return Failure.STATEMENT
        if isinstance(error, psycopg.IntegrityError):
            by_itself = isinstance(error, (errors.NotNullViolation, errors.CheckViolation))
            return Failure.ROW if by_itself else Failure.OTHER_ROWS
        if isinstance(error, (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError)):
            return Failure.ROW
        if code is not None and code.startswith(("28", "3D")):
            return Failure.NOT_LET_IN
        # classes 08 (connection) and 57P (shutdown); errors that the client library detects itself have no SQLSTATE
        if code is None:
            text = str(error)
            return next((kind for said, kind in _NOT_OPENED if re.search(said, text)), Failure.CONNECTION_LOST)
        return Failure.CONNECTION_LOST if code.startswith(("08", "57P")) else Failure.OPERATOR


POSTGRESQL = PostgresqlDialect()


def _add_parameter(found: dict[str, str], key: str, value: str, url: str) -> None:
    if key == "ssl":
        found.setdefault("sslmode", "prefer" if value == "false" else "verify-full")
    elif key == "currentSchema":
        found["options"] = f"{found.get('options', '')} -csearch_path={value}".strip()
    elif key in _RENAMED or key in _LIBPQ:
        found[_RENAMED.get(key, key)] = value
    elif key not in _IGNORED:
        raise unknown_parameter(key, url, _LIBPQ | set(_RENAMED) | {"ssl", "currentSchema"})
