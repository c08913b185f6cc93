"""The settings of every Spark session that tests use, shared by the in-process session and by driver scripts.

They are those of a job on two cores: small, quick epochs, nothing written outside the given folder, no user interface.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from flinkish.launch.home import Home, home_without_zip
from flinkish.launch.spark_command import ONE_JVM
from flinkish.launch.spark_version import CATALOG, EXTENSIONS, file_manager_of
from flinkish.spark.session import settings_of_long_lived_sessions
from tests.support.processes import python_path
from tests.support.spark_jars import spark_jars

#: Drivers of tests live for seconds: to compile the code of their queries takes longer than to interpret them.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
#: For the session that all tests share: stages are compiled, as in a user's job. Single expressions are not: each task
#: that reads a Delta table's log would generate code for its large rows anew, which took a seventh of the time of such
#: tests.
COMPILED = {"spark.sql.codegen.wholeStage": "true"}


def start_session(
    folder: Path, master: str = "local[2]", extra: dict[str, str] | None = None, python: str = sys.executable
) -> SparkSession:
    """Starts this process's one Spark session, with Delta; its files stay in `folder`, and its workers run `python`."""
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYTHONPATH"] = python_path()
    builder = SparkSession.Builder().master(master).appName("flinkish-tests")
    for name, value in {**session_settings(folder, ONE_JVM.fullmatch(master) is not None), **(extra or {})}.items():
        builder = builder.config(name, value)
    session = _get_or_create(builder)
    session.sparkContext.setLogLevel("ERROR")
    return session


def session_settings(folder: Path, one_jvm: bool = True) -> dict[str, str]:
    """Returns the Spark settings of a test session whose warehouse and scratch files lie in `folder`. ``one_jvm``: its
    driver is its only executor, and its class path is that of which the archive of classes was made."""
    jars = [str(jar) for jar in spark_jars()]
    settings = {
        **({"spark.driver.extraClassPath": os.pathsep.join(jars)} if one_jvm else {"spark.jars": ",".join(jars)}),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        # so many tasks has a VACUUM, 10,000 by default
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder / 'derby'}",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": python_path(),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.unsupportedOperationCheck": "false",
        "spark.sql.streaming.checkpointFileManagerClass": file_manager_of(pyspark.__version__),
        "spark.ui.enabled": "false",
        **_INTERPRETED,
        **settings_of_long_lived_sessions(),
        "spark.ui.showConsoleProgress": "false",
    }
    return settings if jars else {key: value for key, value in settings.items() if key not in (EXTENSIONS, CATALOG)}


def home_of_sessions() -> str:
    """Returns the SPARK_HOME of sessions, that of the drivers that flinkish starts. It does not contain PySpark's zip:
    Python would compile that again in each process of a session."""
    return home_without_zip(Home(os.environ).cache, os.environ)


def _get_or_create(builder: SparkSession.Builder) -> SparkSession:
    if "SPARK_HOME" in os.environ:
        return builder.getOrCreate()
    os.environ["SPARK_HOME"] = home_of_sessions()
    try:
        return builder.getOrCreate()
    finally:
        # what this process starts later is to find its SPARK_HOME itself
        del os.environ["SPARK_HOME"]
