"""VACUUM of the small Delta tables that belong to a job."""

from __future__ import annotations

from typing import Any

from flinkish.spark.session import settings_in_force

#: Delta lists directories with so many tasks, 10,000 by default: half a minute for a table of ten files.
_TASKS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}


def vacuum(spark: Any, table: str, retain_hours: int | None = None) -> None:
    """Delete the files that were replaced so many hours ago; None: as long ago as the table's property says."""
    statement, settings = f"VACUUM delta.`{table.replace('`', '``')}`", dict(_TASKS)
    if retain_hours is not None:
        statement += f" RETAIN {retain_hours} HOURS"
        settings["spark.databricks.delta.retentionDurationCheck.enabled"] = "false"
    with settings_in_force(spark, settings):
        spark.sql(statement).collect()
