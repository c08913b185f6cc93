"""The jars that the tests' Spark sessions need beside Spark's own: the Kafka connector and Delta, of matching versions.

What Spark ships itself is excluded, so that a session never sees two versions of one library.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pyspark

from tests.support.ivy import Coordinate, JarSet, pyspark_jars_folder, resolve_jars

SCALA = "2.13"
_JAR_NAME = re.compile(r"(?P<module>.+?)-\d[^-]*(-.*)?\.jar")


@cache
def spark_jars() -> tuple[Path, ...]:
    """Returns the jars of the Kafka connector and of Delta for the installed PySpark: the value of `spark.jars`."""
    spark = pyspark.__version__
    coordinates = (
        Coordinate("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA}", spark),
        Coordinate("io.delta", f"delta-spark_{'.'.join(spark.split('.')[:2])}_{SCALA}", version("delta-spark")),
    )
    # Some registries have the connector but not the token provider of its version; 4.0.0 has the same classes.
    older_token_provider = Coordinate("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}", "4.0.0")
    shipped = shipped_modules()
    return tuple(
        resolve_jars(
            JarSet("spark", coordinates, excluded_modules=shipped),
            JarSet("spark", coordinates, overrides=(older_token_provider,), excluded_modules=shipped),
        )
    )


def shipped_modules() -> tuple[str, ...]:
    """Returns the names, without versions, of the libraries inside PySpark."""
    matches = (_JAR_NAME.fullmatch(jar.name) for jar in pyspark_jars_folder().glob("*.jar"))
    return tuple(sorted({match["module"] for match in matches if match}))
