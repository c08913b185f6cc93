"""Runs a program of ``jobs/``: makes its tables, runs the job, and prints the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors import Source
from flinkish.datastream.connectors.jdbc import JdbcConnectionOptions
from flinkish.examples.options import JobOptions, parse
from flinkish.examples.tables import run_sql


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
