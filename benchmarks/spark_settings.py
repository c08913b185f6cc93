"""The Spark settings of every query measured here, bare or flinkish's: equal settings make their times comparable."""

from __future__ import annotations

import os
import sys
from typing import Any

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.memory": "2g",
}

#: The settings of a job that is measured as a user would run it: everything else is what flinkish chooses for a job on
#: this machine.
OF_A_JOB = {"spark.master": "local[2]", "spark.driver.memory": "2g", "spark.ui.enabled": "false"}

#: The setting of a job whose epochs are as large as its source or the limits say, whatever they take: what an epoch of
#: so many records costs is then comparable.
EPOCHS_OF_A_SIZE = {"flinkish.epoch.target-duration": "0 ms"}


def session(app_name: str, master: str = "local[2]") -> Any:
    """A session with SETTINGS that logs only errors."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    # a Delta table fences job directories
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
