"""Prepares the JVM of a driver whose session flinkish makes: a new JVM is started with the launcher's options, a JVM
that already runs gets as much of them as it still can.

Rule: the process's environment, the user's options and the program's configuration win over flinkish's options, and
the process's environment is restored afterwards. A session that the user has made is not touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flinkish.launch.options import SparkOptions
from flinkish.launch.spark_command import MERGED_SETTINGS, SparkCommand, is_complete, submitted_options

#: The end of the location of log4j's configuration when nobody has replaced Spark's own.
_SPARKS_LOGGING = "org/apache/spark/log4j2-defaults.properties"
#: The end of the class name of the class loader of ``spark-submit``, to which jars can be added.
_OPEN_LOADER = "MutableURLClassLoader"
_DELTA = "io/delta/sql/DeltaSparkSessionExtension.class"


def jvm_is_running() -> bool:
    """Whether this process has a JVM, or was started by one (``spark-submit``)."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def submit_variables(settings: Mapping[str, str]) -> Iterator[None]:
    """Inside this context, PySpark starts its JVM with flinkish's options.

    Args:
        settings: the program's own settings for Spark.
    """
    given = submitted_options(os.environ)
    if is_complete(given) and not settings.keys() & set(MERGED_SETTINGS):
        yield
        return
    command = SparkCommand(os.environ, SparkOptions((*given.items, *_options(settings).items)))
    variables = command.jvm_environment(command.arguments())
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def make_the_most_of(jvm: Any, settings: Mapping[str, str]) -> list[str]:
    """Add Delta and flinkish's logging to a JVM that somebody else has started, where it has none of its own.

    Returns the jar files that the executors need, too; none if Delta was there or cannot be added.
    """
    command = SparkCommand(os.environ, _options(settings))
    _log_as_launched(jvm, command)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(_DELTA) is not None or not loader.getClass().getName().endswith(_OPEN_LOADER):
        return []
    # as Spark does with the jars of its option --jars
    jars = command.jars()
    for jar in jars:
        loader.addURL(jvm.java.net.URI(jar if jar.startswith("file:") else Path(jar).as_uri()).toURL())
    return jars


def _options(settings: Mapping[str, str]) -> SparkOptions:
    return SparkOptions(tuple(("--conf", f"{key}={value}") for key, value in settings.items()))


def _log_as_launched(jvm: Any, command: SparkCommand) -> None:
    # under spark-submit, Spark sets up its logging when the first of its classes logs something, and would then
    # replace what is set up here
    spark = jvm.java.lang.Class.forName("org.apache.spark.util.Utils$").getField("MODULE$").get(None)
    spark.initializeLogIfNecessary(False, True)
    # the logging context of Spark's classes, not that of the class loader that this call comes through
    loader = jvm.java.lang.Class.forName("org.apache.spark.SparkContext").getClassLoader()
    context = jvm.org.apache.logging.log4j.LogManager.getContext(loader, False)
    location = context.getConfiguration().getConfigurationSource().getLocation()
    file = command.home.logging_file
    if file is not None and str(location).endswith(_SPARKS_LOGGING):
        jvm.java.lang.System.setProperty("flinkish.spark.log", str(command.home.spark_log))
        context.setConfigLocation(jvm.java.net.URI(Path(file).as_uri()))
