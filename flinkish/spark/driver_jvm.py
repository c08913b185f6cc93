"""Prepares the JVM of a driver whose session flinkish makes: a new JVM is started with the launcher's options, a JVM
that already runs gets as much of them as it still can.

Rule: the process's environment, the user's options and the program's configuration win over flinkish's options, and
the process's environment is restored afterwards. A session that the user has made is not touched.
"""

from __future__ import annotations

import atexit
import codecs
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flinkish.common.text import standard_stream
from flinkish.launch import class_archive
from flinkish.launch.home import DELTA_CLASS
from flinkish.launch.options import SparkOptions, as_properties
from flinkish.launch.spark_command import (
    LOCAL_IP,
    LOOPBACK,
    MERGED_SETTINGS,
    SUBMIT_ARGUMENTS,
    SparkCommand,
    is_complete,
    submit_arguments,
    submitted_options,
)

#: The end of the location of log4j's configuration when nobody has replaced Spark's own.
_SPARKS_LOGGING = "org/apache/spark/log4j2-defaults.properties"
_APPLICATION_MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster"
#: The properties of a JVM whose driver runs in the cluster (deploy mode ``cluster``), on YARN and on Kubernetes.
_IN_CONTAINER = {"spark.submit.deployMode": "cluster", "spark.kubernetes.submitInDriver": "true"}
#: The end of the class name of the class loader of ``spark-submit``, to which jars can be added.
_OPEN_LOADER = "MutableURLClassLoader"
#: The folders of drivers begin with this; a socket's path has at most 107 characters, so that a TMPDIR may be too long.
_FOLDERS = "/tmp/flinkish-driver-"

#: The folder of this process, once it has one.
_own: _OwnFolder | None = None


def jvm_is_running() -> bool:
    """Whether this process has a JVM, or was started by one (``spark-submit``)."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def as_part_of_this_driver() -> Iterator[None]:
    """A JVM that is started inside this context leaves signals and the console to the driver.

    It ignores SIGTERM, as it ignores SIGINT: a signal to the whole process group is the driver's, which ends its jobs
    in order. The JVM ends with the driver, whose pipe it reads, however that ends. What it and its Python processes
    write to standard error goes through the driver, so that nothing is shown of how they end when the driver does.
    """
    from pyspark import java_gateway

    start = vars(java_gateway)["Popen"]

    def started(*arguments: Any, preexec_fn: Any = None, **options: Any) -> Any:
        def in_the_child() -> None:
            if preexec_fn is not None:
                preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        process = start(*arguments, preexec_fn=in_the_child, **{"stderr": subprocess.PIPE, **options})
        if process.stderr is not None:
            thread = threading.Thread(target=_copy_errors, args=(process.stderr.fileno(),), name="flinkish-jvm-errors")
            thread.daemon = True
            thread.start()
        return process

    if os.name == "posix":
        setattr(java_gateway, "Popen", started)  # noqa: B010 - it is none of the module's public names
    try:
        yield
    finally:
        setattr(java_gateway, "Popen", start)  # noqa: B010


#: What the JVM prints of the end of a query that has raised something after its failure.
_OF_QUERY = b'Exception in thread "stream execution thread for '

#: set when this process ends
_ends = threading.Event()


def _copy_errors(pipe: int) -> None:
    """Copy lines, without the traces of queries that have failed: the driver raises these failures itself."""
    atexit.register(_ends.set)
    left_out = False
    with suppress(OSError), open(pipe, "rb", closefd=False) as lines:
        for line in lines:
            of_trace = line.startswith((b"\tat ", b"\t... ", b"Caused by: ", b"\tSuppressed: "))
            left_out = left_out and of_trace or line.startswith(_OF_QUERY)
            if not left_out and not _ends.is_set():
                os.write(2, line)


@contextmanager
def submit_variables(settings: Mapping[str, str], short_lived: bool = False) -> Iterator[None]:
    """Inside this context, PySpark starts its JVM with flinkish's options.

    All settings for Spark are passed in a file that only this user can read and that is deleted at the end, because
    every user of the machine can read a command line.

    Args:
        settings: the program's own settings for Spark, which win over those of its start.
        short_lived: whether the JVM is to start fast rather than to run Spark's own code fast.
    """
    # it imports PySpark, without which the modules that import this one work in the minicluster
    from flinkish.launch.daemon import DRIVERS_OUTPUT

    given, command = submitted_options(os.environ), command_of(settings)
    # with a server's address in the environment, the JVM would not take a master
    variables: dict[str, str | None] = {"SPARK_REMOTE": None}
    if is_complete(given) and not settings.keys() & set(MERGED_SETTINGS):
        options = command.completed()
        if not command.is_local() and os.environ.get(LOCAL_IP) == LOOPBACK:
            variables[LOCAL_IP] = None  # the start was for a local master
    else:
        options = SparkOptions.parse(command.arguments())
        variables |= command.jvm_environment([])
    if short_lived and command.runs_in_one_jvm():
        options_of_jvm = variables.get(class_archive.JVM_OPTIONS) or os.environ.get(class_archive.JVM_OPTIONS, "")
        variables[class_archive.JVM_OPTIONS] = class_archive.short_lived(options_of_jvm)
    folder = _own_folder()
    file = Path(folder, "spark.properties")
    above = {"spark.python.unix.domain.socket.dir": folder} if command.is_local() else {}
    before: dict[str, str | None] = {}
    try:
        options = _settings_in_a_file(options, file, above)
        if command.is_local():
            variables |= _import_path()
            variables[DRIVERS_OUTPUT] = _output_of_workers(folder)
        variables[SUBMIT_ARGUMENTS] = submit_arguments(options.tokens())
        before = {name: os.environ.get(name) for name in variables}
        _set_variables(variables)
        yield
    finally:
        _set_variables(before)
        file.unlink(missing_ok=True)


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _settings_in_a_file(options: SparkOptions, file: Path, defaults: Mapping[str, str]) -> SparkOptions:
    """Write the properties file that the options name and then their settings to ``file``, and return the options with
    this file in place of both. ``defaults`` come first."""
    named = options.value("--properties-file")
    pairs = [value.partition("=") for name, value in options.items if name == "--conf" and value]
    parts = [
        as_properties(defaults),
        Path(named).read_text() if named else "",
        as_properties({key.strip(): value for key, _, value in pairs}),
    ]
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as written:
        written.write("\n\n".join(parts))
    rest = options.without("--conf", "--properties-file")
    return SparkOptions((("--properties-file", str(file)), *rest.items))


def _own_folder() -> str:
    """The folder of this driver, which only this user can enter: for the Unix sockets over which the JVM talks with its
    Python processes (Spark would take the folder for temporary files, where it leaves the sockets of drivers that are
    killed), and for the settings with which the JVM is started. Folders of drivers that do not live any more are
    removed here."""
    global _own
    if _own is None:
        for folder in Path(_FOLDERS).parent.glob(Path(_FOLDERS).name + "*"):
            _remove_abandoned(folder)
        _own = _OwnFolder()
    return _own.path


class _OwnFolder:
    """A folder with a lock that this process holds until it ends, however that happens."""

    def __init__(self) -> None:
        while True:
            self.path = tempfile.mkdtemp(prefix=Path(_FOLDERS).name, dir=Path(_FOLDERS).parent)
            with suppress(FileNotFoundError):  # another driver has removed it before the lock was held
                self._lock = os.open(self.path, os.O_RDONLY)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                os.stat(self.path)
                break
        atexit.register(_remove_own, self.path, os.getpid())


def _remove_own(path: str, pid: int) -> None:
    if os.getpid() == pid:  # a process that this one has forked may use the folder's sockets, but not remove them
        shutil.rmtree(path, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:  # it is another user's, or has been removed
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass  # its driver lives
    finally:
        os.close(lock)


class _OutputOfWorkers:
    """Copies what workers print from a named pipe to this process's standard output (`standard_stream`)."""

    #: What this process itself writes into the pipe to learn that everything before it is copied.
    _MARK = b"\0flinkish\0"

    def __init__(self, path: str) -> None:
        self.path = path
        os.mkfifo(path, 0o600)
        # also open for writing: the pipe does not end when no worker is left
        self._pipe = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._seen = threading.Semaphore(0)
        threading.Thread(target=self._copy, name="flinkish-output-of-workers", daemon=True).start()

    def wait(self, timeout_s: float = 5.0) -> None:
        """Wait until what the workers have printed so far is copied."""
        os.write(self._pipe, self._MARK)
        self._seen.acquire(timeout=timeout_s)

    def _copy(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        left = b""
        while True:
            *parts, left = (left + os.read(self._pipe, 65_536)).split(self._MARK)
            # what may be the beginning of a mark is looked at again with what follows it
            begin = left.rfind(b"\0", max(0, len(left) - len(self._MARK)))
            done, left = (left, b"") if begin < 0 else (left[:begin], left[begin:])
            with suppress(OSError, ValueError):
                stream = standard_stream()
                stream.write(decode(b"".join((*parts, done))))
                stream.flush()
            for _ in parts:
                self._seen.release()


_output: _OutputOfWorkers | None = None


def _output_of_workers(folder: str) -> str:
    """The path of the pipe into which the workers of this process print."""
    global _output
    if _output is None:
        _output = _OutputOfWorkers(os.path.join(folder, "stdout"))
    return _output.path


def wait_for_output_of_workers() -> None:
    """Wait until all that user functions have printed in workers of this machine is printed here."""
    if _output is not None:
        _output.wait()


def end_of_worker(pid: int) -> tuple[int, int] | None:
    """How a worker of this machine has ended: its exit code (below 0: the signal), and the most bytes that it has held;
    None if that is not known."""
    from flinkish.launch.daemon import ENDED_WORKERS

    if _own is not None:
        with suppress(OSError, ValueError):
            for line in reversed(Path(_own.path, ENDED_WORKERS).read_text().strip().split("\n")):
                process, code, kib = map(int, line.split())
                if process == pid:
                    return code, kib * 1024
    return None


def _import_path() -> dict[str, str]:
    """Variables with which each Python that the JVM starts imports nothing from its current directory, as it would
    because it is started with ``-m``; only what this process itself imports from there, and from the folder of the
    program, is found."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    folders = [os.path.dirname(os.path.realpath(main))] if main else []
    own = {os.path.realpath(entry) for entry in sys.path}
    wanted = [folder for folder in dict.fromkeys([*folders, os.path.realpath(os.getcwd())]) if folder in own]
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(dict.fromkeys([*given, *wanted]))}


def make_archive_after_this_program(settings: Mapping[str, str]) -> None:
    """Have the archive of classes made after this program if it is not there. Only drivers that are their own executor
    use it.

    Args:
        settings: the program's own settings for Spark.
    """
    command = command_of(settings)
    if command.runs_in_one_jvm():
        class_archive.make_after_this_program(command.home.cache, dict(os.environ))


def make_the_most_of(jvm: Any, settings: Mapping[str, str]) -> list[str]:
    """Add Delta and flinkish's logging to a JVM that somebody else has started, where it has none of its own.

    Returns the jar files that the executors need, too; none if Delta was there or cannot be added.
    """
    command = SparkCommand(os.environ, _options(settings))
    _log_as_launched(jvm, command)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if has_delta(jvm) or not loader.getClass().getName().endswith(_OPEN_LOADER):
        return []
    # as Spark does with the jars of its option --jars
    jars = command.jars()
    for jar in jars:
        loader.addURL(jvm.java.net.URI(jar if jar.startswith("file:") else Path(jar).as_uri()).toURL())
    return jars


def has_delta(jvm: Any) -> bool:
    """Whether the class path of a JVM holds Delta Lake."""
    return jvm.java.lang.Thread.currentThread().getContextClassLoader().getResource(DELTA_CLASS) is not None


def command_of(settings: Mapping[str, str]) -> SparkCommand:
    """The command that starts this process's JVM: the options of its start, and above them the program's settings."""
    return SparkCommand(os.environ, SparkOptions((*submitted_options(os.environ).items, *_options(settings).items)))


def _options(settings: Mapping[str, str]) -> SparkOptions:
    return SparkOptions(tuple(("--conf", f"{key}={value}") for key, value in settings.items()))


def _log_as_launched(jvm: Any, command: SparkCommand) -> None:
    # under spark-submit, Spark sets up its logging when the first of its classes logs something, and would then
    # replace what is set up here
    spark = jvm.java.lang.Class.forName("org.apache.spark.util.Utils$").getField("MODULE$").get(None)
    spark.initializeLogIfNecessary(False, True)
    # the logging context of Spark's classes, not that of the class loader that this call comes through
    loader = jvm.java.lang.Class.forName("org.apache.spark.SparkContext").getClassLoader()
    context = jvm.org.apache.logging.log4j.LogManager.getContext(loader, False)
    location = context.getConfiguration().getConfigurationSource().getLocation()
    # the log of a driver in a cluster is that of its container, which the cluster collects
    in_container = any(jvm.java.lang.System.getProperty(key) == value for key, value in _IN_CONTAINER.items())
    if str(location).endswith(_SPARKS_LOGGING) and not in_container:
        jvm.java.lang.System.setProperty("flinkish.spark.log", str(command.home.spark_log))
        context.setConfigLocation(jvm.java.net.URI(Path(command.home.logging_file).as_uri()))


def end_application(message: str, staging: str) -> None:
    """End the application on YARN whose master is the JVM of this process, as FAILED, so that YARN does not start it
    once more. Without such a JVM nothing happens.

    Args:
        message: for the diagnostics of the application.
        staging: the directory with the files of the application, which is deleted.

    Spark has no way to say that a failure would come again: it leaves an application master that has failed registered,
    which is for YARN one that was lost.
    """
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    if jvm is None:
        return
    # if the internals of Spark are other ones, YARN starts the application once more
    with suppress(Exception):
        companion = jvm.java.lang.Class.forName(f"{_APPLICATION_MASTER}$")
        field = companion.getDeclaredField(f"{_APPLICATION_MASTER.replace('.', '$')}$$master")
        field.setAccessible(True)
        failed = jvm.org.apache.hadoop.yarn.api.records.FinalApplicationStatus.FAILED
        field.get(None).unregister(failed, message)
        # as Spark does behind its own last word
        path = jvm.org.apache.hadoop.fs.Path(staging)
        path.getFileSystem(jvm.org.apache.hadoop.conf.Configuration()).delete(path, True)


def log_files(jvm: Any) -> list[str]:
    """The files that Spark's JVM logs to, as its logging is configured; [] if it writes to the console only."""
    loader = jvm.java.lang.Class.forName("org.apache.spark.SparkContext").getClassLoader()
    context = jvm.org.apache.logging.log4j.LogManager.getContext(loader, False)
    appenders = context.getConfiguration().getAppenders().values()
    return [str(one.getFileName()) for one in appenders if one.getClass().getSimpleName().endswith("FileAppender")]
