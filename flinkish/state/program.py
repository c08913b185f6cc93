"""A savepoint and a program, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flinkish.jobmanager.savepoints.compatibility import CompatibilityReport
from flinkish.jobmanager.savepoints.dry_run import compatibility_report
from flinkish.state.locating import snapshot_directory

if TYPE_CHECKING:
    from flinkish.datastream import StreamExecutionEnvironment


def compatibility(env: StreamExecutionEnvironment, path: str, spark: Any = None) -> CompatibilityReport:
    """What the program of an environment would take over of a savepoint or checkpoint. Nothing is run or written, but
    a worker opens and closes the program's keyed operators once, to see which states they ask for.

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
