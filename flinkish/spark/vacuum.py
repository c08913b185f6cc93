"""Runs Delta's VACUUM on the small tables that belong to a job."""

from __future__ import annotations

from typing import Any

from flinkish.common.storage import for_spark
from flinkish.spark.session import settings_in_force

#: The number of tasks with which Delta lists directories. The default of 10,000 takes half a minute for a table of ten
#: files.
_TASKS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}


def vacuum(spark: Any, table: str, retain_hours: int | None = None) -> None:
    """Delete the files of a table that were replaced more than ``retain_hours`` ago.

    Args:
        table: path of the table.
        retain_hours: may be less than Delta usually allows; None: what the table's property says.
    """
    statement, settings = f"VACUUM delta.`{for_spark(table).replace('`', '``')}`", dict(_TASKS)
    if retain_hours is not None:
        statement += f" RETAIN {retain_hours} HOURS"
        settings["spark.databricks.delta.retentionDurationCheck.enabled"] = "false"
    with settings_in_force(spark, settings):
        spark.sql(statement).collect()
