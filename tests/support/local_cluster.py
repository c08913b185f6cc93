"""Spark clusters of real executor processes on this machine, so that a test can kill one of them.

`StandaloneCluster` is a standalone master with workers, as users have it. The rest is about a cluster within a driver:

A process holds one Spark session, and the tests' own is a `local[2]`: a cluster is therefore the session of a driver
script (`start_driver`), which calls `start_cluster_session`; the test looks at it from outside, by process ids.
"""

from __future__ import annotations

import os
import signal
import site
import venv
from collections.abc import Sequence
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyspark
from pyspark.sql import SparkSession

from flinkish.runtime.phases import FAULT_VARIABLE
from tests.support.processes import ProcessGroup, free_ports
from tests.support.spark_session import start_session

_EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"


def start_cluster_session(
    folder: Path, executors: int = 2, cores: int = 1, memory_mb: int = 1024, extra: dict[str, str] | None = None
) -> SparkSession:
    """Starts this process's Spark session on a cluster of its own; executor logs lie under `folder/spark-home/work`."""
    os.environ["SPARK_HOME"] = str(spark_home(folder))
    sizes = {"spark.executor.memory": f"{memory_mb}m", "spark.executor.cores": str(cores)}
    return start_session(folder, f"local-cluster[{executors},{cores},{memory_mb}]", {**sizes, **(extra or {})})


class StandaloneCluster:
    """A standalone master and its workers, one process each, on this machine.

    Args:
        folder: for the logs of all processes, and the work directories of the executors.
        workers: how many workers there are, with two cores and 1 GiB of memory each.
        pythons: for each worker, a folder that comes first on its PATH, where its executors find ``python3``.

    Example:
        with StandaloneCluster(tmp_path) as cluster:
            submit("--master", cluster.url)
    """

    def __init__(self, folder: Path, workers: int = 2, pythons: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._workers = workers
        self._pythons = pythons
        port, page = free_ports(2)
        self.url = f"spark://127.0.0.1:{port}"
        self._master = ["Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        self._processes: list[ProcessGroup] = []

    def __enter__(self) -> StandaloneCluster:
        self._start(self._master, "master").wait_for_line("I have been elected leader", 60)
        for number in range(self._workers):
            size = ["--host", "127.0.0.1", "--cores", "2", "--memory", "1g", "--webui-port", str(free_ports(1)[0])]
            work = str(self.folder / f"work-{number}")
            python = self._pythons[number] if self._pythons else None
            self._start(["Worker", *size, "--work-dir", work, self.url], f"worker-{number}", python)
        for worker in self._processes[1:]:
            worker.wait_for_line("Successfully registered with master", 60)
        return self

    def __exit__(self, *raised: object) -> None:
        for process in reversed(self._processes):
            process.kill()

    def executors(self) -> list[psutil.Process]:
        """The processes of the executors that run now, on whichever worker."""
        return [each for worker in self._processes[1:] for each in worker.jvms(_EXECUTOR_CLASS)]

    def _start(self, arguments: list[str], name: str, python: Path | None = None) -> ProcessGroup:
        # a Python of the workers' own has no PySpark but that of Spark's installation
        home = spark_home(self.folder, *(["python"] if self._pythons else []))
        kind, *options = arguments
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}", *options]
        self.folder.mkdir(parents=True, exist_ok=True)
        # a worker must not know of the tests' environment, only of Spark
        unknown = dict.fromkeys(("PYTHONPATH", "PYSPARK_PYTHON", FAULT_VARIABLE), "")
        variables = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", **unknown}
        if python is not None:
            variables["PATH"] = f"{python}{os.pathsep}{os.environ['PATH']}"
        process = ProcessGroup(command, self.folder / f"{name}.log", variables)
        self._processes.append(process)
        return process


def python_environment(folder: Path, packages: Sequence[str]) -> Path:
    """Makes a virtual environment that has these packages and nothing else of the tests' own, and returns the folder of
    its ``python3``. The packages are linked, not installed."""
    venv.create(folder, symlinks=True, with_pip=False)
    (target,) = folder.glob("lib/python3*/site-packages")
    for package in packages:
        for entry in Path(site.getsitepackages()[0]).glob(f"{package}*"):
            if entry.name.removesuffix(".py").partition("-")[0].partition(".")[0] == package:
                (target / entry.name).symlink_to(entry)
    return folder / "bin"


def executor_pids(driver: ProcessGroup) -> list[int]:
    """Returns the process ids of the executors that run under a driver now."""
    return sorted(process.pid for process in driver.jvms(_EXECUTOR_CLASS))


def kill_executor(driver: ProcessGroup, pid: int) -> None:
    """Kills -9 one executor of a driver, as a lost machine does; Spark starts another in its place."""
    if pid not in executor_pids(driver):
        raise ValueError(f"process {pid} is no executor of the driver {driver.pid}: those are {executor_pids(driver)}")
    os.kill(pid, signal.SIGKILL)


def executor_logs(folder: Path) -> str:
    """Returns what the executors of the session in `folder` have printed, for the message of a failed test."""
    logs = sorted((folder / "spark-home" / "work").glob("*/*/stderr"))
    return "\n".join(f"== {log.parent.name}\n{log.read_text(errors='replace')[-4_000:]}" for log in logs)


def spark_home(folder: Path, *more: str) -> Path:
    """Links to the installed PySpark without its zip (`home_of_sessions`), but for the folders named. Executors log to
    `$SPARK_HOME/work`, which is not the tests' to fill."""
    home = folder / "spark-home"
    home.mkdir(parents=True, exist_ok=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name in {"bin", "jars", "sbin", "data", "RELEASE", *more} and not (home / part.name).exists():
            (home / part.name).symlink_to(part)
    return home
