"""The Spark session a job runs in: the active one, or one made for it; and the settings that the mechanism needs."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.options import python
from flinkish.errors import ConfigurationError, EnvironmentVersionError
from flinkish.launch.home import default_spark_settings
from flinkish.launch.options import comma_list
from flinkish.launch.spark_command import MERGED_SETTINGS, local_settings
from flinkish.runtime.task import RETAINED_EPOCHS
from flinkish.spark.driver_jvm import jvm_is_running, make_the_most_of, submit_variables

MIN_PYTHON = (3, 10)
MIN_JAVA = 17
MIN_SPARK = (4, 0)

#: Creates each log file once and atomically enough on a local file system, without starting a process for permissions.
_LOCAL_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

#: Rows are buffers, so that the limit on rows bounds nothing: a worker would be given all buffers of an epoch at once.
_MAX_ARROW_BATCH_BYTES = 8 * 1024 * 1024

#: PySpark imports them for the first session, which takes as long as all else that Python does until then.
_NEEDED_LATER = ("pandas", "pyspark.testing")


def check_versions(java_version: str | None = None, python_version: tuple[int, ...] | None = None) -> None:
    """Refuse a Python or Java that is too old, before anything fails in a strange way."""
    python = python_version or sys.version_info[:3]
    if python < MIN_PYTHON:
        raise EnvironmentVersionError(
            f"Python {'.'.join(map(str, python))} is too old",
            expected=f"Python {'.'.join(map(str, MIN_PYTHON))} or newer",
            hint="install a newer Python and create the virtual environment with it",
        )
    if java_version is not None:
        major = _java_major(java_version)
        if major is not None and major < MIN_JAVA:
            raise EnvironmentVersionError(
                f"Java {java_version} is too old",
                expected=f"Java {MIN_JAVA} or newer",
                hint="install a newer Java and set JAVA_HOME to it",
            )


def _java_major(text: str) -> int | None:
    found = re.search(r"(\d+)(?:\.(\d+))?", text)
    if found is None:
        return None
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major


def installed_java() -> str | None:
    """The version that ``java -version`` reports; None when there is no Java to ask."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return found.group(1) if found else None


def get_session(configuration: Configuration, app_name: str) -> Any:
    """The active session, or a local one."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    _choose_python(configuration, active)
    if active is not None:
        return active
    check_versions()
    remote = configuration.get_string("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    # a server elsewhere has settings and jars of its own
    if remote and not remote.startswith("local"):
        return SparkSession.builder.remote(remote).getOrCreate()
    if not remote and os.environ.get("SPARK_CONNECT_MODE_ENABLED"):
        return SparkSession.builder.getOrCreate()
    return _local_session(configuration, app_name, remote)


def _choose_python(configuration: Configuration, active: Any) -> None:
    """``python.executable``: the interpreter of the workers, which Spark learns when its JVM starts.

    ConfigurationError if that has happened, with another one.
    """
    wanted = configuration.get(python.EXECUTABLE) if configuration.contains(python.EXECUTABLE) else None
    if wanted is None or os.environ.get("PYSPARK_PYTHON") == wanted:
        return
    if active is not None or jvm_is_running():
        raise ConfigurationError(
            f"the workers' interpreter '{wanted}' cannot be chosen any more",
            where=f"configuration key '{python.EXECUTABLE.key}'",
            expected="the interpreter that Spark was started with",
            hint=f"start the program with PYSPARK_PYTHON={wanted} in the environment",
        )
    os.environ["PYSPARK_PYTHON"] = wanted


def _local_session(configuration: Configuration, app_name: str, remote: str) -> Any:
    """``remote``: not empty for a Spark Connect server that this process starts."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    own = {
        key: configuration.get_string(key, "")
        for key in configuration.key_set()
        if key.startswith("spark.") and key != "spark.remote"
    }
    builder = SparkSession.builder.appName(app_name)
    running = jvm_is_running()
    with nullcontext() if running else submit_variables(own):
        if not remote:
            # now, because only the JVM knows what was submitted; a program's own settings win over that
            with nullcontext() if running else _while_the_jvm_starts():
                SparkContext._ensure_initialized(conf=SparkConf().setAll(list(own.items())))
        submitted = SparkConf()
        master = remote or own.get("spark.master") or submitted.get("spark.master", "local[*]") or "local[*]"
        builder = builder.remote(remote) if remote else builder.master(master)
        for key, value in _session_settings(master).items():
            if not submitted.contains(key):
                builder = builder.config(key, value)
        for key, value in own.items():
            if key not in ("spark.master", *MERGED_SETTINGS):
                builder = builder.config(key, value)
        if running and SparkContext._jvm is not None:
            jars = make_the_most_of(SparkContext._jvm, own)
            builder = builder.config("spark.jars", comma_list(submitted.get("spark.jars"), own.get("spark.jars"), jars))
        return builder.getOrCreate()


@contextmanager
def _while_the_jvm_starts() -> Iterator[None]:
    """What is imported later in any case is imported meanwhile. If there is no JVM in the end, a Java that is too old
    is named as the reason."""
    threading.Thread(target=_import_ahead, daemon=True).start()
    try:
        yield
    except Exception:
        check_versions(installed_java())
        raise


def _import_ahead() -> None:
    # what cannot be imported fails again where it is needed
    with suppress(ImportError):
        for name in _NEEDED_LATER:
            import_module(name)


def _session_settings(master: str) -> dict[str, str]:
    settings = default_spark_settings()
    # what a running JVM can no longer follow
    for key in ("spark.master", "spark.jars.packages"):
        settings.pop(key, None)
    if platform.system() == "Windows":
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    if master.startswith("local"):
        # executors start `python3` from the PATH otherwise, which is not the virtual environment's
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= local_settings()
    return {**settings, **settings_of_long_lived_sessions()}


def settings_of_long_lived_sessions() -> dict[str, str]:
    """For sessions in which epochs and checkpoints run again and again. Nothing goes wrong without them.

    Epochs come before checkpoints; otherwise Spark takes jobs in the order in which they came. The code of all their
    queries is kept, of which there are more than the 100 of Spark's default; otherwise it is compiled each time.
    """
    pools = Path(__file__).parent / "scheduler.xml"
    file = {"spark.scheduler.allocation.file": str(pools)} if pools.exists() else {}
    return {"spark.scheduler.mode": "FAIR", **file, "spark.sql.codegen.cache.maxEntries": "1000"}


def is_remote(spark: Any) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def query_settings(state_backend: str, partitions: int, batch_size: int, local_files: bool) -> dict[str, str]:
    """The settings that a job's query needs (``docs/architecture.md`` says why each)."""
    settings = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.unsupportedOperationCheck": "false",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB if state_backend == "rocksdb" else _HDFS,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(batch_size),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(_MAX_ARROW_BATCH_BYTES),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # how often sources are asked for news while there is none: Spark's 10 ms cost a quarter of a core
        "spark.sql.streaming.pollingDelay": "50ms",
        # version 2 names the files of a state by the run that wrote them; see `allow_epochs_that_do_not_run`
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
        "spark.sql.streaming.minBatchesToRetain": str(RETAINED_EPOCHS),
    }
    if state_backend == "rocksdb":
        settings["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] = "true"
    if local_files:
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_FILE_MANAGER
    return settings


def allow_epochs_that_do_not_run(spark: Any) -> None:
    """An epoch that is prepared when Spark delivers it again is committed without being run: its state is what the run
    before has written. Spark would take that for a ``foreachBatch`` function that forgets its frame.

    It asks the session itself in each epoch, not the copy of its settings that belongs to the query: so this setting
    stays.
    """
    spark.conf.set("spark.sql.streaming.stateStore.commitValidation.enabled", "false")


#: Queries of several jobs are started one after the other: settings belong to the whole session.
_starting = threading.RLock()


@contextmanager
def settings_in_force(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    """Set them while a query is being started: Spark copies the session's settings at that moment.

    One thread at a time: another one would start its query with these, and put back what it found.
    """
    with _starting:
        yield from _set_for_a_while(spark, settings)


def _set_for_a_while(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
