"""Finds the folder of the Spark that a driver starts.

PySpark as installed by pip contains itself a second time in ``python/lib/pyspark.zip``. Spark puts that zip first on
the path of each Python process that it starts, half a dozen of them until the first records are read. Python compiles
what it imports from a zip again in each process, which takes 0.35 s each time. So a driver whose Python processes all
run in its own environment gets a folder with links to the same Spark, without that zip: its processes import the
installed PySpark.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

#: The folders of a SPARK_HOME in which Spark's scripts and its JVM look for files.
_PARTS = ("bin", "conf", "data", "jars", "sbin")


def spark_home(environment: Mapping[str, str]) -> str:
    """The folder that SPARK_HOME names, else that of the installed PySpark; empty if there is neither."""
    return environment.get("SPARK_HOME") or _installed()


def spark_defaults(environment: Mapping[str, str]) -> Path | None:
    """The path of the ``spark-defaults.conf`` of Spark's own installation, which a platform may have filled; it need
    not exist. None if there is no Spark."""
    home = spark_home(environment)
    folder = environment.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else None)
    return Path(folder, "spark-defaults.conf") if folder else None


def home_without_zip(cache: Path, environment: Mapping[str, str]) -> str:
    """A folder below ``cache`` with links to the installed PySpark, without its zip; it is made if it does not exist.
    If the environment sets SPARK_HOME, PySpark is not installed, or the links cannot be made, the folder of
    `spark_home`."""
    home = _installed()
    if environment.get("SPARK_HOME") or not home:
        return spark_home(environment)
    links = cache / f"spark-{hashlib.sha256(home.encode()).hexdigest()[:16]}"
    try:
        links.mkdir(parents=True, exist_ok=True)
        for part in _PARTS:
            if os.path.exists(os.path.join(home, part)):
                # two drivers may start at once
                with suppress(FileExistsError):
                    os.symlink(os.path.join(home, part), links / part)
    except OSError:
        return home
    return str(links)


def _installed() -> str:
    spec = find_spec("pyspark")
    return os.path.dirname(spec.origin) if spec is not None and spec.origin is not None else ""
