"""Archives of the JVM's classes ("class data sharing"), which a JVM maps instead of loading thousands of jar entries.

The suite starts some hundred JVMs that live for seconds; an archive takes a third off the start of each. It fits to one
class path alone: the sessions of the tests have one of their own, and the drivers that flinkish starts have that of
``flinkish prepare``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark

from flinkish.launch import class_archive
from flinkish.launch.home import Home
from flinkish.spark.session import installed_java
from tests.support.processes import python_path
from tests.support.spark_session import home_of_sessions, start_session

#: Of a JVM that lives for seconds, compiling its code well costs more than it gains. The room for compiled code is by
#: default five times smaller then, too small for the session that all tests share.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
#: JVMs with another class path (Spark's launcher, Kafka) go on without the archive and need not say so.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_TIMEOUT_S = 180


def java_options() -> str:
    """The options of all JVMs of the run; makes the archive when there is none. Without one, tests only take longer."""
    archive = _archive()
    if not archive.exists() and not _make(archive):
        return SHORT_LIVED
    return f"{SHORT_LIVED} {_QUIET} -XX:SharedArchiveFile={archive}"


def set_java_options() -> None:
    """For all JVMs that this process starts from now on, unless somebody has set other ones."""
    if "JDK_JAVA_OPTIONS" not in os.environ:
        os.environ["JDK_JAVA_OPTIONS"] = java_options()


def _archive() -> Path:
    key = hashlib.sha256(
        f"{installed_java()} {home_of_sessions()} {pyspark.__version__} {SHORT_LIVED}".encode()
    ).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"flinkish-tests-{os.getuid()}" / f"classes-{key}.jsa"


def _make(archive: Path) -> bool:
    """One of the processes of the run makes it, the others wait."""
    archive.parent.mkdir(mode=0o700, exist_ok=True)
    with (archive.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return True
        # renamed when it is whole, so that nobody maps a part of it
        made = archive.with_suffix(f".{os.getpid()}")
        with tempfile.TemporaryDirectory() as folder, suppress(subprocess.TimeoutExpired):
            # the JVM writes it when its Python process has ended, and holds the pipes until then
            subprocess.run(
                [sys.executable, "-m", "tests.support.class_archive", folder, str(made)],
                env={**os.environ, "JDK_JAVA_OPTIONS": SHORT_LIVED, "PYTHONPATH": python_path()},
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        if made.exists():
            made.replace(archive)
        return archive.exists()


def make_archives() -> None:
    """Makes both archives, unless they are there."""
    java_options()
    class_archive.make(Home(os.environ).cache, os.environ)


def _use_what_jobs_use(folder: Path, archive: str) -> None:
    """Has the classes loaded that a job with a directory needs: the archive holds what was loaded when it was made."""
    from flinkish.common import Configuration
    from flinkish.datastream import StreamExecutionEnvironment

    # of this JVM alone, not of the one that composes its command
    options = f"-Dderby.system.home={folder / 'derby'} -XX:ArchiveClassesAtExit={archive}"
    session = start_session(folder, extra={"spark.driver.extraJavaOptions": options})
    settings = Configuration()
    settings.set_string("flinkish.job.dir", str(folder / "job"))
    settings.set_string("parallelism.default", "2")
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.from_collection([("a", 1), ("b", 2)]).key_by(lambda pair: pair[0]).sum(1).print()
    env.execute("class archive")
    session.stop()


if __name__ == "__main__":
    _use_what_jobs_use(Path(sys.argv[1]), sys.argv[2])
