"""An archive of the classes that the driver's JVM loads ("class data sharing").

A JVM maps it instead of reading and checking the entries of some hundred jar files, which is a third of what the start
of a job takes. It is made once per machine, Java and Spark, by ``flinkish prepare``, which ``spark-submit.sh`` calls
when it sets itself up. Without it a start only takes longer, and the JVM leaves alone one that does not fit to it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from flinkish.errors import OperationError
from flinkish.launch.home import default_spark_settings
from flinkish.launch.packages import PACKAGES
from flinkish.launch.spark_home import home_without_zip

#: Options of the driver's JVM and of no other, for Spark's scripts.
JVM_OPTIONS = "SPARK_SUBMIT_OPTS"

#: The second of the JVM's compilers, C2, begins after ten times as many calls as by default. What a driver does before
#: its first epoch it does once, so that three of its seven seconds went into code that would not run again; loops over
#: data in Spark itself are through with these numbers in a moment (docs/performance.md).
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

#: A JVM with another class path goes on without the archive and need not say so.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_TIMEOUT_S = 300
#: Archives of other versions are removed once nothing can be about to start with them.
_KEEP_S = 24 * 3600.0

#: A small job which has the classes loaded that jobs need.
_PROGRAM = """
import sys
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment

settings = Configuration()
settings.set_string("flinkish.job.dir", sys.argv[1])
settings.set_string("spark.ui.enabled", "false")
settings.set_string("parallelism.default", "2")
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.from_collection([("a", 1), ("b", 2)]).key_by(lambda pair: pair[0]).sum(1).print()
env.execute("class archive")
"""


def path_in(cache: Path, environment: Mapping[str, str]) -> Path:
    """Where the archive for this Java, this Spark and flinkish's packages lies, whether it is there or not."""
    java, jars = _java(environment), os.path.join(home_without_zip(cache, environment), "jars")
    parts = [java, jars, default_spark_settings().get(PACKAGES, "")]
    # an upgrade may leave the names as they are
    changed = [str(os.stat(file).st_mtime_ns) if os.path.exists(file) else "" for file in (java, jars)]
    key = hashlib.sha256("\0".join([*parts, *changed]).encode()).hexdigest()[:16]
    return cache / f"classes-{key}.jsa"


def options(cache: Path, environment: Mapping[str, str]) -> str:
    """The options of a driver's JVM: those of the environment, and, if there is an archive, this and when to compile: a
    JVM that has made one is known to understand both."""
    given = environment.get(JVM_OPTIONS, "")
    archive = path_in(cache, environment)
    if not archive.exists() or "Archive" in given:
        return given
    compiling = "" if "Tier" in given else _COMPILE_LATER
    return " ".join(filter(None, (given, compiling, _QUIET, f"-XX:SharedArchiveFile={archive}")))


def make(cache: Path, environment: Mapping[str, str]) -> Path:
    """Make the archive unless it is there; one process makes it, others wait.

    Raises:
        OperationError: there is none, with the end of what the JVM said.
    """
    archive = path_in(cache, environment)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _remove_old(cache)
            _make(archive, environment)
    return archive


def _make(archive: Path, environment: Mapping[str, str]) -> None:
    # renamed when it is whole, so that nobody maps a part of it
    made = archive.with_suffix(f".{os.getpid()}.tmp")
    variables = {**environment, JVM_OPTIONS: f"-XX:ArchiveClassesAtExit={made}"}
    # a JVM of its own, also where this process has one
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        variables.pop(name, None)
    said = "it took too long"
    try:
        with tempfile.TemporaryDirectory() as folder, suppress(subprocess.TimeoutExpired):
            # the JVM writes it when its Python process has ended, and holds the pipe until then
            said = subprocess.run(
                [sys.executable, "-c", _PROGRAM, os.path.join(folder, "job")],
                env=variables,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            ).stdout
        if not made.exists():
            raise OperationError(
                f"no archive of classes was made: {said.strip()[-500:]}",
                where=str(archive),
                expected="a Java 17 or later that has class data sharing",
                hint="jobs run without it; their start takes longer",
            )
        made.replace(archive)
    finally:
        made.unlink(missing_ok=True)


def _remove_old(cache: Path) -> None:
    for path in cache.glob("classes-*.jsa"):
        if time.time() - path.stat().st_mtime > _KEEP_S:
            path.unlink(missing_ok=True)


def _java(environment: Mapping[str, str]) -> str:
    """The file that Spark's scripts run as Java."""
    home = environment.get("JAVA_HOME")
    found = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environment.get("PATH"))
    return os.path.realpath(found) if found else ""
