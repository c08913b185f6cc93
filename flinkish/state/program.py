"""Compares a savepoint or checkpoint with a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flinkish.jobmanager.savepoints.compatibility import CompatibilityReport
from flinkish.jobmanager.savepoints.dry_run import compatibility_report
from flinkish.state.locating import snapshot_directory

if TYPE_CHECKING:
    from flinkish.datastream import StreamExecutionEnvironment


def compatibility(env: StreamExecutionEnvironment, path: str, spark: Any = None) -> CompatibilityReport:
    """Report what the program of an environment would take over of a savepoint or checkpoint.

    The job is not run and nothing is written, but a worker opens and closes the program's keyed operators once, to find
    out which states they declare.

    Args:
        env: the environment in which the program was built.
        path: a savepoint, a checkpoint, or a job directory, which stands for its latest completed checkpoint.
        spark: the Spark session to use; None: the active one, or else a local one.

    Example::

        report = compatibility(env, "/savepoints/savepoint-1f")
        print(report.text())
        assert report.compatible

    Raises:
        ProgramError: the program is wrong.
        SavepointError: there is no such savepoint, or it is damaged.
    """
    return compatibility_report(
        env._checked_graph(),
        env._configuration,
        snapshot_directory(path),
        env.is_chaining_enabled(),
        spark,
    )
