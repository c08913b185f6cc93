"""The options of ``spark-submit`` and the environment variables with which the JVM of a driver is started.

Rule: the launcher and programs that create their session themselves (plain ``python``, a notebook) both take them from
here, so that a program finds the same Spark however it is started.
"""

from __future__ import annotations

import os
import re
import shlex
import site
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from flinkish.interpreter import ROOT
from flinkish.launch import class_archive
from flinkish.launch.home import (
    SETTINGS,
    SHIPPED_SETTINGS,
    Home,
    default_spark_settings,
    holds_delta,
    home_without_zip,
    is_shipped_with_delta,
    settings_file,
    settings_of_platform,
)
from flinkish.launch.options import SparkOptions, comma_list, read_properties
from flinkish.launch.packages import PACKAGES, own_archive, path_of, resolve
from flinkish.launch.spark_version import CATALOG, EXTENSIONS

_MERGED = ("--jars", "--packages", "--py-files", "--driver-class-path", "--remote")
#: The settings that are lists. flinkish merges them, because Spark would take the last one alone.
MERGED_SETTINGS = ("spark.jars", PACKAGES, "spark.submit.pyFiles")

#: The environment variable with the options with which PySpark starts the JVM. Its last word, `_SHELL`, takes the place
#: of a program.
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"
#: The option by which `is_complete` recognizes options that a SparkCommand has made.
_COMPLETE = ("--conf", "spark.flinkish.launched=true")

_MASTER = "spark.master"
_CLASS_PATH = "spark.driver.extraClassPath"
_SOCKETS = "spark.python.unix.domain.socket.dir"

#: Spark's settings for environment variables of a driver in cluster mode, on YARN and on Kubernetes.
_VARIABLES = ("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")

#: The URLs of masters whose only executor is the driver's JVM.
ONE_JVM = re.compile(r"local(\[[^\]]*\])?")

#: The environment variable for the Python of the workers, which is all that PySpark reads, and Spark's setting for it.
PYSPARK_PYTHON = "PYSPARK_PYTHON"
WORKERS_PYTHON = "spark.pyspark.python"

#: The address at which a local master listens, and Spark's environment variable for it, which its web page needs.
LOOPBACK = "127.0.0.1"
LOCAL_IP = "SPARK_LOCAL_IP"


class SparkCommand:
    """The command that starts the JVM of one driver.

    Args:
        environment: the environment variables of the process that starts the driver.
        spark: the user's options for Spark.
    """

    def __init__(self, environment: Mapping[str, str], spark: SparkOptions) -> None:
        self.home = Home(environment)
        self._environment = environment
        self._spark = spark
        own = self.home.own_spark_settings
        self._own_settings = _settings_of(own)
        self._settings = {**default_spark_settings(), **self._own_settings}
        named = spark.value("--properties-file")
        #: The settings of the properties file that is in force: the one that the user names, else the installation's.
        self._file_settings = self._own_settings if named is None else _settings_of(Path(named))
        #: The settings of Spark's own installation, below all others.
        self._platform_settings = settings_of_platform(environment)

    def master(self) -> str:
        """The URL of Spark's master, such as ``local[*]``."""
        named = self._in_force("--master", _MASTER)
        return named or default_spark_settings().get(_MASTER, "local[*]")

    def is_local(self) -> bool:
        """Whether the workers run on the driver's machine."""
        return self.master().startswith("local")

    def runs_in_one_jvm(self) -> bool:
        """Whether the driver's JVM is the only executor."""
        local = ONE_JVM.fullmatch(self.master()) is not None
        return local and self.remote() is None and not self.in_cluster_mode()

    def in_cluster_mode(self) -> bool:
        """Whether the driver runs in the cluster (deploy mode ``cluster``) and not in this process."""
        return self._in_force("--deploy-mode", "spark.submit.deployMode") == "cluster"

    def remote(self) -> str | None:
        """The address of the Spark Connect server; None if there is none."""
        return self._spark.value("--remote") or self._environment.get("SPARK_REMOTE")

    def packages(self) -> str:
        """The Maven packages of the settings (Delta Lake, unless there is one without it) and of the user, separated by
        commas."""
        own = self._settings.get(PACKAGES)
        if own == default_spark_settings().get(PACKAGES) and self._has_delta:
            own = None
        return comma_list(own, self._in_force("--packages", PACKAGES))

    @cached_property
    def _has_delta(self) -> bool:
        """Whether Spark has Delta Lake without flinkish's package: the platform has put it among Spark's jars, or it is
        among the packages and jars of the user or of the platform's settings."""
        jars = (self._in_force("--jars", "spark.jars") or "").split(",")
        class_path = (self._in_force("--driver-class-path", _CLASS_PATH) or "").split(os.pathsep)
        return (
            is_shipped_with_delta(self._environment)
            or ":delta-spark" in (self._in_force("--packages", PACKAGES) or "")
            or any(holds_delta(entry.strip()) for entry in (*jars, *class_path) if entry.strip())
        )

    def _in_force(self, option: str, key: str) -> str | None:
        """The value of an option that is also a configuration key: the user's, else that of the properties file, else
        the platform's."""
        named = self._spark.either(option, key)
        return self._file_settings.get(key, self._platform_settings.get(key)) if named is None else named

    def chosen(self, key: str, option: str = "") -> str | None:
        """The value of a setting that the user has chosen, by an option or a properties file; None: the platform's
        holds, or Spark's default."""
        named = self._spark.either(option, key)
        return self._file_settings.get(key) if named is None else named

    def jars(self) -> list[str]:
        """The jar files of the packages. Spark's own resolution finds them, once for the same packages."""
        packages, options = self.packages(), self._spark
        if options.value("--properties-file") is None:
            options = SparkOptions.parse([*self._own_file(), *options.tokens()])
        return resolve(packages, options, self.home.cache) if packages else []

    def python_path(self) -> list[str]:
        """The entries that the user's ``--py-files`` add to the Python path of a program run here, as spark-submit
        does: archives themselves, and the folders of single modules. What has no local path reaches the executors
        alone."""
        named = comma_list(self._spark.either("--py-files", "spark.submit.pyFiles")).split(",")
        local = [name for name in named if name.startswith("file:") or (name and ":" not in name)]
        files = [] if self.in_cluster_mode() else [os.path.abspath(path_of(name)) for name in local]
        return list(dict.fromkeys(os.path.dirname(file) if file.endswith(".py") else file for file in files))

    def arguments(self) -> list[str]:
        """The options for Spark's ``bin/spark-submit``, without the program."""
        user = self._spark
        # for settings that only the cluster's own spark-defaults.conf has
        result = ["--load-spark-defaults"]
        if user.value("--properties-file") is None:
            result += self._own_file()
        result += self._settings_below_files()
        packages, jars = self.packages(), []
        if packages and not (self.remote() or "").startswith("sc:"):  # a server elsewhere has its own jars
            jars = self.jars()
        # the jars of an only executor need not be copied, and the archive of classes covers Delta's classes as well
        on_class_path, copied = (jars, []) if self.runs_in_one_jvm() else ([], jars)
        result += self._class_path(on_class_path)
        jars_list = comma_list(copied, self._in_force("--jars", "spark.jars"))
        result += ["--jars", jars_list] if jars_list else []
        zipped = str(own_archive(self.home.cache))
        result += ["--py-files", comma_list(zipped, self._in_force("--py-files", "spark.submit.pyFiles"))]
        # the packages are among the jars: keeps Spark from resolving them again and printing its report
        result += [*user.without(*_MERGED).without_conf(_CLASS_PATH).tokens(), "--conf", f"{PACKAGES}="]
        return result + (self._shipped_settings() if self.in_cluster_mode() else [])

    def _class_path(self, jars: list[str]) -> list[str]:
        """The option for the class path of the driver's JVM: these jars, and behind them whatever class paths the user
        and the platform name, of which Spark would take the first alone."""
        named = [self._spark.value("--driver-class-path"), self._spark.conf(_CLASS_PATH)]
        named += [self._file_settings.get(_CLASS_PATH), self._platform_settings.get(_CLASS_PATH)]
        entries = [*map(path_of, jars), *(entry for path in named if path for entry in path.split(os.pathsep))]
        return ["--driver-class-path", os.pathsep.join(dict.fromkeys(entries))] if entries else []

    def _shipped_settings(self) -> list[str]:
        """Options that ship the settings of the program to a driver in the cluster, beside the user's own files."""
        files = comma_list(f"{settings_file(self.home)}#{SHIPPED_SETTINGS}", self._in_force("--files", "spark.files"))
        return ["--files", files, *_as_options({f"{prefix}{SETTINGS}": SHIPPED_SETTINGS for prefix in _VARIABLES})]

    def completed(self) -> SparkOptions:
        """The user's options, which another SparkCommand has made complete: without the settings for a local master if
        the program has chosen a cluster since then."""
        local = [] if self.is_local() else _as_options(local_settings("local", {}))
        return SparkOptions(tuple(item for item in self._spark.items if item[1] not in local))

    def _own_file(self) -> list[str]:
        return ["--properties-file", str(self.home.own_spark_settings)] if self._own_settings else []

    def _settings_below_files(self) -> list[str]:
        """Options for the settings that flinkish chooses, without those that a properties file sets, because an option
        would win over the file."""
        chosen = default_spark_settings()
        if self.is_local():
            chosen |= local_settings(self.master(), self._environment)
            # the sockets lie in the folder of the driver, which only this user can enter
            del chosen[_SOCKETS]
        above = {PACKAGES, *self._file_settings, *(self._platform_settings.keys() & {_MASTER})}
        if PACKAGES in self._settings or self._has_delta:
            # the platform's catalog stays, and its extensions stay beside that of Delta
            chosen[EXTENSIONS] = comma_list(self._platform_settings.get(EXTENSIONS), chosen[EXTENSIONS])
            above |= {CATALOG} & self._platform_settings.keys()
        else:
            above |= {EXTENSIONS, CATALOG}
        return _as_options({key: value for key, value in chosen.items() if key not in above})

    def jvm_environment(self, arguments: list[str]) -> dict[str, str]:
        """Environment variables for the process that starts the JVM with these arguments. Log settings, and
        interpreters, that the environment already has are kept."""
        result = {SUBMIT_ARGUMENTS: submit_arguments(arguments)}
        if self.in_cluster_mode():
            # what spark-submit prints is all that is seen here of the driver: where it runs, and how it ends
            return result
        for name, value in (
            ("LOG4J_CONFIGURATION_FILE", self.home.logging_file),
            ("FLINKISH_SPARK_LOG", str(self.home.spark_log)),
        ):
            if value is not None:
                result[name] = self._environment.get(name, value)
        # Spark runs the workers' Python beside the driver, too, where it plans Python data sources
        own = {**own_python(), **({LOCAL_IP: LOOPBACK} if self.is_local() else {})}
        named = self._spark.conf(WORKERS_PYTHON) or self._file_settings.get(WORKERS_PYTHON)
        own |= {PYSPARK_PYTHON: named} if named else {}
        result |= {name: self._environment.get(name, value) for name, value in own.items()}
        if self.runs_in_one_jvm():
            home = home_without_zip(self.home.cache, self._environment)
            options = class_archive.options(self.home.cache, {**self._environment, "SPARK_HOME": home})
            start = {"SPARK_HOME": home, class_archive.JVM_OPTIONS: options}
            result |= {name: value for name, value in start.items() if value}
        return result


def submit_arguments(arguments: list[str]) -> str:
    """The value of `SUBMIT_ARGUMENTS` for these complete options, which `submitted_options` reads."""
    return shlex.join([*arguments, *_COMPLETE, _SHELL])


def submitted_options(environment: Mapping[str, str]) -> SparkOptions:
    """The options with which PySpark would start a JVM in this environment."""
    tokens = shlex.split(environment.get(SUBMIT_ARGUMENTS, ""))
    return SparkOptions.parse(tokens[:-1] if tokens[-1:] == [_SHELL] else tokens)


def is_complete(options: SparkOptions) -> bool:
    """Whether these options were made by a SparkCommand, so that nothing needs to be added."""
    return _COMPLETE in options.items


def local_settings(master: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Spark settings for local masters, whose workers run on the driver's machine with the driver's Python: nothing
    listens on an address that another machine can reach, unless SPARK_LOCAL_IP names one."""
    settings = {"spark.python.daemon.module": "flinkish.launch.daemon", "spark.connect.grpc.binding.address": LOOPBACK}
    if environment.get(LOCAL_IP, LOOPBACK) == LOOPBACK:
        # Spark also binds to this address (spark.driver.bindAddress), unless that setting names another one
        settings["spark.driver.host"] = LOOPBACK
    if ONE_JVM.fullmatch(master):
        # another user of the machine can reach the ports as well; Spark makes a secret itself for these masters
        settings["spark.authenticate"] = "true"
        # what is shuffled stays on this machine and is read at once: compressing it takes longer than writing it
        settings["spark.shuffle.compress"] = "false"
    if ROOT not in (*site.getsitepackages(), site.getusersitepackages()):
        # lets the daemon import its module even if only the path of this process contains the folder
        settings["spark.executorEnv.PYTHONPATH"] = ROOT
    return settings


def own_python() -> dict[str, str]:
    """Environment variables that make the workers run this Python. On the driver's machine another one could only lack
    packages; the workers of a cluster have it at the same path, unless the user names another one."""
    return dict.fromkeys((PYSPARK_PYTHON, "PYSPARK_DRIVER_PYTHON"), sys.executable)


def _settings_of(file: Path | None) -> dict[str, str]:
    return read_properties(file.read_text()) if file is not None and file.is_file() else {}


def _as_options(settings: Mapping[str, str]) -> list[str]:
    return [token for key, value in settings.items() for token in ("--conf", f"{key}={value}")]
