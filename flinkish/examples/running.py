"""What the programs in ``jobs/`` do alike when they are started: tables, the job, its results on the screen."""

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
    """Run a program with the options of the command line, which are given back.

    Args:
        program: the name of the job.
        description: what ``--help`` says of it.
        tables: statements that make the tables which are not there yet.
        build: adds the pipeline, from its sources to its sinks.
        show: prints what is in the tables in the end.
        generator: see `flinkish.examples.options.parse`.
    """
    options = parse(program, description, generator=generator)
    run_sql(options.database, *tables)
    env = StreamExecutionEnvironment.get_execution_environment(options.configuration)
    build(env, options)
    env.execute(program)
    show(options.database)
    return options
