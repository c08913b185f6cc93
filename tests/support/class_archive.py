"""What the JVMs of the tests are started with: for a short life, and with the archive of classes that users have.

The suite starts some hundred JVMs that live for seconds. Without arguments, the command
``python -m tests.support.class_archive`` makes the archive if there is none.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from flinkish.errors import OperationError
from flinkish.launch import class_archive
from tests.support.processes import python_path

#: Of a JVM that lives for seconds, compiling its code well costs more than it gains. The room for compiled code is by
#: default five times smaller then, too small for the session that all tests share.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"


def java_options() -> str:
    """The options of all JVMs of the run; makes the archive when there is none. Without one, tests only take longer."""
    cache = Path(tempfile.gettempdir()) / f"flinkish-tests-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": python_path()}
    try:
        class_archive.make(cache, environment)
    except OperationError:
        return SHORT_LIVED
    return f"{SHORT_LIVED} {class_archive.options(cache, environment)}"


def set_java_options() -> None:
    """For all JVMs that this process starts from now on, unless somebody has set other ones."""
    if "JDK_JAVA_OPTIONS" not in os.environ:
        os.environ["JDK_JAVA_OPTIONS"] = java_options()


if __name__ == "__main__":
    java_options()
