"""PostgreSQL connections by psycopg. Statements of the user are executed in pipelined batches of rows; the rows of an
upsert are first copied (COPY) into a temporary table.

COPY is used because an upsert of 150,000 rows takes seconds row by row, as long as the epoch that made them. It is used
for few rows as well, so that the same rules decide what fits a column, however many rows an epoch has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from flinkish.connectors.jdbc.catalogue import Column
from flinkish.connectors.jdbc.database import (
    CLAIM,
    CREATE_MARKER_TABLE,
    LAST_EPOCH,
    MARKER_TABLE,
    Database,
    Failure,
    claim_values,
)
from flinkish.connectors.jdbc.location import DatabaseLocation
from flinkish.connectors.jdbc.statement import (
    JdbcStatement,
    on_conflict,
    parted,
    psycopg_placeholders,
    quoted,
)
from flinkish.core.sink import CommitContext
from flinkish.errors import EnvironmentVersionError

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
_CLAIM, _LAST_EPOCH = psycopg_placeholders(CLAIM), psycopg_placeholders(LAST_EPOCH)


def driver() -> Any:
    """The module ``psycopg``.

    Raises:
        EnvironmentVersionError: psycopg is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise EnvironmentVersionError(
            f"the PostgreSQL driver is missing: {error}",
            where="JdbcSink",
            expected="psycopg 3 on the driver and executors",
            hint="pip install 'psycopg[binary]'",
        ) from error
    return psycopg


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

    def columns(self, target: Sequence[str]) -> list[Column]:
        found = self._connection.execute(_COLUMNS, (".".join(map(quoted, target)),)).fetchall()
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
        sql = psycopg_placeholders(statement.sql)
        with self._connection.cursor() as cursor:
            batch_size = batch_size if batch_size > 0 else max(len(rows), 1)
            for begin in range(0, len(rows), batch_size):
                cursor.executemany(sql, rows[begin : begin + batch_size])

    def _copy(self, statement: JdbcStatement, rows: Sequence[tuple[Any, ...]]) -> None:
        columns = ", ".join(map(quoted, statement.columns))
        target = statement.table
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
            conflict = on_conflict(statement.columns, statement.key_columns)
            cursor.execute(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {staging} {conflict}")

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        with suppress(driver().Error):
            self._connection.rollback()

    def close(self) -> None:
        with suppress(driver().Error):
            self._connection.close()


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
        r"(?:password|peer|ident|LDAP|PAM|RADIUS|GSSAPI|SSPI|SCRAM|certificate|OAuth\w*)\S* authentication failed|"
        r"pg_hba\.conf|no password supplied|role .* does not exist|database .* does not exist|"
        r"no such (?:user|database)|permission denied for database|not permitted to log ?in|"
        r"is not currently accepting connections|requires a valid client certificate|authentication method .* not",
        Failure.NOT_LET_IN,
    ),
    (
        r"does not support SSL|SSL negotiation|SSL was required|SSL error|sslmode|certificate|private key file|"
        r"^connection is bad: invalid|invalid (?:port|integer|connection option)",
        Failure.OTHER_SETTINGS,
    ),
)


def classify(error: Exception) -> Failure | None:
    """The kind of failure of an error of psycopg; None if it is none of psycopg's."""
    psycopg = driver()
    if not isinstance(error, psycopg.Error):
        return None
    errors = psycopg.errors
    if isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)):
        return Failure.CONFLICT
    if isinstance(error, (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)):
        return Failure.OPERATOR
    code = error.sqlstate
    # SQLSTATE class 42 is syntax and unknown names; but 42804, a parameter of the wrong type, is the fault of the row
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
