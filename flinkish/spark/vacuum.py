"""VACUUM of the small Delta tables that belong to a job."""

from __future__ import annotations

from typing import Any

from flinkish.spark.session import settings_in_force

_SETTINGS = {
    # Delta lists directories with so many tasks, 10,000 by default: half a minute for a table of ten files
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}


def vacuum(spark: Any, table: str, retain_hours: int | None = None) -> None:
    """Delete the files that were replaced so many hours ago; None: as long ago as the table's property says."""
    statement = f"VACUUM delta.`{table.replace('`', '``')}`"
    if retain_hours is not None:
        statement += f" RETAIN {retain_hours} HOURS"
    with settings_in_force(spark, _SETTINGS):
        spark.sql(statement).collect()
