"""Parses a database URL, as users of JDBC or of Python write it, to the parameters of the Python driver. Unknown
parameters of PostgreSQL are errors; those of SQLite have no effect."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from flinkish.common.no_effect import warn_without_effect
from flinkish.errors import ConfigurationError

POSTGRESQL = "postgresql"
SQLITE = "sqlite"
#: seconds after which a server that does not answer is an error, so that the job does not hang
CONNECT_TIMEOUT_S = 10

_FORMS = (
    "jdbc:postgresql://host:port/db, postgresql://host:port/db, jdbc:sqlite:/path/file.db or sqlite:///path/file.db"
)
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


@dataclass(frozen=True)
class DatabaseLocation:
    """Where a database is: ``kind`` is ``POSTGRESQL``, with libpq's connection ``parameters``, or ``SQLITE``, with the
    ``path`` of its file. ``repr`` does not show the parameters, which hold the password."""

    kind: str
    path: str = ""
    parameters: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """The key under which connections are kept: database, user and all parameters."""
        return (self.kind, self.path, tuple(sorted(self.parameters.items())))

    @property
    def label(self) -> str:
        """The database as messages name it, without user and password."""
        if self.kind == SQLITE:
            return f"SQLite {self.path}"
        found = self.parameters
        return f"PostgreSQL {found.get('host', 'localhost')}:{found.get('port', '5432')}/{found.get('dbname', '')}"


def parse_url(url: str, user: str | None = None, password: str | None = None) -> DatabaseLocation:
    """The location that a database URL means. ``user`` and ``password``, if given, replace those of the URL of a
    PostgreSQL database.

    Raises:
        ConfigurationError: the kind of database or a parameter is not known, or the URL names no SQLite file.

    >>> parse_url("jdbc:postgresql://db:5433/shop?user=me").parameters
    {'connect_timeout': '10', 'host': 'db', 'port': '5433', 'dbname': 'shop', 'user': 'me'}
    >>> parse_url("sqlite:///var/x.db").path
    '/var/x.db'
    """
    plain = url.removeprefix("jdbc:")
    if plain.startswith("sqlite:"):
        return DatabaseLocation(SQLITE, _sqlite_path(plain, url))
    if re.match(r"postgres(ql)?:", plain):
        parameters = {"connect_timeout": str(CONNECT_TIMEOUT_S), **_postgresql_parameters(plain, url)}
        parameters.update({key: value for key, value in (("user", user), ("password", password)) if value is not None})
        return DatabaseLocation(POSTGRESQL, parameters=parameters)
    raise ConfigurationError(
        f"the database URL '{url}' is of no kind that is supported", where="JdbcSink", expected=_FORMS
    )


def _sqlite_path(plain: str, url: str) -> str:
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
    return os.path.abspath(path)


def _postgresql_parameters(plain: str, url: str) -> dict[str, str]:
    if "//" not in plain:  # jdbc:postgresql:database
        plain = "postgresql:///" + plain.split(":", 1)[1].lstrip("/")
    parts = urlsplit(plain)
    found: dict[str, str] = {}
    servers = [server for server in parts.netloc.rpartition("@")[2].split(",") if server]
    hosts, ports = zip(*(_host_and_port(server) for server in servers), strict=True) if servers else ((), ())
    if hosts:
        found["host"] = ",".join(hosts)
        if any(ports):
            found["port"] = ",".join(port or "5432" for port in ports)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    for key, value in (("dbname", parts.path.lstrip("/")), ("user", user), ("password", password)):
        if value:
            found[key] = unquote(value)
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        _add_parameter(found, key, value, url)
    return found


def _host_and_port(server: str) -> tuple[str, str]:
    match = re.fullmatch(r"(\[[^]]*\]|[^:]*)(?::(\d+))?", server)
    if match is None:
        raise ConfigurationError(f"'{server}' is no server", where="JdbcSink", expected="host or host:port")
    return unquote(match[1].strip("[]")), match[2] or ""


def _add_parameter(found: dict[str, str], key: str, value: str, url: str) -> None:
    if key == "ssl":
        found.setdefault("sslmode", "prefer" if value == "false" else "verify-full")
    elif key == "currentSchema":
        found["options"] = f"{found.get('options', '')} -csearch_path={value}".strip()
    elif key in _RENAMED or key in _LIBPQ:
        found[_RENAMED.get(key, key)] = value
    elif key not in _IGNORED:
        raise ConfigurationError(
            f"the parameter '{key}' of the database URL '{url}' is not known",
            where="JdbcSink",
            expected=f"one of {', '.join(sorted(_LIBPQ | set(_RENAMED) | {'ssl', 'currentSchema'}))}",
        )
