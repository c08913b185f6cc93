"""What differs between the versions of Spark that flinkish runs on (4.0 to 4.3), in one module.

Rule: what a platform may have carried back from a newer Spark is asked for by its presence, not by a number. Numbers
decide only what is published by number: Delta Lake's packages, and versions of PySpark with a known fault.

The version is read from PySpark's files, so that the launcher need not import PySpark, and so that it is known where
PySpark is no package of pip's (``SPARK_HOME/python`` of EMR and Databricks).
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.util import find_spec
from inspect import signature
from typing import Any, Protocol, cast

from flinkish.errors import EnvironmentVersionError

#: The oldest Spark that flinkish runs on.
MIN_SPARK = (4, 0)
_INSTALL = "pip install 'pyspark>=4.2,<4.3' delta-spark==4.4.0"
#: The versions of Spark that Delta Lake has a package for, in the version that ``spark-defaults.conf`` names.
_DELTAS_SPARKS = ((4, 0), (4, 1), (4, 2))
#: The settings that name classes of Delta Lake, without which a session fails in what it does with its catalog.
EXTENSIONS, CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"

#: The versions of PySpark whose keyed state does not work with pyarrow 26 and later, which no longer takes a float for
#: a number of rows.
_PASSES_FLOATS = re.compile(r"4\.0\.[0-4]|4\.1\.[0-3]")
_REFUSES_FLOATS = 26

#: A manager of checkpoint files that creates each log file once and atomically enough on a local file system, without
#: starting a process to set permissions. Spark 4.1 has moved it.
_LOCAL_FILE_MANAGERS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)


class _Loader(Protocol):
    def get_data(self, path: str) -> bytes: ...


@cache
def pyspark_version() -> str | None:
    """The version of the PySpark that this process would import, such as "4.2.0"; None if there is none."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None or spec.loader is None:
        return None
    # also from an archive
    data = cast(_Loader, spec.loader).get_data(os.path.join(os.path.dirname(spec.origin), "version.py"))
    found = re.search(r"^__version__\b.*?=\s*[\"']([^\"']+)", data.decode(), re.MULTILINE)
    return None if found is None else found.group(1)


def spark_version() -> tuple[int, int]:
    """The version of Spark, such as (4, 2). Raises what `checked_version` raises."""
    return checked_version(pyspark_version())


def checked_version(version: str | None) -> tuple[int, int]:
    """The version of the Spark that this PySpark has, such as (4, 2); None: there is no PySpark.

    Raises:
        EnvironmentVersionError: there is no PySpark, or it is too old.
    """
    if version is None:
        home = os.environ.get("SPARK_HOME")
        theirs = "" if home is None else f"put that of {home} on the PYTHONPATH ({home}/python and its py4j zip), or "
        raise EnvironmentVersionError(
            "PySpark is not installed, and programs run on Spark",
            expected=f"PySpark {_text(MIN_SPARK)} or newer",
            hint=f"{theirs}{_INSTALL}; the minicluster needs none (-D execution.target=minicluster)",
        )
    number = _numbers(version)
    if number < MIN_SPARK:
        raise EnvironmentVersionError(
            f"PySpark {version} is too old",
            expected=f"PySpark {_text(MIN_SPARK)} or newer",
            hint=f"{_INSTALL} in a new virtual environment, or use a newer release of the platform",
        )
    return number


def _numbers(version: str) -> tuple[int, int]:
    major, minor = (re.findall(r"\d+", version) + ["0", "0"])[:2]
    return int(major), int(minor)


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def spark_of_delta(pyspark: str | None = None) -> str | None:
    """The version of Spark in the name of Delta Lake's package for a PySpark (default: the installed one), such as
    "4.2"; None if Delta has none, or if there is no PySpark."""
    version = pyspark or pyspark_version()
    return _text(_numbers(version)) if version is not None and _numbers(version) in _DELTAS_SPARKS else None


def no_package_of_delta(spark: str) -> str:
    """Says why a session of this version of Spark has no Delta Lake, and what to do."""
    if _numbers(spark) in _DELTAS_SPARKS:
        return "add Delta's package to the session (spark.jars.packages), or let flinkish make the session"
    return f"Delta Lake has no package for Spark {_text(_numbers(spark))} yet: use Spark {_text(_DELTAS_SPARKS[-1])}"


def fits_spark(jar: str, spark: str) -> bool:
    """Whether a jar of Delta Lake is made for this version of Spark, as far as its name says.

    >>> fits_spark("file:/jars/delta-spark_4.2_2.13-4.4.0.jar", "4.3.0"), fits_spark("/databricks/jars/a.jar", "4.3.0")
    (False, True)
    """
    named = re.search(r"delta-spark_(\d+\.\d+)_[^/]*\.jar", jar)
    return named is None or named.group(1) == _text(_numbers(spark))


def plans_with_start() -> bool:
    """Whether Spark tells a data source written in Python where an epoch begins, and runs one with
    ``Trigger.AvailableNow`` until it is read. Without that, a reader remembers the offset that it returned last."""
    return find_spec("pyspark.sql.streaming.datasource") is not None


def trigger_available_now() -> type:
    """The class by which a reader says that it can stop at what is there; an empty one where Spark has none."""
    if not plans_with_start():
        return type("SupportsTriggerAvailableNow", (), {})
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    return cast(type, SupportsTriggerAvailableNow)


def file_manager_of(spark: str) -> str:
    """The name of the class in this version of Spark that manages checkpoint files on a local file system."""
    new, old = _LOCAL_FILE_MANAGERS
    return new if _numbers(spark) >= (4, 1) else old


def local_file_manager(spark: Any) -> str | None:
    """The same as `file_manager_of` for a session, whose JVM is asked, except that of Spark Connect, whose JVM is
    elsewhere; None: this Spark has no such class."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return file_manager_of(spark.version)
    return next(filter(jvm.org.apache.spark.util.Utils.classIsLoadable, _LOCAL_FILE_MANAGERS), None)


def arrow_schema_in_utc(schema: Any) -> Any:
    """The schema of Arrow for one of Spark, with the times of TIMESTAMP in UTC, as they are in Spark before 4.2 unless
    another is asked for."""
    from pyspark.sql.pandas.types import to_arrow_schema

    in_utc: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **in_utc)


def check_pyarrow(pyarrow: str, pyspark: str | None = None) -> None:
    """Refuse a version of pyarrow with which the keyed state of a PySpark (default: the installed one) does not work.

    Raises:
        EnvironmentVersionError: it is such a version.
    """
    version = pyspark or pyspark_version() or ""
    if _PASSES_FLOATS.fullmatch(version) and _numbers(pyarrow)[0] >= _REFUSES_FLOATS:
        raise EnvironmentVersionError(
            f"PySpark {version} does not work with pyarrow {pyarrow}",
            expected=f"pyarrow below {_REFUSES_FLOATS}, or a later PySpark {version[:3]}",
            hint=f"pip install 'pyarrow<{_REFUSES_FLOATS}'",
        )
