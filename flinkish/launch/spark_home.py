"""Finds the folder of the Spark that a driver starts, and what a platform has put into it.

PySpark as installed by pip contains itself a second time in ``python/lib/pyspark.zip``. Spark puts that zip first on
the path of each Python process that it starts, half a dozen of them until the first records are read. Python compiles
what it imports from a zip again in each process, which takes 0.35 s each time. So a driver whose Python processes all
run in its own environment gets a folder with links to the same Spark, without that zip: its processes import the
installed PySpark.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from flinkish.launch.options import read_properties

#: The class by which Delta Lake is recognized.
DELTA_CLASS = "io/delta/sql/DeltaSparkSessionExtension.class"

#: The folders of a SPARK_HOME in which Spark's scripts and its JVM look for files.
_PARTS = ("bin", "conf", "data", "jars", "sbin")


def spark_home(environment: Mapping[str, str]) -> str:
    """The folder that SPARK_HOME names, else that of the installed PySpark; empty if there is neither."""
    return environment.get("SPARK_HOME") or _installed()


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


def settings_of_platform(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of Spark's own ``spark-defaults.conf``, which a platform writes."""
    folder = environment.get("SPARK_CONF_DIR") or os.path.join(spark_home(environment), "conf")
    file = Path(folder, "spark-defaults.conf")
    return read_properties(file.read_text()) if file.is_file() else {}


def is_shipped_with_delta(environment: Mapping[str, str]) -> bool:
    """Whether a platform has put Delta Lake among Spark's own jars."""
    return any(Path(spark_home(environment), "jars").glob("delta-spark*.jar"))


def holds_delta(entry: str) -> bool:
    """Whether an entry of a class path or of a list of jars holds Delta Lake: a jar, or a folder of jars (``/jars/*``).
    A jar on another machine's storage is known by its name."""
    path = Path(entry.removeprefix("file:").removeprefix("local:"))
    if path.name == "*":
        return any(map(holds_delta, map(str, path.parent.glob("delta-spark*.jar"))))
    try:
        with zipfile.ZipFile(path) as jar:
            return DELTA_CLASS in jar.namelist()
    except (OSError, zipfile.BadZipFile):
        return path.name.startswith("delta-spark")


def _installed() -> str:
    spec = find_spec("pyspark")
    return os.path.dirname(spec.origin) if spec is not None and spec.origin is not None else ""
