"""The Spark session that a job runs in: the active one, or one made for it."""

from __future__ import annotations

import logging
import os
import platform
import re
import secrets
import site
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow

from flinkish.common.configuration import Configuration
from flinkish.common.options import flinkish, python
from flinkish.errors import ConfigurationError, EnvironmentVersionError, OperationError
from flinkish.interpreter import ROOT
from flinkish.launch.home import Home, data_file, default_spark_settings
from flinkish.launch.options import comma_list
from flinkish.launch.packages import java_is_missing, own_archive
from flinkish.launch.spark_command import MERGED_SETTINGS, PYSPARK_PYTHON, WORKERS_PYTHON, local_settings
from flinkish.launch.spark_version import (
    CATALOG,
    EXTENSIONS,
    check_pyarrow,
    fits_spark,
    no_package_of_delta,
    spark_version,
)
from flinkish.spark.driver_jvm import (
    as_part_of_this_driver,
    command_of,
    has_delta,
    jvm_is_running,
    log_files,
    make_archive_after_this_program,
    make_the_most_of,
    submit_variables,
)
from flinkish.spark.object_stores import use_object_stores_of
from flinkish.spark.start_settings import refused_sizes, settings_of_start
from flinkish.storage.paths import for_spark

_LOG = logging.getLogger("flinkish.Session")

MIN_PYTHON = (3, 10)
MIN_JAVA = 17

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
    """The Spark session for a job: the active session of this thread, else the default one of this process, which are
    used as they are; else one of Spark Connect if the configuration (``spark.remote``) or the environment asks for it,
    else a local one.

    Args:
        short_lived: a JVM that is started for the session is to start fast rather than to run Spark's own code fast.

    Raises:
        ConfigurationError: the workers' interpreter can no longer be chosen, since Spark runs with another one.
        EnvironmentVersionError: Python, Java or Spark is too old, or pyarrow too new for it.
    """
    spark_version()
    check_pyarrow(pyarrow.__version__)
    py4j = logging.getLogger("py4j")
    if py4j.level == logging.NOTSET:
        # it logs each connection as INFO, between the lines of programs that call `logging.basicConfig`
        py4j.setLevel(logging.WARNING)
    try:
        session = _found_or_made(configuration, app_name, short_lived)
    except OSError as error:
        if "AF_UNIX path too long" not in str(error):
            raise
        raise ConfigurationError(
            "the path of a socket between Spark and Python is too long for this machine, which takes 107 bytes",
            where="Spark's setting spark.python.unix.domain.socket.dir",
            expected="a short directory, such as /tmp",
        ) from error
    use_object_stores_of(session, is_remote(session))
    ship_flinkish(session)
    if not is_remote(session):
        with suppress(Exception):
            look_up_installed_sources(session)
    return session


def has_session() -> bool:
    """Whether `get_session` finds one in this thread, and need not start anything."""
    return _existing_session() is not None


def activate(session: Any) -> None:
    """Make a session that another thread has made the active one of this thread, as it is of that one."""
    from pyspark.sql import SparkSession

    if not is_remote(session):
        SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


#: Session of Spark Connect -> name of the archive of flinkish that was shipped to its executors.
_shipped_to: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def ship_flinkish(spark: Any) -> None:
    """Let the executors import this very flinkish, unless it was shipped when Spark was started (``--py-files``) or the
    workers of a local master find it where this process does. What was shipped once is not shipped again.

    Spark also puts the archive on this process's Python path, behind its first entry.
    """
    if is_remote(spark):
        if spark not in _shipped_to and may_run_on_other_machines(spark):
            packed = _own_archive()
            spark.addArtifacts(packed, pyfile=True)
            _shipped_to[spark] = os.path.basename(packed)
        return
    # on a local master they have the environment of this process, and what `local_settings` adds to it
    paths = os.pathsep.join((os.environ.get("PYTHONPATH", ""), spark.conf.get("spark.executorEnv.PYTHONPATH", "")))
    folders = (*site.getsitepackages(), site.getusersitepackages(), *paths.split(os.pathsep))
    included = spark.sparkContext._python_includes
    # a zip from which this process imports flinkish keeps its name
    if (ROOT in folders and not may_run_on_other_machines(spark)) or os.path.basename(ROOT) in included:
        return
    packed = _own_archive()
    if os.path.basename(packed) not in included:
        spark.sparkContext.addPyFile(packed)


def archive_for_sources(spark: Any) -> str:
    """The name of the archive of flinkish that was shipped to the executors of a session of Spark Connect, in which
    tasks of data sources do not find it by themselves; empty where they do, or flinkish was not shipped."""
    return _shipped_to.get(spark, "")


def _own_archive() -> str:
    return str(own_archive(Home(os.environ).cache))


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

    existing = _existing_session()
    _choose_python(configuration, existing)
    if existing is not None:
        return existing
    check_versions()
    remote = configuration.get_string("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    # a server of Spark Connect on another machine has its own settings and jars
    if remote and not remote.startswith("local"):
        return SparkSession.builder.remote(remote).getOrCreate()
    if not remote and os.environ.get("SPARK_CONNECT_MODE_ENABLED"):
        return SparkSession.builder.getOrCreate()
    return _local_session(configuration, app_name, remote, short_lived)


def _existing_session() -> Any:
    """The active session of this thread, else the default one, which is that of a notebook's other threads; None if
    there is neither, or it was stopped."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()
    except PySparkRuntimeError:
        return None
    return session if is_remote(session) or session.sparkContext._jsc is not None else None


def _choose_python(configuration: Configuration, existing: Any) -> None:
    """Set the interpreter of the workers as the option ``python.executable`` says. Spark reads it when its JVM starts.

    Raises:
        ConfigurationError: the JVM already runs, with another interpreter.
    """
    wanted = configuration.get(python.EXECUTABLE)
    if wanted is None or os.environ.get(PYSPARK_PYTHON) == wanted:
        return
    if existing is not None or jvm_is_running():
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
    if not running:
        command = command_of(own)
        own |= settings_of_start(configuration, command, remote or command.master())
    with nullcontext() if running else submit_variables(own, short_lived):
        if not running:
            # first, and without settings, which PySpark would pass on its command line; only the JVM knows those that
            # were submitted, over which the program's own ones win
            if remote:
                # the secret of the server, which PySpark would make after the start of the JVM
                secret = own.get("spark.connect.authenticate.token") or secrets.token_hex()
                os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", secret)
            with _while_the_jvm_starts(), as_part_of_this_driver():
                SparkContext._ensure_initialized()
        # a program of spark-submit is connected with its JVM here, without which PySpark knows no submitted setting
        SparkContext._ensure_initialized()
        submitted = SparkConf()
        master = remote or own.get("spark.master") or submitted.get("spark.master", "local[*]") or "local[*]"
        if not running or master.startswith("local"):
            # otherwise executors, and Spark where it plans sources, start `python3` from the PATH, which need not be
            # that of the virtual environment
            named = own.get(WORKERS_PYTHON) or submitted.get(WORKERS_PYTHON)
            os.environ.setdefault(PYSPARK_PYTHON, named or sys.executable)
        builder = builder.remote(remote) if remote else builder.master(master)
        chosen, jvm = _session_settings(master), SparkContext._jvm
        if running and jvm is not None:
            jars = make_the_most_of(jvm, own)
            builder = builder.config("spark.jars", comma_list(submitted.get("spark.jars"), own.get("spark.jars"), jars))
        if jvm is not None and not has_delta(jvm):
            chosen = {key: value for key, value in chosen.items() if key not in (EXTENSIONS, CATALOG)}
        for key, value in chosen.items():
            if not submitted.contains(key):
                builder = builder.config(key, value)
        if _is_on(submitted.get(SPECULATION)) and SPECULATION not in own:
            _LOG.warning(
                "Spark's configuration switches speculative execution on, and it is switched off in this session "
                "(%s=false): state and output of different tries of a task would be stored together",
                SPECULATION,
            )
            builder = builder.config(SPECULATION, "false")
        for key, value in own.items():
            if key not in ("spark.master", *MERGED_SETTINGS):
                builder = builder.config(key, value)
        ports = {key: own.get(key) or submitted.get(key) for key in _PORTS}
        try:
            session = builder.getOrCreate()
        except Exception as error:
            known = refused_sizes(error) or (None if running else _taken_port(ports))
            if known is None:
                raise
            raise known from error
    if not running and not remote and configuration.get(flinkish.PREPARE) == "auto":
        make_archive_after_this_program(own)
    return session


#: Spark's settings of the ports that a driver listens at, with what decides whether it does.
_PORTS = ("spark.ui.port", "spark.ui.enabled", "spark.driver.port", "spark.blockManager.port", "spark.port.maxRetries")


def _taken_port(settings: Mapping[str, str | None]) -> OperationError | None:
    """The error for a driver that could not listen at a port, since others do at all that it may take; None if that is
    not the reason. Spark ends its JVM for one of its UI, so that the exception says nothing of it."""
    retries = int(settings["spark.port.maxRetries"] or 16)
    for key, default in (("spark.driver.port", 0), ("spark.blockManager.port", 0), ("spark.ui.port", 4040)):
        first = int(settings[key] or default)
        off = key == "spark.ui.port" and (settings["spark.ui.enabled"] or "true").lower() == "false"
        if first and not off and not any(map(_is_free, range(first, min(first + retries + 1, 65_536)))):
            others = f", and so are the {retries} above it" if retries else ""
            return OperationError(
                f"port {first} of this machine is in use{others}",
                where=f"Spark's setting {key}",
                expected="a port that nobody listens at",
                hint=f"end the other process, or set {key} to another port (0: any that is free)",
            )
    return None


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


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
    return {
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": for_spark(data_file("flinkish.spark", "scheduler.xml")),
        "spark.sql.codegen.cache.maxEntries": "1000",
    }


#: Spark's setting by which it runs a slow task a second time beside the first, on another machine. Spark reads it when
#: it starts, and not again.
SPECULATION = "spark.speculation"


def speculates(spark: Any) -> bool:
    """Whether the Spark of a session runs slow tasks twice, where there are several machines."""
    if is_remote(spark):
        return _is_on(spark.conf.get(SPECULATION, None))
    # the context has the setting in force, of which the session may say something else
    return _is_on(spark.sparkContext.getConf().get(SPECULATION))


def _is_on(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"


def is_remote(spark: Any) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_stopped(spark: Any) -> bool:
    """Whether a session of this driver was stopped; False for one of Spark Connect."""
    if is_remote(spark):
        return False
    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except Exception:
        return True  # its JVM has gone


def missing_delta(spark: Any) -> str:
    """Why a session has no Delta Lake, or one of another Spark, and what to do; empty if it has, and for a session of
    Spark Connect, whose JVM cannot be asked."""
    if is_remote(spark):
        return ""
    version = str(spark.version)
    try:
        # as a query looks for it: also among the jars that were added to the session
        sources = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource
        delta = sources.lookupDataSource("delta", spark._jsparkSession.sessionState().conf())
    except Exception:
        return f"the Spark session has no Delta Lake ({no_package_of_delta(version)})"
    code = delta.getProtectionDomain().getCodeSource()
    jar = "" if code is None else str(code.getLocation())
    return "" if fits_spark(jar, version) else f"{jar} is not made for Spark {version} ({no_package_of_delta(version)})"


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


def where_to_look(spark: Any, directory: str) -> str:
    """Where a job on this session can be watched, in one line for people: Spark's UI, the log files of its JVM and the
    job directory."""
    places: list[str] = []
    # a client of Spark Connect sees neither, and a platform may hide the JVM from programs
    with suppress(Exception):
        ui = spark.sparkContext.uiWebUrl
        places.append(f"Spark's UI {ui}" if ui else "Spark's UI is off (spark.ui.enabled)")
        places += [f"log {file}" for file in log_files(spark.sparkContext._jvm)]
    return ", ".join([*places, f"job directory {directory}"])
