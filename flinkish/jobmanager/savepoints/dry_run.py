"""Reports what a start from a savepoint would take over, without starting the job."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from flinkish.common.configuration import Configuration
from flinkish.common.job_id import JobID
from flinkish.errors import ConfigurationError
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph
from flinkish.jobmanager.savepoints.compatibility import CompatibilityReport
from flinkish.jobmanager.savepoints.restore import RestoredProgram, compatibility_of
from flinkish.jobmanager.settings import driver_settings, job_settings
from flinkish.spark.dependencies import ship
from flinkish.spark.session import get_session


def compatibility_report(
    graph: StreamGraph,
    configuration: Configuration,
    savepoint: str,
    chaining: bool,
    session: Any = None,
    job_name: str = "dry run",
) -> CompatibilityReport:
    """Compare a program with a savepoint. Nothing is written, but a worker opens and closes the program's keyed
    operators once, to find out which states they declare.

    Raises:
        ProgramError: the program is wrong.
        SavepointError: there is no such savepoint, or it is damaged.
    """
    generator = JobGraphGenerator(graph, job_settings(configuration), chaining)
    spark = session if session is not None else get_session(configuration, job_name)
    generator.with_shipped_files(ship(spark, configuration))
    job = generator.generate(JobID().to_hex_string(), job_name)
    program = RestoredProgram(job, generator.sources(), generator.migrations())
    return compatibility_of(spark, program, driver_settings(configuration), savepoint)


def end_with_report(
    graph: StreamGraph,
    configuration: Configuration,
    chaining: bool,
    session: Any,
    job_name: str,
) -> NoReturn:
    """Carry out ``execution.state-recovery.dry-run``: print the report and end the program, with exit code 0 if it can
    be started from the savepoint, and otherwise 1.

    Raises:
        ConfigurationError: the configuration names no savepoint.
        SavepointError: there is no such savepoint, or it is damaged.
    """
    savepoint = driver_settings(configuration).savepoint
    if savepoint is None:
        raise ConfigurationError(
            "a dry run needs a savepoint",
            expected="execution.state-recovery.path, or -s / --fromSavepoint",
            hint="name the savepoint, or leave out execution.state-recovery.dry-run",
        )
    report = compatibility_report(graph, configuration, savepoint, chaining, session, job_name)
    sys.stdout.write(report.text() + "\n")
    sys.stdout.flush()
    raise SystemExit(0 if report.compatible else 1)
