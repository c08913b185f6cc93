"""MySQL and MariaDB by PyMySQL, which sends many rows with a statement. What differs from other databases:

* The server may be set up to cut values to what their columns hold: sessions are strict.
* ``ON DUPLICATE KEY UPDATE`` updates the row with the same value in ANY unique index: an upsert that meets a row with
  another key fails. Without an index on the key, it would insert a second row: such a table is refused.
* Tables may be without transactions: such a table is refused.
* Statements that change tables commit: the table of markers is created before a transaction begins.
* A transaction of a client that was cut off would hold its locks for hours: a session ends after two silent minutes.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date, datetime, time, timezone
from decimal import Decimal
from numbers import Integral, Real
from typing import Any
from uuid import UUID

from flinkish.common.time import Instant
from flinkish.common.types import Row
from flinkish.connectors.jdbc.catalogue import Column, Rule, between, texts
from flinkish.connectors.jdbc.database import (
    CONNECT_TIMEOUT_S,
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
from flinkish.connectors.jdbc.statement import JdbcStatement, format_placeholders, insert_pattern, parted
from flinkish.core.sink import CommitContext
from flinkish.errors import ConfigurationError, ProgramError, TypeMismatchError

#: the most that a statement of many rows holds, if the server takes twice as much
STATEMENT_BYTES_MAX = 1 << 20

# Texts cannot be keys. The limits make up the longest key that InnoDB takes.
_CREATE_MARKER_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {MARKER_TABLE} (job_id VARBINARY(255) NOT NULL, sink_uid VARBINARY(2048) NOT NULL, "
    "subtask INTEGER NOT NULL, epoch BIGINT NOT NULL, PRIMARY KEY (job_id, sink_uid, subtask)) ENGINE=InnoDB"
)
# a row that is not changed does not count
_CLAIM = (
    f"INSERT INTO {MARKER_TABLE} (job_id, sink_uid, subtask, epoch) VALUES (%s, %s, %s, %s) "
    "ON DUPLICATE KEY UPDATE epoch = IF(epoch < VALUES(epoch), VALUES(epoch), epoch)"
)
_LAST_EPOCH = (
    f"SELECT max(epoch) FROM {MARKER_TABLE} WHERE job_id = %s AND sink_uid = %s AND subtask = coalesce(%s, subtask)"
)
_SESSION = (
    "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'),"
    " time_zone = '+00:00', wait_timeout = 120"
)
# others lock gaps between rows, so that transactions of other keys get into each other's way
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

#: the code of the error of an upsert that would change a row with another key
_GUARD = 1242
#: that of the client's error if the server has no TLS
_NO_TLS = 2026
_THIS_TABLE = "table_schema = coalesce(%s, DATABASE()) AND table_name = %s"
_ENGINE = (
    "SELECT t.engine, e.transactions FROM information_schema.tables t JOIN information_schema.engines e "
    f"ON e.engine = t.engine WHERE t.{_THIS_TABLE}"
)
_UNIQUE = (
    "SELECT index_name, column_name, sub_part FROM information_schema.statistics "
    f"WHERE {_THIS_TABLE} AND non_unique = 0"
)
_COLUMNS = (
    "SELECT column_name, data_type, column_type, coalesce(character_maximum_length, numeric_precision), numeric_scale, "
    "character_set_name, is_nullable, column_default, extra FROM information_schema.columns "
    f"WHERE {_THIS_TABLE} ORDER BY ordinal_position"
)
# MariaDB's type JSON is a text with a check that has the name of the column
_JSON = (
    "SELECT constraint_name FROM information_schema.check_constraints WHERE constraint_schema = coalesce(%s, "
    "DATABASE()) AND table_name = %s AND check_clause LIKE 'json_valid(%%'"
)


def driver() -> Any:
    """The module ``pymysql``."""
    return import_driver("pymysql", "MySQL", "PyMySQL")


class MysqlDatabase(Database):
    """A connection to a MySQL or MariaDB server."""

    def __init__(self, location: DatabaseLocation) -> None:
        self._connection = _connected(location)
        self._where = f"JdbcSink, {location.label}"
        self._select(_ISOLATION)
        ((self._packet_max,),) = self._select("SELECT @@max_allowed_packet")
        #: tables, and keys of upserts, that were found fit
        self._fit = set[tuple[str, ...]]()

    def _select(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, tuple(parameters))
            return list(cursor.fetchall())

    def ensure_marker_table(self) -> None:
        if not self._select(_ENGINE, (None, MARKER_TABLE)):
            self._select(_CREATE_MARKER_TABLE)
        self._check_table((MARKER_TABLE,))

    def _check_table(self, target: Sequence[str], key_columns: Sequence[str] = ()) -> None:
        """Raise ProgramError for a table without transactions, or without the unique index that an upsert needs. A view
        is not looked into."""
        of_table = (None, *target)[-2:]
        if (*target, *key_columns) in self._fit or not (found := self._select(_ENGINE, of_table)):
            return
        ((engine, transactions),) = found
        if transactions != "YES":
            raise ProgramError(
                f"the table {target[-1]} has the engine {engine}, which has no transactions: failures would leave rows",
                where=self._where,
                expected="an engine with transactions",
                hint=f"ALTER TABLE {target[-1]} ENGINE=InnoDB",
            )
        indexes: dict[str, set[str | None]] = {}
        for name, column, prefix in self._select(_UNIQUE, of_table) if key_columns else ():
            # an index on an expression, or on a part of a column, is not one on columns
            indexes.setdefault(name, set()).add(column.lower() if prefix is None and column is not None else None)
        if key_columns and {column.lower() for column in key_columns} not in indexes.values():
            raise ProgramError(
                f"the table {target[-1]} has no unique index on exactly ({', '.join(key_columns)})",
                where=self._where,
                expected="a primary key or a unique index on the key columns",
                hint=f"ALTER TABLE {target[-1]} ADD UNIQUE ({', '.join(key_columns)}), or name other key columns",
            )
        self._fit.add((*target, *key_columns))

    def columns(self, statement: JdbcStatement) -> list[Column]:
        self._check_table(statement.target, statement.key_columns)
        of_table = (None, *statement.target)[-2:]
        is_mariadb = "MariaDB" in self._connection.server_version
        checked = {name for (name,) in self._select(_JSON, of_table)} if is_mariadb else ()
        columns = []
        for name, kind, full, size, scale, charset, nullable, default, extra in self._select(_COLUMNS, of_table):
            if kind.endswith("text"):
                size = size // 4  # bytes, of which a character has at most four
            elif kind in ("decimal", "float", "double") and scale is not None:
                kind, size = "decimal", size - scale
            if charset is not None and charset not in ("utf8mb4", "utf16", "utf32"):
                kind += " ascii"
            if "unsigned" in full:
                kind += " unsigned"
            # a generated column takes no values
            generated = re.search("(VIRTUAL|STORED|PERSISTENT) GENERATED", extra, re.IGNORECASE) is not None
            required = nullable == "NO" and default is None and not (generated or "auto_increment" in extra.lower())
            known = "" if generated or name in checked else kind
            columns.append(Column(name, known, size, nullable == "YES", required))
        return columns

    def begin(self) -> None:
        self._connection.begin()

    def claim(self, context: CommitContext) -> bool:
        with self._connection.cursor() as cursor:
            return bool(cursor.execute(_CLAIM, claim_values(context)))

    def last_epoch(self, job_id: str, sink_uid: str, subtask: int | None = None) -> int | None:
        ((found,),) = self._select(_LAST_EPOCH, (job_id, sink_uid, subtask))
        return found if found is None else int(found)

    def write(self, statement: JdbcStatement, rows: Sequence[tuple[Any, ...]], batch_size: int) -> None:
        if statement.target:
            self._check_table(statement.target, statement.key_columns)
        if statement.is_upsert:
            deletions, rows = parted(rows)
            keys = [statement.key_of(row) for row in deletions]
            self._send(f"DELETE FROM {statement.table} WHERE ", f"({statement.of_key})", " OR ", keys, 500)
            batch_size = 0
        insert = statement.dialect.insert.match(statement.sql) if statement.values == statement.width else None
        tail = statement.sql[insert.end("row") :] if insert else ""
        if insert and re.match(r"\s*;?\s*\Z|\s+(?:AS|ON\s+DUPLICATE)\b", tail, re.IGNORECASE):
            try:
                self._send(statement.sql[: insert.start("row")], insert["row"], ", ", rows, batch_size, tail)
            except driver().err.OperationalError as error:
                if not statement.is_upsert or error.args[0] != _GUARD:
                    raise
                said = "it has the value of another row in another unique index than that of the key"
                raise driver().err.IntegrityError(1062, f"{said} ({', '.join(statement.key_columns)})") from error
        else:
            self._send("", statement.sql, "", rows, 1)

    def _send(
        self, head: str, item: str, separator: str, rows: Sequence[tuple[Any, ...]], batch_size: int, tail: str = ""
    ) -> None:
        """Execute statements of the head, the item for each of ``batch_size`` rows, and the tail."""
        form, begin, end = format_placeholders(item, _TOKEN), head.encode(), tail.encode()
        with self._connection.cursor() as cursor:
            items = (cursor.mogrify(form, row).encode() for row in rows)
            for batch in _batches(items, batch_size, self._packet_max):
                cursor.execute(begin + separator.encode().join(batch) + end)

    def commit(self) -> None:
        self._connection.commit()


def _batches(items: Iterable[bytes], count_max: int, packet_max: int) -> Iterator[list[bytes]]:
    batch, size, size_max = list[bytes](), 0, min(STATEMENT_BYTES_MAX, packet_max // 2)
    for item in items:
        if len(item) > packet_max - 4_096:
            # the server would close the connection, as if it were lost
            raise driver().err.DataError(1153, f"a row of {len(item)} bytes is more than max_allowed_packet lets in")
        if batch and (size + len(item) > size_max or len(batch) == count_max):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item)
    if batch:
        yield batch


def _connected(location: DatabaseLocation) -> Any:
    pymysql = driver()
    given = dict(location.parameters)
    files, mode = [given.pop(name, None) for name in _FILES], given.pop("ssl_mode")
    arguments: dict[str, Any] = {name: given.pop(name) for name in ("host", "database", "user", "unix_socket")}
    # PyMySQL would encode a text in Latin 1
    arguments["password"] = given.pop("password").encode()
    arguments |= {name: int(value) for name, value in given.items()}
    arguments |= {"autocommit": True, "charset": "utf8mb4", "conv": _conversions(), "init_command": _SESSION}
    try:
        return _opened(arguments, {"ssl_disabled": True} if mode == "DISABLED" else {"ssl": _tls(mode, *files)})
    except pymysql.err.OperationalError as error:
        # PyMySQL's own preference of TLS reads all certificates of the machine for each connection
        if mode != "PREFERRED" or error.args[0] != _NO_TLS:
            raise
    return _opened(arguments, {"ssl_disabled": True})


def _opened(arguments: dict[str, Any], tls: dict[str, Any]) -> Any:
    pymysql = driver()
    try:
        connection = pymysql.connect(**{**arguments, **tls, "read_timeout": arguments["connect_timeout"]})
    except RuntimeError as error:  # a method of authentication that needs another package
        raise pymysql.err.OperationalError(2061, str(error)) from error
    # a server that lets in is waited for; PyMySQL has no other way to say so
    connection._read_timeout = arguments.get("read_timeout")
    return connection


def _tls(mode: str, ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    is_verified = mode.startswith("VERIFY")
    try:
        context = ssl.create_default_context(cafile=ca) if is_verified else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except OSError as error:
        files = ", ".join(name for name in (ca, cert, key) if name is not None)
        raise driver().err.OperationalError(2061, f"{files}: {error}") from error
    # the certificates that MySQL makes for itself are not as strict as that
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = mode == "VERIFY_IDENTITY"
    context.verify_mode = ssl.CERT_REQUIRED if is_verified else ssl.CERT_NONE
    return context


def _conversions() -> dict[Any, Any]:
    """PyMySQL's, but those that lose something or guess."""
    converters, types = driver().converters, driver().constants.FIELD_TYPE
    return {
        **converters.conversions,
        types.TIME: converters.convert_time,
        types.BIT: lambda data: int.from_bytes(data, "big"),
        UUID: lambda value, _: f"'{value}'",
        memoryview: lambda value, _: f"X'{value.hex()}'",
        # stands for all classes that have no conversion of their own, which would be written as their texts
        str: _literal,
    }


def _literal(value: Any, conversions: Any) -> str:
    if isinstance(value, Integral):
        return str(int(value))
    known: tuple[Any, ...] = (datetime, date, time, Decimal, Real)
    kind = next((kind for kind in known if isinstance(value, kind)), None)
    if kind is None:
        raise driver().err.DataError(f"a value of the class {type(value).__name__} has no form in SQL")
    kind, value = (float, float(value)) if kind is Real else (kind, value)
    return str(conversions[kind](_in_utc(value) if kind is datetime else value, conversions))


def _in_utc(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(timezone.utc).replace(tzinfo=None)


def _no_form(value: Any) -> Any:
    if isinstance(value, time) and value.tzinfo is None:
        return value
    raise TypeMismatchError(
        f"MySQL has no form for the value {value!r:.200}",
        where="JdbcSink",
        expected="texts, numbers, truth values, bytes, dates and times",
        hint="write arrays, maps and rows as texts of JSON; a time of day has no zone",
    )


_TOKEN = re.compile(
    r"""
      '(?:[^'\\]|\\.|'')*'                    # literals
    | "(?:[^"\\]|\\.|"")*"
    | `(?:[^`]|``)*`                          # quoted identifier
    | (?P<comment>--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*.*?\*/)
    | \?\?
    | \?
    """,
    re.VERBOSE | re.DOTALL,
)
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_FLOAT_MAX = {"float": 3.4028234e38, "double": 1.7976931348623157e308}
_TIMES = {
    "date": Rule(frozenset((date,))),
    "datetime": Rule(frozenset((date, datetime))),
    "timestamp": Rule(limited={datetime: between(datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 7))}),
    "time": Rule(frozenset((time,))),
}

_FILES = ("ssl_ca", "ssl_cert", "ssl_key")
#: parameters of the Java drivers and of PyMySQL -> arguments of PyMySQL, and how many of their units are one of these
_NUMBERS = {
    "connectTimeout": ("connect_timeout", 1_000), "connect_timeout": ("connect_timeout", 1),
    "socketTimeout": ("read_timeout", 1_000), "read_timeout": ("read_timeout", 1),
    "write_timeout": ("write_timeout", 1),
}  # fmt: skip
_TEXTS = {
    **{name: name for name in ("user", "password", "unix_socket", *_FILES)},
    "localSocket": "unix_socket",
    "serverSslCert": "ssl_ca",
}
#: how much TLS, from little to much
_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
#: the same in parameters of the Java drivers and of MySQL's own client, in small letters
_TLS_MODES = {
    **{f"sslmode={mode.lower()}": mode for mode in _MODES},
    "sslmode=disable": "DISABLED", "sslmode=trust": "REQUIRED", "sslmode=verify-ca": "VERIFY_CA",
    "sslmode=verify-full": "VERIFY_IDENTITY", "usessl=false": "DISABLED", "usessl=true": "REQUIRED",
    "requiressl=true": "REQUIRED", "requiressl=false": "PREFERRED", "verifyservercertificate=true": "VERIFY_CA",
    "verifyservercertificate=false": "PREFERRED", "trustservercertificate=true": "REQUIRED",
    "trustservercertificate=false": "PREFERRED",
}  # fmt: skip
#: parameters of the Java drivers that tune them, or decide on conversions that there are none of here
_IGNORED = set(
    "allowPublicKeyRetrieval autoReconnect cachePrepStmts characterEncoding connectionTimeZone defaultFetchSize "
    "failOverReadOnly jdbcCompliantTruncation maxReconnects nullCatalogMeansCurrent prepStmtCacheSize "
    "prepStmtCacheSqlLimit rewriteBatchedStatements serverTimezone tcpKeepAlive tinyInt1isBit useBulkStmts "
    "useCompression useCursorFetch useInformationSchema useLegacyDatetimeCode useServerPrepStmts useUnicode "
    "yearIsDateType zeroDateTimeBehavior".split()
)

#: kinds of failure -> error codes of the server (1000 and more) and of its clients (2000 to 2999)
_CODES = {
    Failure.CONFLICT: (1020, 1205, 1213, 3101, 3572),
    Failure.NOT_LET_IN: (1044, 1045, 1049, 1129, 1130, 1698, 1820, 1862, 3118, 4151),
    Failure.OTHER_SETTINGS: (1251, 2026, 2059, 2061, 3159),
    Failure.CONNECTION_LOST: (0, 1040, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1203, 1226, 1927, 4031),
    Failure.OPERATOR: (1142, 1143, 1227, 1370),
    Failure.STATEMENT: (1054, 1064, 1136, 1146, 1222, 1241, 1267, 1305, 1364, 1906, 3105),
    Failure.OTHER_ROWS: (1062, 1216, 1217, 1242, 1451, 1452, 1586, 1761, 1762),
    Failure.ROW: (
        1048, 1153, 1264, 1265, 1292, 1300, 1366, 1367, 1369, 1406, 1411, 1416, 1644, 1690, 3140, 3819, 4025, 4078,
    ),
}  # fmt: skip
_KINDS = {code: kind for kind, codes in _CODES.items() for code in codes}
#: the same for codes that are not listed, by the beginnings of SQLSTATEs
_STATES = {"22": Failure.ROW, "23": Failure.OTHER_ROWS, "40": Failure.CONFLICT, "42": Failure.STATEMENT}


class MysqlDialect(Dialect):
    """That of MySQL and MariaDB; the parameters of its locations are arguments of PyMySQL, and ``ssl_mode``."""

    scheme = "mysql:|mariadb:"
    forms = "jdbc:mysql://host:port/db, jdbc:mariadb://host:port/db"
    adapters = {
        Instant: lambda value: _in_utc(moment_of(value)),
        datetime: _in_utc,
        **dict.fromkeys((time, list, tuple, dict, set, frozenset, Row), _no_form),
    }
    token = _TOKEN
    insert = insert_pattern(r"(?:INSERT|REPLACE)(?:\s+(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE))*(?:\s+INTO)?")
    commits = re.compile(
        r"\s*(?:ALTER|ANALYZE|BEGIN|CHECK|COMMIT|CREATE|DROP|FLUSH|GRANT|LOCK|OPTIMIZE|RENAME|REPAIR|REVOKE|ROLLBACK|"
        r"START|TRUNCATE|UNLOCK)\b",
        re.IGNORECASE,
    )

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def unquoted(self, name: str) -> str:
        return name

    def on_conflict(self, columns: Sequence[str], key_columns: Sequence[str]) -> str:
        keys, others = (
            [self.quoted(column) for column in columns if (column in key_columns) is is_key] for is_key in (True, False)
        )
        same = " AND ".join(f"{key} = VALUES({key})" for key in keys)
        # of a row that has another key the query fails with _GUARD, since it gives two rows
        guard = f"{keys[0]} = IF({same}, {keys[0]}, (SELECT NULL UNION ALL SELECT NULL))"
        return f"ON DUPLICATE KEY UPDATE {', '.join([guard, *(f'{name} = VALUES({name})' for name in others)])}"

    def location(self, plain: str, url: str, user: str | None, password: str | None) -> DatabaseLocation:
        parts = split_url(plain)
        host, port = (parts.servers or [("localhost", "")])[0]
        if not re.match(r"\w+://", plain) or len(parts.servers) > 1 or not parts.database or int(port or 0) > 0xFFFF:
            raise ConfigurationError(
                f"the database URL '{url}' does not name one server and its database",
                where="JdbcSink",
                expected="jdbc:mysql://host:port/database; a second server may not have what the first has committed",
            )
        found = {"host": host, "port": port or "3306", "database": parts.database, "unix_socket": ""}
        found |= {"user": parts.user, "password": parts.password, "connect_timeout": str(CONNECT_TIMEOUT_S)}
        modes = ["PREFERRED"]
        for key, value in parts.parameters:
            name = key.lower().replace("-", "").replace("_", "")
            if (mode := f"{name}={value.lower()}") in _TLS_MODES:
                modes.append(_TLS_MODES[mode])
            elif key in _NUMBERS and value.isdecimal():
                argument, units = _NUMBERS[key]
                found[argument] = str(max(1, int(value) // units))
            elif key in _TEXTS:
                found[_TEXTS[key]] = value
            elif key not in _IGNORED:
                key = f"{key}={value}" if key in _NUMBERS or name == "sslmode" else key
                raise unknown_parameter(key, url, {*_NUMBERS, *_TEXTS, "sslMode=" + "|".join(_MODES)})
        modes += ["VERIFY_CA"] if "ssl_ca" in found else []
        found["ssl_mode"] = "DISABLED" if "DISABLED" in modes else max(modes, key=_MODES.index)
        found.update({key: value for key, value in (("user", user), ("password", password)) if value is not None})
        label = "MariaDB" if plain.startswith("mariadb:") else "MySQL"
        return DatabaseLocation(self, f"{label} {host}:{found['port']}/{parts.database}", found)

    def rule(self, column: Column) -> Rule:
        kind, size = column.type.split(" ")[0], column.size or 0
        is_unsigned, is_ascii = " unsigned" in column.type, " ascii" in column.type
        if kind in _BITS:
            low = 0 if is_unsigned else -(1 << _BITS[kind] - 1)
            return Rule(frozenset((bool,)), {int: between(low, low + (1 << _BITS[kind]) - 1)})
        if kind == "bit":
            return Rule(frozenset((bool,)), {int: between(0, (1 << size) - 1)})
        if kind in _FLOAT_MAX or kind == "decimal":
            # less one, since the database rounds to the digits behind the point
            most = _FLOAT_MAX[kind] if kind in _FLOAT_MAX else 10**size - 1
            classes = (int, float) if kind in _FLOAT_MAX else (int, float, Decimal)
            return Rule(frozenset((bool,)), dict.fromkeys(classes, between(0 if is_unsigned else -most, most)))
        if kind.endswith(("char", "text")):
            return Rule(limited={str: texts(size, zero=True, only_ascii=is_ascii)})
        if kind.endswith(("binary", "blob")):
            return Rule(limited={bytes: lambda values: max(map(len, values)) <= size})
        return _TIMES.get(kind, Rule())

    def connect(self, location: DatabaseLocation) -> Database:
        return MysqlDatabase(location)

    def select(self, location: DatabaseLocation, sql: str, parameters: Sequence[Any]) -> list[Any]:
        with closing(_connected(location)) as connection, connection.cursor() as cursor:
            cursor.execute(format_placeholders(sql, _TOKEN), tuple(parameters))
            floats = [name for name, kind, *_ in cursor.description if kind == driver().constants.FIELD_TYPE.FLOAT]
            if floats:
                raise ProgramError(
                    f"the column '{floats[0]}' is a FLOAT, of which the server gives six digits only",
                    where=f"JdbcSource, {location.label}",
                    expected="a DOUBLE",
                    hint=f"write {floats[0]} + 0E0 AS {floats[0]} in the query",
                )
            return list(cursor.fetchall())

    def classify(self, error: Exception) -> Failure | None:
        err = driver().err
        if not isinstance(error, err.MySQLError):
            return None
        cause = getattr(error, "original_exception", None)
        if isinstance(cause, ssl.SSLError):
            return Failure.OTHER_SETTINGS
        if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN:
            return Failure.UNKNOWN_NAME
        code = error.args[0] if error.args else None
        if not isinstance(code, int):
            # of the driver itself: a value that it cannot send, or a server that speaks otherwise
            is_value = isinstance(error, (err.DataError, err.ProgrammingError, err.NotSupportedError))
            return Failure.ROW if is_value else Failure.CONNECTION_LOST
        by_state = _STATES.get((getattr(error, "sqlstate", None) or "")[:2], Failure.OPERATOR)
        return _KINDS.get(code, Failure.CONNECTION_LOST if 2000 <= code < 3000 else by_state)


MYSQL = MysqlDialect()
