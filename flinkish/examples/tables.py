"""Creates the tables of the programs in ``jobs/`` before the job, and prints them after it, in PostgreSQL or SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from flinkish.connectors.jdbc.database import parse_url
from flinkish.connectors.jdbc.mysql import MysqlDialect
from flinkish.connectors.jdbc.sqlite import SqliteDialect
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions
from flinkish.errors import ConfigurationError, ConnectionFailedError


def run_sql(database: JdbcConnectionOptions, *statements: str) -> list[tuple[Any, ...]]:
    """Execute the statements in one transaction, and return the rows of the last one ([] if it gives no rows).

    Raises:
        ConnectionFailedError: the database cannot be reached.
    """
    with closing(_connect(database)) as connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description is not None else []
        connection.commit()
        return rows


def _connect(database: JdbcConnectionOptions) -> Any:
    location = parse_url(database.url, database.get_user_name(), database.get_password())
    if isinstance(location.dialect, SqliteDialect):
        return sqlite3.connect(location.parameters["path"])
    if isinstance(location.dialect, MysqlDialect):
        raise ConfigurationError(
            f"the tables of these programs are not MySQL's: {location.label}",
            where="--jdbc-url",
            expected="postgresql://HOST:PORT/DB, or nothing for an SQLite file",
        )
    from flinkish.connectors.jdbc.postgresql import driver

    psycopg = driver()
    try:
        return psycopg.connect(**location.parameters)
    except psycopg.OperationalError as error:
        raise ConnectionFailedError(
            f"the database cannot be reached: {' '.join(str(error).split())}",
            where=database.url,
            hint="start it, or mend the URL, user and password; without --jdbc-url the job uses a file",
        ) from error


def text_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A text table with columns as wide as needed; the cells of columns of numbers are aligned to the right.

    >>> print(text_table(["user", "clicks"], [("ann", 12_000), ("bo", 5)]))
    user  clicks
    ann   12,000
    bo         5
    """
    numeric = [False] * len(header)
    lines = [list(header)]
    for row in rows:
        numeric = [isinstance(value, (int, float)) for value in row]
        lines.append([_text(value) for value in row])
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
