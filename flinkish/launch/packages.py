"""Resolves Maven packages to jar files with Spark's own package resolution, once for the same packages.

Rule: the resolution prints nothing unless it fails. Spark prints a report of the resolution at every start with
``--packages``. So the resolution runs in a session of its own, its output goes to a file, and the job gets the jar
files that were found. Libraries that are among Spark's own jars are left out, since Spark's class loaders look there
first in any case.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

from flinkish.errors import ConnectionFailedError
from flinkish.launch.options import SparkOptions, comma_list
from flinkish.launch.spark_home import spark_home

#: The key of Spark's setting that lists Maven packages.
PACKAGES = "spark.jars.packages"

# the user's options and settings that influence a resolution
_RESOLUTION_OPTIONS = ("--repositories", "--properties-file")
_EXCLUDES = "spark.jars.excludes"
_RESOLUTION_SETTINGS = (
    "spark.jars.ivy",
    "spark.jars.ivySettings",
    "spark.jars.repositories",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraJavaOptions",
)

# if one of these is true, a library of the user wins over Spark's own
_USERS_FIRST = ("spark.driver.userClassPathFirst", "spark.executor.userClassPathFirst")
_JAR = re.compile(r"(.+?)-\d.*\.jar")

#: First line of a program for `python -c`, which would import modules of the current directory before all others.
WITHOUT_CURRENT_DIRECTORY = "import sys; sys.path[:] = [entry for entry in sys.path if entry]\n"

_PROGRAM = f"""{WITHOUT_CURRENT_DIRECTORY}
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
jars = session.conf.get("spark.jars")
session.stop()
open(sys.argv[1], "w").write(jars)
"""


def resolve(packages: str, options: SparkOptions, cache: Path) -> list[str]:
    """The jars of Maven packages and of everything that they depend on, as URIs or paths.

    Args:
        packages: comma-separated Maven coordinates.
        options: the user's options; those about repositories, exclusions and the JVM are used.
        cache: the directory in which the result is remembered, and the log of the resolution written.

    Raises:
        ConnectionFailedError: a package cannot be found or downloaded; the message quotes Spark's report.
    """
    arguments = [*options.only(*_RESOLUTION_OPTIONS).tokens(), "--master", "local[1]"]
    settings = {key: options.conf(key) for key in _RESOLUTION_SETTINGS}
    arguments += [token for key, value in settings.items() if value for token in ("--conf", f"{key}={value}")]
    excluded = comma_list(options.either("--exclude-packages", _EXCLUDES), _sparks_own(options))
    if excluded:
        arguments += ["--exclude-packages", excluded]
    arguments += ["--conf", "spark.ui.enabled=false", "--packages", packages]
    command = shlex.join([*arguments, "pyspark-shell"])
    home = os.path.expanduser("~")  # Spark puts the jars below it
    key = hashlib.sha256(f"{home}\0{sys.prefix}\0{command}".encode()).hexdigest()[:16]
    known = cache / f"packages-{key}.json"
    jars = _remembered(known)
    if jars is None:
        jars = _run(packages, command, cache, key)
        known.write_text(json.dumps(jars))
    return jars


def _sparks_own(options: SparkOptions) -> list[str]:
    """Patterns that exclude the libraries in Spark's own folder of jars; none if the user's libraries come first."""
    if "true" in map(options.conf, _USERS_FIRST):
        return []
    names = map(_JAR.fullmatch, (jar.name for jar in Path(spark_home(os.environ), "jars").glob("*.jar")))
    return sorted({f"*:{name.group(1)}" for name in names if name is not None})


def _remembered(known: Path) -> list[str] | None:
    """The jars that an earlier resolution found; None if there was none, or a jar does not exist any more."""
    if not known.exists():
        return None
    jars: list[str] = json.loads(known.read_text())
    return jars if all(os.path.exists(path_of(jar)) for jar in jars) else None


def path_of(jar: str) -> str:
    """The path of a jar that `resolve` has found, which is a path itself or a URI with escapes.

    >>> path_of("file:///My%20Jars/a.jar"), path_of("/My Jars/a.jar")
    ('/My Jars/a.jar', '/My Jars/a.jar')
    """
    parsed = urlparse(jar)
    return unquote(parsed.path) if parsed.scheme else jar


def _run(packages: str, command: str, cache: Path, key: str) -> list[str]:
    print(f"flinkish: resolving {packages} (the first time only)", file=sys.stderr, flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    log, found = cache / f"packages-{key}.log", cache / f"packages-{key}.{os.getpid()}.tmp"
    # without extensions: a session that names Delta's classes can start only when Delta has been resolved
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": command, "PYTHONSAFEPATH": "1"}
    # the resolution must start a JVM of its own, even under spark-submit and Spark Connect
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        environment.pop(name, None)
    try:
        with log.open("wb") as output:
            program = [sys.executable, "-c", _PROGRAM, str(found)]
            code = subprocess.run(program, env=environment, stdout=output, stderr=output, check=False).returncode
        if code != 0 or not found.exists():
            raise _failed(packages, log)
        return [jar for jar in comma_list(found.read_text()).split(",") if jar]
    finally:
        found.unlink(missing_ok=True)


def _failed(packages: str, log: Path) -> ConnectionFailedError:
    lines = log.read_text(errors="replace").splitlines()
    telling = [line.strip() for line in lines if "UNRESOLVED" in line or "not found" in line or "Exception" in line]
    return ConnectionFailedError(
        "Spark could not resolve " + packages + (": " + "; ".join(telling[:5]) if telling else ""),
        where=f"log: {log}",
        expected="a Maven repository that has them and can be reached",
        hint="mend the connection, or name a mirror: `-- --repositories URL`",
    )
