"""Makes and finds the archive of the classes that the driver's JVM loads (Java's class data sharing).

A JVM maps the archive into memory instead of reading and verifying classes from some hundred jar files, which takes a
third of the time that a job needs to start. The archive is made once for each machine, Java and Spark: by ``flinkish
prepare``, which ``spark-submit.sh`` calls when it sets itself up, or in the background after the first program that has
started without it. Without the archive a start only takes longer, and a JVM ignores an archive that does not match it.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from flinkish.errors import OperationError
from flinkish.interpreter import ROOT, python_command
from flinkish.launch.home import default_spark_settings, home_without_zip
from flinkish.launch.packages import PACKAGES

#: The environment variable from which Spark's scripts take options for the driver's JVM and for no other JVM.
JVM_OPTIONS = "SPARK_SUBMIT_OPTS"

#: Makes the JVM's second compiler, C2, compile a method only after ten times as many calls as by default. A driver runs
#: most code before its first epoch only once, and three of the seven seconds went into compiling code that would not
#: run again; Spark's loops over data reach these counts in a moment (docs/performance.md).
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

_START_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"

#: Keeps a JVM from reporting that it does not use the archive because its class path differs.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_TIMEOUT_S = 300
#: Archives of other versions are removed after this time, when no job can be about to start with them.
_KEEP_S = 24 * 3600.0

#: A small job that makes the JVM load the classes that jobs need.
_PROGRAM = """
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

#: Makes the archive beside whatever else the machine does. Nobody reads the failure of one that cannot be made.
_IN_BACKGROUND = """
import os
os.nice(19)
from flinkish.launch import class_archive
from flinkish.launch.home import Home
class_archive.make(Home(os.environ).cache, os.environ)
"""
#: A program that lives so long does not keep others waiting for the archive.
_LONG_LIVED_S = 60.0
_made_later = False
#: Locked by the process that makes an archive.
_LOCK = "classes.lock"


def path_in(cache: Path, environment: Mapping[str, str]) -> Path:
    """The path of the archive for the environment's Java and Spark and for flinkish's packages, whether or not it
    exists."""
    java, jars = _java(environment), os.path.join(home_without_zip(cache, environment), "jars")
    parts = [java, jars, default_spark_settings().get(PACKAGES, "")]
    # an upgrade may keep the names, but changes the times of modification
    changed = [str(os.stat(file).st_mtime_ns) if os.path.exists(file) else "" for file in (java, jars)]
    key = hashlib.sha256("\0".join([*parts, *changed]).encode()).hexdigest()[:16]
    return cache / f"classes-{key}.jsa"


def options(cache: Path, environment: Mapping[str, str]) -> str:
    """The options of a driver's JVM: those of the environment and, if an archive exists, the options to use it and to
    compile later. A JVM that has made an archive is known to understand these options."""
    given = environment.get(JVM_OPTIONS, "")
    archive = path_in(cache, environment)
    if not archive.exists() or "Archive" in given:
        return given
    compiling = "" if "Tier" in given else _COMPILE_LATER
    return " ".join(filter(None, (given, compiling, _QUIET, shlex.quote(f"-XX:SharedArchiveFile={archive}"))))


def short_lived(options: str) -> str:
    """The options of a JVM that need not run Spark's own code fast, from those of any driver's JVM. With its first
    compiler alone and a collector without threads of its own, a start takes three quarters of the processor time
    (docs/performance.md). Options that choose a compiler or a collector stay as they are."""
    chosen = "TieredStopAtLevel" in options or re.search(r"-XX:\+Use\w*GC", options) is not None
    return options if chosen else f"{options} {_START_FAST}".strip()


def make(cache: Path, environment: Mapping[str, str]) -> Path:
    """Make the archive unless it exists, and return its path. If several processes call this, one makes the archive
    and the others wait for it.

    Raises:
        OperationError: the archive could not be made; the message ends with the last output of the JVM.
    """
    archive = path_in(cache, environment)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _remove_old(cache)
            _make(archive, environment)
    return archive


def make_after_this_program(cache: Path, environment: Mapping[str, str]) -> None:
    """If there is no archive, and none is being made, have one made by another process with low priority: when this one
    ends, or, if it lives longer, after a minute. Repeated calls have no effect."""
    global _made_later
    if _made_later or path_in(cache, environment).exists():
        return
    _made_later = True
    begun = threading.Lock()

    def begin() -> None:
        if not begun.acquire(blocking=False) or path_in(cache, environment).exists() or _is_being_made(cache):
            return
        print(
            "flinkish: what makes the next starts faster is made in the background, once (flinkish.prepare: off)",
            file=sys.stderr,
            flush=True,
        )
        path = os.pathsep.join(filter(None, (ROOT, environment.get("PYTHONPATH"))))
        with suppress(OSError):
            subprocess.Popen(
                python_command(_IN_BACKGROUND),
                env={**environment, "PYTHONPATH": path},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    atexit.register(begin)
    timer = threading.Timer(_LONG_LIVED_S, begin)
    timer.daemon = True
    timer.start()


def _is_being_made(cache: Path) -> bool:
    try:
        with (cache / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def _make(archive: Path, environment: Mapping[str, str]) -> None:
    # renamed when it is complete, so that no JVM maps an incomplete archive
    made = archive.with_suffix(f".{os.getpid()}.tmp")
    variables = {**environment, JVM_OPTIONS: shlex.quote(f"-XX:ArchiveClassesAtExit={made}")}
    # the job must start a JVM of its own, even if this process has one
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        variables.pop(name, None)
    said = "it took too long"
    try:
        with tempfile.TemporaryDirectory() as folder, suppress(subprocess.TimeoutExpired):
            # the JVM writes the archive after its Python process has ended, and keeps the pipe open until it is written
            said = subprocess.run(
                python_command(_PROGRAM, os.path.join(folder, "job")),
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
    """The path of the Java that Spark's scripts run; empty if there is none."""
    home = environment.get("JAVA_HOME")
    found = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environment.get("PATH"))
    return os.path.realpath(found) if found else ""
