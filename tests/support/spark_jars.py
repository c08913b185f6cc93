"""The jars that the tests' Spark sessions need beside Spark's own: Delta, of the matching version, as drivers that
flinkish starts have them.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from flinkish.launch.options import SparkOptions
from flinkish.launch.packages import path_of
from flinkish.launch.spark_command import SparkCommand
from tests.support.ivy import pyspark_jars_folder

_JAR_NAME = re.compile(r"(?P<module>.+?)-\d[^-]*(-.*)?\.jar")


@cache
def spark_jars() -> tuple[Path, ...]:
    """Returns the jars of Delta for the installed PySpark; none if Delta has none for it."""
    return tuple(Path(path_of(jar)) for jar in SparkCommand(os.environ, SparkOptions(())).jars())


def shipped_modules() -> tuple[str, ...]:
    """Returns the names, without versions, of the libraries inside PySpark."""
    matches = (_JAR_NAME.fullmatch(jar.name) for jar in pyspark_jars_folder().glob("*.jar"))
    return tuple(sorted({match["module"] for match in matches if match}))
