"""The JVM of a driver whose session flinkish makes: started as the launcher would, or made the most of as it runs.

Rule: what the process's environment, the user's options and the program's configuration say wins; the process's
environment is as before afterwards. A session that the user has made is not touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flinkish.launch.options import SparkOptions
from flinkish.launch.spark_command import MERGED_SETTINGS, SparkCommand, is_complete, submitted_options

#: Where Spark's own configuration of log4j lies when nobody has given another one.
_SPARKS_LOGGING = "org/apache/spark/log4j2-defaults.properties"
#: The class loader of ``spark-submit``, which takes more jars.
_OPEN_LOADER = "MutableURLClassLoader"
_DELTA = "io/delta/sql/DeltaSparkSessionExtension.class"


def jvm_is_running() -> bool:
    """Whether this process has a JVM, or was started by one (``spark-submit``)."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def submit_variables(settings: Mapping[str, str]) -> Iterator[None]:
    """Inside, PySpark starts a JVM with flinkish's options; ``settings``: the program's own for Spark."""
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
    """For a JVM that somebody else has started: it gets Delta and flinkish's logging where it has none of its own.

    Returns the jar files that executors need for that.
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
    # below spark-submit Spark sets up its logging when the first of its classes has something to say, and would then
    # replace what is set up here
    spark = jvm.java.lang.Class.forName("org.apache.spark.util.Utils$").getField("MODULE$").get(None)
    spark.initializeLogIfNecessary(False, True)
    # Spark's logging, not that of the class loader that this call comes through
    loader = jvm.java.lang.Class.forName("org.apache.spark.SparkContext").getClassLoader()
    context = jvm.org.apache.logging.log4j.LogManager.getContext(loader, False)
    location = context.getConfiguration().getConfigurationSource().getLocation()
    file = command.home.logging_file
    if file is not None and str(location).endswith(_SPARKS_LOGGING):
        jvm.java.lang.System.setProperty("flinkish.spark.log", str(command.home.spark_log))
        context.setConfigLocation(jvm.java.net.URI(Path(file).as_uri()))
