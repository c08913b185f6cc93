"""The archive of the JVM's classes ("class data sharing"), which a JVM maps in place of loading thousands of entries of
jars.

The suite starts some hundred JVMs that live for seconds; an archive takes a third off the start of each. It fits to one
class path alone, which the sessions of tests (`tests.support.spark_session`) therefore share with the drivers that
flinkish starts: the archive is that of ``flinkish prepare``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from flinkish.errors import OperationError
from flinkish.launch import class_archive
from flinkish.launch.home import Home
from tests.support.processes import python_path

#: Of a JVM that lives for seconds, compiling its code well costs more than it gains. The room for compiled code is by
#: default five times smaller then, too small for the session that all tests share.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
#: JVMs with another class path (Spark's launcher, Kafka) go on without the archive and need not say so.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def java_options() -> str:
    """The options of all JVMs of the run; makes the archive when there is none. Without one, tests only take longer."""
    with suppress(OperationError):
        return f"{SHORT_LIVED} {_QUIET} -XX:SharedArchiveFile={make_archive()}"
    return SHORT_LIVED


def make_archive() -> Path:
    """Makes the archive unless it is there; of several processes one makes it, and the others wait."""
    own = {"JDK_JAVA_OPTIONS": SHORT_LIVED, "PYTHONPATH": python_path()}
    return class_archive.make(Home(os.environ).cache, {**os.environ, **own})


def set_java_options() -> None:
    """For all JVMs that this process starts from now on, unless somebody has set other ones."""
    if "JDK_JAVA_OPTIONS" not in os.environ:
        os.environ["JDK_JAVA_OPTIONS"] = java_options()
