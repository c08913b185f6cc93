"""The jars that the tests' Spark sessions need beside Spark's own: Delta, of the matching version.

What Spark ships itself is excluded, so that a session never sees two versions of one library.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from flinkish.launch.home import default_spark_settings
from flinkish.launch.packages import PACKAGES
from tests.support.ivy import Coordinate, JarSet, pyspark_jars_folder, resolve_jars

_JAR_NAME = re.compile(r"(?P<module>.+?)-\d[^-]*(-.*)?\.jar")


@cache
def spark_jars() -> tuple[Path, ...]:
    """Returns the jars of Delta for the installed PySpark: the value of `spark.jars`; none if Delta has none for it."""
    packages = default_spark_settings().get(PACKAGES)
    if packages is None:
        return ()
    delta = Coordinate(*packages.split(":"))
    return tuple(resolve_jars(JarSet("spark", (delta,), excluded_modules=shipped_modules())))


def shipped_modules() -> tuple[str, ...]:
    """Returns the names, without versions, of the libraries inside PySpark."""
    matches = (_JAR_NAME.fullmatch(jar.name) for jar in pyspark_jars_folder().glob("*.jar"))
    return tuple(sorted({match["module"] for match in matches if match}))
