"""The Spark session that a job runs in (the active one, or one made for it), its executors, and the settings that
flinkish's queries need."""

from __future__ import annotations

import logging
import os
import platform
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.options import flinkish, python
from flinkish.errors import ConfigurationError, EnvironmentVersionError
from flinkish.launch.home import default_spark_settings
from flinkish.launch.options import comma_list
from flinkish.launch.packages import java_is_missing
from flinkish.launch.spark_command import MERGED_SETTINGS, PYSPARK_PYTHON, WORKERS_PYTHON, local_settings
from flinkish.runtime.task import RETAINED_EPOCHS
from flinkish.spark.driver_jvm import (
    jvm_is_running,
    make_archive_after_this_program,
    make_the_most_of,
    submit_variables,
)

MIN_PYTHON = (3, 10)
MIN_JAVA = 17
MIN_SPARK = (4, 0)

#: A manager of checkpoint files that creates each log file once and atomically enough on a local file system, without
#: starting a process to set permissions.
_LOCAL_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

#: Bytes of an Arrow batch. Rows are whole buffers, so Spark's limit on the rows of a batch bounds nothing: without this
#: one, a worker would be given all buffers of an epoch at once.
_MAX_ARROW_BATCH_BYTES = 8 * 1024 * 1024

#: Modules that PySpark imports for the first session, which takes as long as all else that Python does until then.
_NEEDED_LATER = ("pandas", "pyspark.testing")


def check_versions(java_version: str | None = None, python_version: tuple[int, ...] | None = None) -> None:
    """Refuse a Python or Java that is too old, before anything fails with an error that does not name the reason.

    Args:
        java_version: such as "17.0.2" or "1.8.0_392"; None: it is not checked.
        python_version: the version to check; None: that of this process.

    Raises:
        EnvironmentVersionError: a version is too old.
    """
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


def get_session(configuration: Configuration, app_name: str, *, short_lived: bool = False) -> Any:
    """The Spark session for a job: the active session, else one of Spark Connect if the configuration
    (``spark.remote``) or the environment asks for it, else a local one.

    Args:
        short_lived: a JVM that is started for the session is to start fast rather than to run Spark's own code fast.

    Raises:
        ConfigurationError: the workers' interpreter can no longer be chosen, since Spark runs with another one.
        EnvironmentVersionError: Python or Java is too old.
    """
    py4j = logging.getLogger("py4j")
    if py4j.level == logging.NOTSET:
        # it logs each connection as INFO, between the lines of programs that call `logging.basicConfig`
        py4j.setLevel(logging.WARNING)
    session = _found_or_made(configuration, app_name, short_lived)
    if not is_remote(session):
        with suppress(Exception):
            look_up_installed_sources(session)
    return session


def look_up_installed_sources(spark: Any) -> None:
    """Find out, in place of Spark, that no data sources for Python are installed, i.e. modules named ``pyspark_...``.

    Spark starts a Python process for that when a session first needs any data source, and closes its socket before the
    process has ended: nearly every driver's output had the traceback of a BrokenPipeError in it. No code of flinkish
    runs in that process. If there are such modules, or if the internals of Spark are other ones, Spark looks itself.
    """
    jvm = spark.sparkContext._jvm
    name = "org.apache.spark.sql.execution.datasources.DataSourceManager$"
    manager = jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)
    if manager.dataSourceBuilders().isEmpty() and not any(one.name.startswith("pyspark_") for one in iter_modules()):
        none = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(none))


def _found_or_made(configuration: Configuration, app_name: str, short_lived: bool) -> Any:
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    _choose_python(configuration, active)
    if active is not None:
        return active
    check_versions()
    remote = configuration.get_string("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    # a server of Spark Connect on another machine has its own settings and jars
    if remote and not remote.startswith("local"):
        return SparkSession.builder.remote(remote).getOrCreate()
    if not remote and os.environ.get("SPARK_CONNECT_MODE_ENABLED"):
        return SparkSession.builder.getOrCreate()
    return _local_session(configuration, app_name, remote, short_lived)


def _choose_python(configuration: Configuration, active: Any) -> None:
    """Set the interpreter of the workers as the option ``python.executable`` says. Spark reads it when its JVM starts.

    Raises:
        ConfigurationError: the JVM already runs, with another interpreter.
    """
    wanted = configuration.get(python.EXECUTABLE)
    if wanted is None or os.environ.get(PYSPARK_PYTHON) == wanted:
        return
    if active is not None or jvm_is_running():
        raise ConfigurationError(
            f"the workers' interpreter '{wanted}' cannot be chosen any more",
            where=f"configuration key '{python.EXECUTABLE.key}'",
            expected="the interpreter that Spark was started with",
            hint=f"start the program with PYSPARK_PYTHON={wanted} in the environment",
        )
    os.environ[PYSPARK_PYTHON] = wanted


def _local_session(configuration: Configuration, app_name: str, remote: str, short_lived: bool) -> Any:
    """Make a session whose driver is on this machine.

    Args:
        remote: URL of a Spark Connect server that this process starts; "": classic Spark.
        short_lived: see `get_session`.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    own = {
        key: configuration.get_string(key, "")
        for key in configuration.key_set()
        if key.startswith("spark.") and key != "spark.remote"
    }
    builder = SparkSession.builder.appName(app_name)
    running = jvm_is_running()
    with nullcontext() if running else submit_variables(own, short_lived):
        if not running:
            # first, and without settings, which PySpark would pass on its command line; only the JVM knows those that
            # were submitted, over which the program's own ones win
            if remote:
                # the secret of the server, which PySpark would make after the start of the JVM
                secret = own.get("spark.connect.authenticate.token") or secrets.token_hex()
                os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", secret)
            with _while_the_jvm_starts():
                SparkContext._ensure_initialized()
        submitted = SparkConf()
        master = remote or own.get("spark.master") or submitted.get("spark.master", "local[*]") or "local[*]"
        if not running or master.startswith("local"):
            # otherwise executors, and Spark where it plans sources, start `python3` from the PATH, which need not be
            # that of the virtual environment
            named = own.get(WORKERS_PYTHON) or submitted.get(WORKERS_PYTHON)
            os.environ.setdefault(PYSPARK_PYTHON, named or sys.executable)
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
        session = builder.getOrCreate()
    if not running and not remote and configuration.get(flinkish.PREPARE) == "auto":
        make_archive_after_this_program(own)
    return session


@contextmanager
def _while_the_jvm_starts() -> Iterator[None]:
    """Import modules that are needed later while the JVM starts inside this context. If it does not start because there
    is no Java, or one that is too old, the error says so."""
    threading.Thread(target=_import_ahead, daemon=True).start()
    try:
        yield
    except Exception:
        java = installed_java()
        if java is None:
            raise java_is_missing("the start of Spark") from None
        check_versions(java)
        raise


def _import_ahead() -> None:
    # a failing import is raised again where the module is needed
    with suppress(ImportError):
        for name in _NEEDED_LATER:
            import_module(name)


def _session_settings(master: str) -> dict[str, str]:
    settings = default_spark_settings()
    # settings that a running JVM can no longer follow
    for key in ("spark.master", "spark.jars.packages"):
        settings.pop(key, None)
    if platform.system() == "Windows":
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    if master.startswith("local"):
        settings |= local_settings(master, os.environ)
    return {**settings, **settings_of_long_lived_sessions()}


def settings_of_long_lived_sessions() -> dict[str, str]:
    """Settings for sessions that run epochs and checkpoints again and again. They save time; nothing goes wrong without
    them.

    A fair scheduler gives epochs precedence over checkpoints; otherwise Spark runs jobs in the order of submission. The
    cache for generated code holds the code of all queries of a job, which are more than the 100 of Spark's default;
    otherwise that code is compiled each time.
    """
    pools = Path(__file__).parent / "scheduler.xml"
    file = {"spark.scheduler.allocation.file": str(pools)} if pools.exists() else {}
    return {"spark.scheduler.mode": "FAIR", **file, "spark.sql.codegen.cache.maxEntries": "1000"}


def is_remote(spark: Any) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


#: The number of slots to assume of a server of Spark Connect, which does not say how many it has.
_REMOTE_SLOTS = 16


def slots_of(spark: Any) -> int:
    """How many tasks can run at the same time on the executors that a session has."""
    return _REMOTE_SLOTS if is_remote(spark) else max(1, int(spark.sparkContext.defaultParallelism))


def may_run_on_other_machines(spark: Any) -> bool:
    """Whether the executors of a session may run on other machines than its driver. False for a server of Spark Connect
    that does not tell its master."""
    try:
        return not str(spark.conf.get("spark.master", "local")).startswith("local")
    except Exception:
        return False


#: The reason for which Spark removes an executor that it has ended itself, as dynamic allocation does.
_ENDED_BY_SPARK = "killed by driver"


class LostExecutors:
    """Finds the executors that a session loses from now on; none under Spark Connect, where the driver is elsewhere."""

    def __init__(self, spark: Any) -> None:
        self._store = None if is_remote(spark) else spark.sparkContext._jsc.sc().statusStore()
        self._told = set(self._lost())

    def new(self) -> list[str]:
        """Those that were lost since the last call, each with its number, its address, the time and Spark's reason."""
        found = {number: text for number, text in self._lost().items() if number not in self._told}
        self._told.update(found)
        return list(found.values())

    def _lost(self) -> dict[str, str]:
        if self._store is None:
            return {}
        lost, executors = {}, self._store.executorList(False).iterator()
        while executors.hasNext():
            executor = executors.next()
            reason = "" if executor.isActive() else str(executor.removeReason().getOrElse(None))
            if reason and _ENDED_BY_SPARK not in reason:
                gone = datetime.fromtimestamp(executor.removeTime().get().getTime() / 1000, timezone.utc)
                when = f"{gone:%Y-%m-%d %H:%M:%S} UTC"
                lost[executor.id()] = f"executor {executor.id()} on {executor.hostPort()} was lost at {when} ({reason})"
        return lost


def query_settings(state_backend: str, partitions: int, batch_size: int, local_files: bool) -> dict[str, str]:
    """The Spark settings that a job's query needs.

    Args:
        state_backend: "rocksdb" for Spark's RocksDB state store; anything else: the one in memory.
        partitions: the number of shuffle partitions.
        batch_size: the most rows of an Arrow batch.
        local_files: the job directory is on a local file system.
    """
    settings = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.unsupportedOperationCheck": "false",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB if state_backend == "rocksdb" else _HDFS,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(batch_size),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(_MAX_ARROW_BATCH_BYTES),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # how often sources without new data are asked for some: Spark's default of 10 ms costs a quarter of a core
        "spark.sql.streaming.pollingDelay": "50ms",
        # version 2 names the files of a state after the run that wrote them; see `allow_epochs_that_do_not_run`
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
        "spark.sql.streaming.minBatchesToRetain": str(RETAINED_EPOCHS),
    }
    if state_backend == "rocksdb":
        settings["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] = "true"
    if local_files:
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_FILE_MANAGER
    return settings


def allow_epochs_that_do_not_run(spark: Any) -> None:
    """Switch off Spark's check that each epoch has written state.

    An epoch that is already prepared when Spark delivers it again is committed without being run: its state is what the
    earlier run has written. Spark would take that for a ``foreachBatch`` function that never uses its DataFrame.

    Spark reads this setting from the session in each epoch, not from the query's copy of the session's settings, so it
    stays set in the session.
    """
    spark.conf.set("spark.sql.streaming.stateStore.commitValidation.enabled", "false")


#: Held while a query is started. Settings belong to the whole session, so jobs start their queries one at a time.
_starting = threading.RLock()


@contextmanager
def settings_in_force(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    """Inside this context the session has these settings; afterwards it has its former ones again.

    For starting a query or running a statement: Spark copies the session's settings at that moment. Only one thread at
    a time is inside, since another one would start its query with these settings and restore them later.
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
