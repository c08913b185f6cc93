"""Gets the jar of Flink's Web UI, which a driver serves unmodified: from where an earlier resolution has left it, or
else by Spark's package resolution, once.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from flinkish.errors import EnvironmentVersionError, FinalOperationError
from flinkish.launch.home import Home
from flinkish.launch.options import SparkOptions
from flinkish.launch.packages import ivy_folders, path_of, resolve

#: The package, and its digest. It is the pages alone: what they are made for in Java is left out.
PACKAGE = "org.apache.flink:flink-runtime-web:2.3.0"
_JAR = "org.apache.flink_flink-runtime-web-2.3.0.jar"
_DIGEST = "c5476003a9357e6ce876a19d1daa7e37b573ad9fada6448fe665de8bad7162e8"
_EXCLUDED = (
    "*:flink-annotations,*:flink-clients,*:flink-core*,*:flink-java,*:flink-rpc-*,*:flink-runtime,*:flink-shaded-*,"
    "*:jsr305,*:slf4j-api"
)


def web_ui_jar(environment: Mapping[str, str]) -> Path:
    """The path of the jar. Takes half a minute if it has to be got.

    Raises:
        ConnectionFailedError: it cannot be downloaded.
        EnvironmentVersionError: there is no PySpark or no Java, which do that.
        FinalOperationError: the file of this name is another one.
    """
    jars = [folder / _JAR for folder in ivy_folders() if (folder / _JAR).exists()]
    if not jars:
        if find_spec("pyspark") is None:
            raise EnvironmentVersionError(
                "PySpark is not installed, whose package resolution gets the jar", expected=f"the jar of {PACKAGE}"
            )
        home = Home(environment)
        own = home.own_spark_settings
        submitted = SparkOptions.parse(shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", "")))
        options = [*submitted.only("--repositories", "--conf").tokens(), "--exclude-packages", _EXCLUDED]
        if own is not None:
            options += ["--properties-file", str(own)]
        found = resolve(PACKAGE, SparkOptions.parse(options), home.cache)
        jars = [path for path in map(Path, map(path_of, found)) if path.name == _JAR]
    if not jars or hashlib.sha256(jars[0].read_bytes()).hexdigest() != _DIGEST:
        raise FinalOperationError(
            f"{_JAR} is not the file that Flink has published under this name",
            where=str(jars[0]) if jars else "",
            expected=f"the SHA-256 digest {_DIGEST}",
            hint="find out who has changed it or its repository; without the file it is downloaded again",
        )
    return jars[0]
