"""What the programs in ``jobs/`` have in common: their command line, which says where records come from, where results
go and how the job runs; and their run, which creates the tables in PostgreSQL or SQLite before the job, and prints them
after it.

Rule: a program that is started without options needs no server.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from flinkish.common import Configuration
from flinkish.connectors.jdbc.database import parse_url
from flinkish.connectors.jdbc.mysql import MysqlDialect
from flinkish.connectors.jdbc.sqlite import SqliteDialect
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors import Source
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions
from flinkish.errors import ConfigurationError, ConnectionFailedError
from flinkish.examples.clicks import generated_clicks, kafka_clicks
from flinkish.storage.paths import local_path

EXAMPLE_SERVERS = (
    "--bootstrap-servers HOST:9092 --topic clicks --jdbc-url postgresql://HOST/DB --username USER --job-dir DIRECTORY"
)


@dataclass(frozen=True)
class JobOptions:
    """The options of a command line, with defaults filled in."""

    source: Source
    database: JdbcConnectionOptions
    configuration: Configuration
    #: whether the generator takes the place of Kafka, or an SQLite file that of PostgreSQL
    embedded: bool
    #: the number of events that a generator makes
    events: int
    #: the number of distinct users of these events
    users: int


def parse(
    program: str,
    description: str,
    argv: Sequence[str] | None = None,
    generator: Callable[[int, int], Source] | None = None,
) -> JobOptions:
    """Parse a command line. Wrong options end the process with a usage message.

    Example: ``parse("click_count", "Clicks per user.", ["--events", "1000"]).embedded`` is true.

    Args:
        program: the name of the program; it names the SQLite file and its temporary folder.
        description: the text of ``--help``.
        argv: the arguments; default: those of the process.
        generator: (number of events, number of users) -> source, for a program whose records are not clicks. Such a
            program does not read from Kafka.
    """
    parser = _parser(description, clicks=generator is None)
    given = parser.parse_args(argv)
    if (given.bootstrap_servers is None) != (given.topic is None):
        parser.error("--bootstrap-servers and --topic go together")
    if given.bounded and given.topic is None:
        parser.error("--bounded is for a Kafka topic; the generator always ends")
    if given.output is not None and given.jdbc_url is not None:
        parser.error("--output is the SQLite file that is used without --jdbc-url")
    for name in ("events", "users", "parallelism"):
        if getattr(given, name) is not None and getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1")
    embedded = given.topic is None or given.jdbc_url is None
    return JobOptions(
        _source(given, generator),
        _database(given, program),
        _configuration(given),
        embedded,
        given.events,
        given.users,
    )


def _parser(description: str, clicks: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, epilog=f"With servers: {EXAMPLE_SERVERS}" if clicks else None
    )
    if clicks:
        kafka = parser.add_argument_group("clicks from Kafka: JSON objects of user_id, logged_in, amount, ts, page")
        kafka.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="Kafka's brokers")
        kafka.add_argument("--topic", help="topic to read")
        kafka.add_argument("--bounded", action="store_true", help="end with what is in the topic now")
    else:
        parser.set_defaults(bootstrap_servers=None, topic=None, bounded=False)
    generator = parser.add_argument_group("otherwise clicks from a generator" if clicks else "the generator")
    generator.add_argument("--events", type=int, default=200_000, metavar="N", help="events (default: %(default)s)")
    generator.add_argument("--users", type=int, default=1_000, metavar="N", help="distinct users (%(default)s)")
    database = parser.add_argument_group("results")
    database.add_argument("--jdbc-url", metavar="URL", help="PostgreSQL: postgresql://HOST:PORT/DB")
    database.add_argument("--username", help="of the database")
    database.add_argument("--password", help="of the database; better in the environment variable PGPASSWORD")
    database.add_argument("--output", metavar="FILE", help="SQLite file (default: in the job directory, if any)")
    job = parser.add_argument_group("the job")
    job.add_argument("--parallelism", type=int, metavar="N", help="subtasks per operator")
    job.add_argument("--job-dir", metavar="DIRECTORY", help="state of the job; started again with it, the job goes on")
    job.add_argument("--from-savepoint", metavar="PATH", help="savepoint to begin with")
    return parser


def _source(given: argparse.Namespace, generator: Callable[[int, int], Source] | None) -> Source:
    if generator is not None:
        return generator(given.events, given.users)
    if given.topic is None:
        return generated_clicks(given.events, given.users)
    return kafka_clicks(given.bootstrap_servers, given.topic, given.bounded)


def _database(given: argparse.Namespace, program: str) -> JdbcConnectionOptions:
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    if given.jdbc_url is None:
        return builder.with_url(f"jdbc:sqlite:{_file(given.output, program, given.job_dir)}").build()
    builder = builder.with_url(given.jdbc_url)
    if given.username is not None:
        builder = builder.with_user_name(given.username)
    if given.password is not None:
        builder = builder.with_password(given.password)
    return builder.build()


def _file(output: str | None, program: str, job_dir: str | None) -> str:
    if output is None:
        # SQLite cannot keep its file on a distributed file system
        folder = local_path(job_dir) if job_dir else None
        output = os.path.join(folder or tempfile.mkdtemp(prefix=f"flinkish-{program}-"), f"{program}.db")
    path = os.path.abspath(output)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def _configuration(given: argparse.Namespace) -> Configuration:
    configuration = Configuration()
    if given.job_dir is not None:
        configuration.set_string("flinkish.job.dir", given.job_dir)
    if given.parallelism is not None:
        configuration.set_integer("parallelism.default", given.parallelism)
    if given.from_savepoint is not None:
        configuration.set_string("execution.state-recovery.path", given.from_savepoint)
    return configuration


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


def run(
    program: str,
    description: str,
    tables: Sequence[str],
    build: Callable[[StreamExecutionEnvironment, JobOptions], None],
    show: Callable[[JdbcConnectionOptions], None],
    generator: Callable[[int, int], Source] | None = None,
) -> JobOptions:
    """Run a program with the options of the command line, and return these options.

    Args:
        program: the name of the job.
        description: the text of ``--help``.
        tables: SQL statements that create the tables that do not exist yet.
        build: adds the pipeline to the environment, from its sources to its sinks.
        show: prints the contents of the tables when the job has ended.
        generator: makes the source of a program whose records are not clicks; see `flinkish.examples.options.parse`.
    """
    options = parse(program, description, generator=generator)
    run_sql(options.database, *tables)
    env = StreamExecutionEnvironment.get_execution_environment(options.configuration)
    build(env, options)
    env.execute(program)
    show(options.database)
    return options
